"""Notes on smaller cards for pods of nodes that get one driver with nodes of another system. Pure.

HAMi and Koordinator keep pods on nodes of their own. Their DRA driver is the same, so afterwards
kube-scheduler gives a pod any node whose devices its claims fit.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator.pods.node_eligibility import counted_rejection
from findings.text import join_names
from kube.api.core import Node, Pod
from kube.api.meta import encode
from kube.api.workloads import DAEMON_SET
from kube.quantity import Quantity
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.node_devices import GPU, NodeDevices, Source
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.plan.model.node_labels import with_labels
from migration.plan.model.plan import PlannedNode, PlannedWorkload, Wave
from translation.compiling.claims import Claim

_MEMORY: Final = "memory"
_OF_CARDS: Final = (
    "nvidia.com/gpu.product",
    "node.koordinator.sh/gpu-model",
    "nvidia.com/gpu.memory",
)
"""Labels of nodes that tell their cards."""
_HOSTNAME: Final = "kubernetes.io/hostname"
_MARKS: Final = {"gpu": Source.HAMI, "node.koordinator.sh/gpu-model": Source.KOORDINATOR}
"""Labels that a node keeps when it is switched, to the system that had it."""


class _Nodes(NamedTuple):
    """The nodes that a plan switches, and the nodes of the cluster by name.

    Attributes:
        served: The nodes that are switched already, to the sizes of their cards by driver.
    """

    planned: Sequence[PlannedNode]
    assessed: Mapping[str, NodeDevices]
    stored: Mapping[str, Node]
    served: Mapping[str, Mapping[str, Sequence[Quantity]]]


class _Smaller(NamedTuple):
    """The nodes with smaller cards, the size of their smallest card, and that of the largest one in use.

    Attributes:
        label: A label that the nodes in use have, and those with smaller cards have not; empty without one.
        leaves: The nodes in use get no driver of the pods' claims, so these leave their cards.
        is_switched: The nodes with smaller cards have the driver already.
    """

    nodes: tuple[str, ...]
    size: Quantity
    used: Quantity
    label: str
    leaves: bool
    is_switched: bool


class _Form(NamedTuple):
    """The criteria for nodes with smaller cards."""

    drivers: frozenset[str]
    sources: frozenset[Source | None]
    used: Quantity
    conditions: bytes


class SmallerCards:
    """The workloads with smaller cards ahead.

    Args:
        waves: All waves of the plan.
        cluster: The cluster.
        live_nodes: Workload to the nodes of its pods.
    """

    def __init__(
        self,
        waves: Sequence[Wave],
        cluster: AssessedCluster,
        live_nodes: Mapping[str, Iterable[str]],
    ) -> None:
        planned = [node for entry in waves for node in entry.nodes]
        self._nodes = _Nodes(
            planned,
            {entry.node: entry for entry in cluster.nodes},
            {node.metadata.name: node for node in cluster.state.nodes},
            _served_sizes(cluster, {entry.name for entry in planned}),
        )
        self._pods = cluster.state.pods
        self._assessed = {workload.key.reference: workload for workload in cluster.workloads}
        self._live_nodes = live_nodes
        self._sizes: dict[_Form, Mapping[str, Quantity]] = {}

    def with_notes(self, wave: Wave) -> Wave:
        """Return a wave with notes on its workloads with smaller cards ahead."""
        workloads: list[PlannedWorkload] = []
        names: dict[_Smaller, list[str]] = {}
        for entry in wave.workloads:
            own = frozenset(self._live_nodes[entry.object])
            smaller = self._smaller(self._assessed[entry.object], own)
            if smaller is None:
                workloads.append(entry)
                continue
            names.setdefault(smaller, []).append(entry.object)
            loss = f"they may get cards of {smaller.size}, and have cards of {smaller.used} today"
            losses = (*entry.losses, loss) if entry.is_restarted else entry.losses
            workloads.append(msgspec.structs.replace(entry, losses=losses))
        notes = (_note(own, smaller) for smaller, own in names.items())
        return msgspec.structs.replace(
            wave, workloads=tuple(workloads), notes=(*wave.notes, *notes)
        )

    def _smaller(self, workload: AssessedWorkload, own: Collection[str]) -> _Smaller | None:
        """Return the nodes with smaller cards that a workload's pods may get; None if there are none."""
        nodes, pods = self._nodes, self._pods
        pod = next((pod for name in sorted(workload.members) if (pod := pods.get(name))), None)
        claims = workload.result.claims if workload.result is not None else ()
        stays = workload.outcome is Outcome.NATIVE or workload.key.kind == DAEMON_SET
        if pod is None or stays or not any(map(_depends_on_card, claims)):
            return None
        own_nodes = [nodes.assessed[name] for name in own if name in nodes.assessed]
        used = [size for node in own_nodes for size in _sizes(node)]
        if not used:
            return None
        drivers = frozenset[str]().union(*(claim.drivers for claim in claims))
        form = _Form(
            drivers=drivers,
            sources=frozenset(node.source for node in own_nodes),
            used=max(used),
            conditions=encode((pod.spec.node_selector, pod.spec.affinity, pod.spec.tolerations)),
        )
        if form not in self._sizes:
            free = msgspec.structs.replace(
                pod, spec=msgspec.structs.replace(pod.spec, node_name="")
            )
            self._sizes[form] = dict(_smaller_sizes(nodes, form, free))
        sizes = self._sizes[form]
        if not sizes:
            return None
        serving = {entry.name for entry in nodes.planned if not drivers.isdisjoint(entry.devices)}
        served = [node.node for node in own_nodes if node.published or node.node in serving]
        return _Smaller(
            nodes=tuple(sorted(sizes)),
            size=min(sizes.values()),
            used=max(used),
            label=_own_label(nodes, served, sizes) if served else "",
            leaves=not served,
            is_switched=sizes.keys() <= nodes.served.keys(),
        )


