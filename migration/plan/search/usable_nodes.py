"""The nodes that the pods of a workload may use: with devices of its classes, and with the labels and taints that it takes. Pure.

What of these devices is free is another question, `placement` answers it. A cordon does not count, since it ends.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from allocator.pods.node_eligibility import is_eligible, node_rejection
from kube.api.core import Node, Pod
from kube.api.meta import encode
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import build_pods
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.plan.facts.volumes import on_reachable_nodes
from migration.plan.model.node_labels import with_labels
from migration.plan.model.plan import Held
from migration.plan.search.moments import Candidate
from migration.plan.search.placement import Placer

_CORDON: Final = "node.kubernetes.io/unschedulable"
_BARRED: Final = "no workload that moves may use it: {}"
_LET_IN: Final = (
    "it stays with its device plugin until a workload may use it: let one select and tolerate it, or remove the taint; "
    "then plan again from a new snapshot"
)
_CAUSES: Final = 2
"""Reasons of workloads that the reason of a node names."""


class EligibleNodes:
    """The nodes that take pods by their labels and taints, with the labels of one stage."""

    def __init__(
        self, cluster: AssessedCluster, labels: Mapping[str, Mapping[str, str]] = {}
    ) -> None:
        """Take the nodes of a cluster.

        Args:
            cluster: The cluster.
            labels: Node to the labels that its switch sets; empty for today's.
        """
        self._pods = cluster.state.pods
        self._nodes = {
            node.metadata.name: uncordoned(node, labels.get(node.metadata.name, {}))
            for node in cluster.state.nodes
        }
        self.names = frozenset(self._nodes)
        self._by_shape: dict[bytes, frozenset[str]] = {}

    def taking(self, workload: AssessedWorkload) -> frozenset[str]:
        """Return the nodes that take the pods of a workload, devices and volumes aside; all of them if no pod is known."""
        pod = self.pod_of(workload)
        return self.names if pod is None else self.taking_pod(pod)

    def taking_pod(self, pod: Pod) -> frozenset[str]:
        """Return the nodes that take a pod, devices aside."""
        shape = encode((pod.spec.node_selector, pod.spec.affinity, pod.spec.tolerations))
        if shape not in self._by_shape:
            self._by_shape[shape] = frozenset(
                name for name, node in self._nodes.items() if is_eligible(pod, node)
            )
        return self._by_shape[shape]

    def rejection(self, workload: AssessedWorkload, name: str) -> str:
        """Return the reason that a node does not take the pods of a workload; empty if it does."""
        pod = self.pod_of(workload)
        rejection = node_rejection(pod, self._nodes[name]) if pod is not None else None
        return rejection.subject if rejection is not None else ""

    def pod_of(self, workload: AssessedWorkload) -> Pod | None:
        """Return a pod of a workload without a node: that of its template, or one that runs."""
        single = msgspec.structs.replace(workload, pods=1)
        running = (self._pods[name] for name in sorted(workload.members) if name in self._pods)
        pod = next(build_pods(single), None) or next(running, None)
        return without_node(pod) if pod is not None else None


class UsableNodes:
    """The nodes that workloads may use, with the labels of one stage."""

    def __init__(
        self,
        cluster: AssessedCluster,
        placer: Placer,
        labels: Mapping[str, Mapping[str, str]] = {},
    ) -> None:
        """Take the nodes of a cluster.

        Args:
            cluster: The cluster.
            placer: Knows the devices of nodes.
            labels: Node to the labels that its switch sets; empty for today's.
        """
        self._placer = placer
        self._eligible = EligibleNodes(cluster, labels)
        self._by_workload: dict[str, frozenset[str]] = {}

    def serving(self, workload: AssessedWorkload) -> frozenset[str]:
        """Return the nodes with devices for a workload that take its pods."""
        return self._placer.serving_nodes(workload) & self.eligible(workload)

    def eligible(self, workload: AssessedWorkload) -> frozenset[str]:
        """Return the nodes that take the pods of a workload, devices aside; all of them if no pod is known."""
        reference = workload.key.reference
        if reference not in self._by_workload:
            pod = self._eligible.pod_of(workload)
            nodes = self._eligible.taking(workload)
            places = self._placer.reachable_places(workload)
            if pod is not None and places:
                pods = (on_reachable_nodes(pod, selectors) for selectors in places)
                nodes = frozenset[str]().union(*map(self._eligible.taking_pod, pods))
            self._by_workload[reference] = nodes
        return self._by_workload[reference]

    def admitting(self, workload: AssessedWorkload) -> frozenset[str]:
        """Return the nodes with devices for a workload that take its pods, volumes aside."""
        return self._placer.serving_nodes(workload) & self._eligible.taking(workload)

    def rejection(self, workload: AssessedWorkload, name: str) -> str:
        """Return the reason that a node does not take the pods of a workload; empty if it does."""
        return self._eligible.rejection(workload, name)

    def claim_nodes(self, workloads: Iterable[AssessedWorkload]) -> Mapping[str, frozenset[str]]:
        """Return workload, as `Kind/namespace/name`, to the nodes for its claims, and namespace to those of all its."""
        nodes_of: dict[str, frozenset[str]] = {}
        for workload in workloads:
            if workload.result is not None and workload.outcome is not Outcome.NATIVE:
                nodes = self.serving(workload)
                nodes_of[workload.key.reference] = nodes
                namespace = workload.key.namespace
                nodes_of[namespace] = nodes_of.get(namespace, frozenset()) | nodes
        return nodes_of

    def all_nodes(self, workloads: Iterable[AssessedWorkload]) -> Mapping[str, frozenset[str]]:
        """Return workload, as `Kind/namespace/name`, to the nodes that its pods may use, by claims or by device keys."""
        return {
            workload.key.reference: self.serving(workload)
            for workload in workloads
            if workload.result is not None
        }


def held_barred(
    candidates: Iterable[Candidate],
    workloads: Collection[AssessedWorkload],
    usable: UsableNodes,
    placer: Placer,
    used: Collection[str],
) -> Iterator[Held]:
    """Yield the nodes with devices for workloads, and with labels or taints against the pods of all of them.

    Args:
        candidates: The nodes that could be switched.
        workloads: The workloads that get claims, or that Kubernetes serves on both sides.
        usable: The nodes that they may use.
        placer: Knows the devices of nodes.
        used: Nodes that pods run on.
    """
    with_devices = [(workload, placer.serving_nodes(workload)) for workload in workloads]
    open_nodes = frozenset[str]().union(*map(usable.admitting, workloads))
    for entry in candidates:
        name = entry.node.name
        kept_out = [workload for workload, nodes in with_devices if name in nodes]
        if kept_out and name not in open_nodes and name not in used:
            causes = dict.fromkeys(usable.rejection(workload, name) for workload in kept_out)
            text = "; ".join(sorted(causes)[:_CAUSES])
            yield Held(object=f"Node//{name}", reason=_BARRED.format(text), fix=_LET_IN)


def without_node(pod: Pod) -> Pod:
    """Return a pod that has no node yet."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


def uncordoned(node: Node, labels: Mapping[str, str]) -> Node:
    """Return a node that takes pods, with additional labels."""
    taints = tuple(taint for taint in node.spec.taints or () if taint.key != _CORDON)
    spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
    return with_labels(msgspec.structs.replace(node, spec=spec), labels)
