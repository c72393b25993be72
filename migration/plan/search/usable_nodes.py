"""The nodes that the pods of a workload may use: with devices of its classes, and with the labels and taints that it takes. Pure.

What of these devices is free is another question, `placement` answers it. A cordon does not count, since it ends.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.nodes.amounts import whole_value
from allocator.nodes.pod_requests import requested_amounts
from allocator.pods.claims import pod_claims
from allocator.pods.node_eligibility import demands_on_nodes, is_eligible, node_rejection
from allocator.simulation.attempt import class_names
from answers.model.cluster_state import ClusterState
from findings.text import join_names
from kube.api.core import Node, Pod, Toleration
from kube.api.workloads import DAEMON_SET
from kube.quantity import ZERO
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import build_pods
from migration.assessment.capacity import class_names as workload_classes
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.unserved import LackingClasses
from migration.cluster.node_devices import COUNT, GPU
from migration.cluster.volumes import on_reachable_nodes
from migration.plan.model.node_labels import with_labels, without_cordon
from migration.plan.model.parts import AwaitedNodes
from migration.plan.model.plan import RESTARTED_KINDS, Held, PlannedNode
from migration.plan.search.moments import Candidate
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import Stage
from translation.vocabularies.nvidia import MIG_PREFIX

_BARRED: Final = "no workload that moves may use it: {}"
_BARRED_TEMPLATES: Final = "no workload that moves may use it by its template: {}; running pods of {} may, with what something adds to them"
_LET_IN: Final = (
    "it stays with its device plugin until a workload may use it: let one select and tolerate it, or remove the taint; "
    "then plan again from a new snapshot"
)
_WRITE_DOWN: Final = (
    "plan goes by templates: write into them what is added to running pods, or for tolerations of device keys set "
    "translation.tolerations to always; then plan again from a new snapshot"
)
"""The fix where running pods may use a node, and their templates may not."""
_CAUSES: Final = 2
"""Reasons of workloads that the reason of a node names."""
_Requests = tuple[tuple[str, int], ...]
"""The device keys of a pod, with their amounts."""


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
        self._next_pods: dict[str, Pod | None] = {}
        self._taking_running: dict[str, frozenset[str]] = {}

    def taking(self, workload: AssessedWorkload) -> frozenset[str]:
        """Return the nodes that take the pods of a workload, devices and volumes aside; all of them if no pod is known."""
        pod = self.pod_of(workload)
        return self.names if pod is None else self.taking_pod(pod)

    def taking_pod(self, pod: Pod) -> frozenset[str]:
        """Return the nodes that take a pod, devices aside."""
        shape = demands_on_nodes(pod.spec)
        if shape not in self._by_shape:
            self._by_shape[shape] = frozenset(
                name for name, node in self._nodes.items() if is_eligible(pod, node)
            )
        return self._by_shape[shape]

    def offers(self, keys: Collection[str], names: Iterable[str]) -> bool:
        """Return True if one of some nodes offers each of these device keys today."""
        return any(
            all((self._nodes[name].status.allocatable or {}).get(key, ZERO) > ZERO for key in keys)
            for name in names
        )

    def mig_keys(self, name: str) -> frozenset[str]:
        """Return the names of MIG devices that a node offers today."""
        allocatable = self._nodes[name].status.allocatable or {}
        return frozenset(
            key
            for key, amount in allocatable.items()
            if key.startswith(MIG_PREFIX) and amount > ZERO
        )

    def offering(self, workload: AssessedWorkload) -> frozenset[str]:
        """Return the nodes that take the pods of a workload, volumes aside, and offer each of its device keys today."""
        taking = self.taking(workload)
        return frozenset(name for name in taking if self.offers(workload.keys, (name,)))

    def homes(self, workload: AssessedWorkload) -> frozenset[str]:
        """Return the nodes of the pods of a workload; the name is empty of one without a node."""
        names = workload.members & self._pods.keys()
        return frozenset(self._pods[name].spec.node_name for name in names)

    def rejection(self, workload: AssessedWorkload, name: str) -> str:
        """Return the reason that a node does not take the pods of a workload; empty if it does."""
        reference = workload.key.reference
        if reference not in self._next_pods:
            self._next_pods[reference] = self.pod_of(workload)
        pod = self._next_pods[reference]
        rejection = node_rejection(pod, self._nodes[name]) if pod is not None else None
        return rejection.subject if rejection is not None else ""

    def takes_running(self, workload: AssessedWorkload, name: str) -> bool:
        """Return True if a node takes a running pod of a workload, its template aside."""
        reference = workload.key.reference
        if reference not in self._taking_running:
            running = (self._pods[key] for key in workload.members & self._pods.keys())
            # Most pods of a workload have the same nodes.
            places = {self.taking_pod(without_node(pod)) for pod in running}
            self._taking_running[reference] = frozenset[str]().union(*places)
        return name in self._taking_running[reference]

    def pod_of(self, workload: AssessedWorkload) -> Pod | None:
        """Return a pod of a workload without a node: that of its template, or one that runs.

        One that is not translated gets tolerations from whoever adds them to pods with its keys, so without a live pod
        no taint keeps it away.
        """
        single = msgspec.structs.replace(workload, pods=1)
        running = (self._pods[name] for name in sorted(workload.members) if name in self._pods)
        pod = next(build_pods(single), None) or next(running, None)
        if pod is None and (pod := workload.template) is not None:
            anywhere = (Toleration(operator="Exists"),)
            pod = msgspec.structs.replace(
                pod, spec=msgspec.structs.replace(pod.spec, tolerations=anywhere)
            )
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
        return self.with_devices(workload) & self.eligible(workload)

    def lacking(self, workload: AssessedWorkload) -> LackingClasses:
        """Return the DeviceClasses of a workload without devices on the nodes that take its pods."""
        # Devices that several nodes reach have the empty name for theirs.
        eligible = self.eligible(workload) | {""}
        nodes = {name: self._placer.nodes_of_classes([name]) for name in workload_classes(workload)}
        names = frozenset(name for name, own in nodes.items() if own.isdisjoint(eligible))
        return LackingClasses(names, are_elsewhere=all(nodes[name] for name in names))

    def with_devices(self, workload: AssessedWorkload) -> frozenset[str]:
        """Return the nodes with devices for a workload: of the classes of its claims, and of a size that it requests.

        One DeviceClass serves MIG devices of all sizes, and a key names its own. Nodes of a DRA driver offer no keys.
        """
        nodes = self._placer.serving_nodes(workload)
        sizes = frozenset(key for key in workload.keys if key.startswith(MIG_PREFIX))
        if not sizes:
            return nodes
        return frozenset(
            name
            for name in nodes
            if not (own := self._eligible.mig_keys(name)) or not own.isdisjoint(sizes)
        )

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
        return self.with_devices(workload) & self._eligible.taking(workload)

    def rejection(self, workload: AssessedWorkload, name: str) -> str:
        """Return the reason that a node does not take the pods of a workload; empty if it does."""
        return self._eligible.rejection(workload, name)

    def takes_running(self, workload: AssessedWorkload, name: str) -> bool:
        """Return True if a node takes a running pod of a workload, its template aside."""
        return self._eligible.takes_running(workload, name)

    def waiting_pods(self, state: ClusterState) -> dict[str, frozenset[str]]:
        """Return the pods that wait for claims, as `Pod/namespace/name`, each with the nodes that may serve these."""
        waiting = {}
        for name, pod in sorted(state.pods.items()):
            claims = pod_claims(pod, state.claims, state.templates).open
            classes = {entry for claim in claims for entry in class_names(claim)}
            if classes and not pod.spec.node_name:
                taking = self._eligible.taking_pod(pod)
                waiting["/".join(("Pod", *name))] = self._placer.nodes_of_classes(classes) & taking
        return waiting

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

    def is_offered(self, workload: AssessedWorkload) -> bool:
        """Return True if a node that takes the pods of a workload offers its device keys today."""
        return self._eligible.offers(workload.keys, self.eligible(workload))

    def awaited(
        self,
        workloads: Iterable[AssessedWorkload],
        starting: Collection[str],
        others: Mapping[str, AwaitedNodes],
        stage: Stage,
    ) -> Mapping[str, tuple[AwaitedNodes, ...]]:
        """Return namespace to the nodes that it waits for before it is opted in as a whole.

        Pods that no node would serve today, either, wait for none. Those of a DaemonSet are on nodes of their own, and lose
        their devices with the opt-in once they end, so a switched node elsewhere is not enough for it.

        Args:
            workloads: The workloads that may get claims.
            starting: The workloads with pods to come, as `Kind/namespace/name`, without DaemonSets.
            others: Namespace to nodes that it waits for, besides those for the next pods of its workloads.
            stage: The nodes and namespaces that have moved.
        """
        awaited = {name: (entry,) for name, entry in others.items()}
        for workload in workloads:
            key = workload.key
            gets_claims = workload.result is not None and workload.outcome is not Outcome.NATIVE
            if gets_claims and key.reference in starting and not stage.has_moved(workload):
                nodes = self._placer.claim_nodes(workload, self.eligible(workload))
                if nodes or self.is_offered(workload):
                    entry = AwaitedNodes(nodes=nodes, workload=key.reference)
                    awaited[key.namespace] = (*awaited.get(key.namespace, ()), entry)
            if gets_claims and key.kind == DAEMON_SET and not stage.has_moved(workload):
                # Pods that wait for nodes with a DRA driver lose nothing.
                homes = self._eligible.homes(workload) - {""}
                has_use = not homes.isdisjoint(stage.switched)
                if homes and not has_use and self.serving(workload) - homes:
                    entry = AwaitedNodes(nodes=homes, workload=key.reference)
                    awaited[key.namespace] = (*awaited.get(key.namespace, ()), entry)
        return awaited

    def out_of_reach(
        self,
        workloads: Iterable[AssessedWorkload],
        waiting: Collection[str],
        in_reach: frozenset[str],
    ) -> Iterator[str]:
        """Yield the workloads with pods in wait for devices of nodes without a switch.

        Args:
            workloads: The workloads that may get claims.
            waiting: The workloads with pods that wait, as `Kind/namespace/name`.
            in_reach: The nodes that are switched, or may be.
        """
        for workload in workloads:
            reference, kind = workload.key.reference, workload.key.kind
            is_created_again = reference in waiting and kind in RESTARTED_KINDS - {DAEMON_SET}
            gets_claims = workload.outcome is not Outcome.NATIVE
            if is_created_again and gets_claims and self.serving(workload) - in_reach:
                nodes = self._placer.claim_nodes(workload, self.eligible(workload))
                if nodes and nodes.isdisjoint(in_reach):
                    yield reference

    def all_nodes(self, workloads: Iterable[AssessedWorkload]) -> Mapping[str, frozenset[str]]:
        """Return workload, as `Kind/namespace/name`, to the nodes that its pods may use, by claims or by device keys."""
        return {
            workload.key.reference: self.serving(workload)
            for workload in workloads
            if workload.result is not None
        }

    def offered_nodes(
        self, workloads: Collection[AssessedWorkload]
    ) -> Mapping[str, frozenset[str]]:
        """Return those of `all_nodes` with devices on some node, or under the device keys of the workload."""
        nodes_of = self.all_nodes(workloads)
        return {
            workload.key.reference: nodes_of[workload.key.reference]
            for workload in workloads
            if nodes_of.get(workload.key.reference)
            or (workload.result is not None and self.is_offered(workload))
        }


class NeededNodes:
    """The nodes that workloads could use as long as these are not switched."""

    def __init__(
        self,
        cluster: AssessedCluster,
        today: UsableNodes,
        live_nodes: Mapping[str, Sequence[str]],
    ) -> None:
        """Take the nodes of a cluster.

        Args:
            cluster: The cluster.
            today: The nodes that workloads may use today.
            live_nodes: Workload, as `Kind/namespace/name`, to the nodes of its pods.
        """
        self._sources = {node.node: node.source for node in cluster.nodes}
        self._today = today
        self._live_nodes = live_nodes
        self._pods = cluster.state.pods
        self._offered = {node.metadata.name: _most_offered(node) for node in cluster.state.nodes}
        self._by_shape: dict[tuple[frozenset[object], ...], frozenset[str]] = {}

    def by_node(
        self, workloads: Iterable[AssessedWorkload], nodes: Collection[PlannedNode]
    ) -> dict[str, list[str]]:
        """Return the nodes of some that workloads could use, each with these as `Kind/namespace/name`.

        Args:
            workloads: The workloads.
            nodes: The same nodes in each call.
        """
        needs: dict[str, list[str]] = {node.name: [] for node in nodes}
        for workload in workloads:
            for name in needs.keys() & self._needed_by(workload, nodes):
                needs[name].append(workload.key.reference)
        return {name: references for name, references in needs.items() if references}

    def _needed_by(
        self, workload: AssessedWorkload, nodes: Iterable[PlannedNode]
    ) -> frozenset[str]:
        """Return the nodes that a workload could use.

        One that would be rejected needs what its keys name, of the system that serves it today: a share needs a node
        of HAMi, though others offer the same resource name. A node with fewer devices than each pod requests serves none.
        """
        requests = self._requests_of(workload)
        if workload.result is not None:
            serving = self._today.serving(workload)
            return frozenset(name for name in serving if self._is_large_enough(name, requests))
        keys, taking = workload.keys, self._today.eligible(workload)
        live = filter(None, self._live_nodes.get(workload.key.reference, ()))
        sources: frozenset[object] = frozenset(map(self._sources.get, live))
        shape = sources, keys, taking, requests
        if shape not in self._by_shape:
            self._by_shape[shape] = frozenset(
                node.name
                for node in nodes
                if (not sources or node.source in sources)
                and node.name in taking
                and not keys.isdisjoint(node.resources)
                and self._is_large_enough(node.name, requests)
            )
        return self._by_shape[shape]

    def _requests_of(self, workload: AssessedWorkload) -> frozenset[_Requests]:
        """Return the device keys that pods of a workload request, with their amounts; empty if no pod is known."""
        running = (self._pods[name] for name in workload.members if name in self._pods)
        pods = (*running, *((workload.template,) if workload.template is not None else ()))
        requests = {
            tuple(sorted((key, amounts[key]) for key in workload.keys & amounts.keys()))
            for amounts in (requested_amounts(pod).scalars for pod in pods)
        }
        return frozenset(filter(None, requests))

    def _is_large_enough(self, name: str, requests: frozenset[_Requests]) -> bool:
        """Return True if a node offers as many devices as one of some pods requests; a key that it does not offer does not count."""
        offered = self._offered.get(name, {})
        return not requests or any(
            all(offered.get(key, amount) >= amount for key, amount in own) for own in requests
        )


def _most_offered(node: Node) -> Mapping[str, int]:
    """Return the amounts that a node may offer; devices that are not healthy count, since they may come back.

    The kubelet counts all devices of a plugin as capacity, and healthy ones alone as allocatable. A driver publishes those that
    are not healthy with a taint, or leaves them out, so what a node serves after its switch goes by allocatable; but a node is not
    too small for ever because of a device that is to be repaired.

    Source: kubernetes-1.37.1, pkg/kubelet/cm/devicemanager/manager.go (GetCapacity).
    """
    amounts = (node.status.capacity or {}, node.status.allocatable or {})
    offered: dict[str, int] = {}
    for key, amount in (entry for own in amounts for entry in own.items()):
        offered[key] = max(offered.get(key, 0), whole_value(amount))
    count = node.labels.get(f"{GPU}{COUNT}", "")
    if GPU in offered and count.isdecimal():
        offered[GPU] = max(offered[GPU], int(count))
    return offered


def held_barred(
    candidates: Iterable[Candidate],
    workloads: Collection[AssessedWorkload],
    usable: UsableNodes,
    used: Collection[str],
) -> Iterator[Held]:
    """Yield the nodes with devices for workloads, and with labels or taints against the pods of all of them.

    Args:
        candidates: The nodes that could be switched.
        workloads: The workloads that get claims, or that Kubernetes serves on both sides.
        usable: The nodes that they may use.
        used: Nodes that pods run on.
    """
    with_devices = [(workload, usable.with_devices(workload)) for workload in workloads]
    open_nodes = frozenset[str]().union(*map(usable.admitting, workloads))
    for entry in candidates:
        name = entry.node.name
        kept_out = [workload for workload, nodes in with_devices if name in nodes]
        if kept_out and name not in open_nodes and name not in used:
            causes = dict.fromkeys(usable.rejection(workload, name) for workload in kept_out)
            text = "; ".join(sorted(causes)[:_CAUSES])
            reason, fix = _BARRED.format(text), _LET_IN
            if running := [
                workload.key.reference
                for workload in kept_out
                if usable.takes_running(workload, name)
            ]:
                reason, fix = _BARRED_TEMPLATES.format(text, join_names(running)), _WRITE_DOWN
            yield Held(object=f"Node//{name}", reason=reason, fix=fix)


def without_node(pod: Pod) -> Pod:
    """Return a pod that has no node yet."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


def uncordoned(node: Node, labels: Mapping[str, str]) -> Node:
    """Return a node that takes pods, with additional labels."""
    return with_labels(without_cordon(node), labels)