def _note(references: Sequence[str], smaller: _Smaller) -> str:
    if smaller.leaves:
        verb = "have" if smaller.is_switched else "get"
        return (
            f"pods of {join_names(references)} leave their cards of {smaller.used}, and may get smaller cards: they request "
            f"whole cards or a percentage, their nodes get no driver of such claims, and {join_names(smaller.nodes)} with "
            f"cards of {smaller.size} {verb} it; a node selector would leave them without a node, so request an amount of "
            "memory before this wave if they need more"
        )
    selector = (
        f"the node selector {smaller.label}, which their nodes have and these have not,"
        if smaller.label
        else "a node selector, by a label that you give their nodes,"
    )
    when = (
        ", which have the same driver already"
        if smaller.is_switched
        else " as soon as these have the same driver"
    )
    return (
        f"pods of {join_names(references)} may get smaller cards: they request whole cards or a percentage, run on cards of "
        f"{smaller.used} today, and fit {join_names(smaller.nodes)} with cards of {smaller.size}{when}; "
        f"another system has kept them from these nodes so far; give them {selector} "
        "before this wave, or request an amount of memory"
    )


def _served_sizes(
    cluster: AssessedCluster, planned: Collection[str]
) -> dict[str, dict[str, list[Quantity]]]:
    """Return the nodes with published devices, other than some, to the sizes of their cards by driver."""
    served: dict[str, dict[str, list[Quantity]]] = {
        node.node: {} for node in cluster.nodes if node.published and node.node not in planned
    }
    for slice_ in cluster.state.slices:
        name, driver = slice_.spec.node_name, slice_.spec.driver
        if name in served:
            for device in slice_.spec.devices or ():
                amount = (device.capacity or {}).get(_MEMORY)
                if amount is not None:
                    served[name].setdefault(driver, []).append(amount.value)
    return served


def _smaller_sizes(nodes: _Nodes, form: _Form, pod: Pod) -> Iterator[tuple[str, Quantity]]:
    """Yield the nodes of other systems that may give a pod a smaller card, with the size of their smallest one.

    Args:
        form: The pod's form.
        pod: The pod, on no node.
    """
    for entry in nodes.planned:
        sizes = _sizes(nodes.assessed[entry.name])
        if (
            sizes
            and min(sizes) < form.used
            and not form.drivers.isdisjoint(entry.devices)
            and nodes.assessed[entry.name].source not in form.sources
            and counted_rejection(pod, with_labels(nodes.stored[entry.name], entry.labels)) is None
        ):
            yield entry.name, min(sizes)
    for name, sizes_of in nodes.served.items():
        sizes = [size for driver in form.drivers for size in sizes_of.get(driver, ())]
        if (
            sizes
            and min(sizes) < form.used
            and form.sources.isdisjoint((nodes.assessed[name].source, _former(nodes.stored[name])))
            and counted_rejection(pod, nodes.stored[name]) is None
        ):
            yield name, min(sizes)


def _former(node: Node) -> Source:
    """Return the former system of a switched node; a device plugin without a mark of another one."""
    systems = (system for label, system in _MARKS.items() if label in node.labels)
    return next(systems, Source.DEVICE_PLUGIN)


def _own_label(nodes: _Nodes, own: Iterable[str], others: Iterable[str]) -> str:
    """Return a label that some nodes have, and no other node, and that no wave changes; empty without one."""
    changed = {key for node in nodes.planned for key in node.labels}
    labels = [set(nodes.stored[name].labels.items()) for name in own]
    foreign = set[tuple[str, str]]().union(*(nodes.stored[name].labels.items() for name in others))
    common = labels[0].intersection(*labels) - foreign
    pairs = sorted(
        (key not in _OF_CARDS, key, value)
        for key, value in common
        if key not in changed and key != _HOSTNAME
    )
    return f"{pairs[0][1]}={pairs[0][2]}" if pairs else ""


def _sizes(node: NodeDevices) -> list[Quantity]:
    return [device.memory for device in node.legacy if device.key == GPU and device.memory]


def _depends_on_card(claim: Claim) -> bool:
    """Return True if the memory that a request of a claim gets is that of the card, or a share of it."""
    for request in claim.spec["spec"]["devices"]["requests"]:
        alternatives = request.get("firstAvailable") or [request["exactly"]]
        amounts = {
            (alternative.get("capacity") or {}).get("requests", {}).get(_MEMORY)
            for alternative in alternatives
        }
        if None in amounts or len(amounts) > 1:
            return True
    return False
