"""Placement of the pods of a cluster with device plugins, DRA and draining nodes. Pure.

Pods keep their node as long as it can serve them; the others are placed by the allocator's search.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.simulate import simulate_in_order
from cli.answers.assessment.assess import AssessedCluster, usable_classes
from cli.answers.assessment.capacity import (
    MAX_ALL_PODS,
    build_pods,
    build_templates,
    class_names,
    release_claims,
)
from cli.answers.assessment.outcomes import AssessedWorkload, Outcome
from cli.answers.devices import DeviceState, device_state, published_devices
from cli.inputs.cluster_state import ClusterState
from kube.api.core import Node, Pod, Toleration
from kube.api.resource import ResourceClaimTemplate

_STAGE: Final = "simulated-stage"
_SWITCHED: Final = "dra"
_LEGACY: Final = "legacy"
_BATCH: Final = 64
"""Pods that are placed before it is seen whose workloads have found a node."""


class PodKey(NamedTuple):
    """A pod of a workload, by its number."""

    workload: str
    number: int


class PlannedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is to be placed.

    Attributes:
        has_claims: It has claims once its namespace is opted in; else Kubernetes serves it wherever
            there are devices.
        is_pinned: A DaemonSet's, whose place is its node.
    """

    key: PodKey
    namespace: str
    pod: Pod
    has_claims: bool
    is_pinned: bool


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of a migration; other nodes with devices have a device plugin.

    Attributes:
        switched: Nodes with a DRA driver.
        draining: Nodes that take no pods.
        opted_in: Namespaces whose pods get claims.
        labels: Node to the labels that a switch gives it.
    """

    switched: frozenset[str]
    draining: frozenset[str] = frozenset()
    opted_in: frozenset[str]
    labels: Mapping[str, Mapping[str, str]]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The places of pods at a stage.

    Attributes:
        nodes: Of the pods that have one.
        unplaced: The others.
        free: Devices without a consumer, of nodes that take pods.
        devices: All devices of these nodes.
    """

    nodes: Mapping[PodKey, str]
    unplaced: frozenset[PodKey]
    free: int
    devices: int


