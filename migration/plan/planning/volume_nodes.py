"""Running pods with volumes of a zone, and with one node alone that takes them and has devices for them there. Pure.

Kubernetes starts such a pod again on this node only, as one with a volume of the node itself.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.simulate import simulate_in_order
from answers.cluster.device_classes import select_devices
from answers.cluster.devices import published_devices
from kube.api.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import build_pods, build_templates, class_names
from migration.assessment.evidence import mapping_at
from migration.assessment.outcomes import AssessedWorkload
from migration.assessment.what_if import release_placed
from migration.assessment.workloads import OwnerKey, Workload
from migration.plan.facts.ready_pods import node_of
from migration.plan.facts.volumes import Volumes, on_reachable_nodes
from migration.plan.facts.work import RUN_TO_COMPLETION
from migration.plan.search import stage_allocator
from migration.plan.search.usable_nodes import EligibleNodes, uncordoned, without_node

_NAME: Final = "simulated-name"
"""Label of each node with its name."""


def pods_of_one_node(
    cluster: AssessedCluster, groups: Mapping[str, Workload], volumes: Volumes
) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the pods that run until they are ended, on the only node for their volumes and devices.

    Args:
        cluster: The cluster with the inventory of all nodes.
        groups: Workload, as `Kind/namespace/name`, to its pods.
        volumes: The cluster's volumes.
    """
    pods = [
        (workload, name, node, reached)
        for workload in cluster.workloads
        if workload.result is not None
        for name, node, reached in _pods_with_places(groups[workload.key.reference], volumes)
    ]
    if not pods:
        return frozenset()
    usable = _usable_nodes(cluster, {workload.key: workload for workload, *_ in pods})
    idle = _IdleCluster(cluster)
    return frozenset(
        (workload.key.namespace, name)
        for workload, name, node, reached in pods
        for places in (reached & usable[workload.key],)
        if places == {node} or (node in places and idle.is_only_node(node, workload, places))
    )


def _usable_nodes(
    cluster: AssessedCluster, workloads: Mapping[OwnerKey, AssessedWorkload]
) -> Mapping[OwnerKey, frozenset[str]]:
    """Return some workloads to the nodes that take their pods and have devices of their classes, volumes aside."""
    serving, eligible = _nodes_of_classes(cluster), EligibleNodes(cluster)
    nowhere = frozenset[str]()
    return {
        key: eligible.taking(workload)
        & nowhere.union(*(serving.get(name, nowhere) for name in class_names(workload)))
        for key, workload in workloads.items()
    }


class _IdleCluster:
    """A cluster without pods, with all nodes open and all devices free.

    A node may have devices of a class, and too few or too small ones for a pod.
    """

    def __init__(self, cluster: AssessedCluster) -> None:
        """Take the nodes and the inventory of a cluster."""
        nodes = tuple(uncordoned(node, {_NAME: node.metadata.name}) for node in cluster.state.nodes)
        state = msgspec.structs.replace(cluster.state, nodes=nodes, claims={}, pods={})
        self._classes = state.classes
        self._resources = state.node_resources()
        self._state = state
        self._first: dict[tuple[OwnerKey, frozenset[str]], str | None] = {}

    @cached_property
    def _devices(self) -> Cluster:
        return self._state.cluster(Features())

    def is_only_node(self, node: str, workload: AssessedWorkload, places: frozenset[str]) -> bool:
        """Return True if a pod of a workload fits on a node, and on none of some others."""
        return (
            self._node_for(workload, places) == node
            and self._node_for(workload, places - {node}) is None
        )

    def _node_for(self, workload: AssessedWorkload, places: frozenset[str]) -> str | None:
        """Return the first of some nodes that a pod of a workload fits on; None if there is none."""
        key = (workload.key, places)
        if key not in self._first:
            requirement = NodeSelectorRequirement(
                key=_NAME, operator="In", values=tuple(sorted(places))
            )
            term = NodeSelectorTerm(match_expressions=(requirement,))
            selector = NodeSelector(node_selector_terms=(term,))
            single = msgspec.structs.replace(workload, pods=1)
            question = SimulationInput(
                pods=tuple(
                    on_reachable_nodes(without_node(pod), [selector]) for pod in build_pods(single)
                ),
                templates=dict(build_templates(workload)),
                classes=self._classes,
                resources=self._resources,
            )
            answer = simulate_in_order(self._devices, question, SimulationOptions())
            release_placed(self._devices, answer.claims)
            self._first[key] = next((pod.node for pod in answer.pods), None)
        return self._first[key]


def _pods_with_places(
    group: Workload, volumes: Volumes
) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield the running pods with volumes of some nodes: their name, their node, and the nodes of all their volumes."""
    for pod in group.pods:
        spec, node = mapping_at(pod.document, "spec"), node_of(pod)
        if not node or spec.get("restartPolicy") in RUN_TO_COMPLETION:
            continue
        places = [
            volumes.reached_by(selector)
            for selector in volumes.selectors(group.key.namespace, spec)
        ]
        if places:
            yield pod.name, node, frozenset.intersection(*places)


def _nodes_of_classes(cluster: AssessedCluster) -> Mapping[str, frozenset[str]]:
    """Return DeviceClass to the nodes with devices of it."""
    selected = select_devices(
        cluster.state.classes, published_devices(cluster.state.cluster(Features()))
    )
    return {
        name: frozenset(stage_allocator.node_of(device) or "" for device in devices)
        for name, devices in selected.items()
        if not isinstance(devices, str)
    }
