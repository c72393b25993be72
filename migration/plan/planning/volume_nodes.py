"""Running pods with volumes of a zone, and with one node alone that takes them and has devices for them there. Pure.

Kubernetes starts such a pod again on this node only, as one with a volume of the node itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.simulate import simulate_in_order
from answers.cluster.device_classes import select_devices
from answers.cluster.devices import published_devices
from kube.api.core import Affinity, NodeAffinity, Pod
from kube.api.meta import encode
from kube.api.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import build_pods, build_templates, class_names
from migration.assessment.outcomes import AssessedWorkload
from migration.assessment.what_if import release_placed
from migration.cluster.evidence import RUN_TO_COMPLETION, mapping_at
from migration.cluster.owners import OwnerKey
from migration.cluster.volumes import Volumes
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import node_of
from migration.plan.search.usable_nodes import EligibleNodes, uncordoned, without_node
from migration.plan.stage import stage_allocator

_NUMBER: Final = "simulated-number"
"""Label of each node with a number of its own: a name may be longer than a value of a label."""
_PLACES: Final = "simulated-places-{}"
"""Label of the nodes that some pods may use. A list of them would be read again for each node."""


def pods_of_one_node(
    cluster: AssessedCluster, groups: Mapping[str, Workload], volumes: Volumes
) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the pods that run until they are ended, on the only node for their volumes and devices.

    Args:
        cluster: The cluster with the inventory of all nodes.
        groups: Workload, as `Kind/namespace/name`, to its pods.
        volumes: The cluster's volumes.
    """
    running = [
        (workload, name, node, reached)
        for workload in cluster.workloads
        if workload.result is not None
        for name, node, reached in _pods_with_places(groups[workload.key.reference], volumes)
    ]
    if not running:
        return frozenset()
    usable = _usable_nodes(cluster, {workload.key: workload for workload, *_ in running})
    pods = [
        (workload, name, node, reached & usable[workload.key])
        for workload, name, node, reached in running
    ]
    idle = _IdleCluster(
        cluster, (places for *_, node, places in pods if node in places and len(places) > 1)
    )
    return frozenset(
        (workload.key.namespace, name)
        for workload, name, node, places in pods
        if places == {node} or (node in places and idle.only_node(workload, places) == node)
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

    def __init__(self, cluster: AssessedCluster, places: Iterable[frozenset[str]]) -> None:
        """Take the nodes and the inventory of a cluster.

        Args:
            cluster: The cluster.
            places: The sets of nodes that are asked for.
        """
        self._numbers = {
            node.metadata.name: str(number) for number, node in enumerate(cluster.state.nodes)
        }
        self._keys = {
            names: _PLACES.format(number) for number, names in enumerate(dict.fromkeys(places))
        }
        labels = {name: {_NUMBER: number} for name, number in self._numbers.items()}
        for names, key in self._keys.items():
            for name in names:
                labels[name][key] = ""
        nodes = tuple(uncordoned(node, labels[node.metadata.name]) for node in cluster.state.nodes)
        self._state = msgspec.structs.replace(cluster.state, nodes=nodes, claims={}, pods={})
        self._resources = self._state.node_resources()
        self._questions: dict[OwnerKey, tuple[bytes, SimulationInput]] = {}
        self._only: dict[tuple[bytes, frozenset[str]], str | None] = {}

    @cached_property
    def _devices(self) -> Cluster:
        return self._state.cluster(Features())

    def only_node(self, workload: AssessedWorkload, places: frozenset[str]) -> str | None:
        """Return the node that a pod of a workload fits on, if it fits on one alone of some nodes."""
        if workload.key not in self._questions:
            self._questions[workload.key] = self._question(workload)
        shape, question = self._questions[workload.key]
        if (shape, places) not in self._only:
            place = NodeSelectorRequirement(key=self._keys[places], operator="Exists")
            node = self._node_for(question, place)
            if node is not None:
                number = self._numbers[node]
                others = NodeSelectorRequirement(key=_NUMBER, operator="NotIn", values=(number,))
                if self._node_for(question, place, others) is not None:
                    node = None
            self._only[shape, places] = node
        return self._only[shape, places]

    def _question(self, workload: AssessedWorkload) -> tuple[bytes, SimulationInput]:
        """Return a pod of a workload, after its spec and those of its claims.

        It has no affinity: the nodes that this rejects are not asked for.
        """
        single = msgspec.structs.replace(workload, pods=1)
        pods = tuple(_with_affinity(without_node(pod), None) for pod in build_pods(single))
        templates = dict(build_templates(workload))
        specs = {name: template.spec for (_, name), template in templates.items()}
        question = SimulationInput(
            pods=pods,
            templates=templates,
            classes=self._state.classes,
            resources=self._resources,
        )
        return encode(([pod.spec for pod in pods], specs)), question

    def _node_for(
        self, question: SimulationInput, *requirements: NodeSelectorRequirement
    ) -> str | None:
        """Return the first node with some labels that the pod of a question fits on; None if there is none."""
        term = NodeSelectorTerm(match_expressions=requirements)
        affinity = Affinity(
            node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,)))
        )
        pods = tuple(_with_affinity(pod, affinity) for pod in question.pods)
        answer = simulate_in_order(
            self._devices, msgspec.structs.replace(question, pods=pods), SimulationOptions()
        )
        release_placed(self._devices, answer.claims)
        return next((pod.node for pod in answer.pods), None)


def _with_affinity(pod: Pod, affinity: Affinity | None) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=affinity))


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
