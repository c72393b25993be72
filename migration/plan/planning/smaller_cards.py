"""Notes on smaller cards for pods of nodes that get one driver with nodes of another system. Pure.

HAMi and Koordinator keep pods on nodes of their own. Their DRA driver is the same, so afterwards
kube-scheduler gives a pod any node whose devices its claims fit.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator.pods.node_eligibility import counted_rejection, demands_on_nodes
from findings.text import join_names
from kube.api.core import Node, Pod
from kube.api.workloads import DAEMON_SET
from kube.quantity import Quantity
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.node_devices import GPU, NodeDevices, Source
from migration.plan.facts.vendors import HAMI_LABEL
from migration.plan.model.node_labels import with_labels
from migration.plan.model.plan import PlannedNode, PlannedWorkload, Wave
from translation.compiling.claims import Claim

_MEMORY: Final = "memory"
_KOORDINATOR_MODEL: Final = "node.koordinator.sh/gpu-model"
_OF_CARDS: Final = (
    "nvidia.com/gpu.product",
    _KOORDINATOR_MODEL,
    "nvidia.com/gpu.memory",
)
"""Labels of nodes that tell their cards."""
_HOSTNAME: Final = "kubernetes.io/hostname"
_PLUGIN_VALUES: Final = frozenset({"on", "off"})
"""The values of `HAMI_LABEL` by HAMi's chart, and once a node is switched; other values are of somebody else."""


class _Nodes(NamedTuple):
    """The nodes that a plan switches, and the nodes of the cluster by name.

    Attributes:
        served: The nodes that are switched already, to the sizes of their cards by driver.
        changed: The labels that waves change.
    """

    planned: Sequence[PlannedNode]
    assessed: Mapping[str, NodeDevices]
    stored: Mapping[str, Node]
    served: Mapping[str, Mapping[str, Sequence[Quantity]]]
    changed: frozenset[str]

    def system(self, name: str) -> Source | None:
        """Return the system of a node, of one with a driver the former one; None without devices."""
        entry = self.assessed.get(name)
        if entry is None or not entry.published:
            return entry.source if entry is not None else None
        return _former(self.stored[name].labels)


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
    """The criteria for nodes with smaller cards.

    Attributes:
        sources: The systems that have kept pods from other nodes so far; a pod with claims has none.
    """

    drivers: frozenset[str]
    sources: frozenset[Source | None]
    used: Quantity
    conditions: bytes


class _Ahead(NamedTuple):
    """The nodes with smaller cards for all pods of a form.

    Attributes:
        serving: The nodes that waves give a driver of the pods' claims.
        names: The nodes with smaller cards, sorted.
        size: The size of their smallest card.
        labels: Their labels.
        is_switched: They have the driver already.
    """

    serving: frozenset[str]
    names: tuple[str, ...]
    size: Quantity
    labels: frozenset[tuple[str, str]]
    is_switched: bool


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
            frozenset(key for entry in planned for key in entry.labels),
        )
        self._pods = cluster.state.pods
        self._assessed = {workload.key.reference: workload for workload in cluster.workloads}
        self._live_nodes = live_nodes
        self._ahead: dict[_Form, _Ahead | None] = {}

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
            loss = f"with claims they may get cards of {smaller.size}, with their device keys they have cards of {smaller.used}"
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
        free = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
        form = _Form(
            drivers=frozenset[str]().union(*(claim.drivers for claim in claims)),
            sources=frozenset(nodes.system(node.node) for node in own_nodes if node.legacy),
            used=max(used),
            conditions=demands_on_nodes(free.spec),
        )
        if form not in self._ahead:
            self._ahead[form] = _nodes_ahead(nodes, form, free)
        ahead = self._ahead[form]
        if ahead is None:
            return None
        served = [node.node for node in own_nodes if node.published or node.node in ahead.serving]
        return _Smaller(
            nodes=ahead.names,
            size=ahead.size,
            used=max(used),
            label=_own_label(nodes, served, ahead.labels) if served else "",
            leaves=not served,
            is_switched=ahead.is_switched,
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


def _nodes_ahead(nodes: _Nodes, form: _Form, pod: Pod) -> _Ahead | None:
    """Return the nodes of other systems that may give a pod a smaller card; None if there are none."""
    sizes = dict(_smaller_sizes(nodes, form, pod))
    if not sizes:
        return None
    serving = (entry.name for entry in nodes.planned if not form.drivers.isdisjoint(entry.devices))
    return _Ahead(
        serving=frozenset(serving),
        names=tuple(sorted(sizes)),
        size=min(sizes.values()),
        labels=frozenset(pair for name in sizes for pair in nodes.stored[name].labels.items()),
        is_switched=sizes.keys() <= nodes.served.keys(),
    )


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
            and nodes.system(entry.name) not in form.sources
            and counted_rejection(pod, with_labels(nodes.stored[entry.name], entry.labels)) is None
        ):
            yield entry.name, min(sizes)
    for name, sizes_of in nodes.served.items():
        sizes = [size for driver in form.drivers for size in sizes_of.get(driver, ())]
        if (
            sizes
            and min(sizes) < form.used
            and nodes.system(name) not in form.sources
            and counted_rejection(pod, nodes.stored[name]) is None
        ):
            yield name, min(sizes)


def _former(labels: Mapping[str, str]) -> Source:
    """Return the former system of a switched node by its labels; a device plugin without a mark of another one."""
    if _KOORDINATOR_MODEL in labels:
        return Source.KOORDINATOR
    return Source.HAMI if labels.get(HAMI_LABEL) in _PLUGIN_VALUES else Source.DEVICE_PLUGIN


def _own_label(nodes: _Nodes, own: Iterable[str], foreign: frozenset[tuple[str, str]]) -> str:
    """Return a label that some nodes have, no wave changes, and others do not have; empty without one."""
    labels = [set(nodes.stored[name].labels.items()) for name in own]
    common = labels[0].intersection(*labels) - foreign
    pairs = sorted(
        (key not in _OF_CARDS, key, value)
        for key, value in common
        if key not in nodes.changed and key != _HOSTNAME
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
