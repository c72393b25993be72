"""Pods without devices that drains evict, and the nodes that have the CPU and memory for them. Pure.

Pods with devices come first: these are few, and the plan is about them. Of the others the largest one is placed first,
on the node with the most CPU, as kube-scheduler's LeastAllocated does with one pod after the other. Not modelled:
affinity between pods, and topology spread.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest, pod_request
from allocator.nodes.resources_fit import has_resources
from allocator.pods.node_eligibility import (
    counted_rejection,
    demands_on_nodes,
    named_nodes,
)
from answers.model.cluster_state import ClusterState
from findings.text import count_text, join_names
from kube.api.core import Pod
from kube.api.node_selector import NodeSelector
from migration.assessment.unserved import COLOCATE
from migration.cluster.volumes import on_reachable_nodes
from migration.plan.model.node_labels import with_labels
from migration.plan.model.plan import PlannedWork, Wave
from migration.plan.stage.stage import Stage
from translation.model.required_labels import required_labels

_UNLIMITED: Final = 2**63
_LOSSES: Final = 3
"""The most pods whose losses a note names."""


class PodName(NamedTuple):
    """A pod by namespace and name."""

    namespace: str
    name: str


class _OtherPod(NamedTuple):
    """A pod that a drain evicts.

    Attributes:
        node: The node that it runs on now.
        shape: All of it that its nodes depend on.
        selects: The labels that it selects its nodes by.
    """

    name: PodName
    node: str
    pod: Pod
    request: PodRequest
    shape: bytes
    selects: frozenset[str]


class OtherPods:
    """The pods without devices of a cluster, as far as drains evict them and a controller creates them again."""

    def __init__(
        self,
        state: ClusterState,
        names: Iterable[PodName],
        volume_nodes: Mapping[tuple[str, str], Sequence[NodeSelector]] = {},
    ) -> None:
        """Take pods of a cluster; all of them have nodes.

        Args:
            state: The cluster with all its nodes, those without devices among them.
            names: The pods.
            volume_nodes: Namespace and name of pods with volumes that some nodes do not reach, to the nodes of these.
        """
        self._nodes = {node.metadata.name: node for node in state.nodes}
        self._pods = {
            name: _other_pod(name, on_reachable_nodes(state.pods[name], volume_nodes.get(name, ())))
            for name in sorted(names)
            if name in state.pods and state.pods[name].spec.node_name in self._nodes
        }
        self._eligible: dict[bytes, frozenset[str]] = {}
        self._base: tuple[Mapping[PodName, str], Mapping[str, NodeResources]] | None = None

    def evicted(
        self, before: Mapping[PodName, str], during: Mapping[PodName, str]
    ) -> Mapping[PodName, str]:
        """Return the pods that leave their node, with their new ones; empty for those without one.

        Args:
            before: The pods that have left their node, with their new ones.
            during: The same while nodes are drained.
        """
        return {name: node for name, node in during.items() if node != self._node_of(name, before)}

    def _node_of(self, name: PodName, moved: Mapping[PodName, str]) -> str:
        """Return the node of a pod; empty while it has none."""
        return moved.get(name, self._pods[name].node)

    def resources(
        self, moved: Mapping[PodName, str], resources: Mapping[str, NodeResources]
    ) -> Mapping[str, NodeResources]:
        """Return the resources of nodes with pods on the nodes that they have moved to.

        Args:
            moved: Pods that have left their node to their new ones; empty where there is none.
            resources: The nodes with all these pods where they were at first.
        """
        if not moved:
            return resources
        if self._base is not None and self._base[0] is moved:
            return self._base[1]
        changed = dict(resources)
        for name, node in moved.items():
            pod = self._pods[name]
            changed[pod.node] = changed[pod.node].without_pod(pod.request)
            if node:
                changed[node] = changed[node].with_pod(pod.request)
        self._base = (moved, changed)
        return changed

    def place(
        self,
        stage: Stage,
        moved: Mapping[PodName, str],
        resources: Mapping[str, NodeResources],
    ) -> Mapping[PodName, str]:
        """Return the pods that have left their node to their new ones, once some nodes are drained.

        Args:
            stage: The nodes that are drained, and the labels of those that are switched.
            moved: The pods that have left their node before.
            resources: The nodes with all pods that stay, those with devices among them.
        """
        draining = stage.draining
        leaving = [
            pod
            for name, pod in self._pods.items()
            if not (node := self._node_of(name, moved)) or node in draining
        ]
        if not leaving:
            return moved
        free, places = dict(resources), dict(moved)
        for pod in sorted(leaving, key=_size, reverse=True):
            nodes = [
                name
                for name in self._eligible_nodes(pod, stage)
                if name not in draining and name in free and has_resources(pod.request, free[name])
            ]
            places[pod.name] = best = max(
                nodes, key=lambda name: (_free(free[name]), name), default=""
            )
            if best:
                free[best] = free[best].with_pod(pod.request)
        return places

    def _eligible_nodes(self, pod: _OtherPod, stage: Stage) -> frozenset[str]:
        """Return the nodes that take a pod, resources aside; replicas have the same ones."""
        if pod.shape not in self._eligible:
            # Each pod with a volume of its node has a shape of its own, and names that node.
            names = named_nodes(pod.pod)
            candidates = self._nodes.keys() if names is None else self._nodes.keys() & names
            self._eligible[pod.shape] = frozenset(
                name for name in candidates if counted_rejection(pod.pod, self._nodes[name]) is None
            )
        eligible = self._eligible[pod.shape]
        if not pod.selects:
            return eligible
        switched = {
            name: stage.labels[name]
            for name in stage.switched & self._nodes.keys()
            if not pod.selects.isdisjoint(stage.labels.get(name, ()))
        }
        taking = (
            name
            for name, labels in switched.items()
            if counted_rejection(pod.pod, with_labels(self._nodes[name], labels)) is None
        )
        return (eligible - switched.keys()) | frozenset(taking)


def _other_pod(name: PodName, pod: Pod) -> _OtherPod:
    spec = pod.spec
    free = msgspec.structs.replace(pod, spec=msgspec.structs.replace(spec, node_name=""))
    shape = demands_on_nodes(free.spec)
    selects = frozenset(entry.key for entry in required_labels(spec))
    return _OtherPod(name, spec.node_name, free, pod_request(pod), shape, selects)


def _size(pod: _OtherPod) -> tuple[int, int, PodName]:
    amounts = pod.request.amounts
    return amounts.cpu_milli, amounts.memory, pod.name


def _free(resources: NodeResources) -> int:
    cpu = resources.free_cpu_milli
    return _UNLIMITED if cpu is None else cpu


def others_notes(
    wave: Wave, names: Sequence[PodName], work: Iterable[PlannedWork]
) -> Iterator[str]:
    """Yield a note on the pods without devices that the drains of a wave evict.

    Args:
        wave: The wave.
        names: These pods.
        work: The pods of its nodes that lose something when they are evicted.
    """
    if not names:
        return
    evicted = {f"Pod/{name.namespace}/{name.name}" for name in names}
    losses = [
        f"{item.pod.partition('/')[2]}: {', '.join(item.reasons)}"
        for item in work
        if item.pod in evicted and not item.waits
    ]
    names_text = join_names([f"{name.namespace}/{name.name}" for name in names])
    text = f"its drains evict {count_text(len(names), 'pod')} without devices, too ({names_text})"
    if not wave.unplaced_pods:
        yield "; ".join(
            (f"{text}; other nodes have the CPU and memory for them", *losses[:_LOSSES])
        )
        return
    waiting = [pod for pod in wave.unplaced_pods if pod not in wave.stranded_pods]
    if waiting:
        text += (
            f"; no other node takes {_pod_names(waiting)}, or has the CPU and memory: they wait until a node that "
            "takes them is back, see unplacedPods in plan.yaml"
        )
    unselected = [pod for pod in wave.stranded_pods if pod not in wave.uncolocated_pods]
    if unselected:
        text += (
            f"; no node has the labels that {_pod_names(unselected)} select, also after this wave, so they wait "
            "for ever, see strandedPods in plan.yaml"
        )
    if wave.uncolocated_pods:
        text += (
            f"; no node that they may use offers the batch or mid amounts that {_pod_names(wave.uncolocated_pods)} request, since "
            f"koordlet leaves switched nodes, so they wait for ever, see strandedPods in plan.yaml: first {COLOCATE}"
        )
    yield "; ".join((text, *losses[:_LOSSES]))


def _pod_names(pods: Sequence[str]) -> str:
    return join_names([pod.partition("/")[2] for pod in pods])
