"""Smaller cards for pods of nodes that get one driver with nodes of another system. Pure.

HAMi and Koordinator keep pods on nodes of their own. Their DRA driver is the same, so afterwards
kube-scheduler gives a pod any node whose devices its claims fit.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from allocator.pods.node_eligibility import counted_rejection, demands_on_nodes
from answers.model.cluster_state import ClusterState
from kube.api.core import Node, Pod
from kube.api.workloads import DAEMON_SET
from kube.quantity import Quantity
from migration.cluster.node_devices import GPU, NodeDevices, Source
from migration.cluster.owners import OwnerKey
from migration.cluster.volumes import HOSTNAME
from migration.legacy.plugin_vendors import HAMI_LABEL
from translation.compiling.claims import Claim
from translation.compiling.conditions import Relation

_MEMORY: Final = "memory"
_KOORDINATOR_MODEL: Final = "node.koordinator.sh/gpu-model"
_OF_CARDS: Final = (
    "nvidia.com/gpu.product",
    _KOORDINATOR_MODEL,
    "nvidia.com/gpu.memory",
)
"""Labels of nodes that tell their cards."""
_OF_SOME_SIZES: Final = frozenset({Relation.SAME_AMOUNT, Relation.BETWEEN})
"""A percentage has an amount for cards of one published size each, or of a range of these."""
_PLUGIN_VALUES: Final = frozenset({"on", "off"})
"""The values of `HAMI_LABEL` by HAMi's chart, and once a node is switched; other values are of somebody else."""


class SwitchedNode(NamedTuple):
    """A node that gets DRA drivers.

    Attributes:
        drivers: These drivers.
        node: The node with the labels that it has then.
    """

    drivers: frozenset[str]
    node: Node


class _Nodes(NamedTuple):
    """The nodes that are to be switched, by name, and the nodes of the cluster by name.

    Attributes:
        served: The nodes that are switched already, to the sizes of their cards by driver.
        changed: The labels that the switch of nodes changes.
    """

    planned: Mapping[str, SwitchedNode]
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


class SmallerCards(NamedTuple):
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


class CardSizes:
    """The sizes of cards that pods have, and may get.

    Args:
        planned: Name to node, of those that get a driver.
        changed: The labels that this changes.
        nodes: The nodes with devices.
        state: The cluster's state.
    """

    def __init__(
        self,
        planned: Mapping[str, SwitchedNode],
        changed: frozenset[str],
        nodes: Iterable[NodeDevices],
        state: ClusterState,
    ) -> None:
        self._nodes = _Nodes(
            planned,
            {entry.node: entry for entry in nodes},
            {node.metadata.name: node for node in state.nodes},
            _served_sizes(nodes, state, planned),
            changed,
        )
        self._pods = state.pods
        self._ahead: dict[_Form, _Ahead | None] = {}

    def smaller(
        self,
        key: OwnerKey,
        members: Iterable[tuple[str, str]],
        claims: Sequence[Claim],
        own: Collection[str],
    ) -> SmallerCards | None:
        """Return the nodes with smaller cards that a workload's pods may get; None if there are none.

        Args:
            key: The workload.
            members: Namespace and name of its pods.
            claims: The claims that its next pods get; none where they keep their keys.
            own: The nodes of its pods.
        """
        nodes, pods = self._nodes, self._pods
        pod = next((pod for name in sorted(members) if (pod := pods.get(name))), None)
        if pod is None or key.kind == DAEMON_SET or not any(map(_depends_on_card, claims)):
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
        return SmallerCards(
            nodes=ahead.names,
            size=ahead.size,
            used=max(used),
            label=_own_label(nodes, served, ahead.labels) if served else "",
            leaves=not served,
            is_switched=ahead.is_switched,
        )


def _served_sizes(
    nodes: Iterable[NodeDevices], state: ClusterState, planned: Collection[str]
) -> dict[str, dict[str, list[Quantity]]]:
    """Return the nodes with published devices, other than some, to the sizes of their cards by driver."""
    served: dict[str, dict[str, list[Quantity]]] = {
        node.node: {} for node in nodes if node.published and node.node not in planned
    }
    for slice_ in state.slices:
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
    serving = (
        name for name, entry in nodes.planned.items() if not form.drivers.isdisjoint(entry.drivers)
    )
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
    for name, entry in nodes.planned.items():
        sizes = _sizes(nodes.assessed[name])
        if (
            sizes
            and min(sizes) < form.used
            and not form.drivers.isdisjoint(entry.drivers)
            and nodes.system(name) not in form.sources
            and counted_rejection(pod, entry.node) is None
        ):
            yield name, min(sizes)
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
        if key not in nodes.changed and key != HOSTNAME
    )
    return f"{pairs[0][1]}={pairs[0][2]}" if pairs else ""


def _sizes(node: NodeDevices) -> list[Quantity]:
    return [device.memory for device in node.legacy if device.key == GPU and device.memory]


def _depends_on_card(claim: Claim) -> bool:
    """Return True if the memory that a request of a claim gets is that of the card, or a share of it."""
    return any(
        amount is None or _is_share(claim, alternative)
        for alternative in claim.requests()
        for amount in [(alternative.get("capacity") or {}).get("requests", {}).get(_MEMORY)]
    )


def _is_share(claim: Claim, alternative: Mapping[str, Any]) -> bool:
    """Return True if an amount of memory is for cards of some sizes alone, so a share of these."""
    return any(
        condition.name == _MEMORY and condition.relation in _OF_SOME_SIZES
        for selector in alternative.get("selectors") or ()
        for condition in claim.conditions.get(selector["cel"]["expression"], ())
    )