class Placer:
    """The pods and devices of an assessed cluster."""

    def __init__(self, cluster: AssessedCluster) -> None:
        """Prepare the pods of all workloads that can be placed.

        Args:
            cluster: With the inventory of all nodes.
        """
        state = cluster.state
        classes = usable_classes(state.classes, state.cluster(Features()))
        workloads = [
            workload
            for workload in cluster.workloads
            if workload.result is not None and class_names(workload) <= classes
        ]
        # Pods that are not placed anew, such as those that would be refused, keep their claims.
        placed_pods = frozenset(pod for workload in workloads for pod in workload.members)
        claims = release_claims(state.claims, placed_pods)
        self._state: ClusterState = msgspec.structs.replace(state, claims=claims)
        pods = (pod for workload in workloads for pod in _pods_of(workload))
        self.pods = tuple(islice(pods, MAX_ALL_PODS))
        self.not_counted = tuple(
            workload.key.reference
            for workload in cluster.workloads
            if workload.result is not None and workload not in workloads
        )
        self._templates: dict[tuple[str, str], ResourceClaimTemplate] = {}
        for workload in workloads:
            self._templates.update(build_templates(workload))

    def place(self, stage: Stage, located: Mapping[PodKey, str]) -> Placement:
        """Place all pods: first those that stay where they are, then the others.

        Args:
            stage: What nodes and namespaces are.
            located: Pod to its node so far.
        """
        cluster = self._cluster(stage)
        open_nodes = frozenset(cluster.nodes)
        staying: dict[PodKey, str] = {}
        moving: list[PlannedPod] = []
        for pod in self.pods:
            node = located.get(pod.key)
            if pod.is_pinned and node in stage.draining:
                continue  # It is neither evicted nor served until its node is back.
            if node in open_nodes and (pod.is_pinned or _may_stay(pod, node, stage)):
                staying[pod.key] = node
            else:
                moving.append(pod)
        by_key = {pod.key: pod for pod in self.pods}
        nodes = self._place(cluster, ((by_key[key], node) for key, node in staying.items()))
        moving += [by_key[key] for key in staying if key not in nodes]
        # Pods with claims have fewer nodes to choose from.
        moving.sort(key=lambda pod: (not pod.has_claims, pod.key))
        nodes |= self._place(cluster, ((_movable(pod, stage), None) for pod in moving))
        devices = published_devices(cluster)
        states = [device_state(device, cluster.usage) for device in devices]
        return Placement(
            nodes=nodes,
            unplaced=frozenset(pod.key for pod in moving if pod.key not in nodes),
            free=sum(state is DeviceState.FREE for state in states),
            devices=len(states),
        )

    def _place(
        self, cluster: Cluster, pods: Iterable[tuple[PlannedPod, str | None]]
    ) -> dict[PodKey, str]:
        """Allocate the devices of pods, each on its node if it has one; return those with a node."""
        nodes: dict[PodKey, str] = {}
        full: set[str] = set()
        remaining = iter(pods)
        while batch := tuple(islice(remaining, _BATCH)):
            # Where one pod of a workload finds nothing, those after it find nothing, either.
            pods_and_nodes = [
                (pod, node) for pod, node in batch if node or pod.key.workload not in full
            ]
            question = SimulationInput(
                pods=tuple(
                    pod.pod if not node else _at(pod.pod, node) for pod, node in pods_and_nodes
                ),
                templates=self._templates,
                classes=self._state.classes,
            )
            answer = simulate_in_order(cluster, question, SimulationOptions())
            for (pod, node), placed in zip(pods_and_nodes, answer.pods, strict=True):
                if placed.node is not None:
                    nodes[pod.key] = placed.node
                elif not node:
                    full.add(pod.key.workload)
        return nodes

    def _cluster(self, stage: Stage) -> Cluster:
        nodes = tuple(
            _at_stage(node, stage)
            for node in self._state.nodes
            if node.metadata.name not in stage.draining
        )
        return msgspec.structs.replace(self._state, nodes=nodes).cluster(Features())


def _pods_of(workload: AssessedWorkload) -> Iterator[PlannedPod]:
    for number, pod in enumerate(build_pods(workload)):
        yield PlannedPod(
            key=PodKey(workload.key.reference, number),
            namespace=workload.key.namespace,
            pod=pod,
            has_claims=workload.outcome is not Outcome.NATIVE,
            is_pinned=workload.key.kind == "DaemonSet",
        )


def _may_stay(pod: PlannedPod, node: str, stage: Stage) -> bool:
    is_claimed = pod.has_claims and pod.namespace in stage.opted_in
    return not pod.has_claims or (is_claimed == (node in stage.switched))


def _at(pod: Pod, node: str) -> Pod:
    """Return a pod that runs on a node, whatever it demanded when it was scheduled."""
    spec = msgspec.structs.replace(
        pod.spec,
        node_name=node,
        node_selector=None,
        affinity=None,
        tolerations=(Toleration(operator="Exists"),),
    )
    return msgspec.structs.replace(pod, spec=spec)


def _movable(pod: PlannedPod, stage: Stage) -> PlannedPod:
    """Return a pod that only nodes take which can serve it at a stage."""
    if not pod.has_claims:
        return pod
    place = _SWITCHED if pod.namespace in stage.opted_in else _LEGACY
    selector = {**(pod.pod.spec.node_selector or {}), _STAGE: place}
    spec = msgspec.structs.replace(pod.pod.spec, node_selector=selector)
    return msgspec.structs.replace(pod, pod=msgspec.structs.replace(pod.pod, spec=spec))


def _at_stage(node: Node, stage: Stage) -> Node:
    name = node.metadata.name
    is_switched = name in stage.switched
    labels = {
        **node.labels,
        **(stage.labels.get(name, {}) if is_switched else {}),
        _STAGE: _SWITCHED if is_switched else _LEGACY,
    }
    metadata = msgspec.structs.replace(node.metadata, labels=labels)
    return msgspec.structs.replace(node, metadata=metadata)
