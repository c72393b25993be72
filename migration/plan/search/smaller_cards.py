"""Notes on smaller cards for pods of nodes that get one driver with nodes of another system. Pure.

HAMi and Koordinator keep pods on nodes of their own. Their DRA driver is the same, so afterwards
kube-scheduler gives a pod any node whose devices its claims fit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator.pods.claims import Name
from allocator.pods.node_eligibility import counted_rejection
from findings.text import join_names
from kube.api.core import Node, Pod
from kube.api.workloads import DAEMON_SET
from kube.quantity import Quantity
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.node_devices import GPU, NodeDevices
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


class _Nodes(NamedTuple):
    """The nodes that a plan switches, and the nodes of the cluster by name."""

    planned: Sequence[PlannedNode]
    assessed: Mapping[str, NodeDevices]
    stored: Mapping[str, Node]


class _Smaller(NamedTuple):
    """The nodes with smaller cards, the size of their smallest card, and that of the largest one in use.

    Attributes:
        label: A label that the nodes in use have, and those with smaller cards have not; empty without one.
        leaves: The nodes in use get no driver of the pods' claims, so these leave their cards.
    """

    nodes: tuple[str, ...]
    size: Quantity
    used: Quantity
    label: str
    leaves: bool


def with_smaller_cards(
    wave: Wave,
    waves: Sequence[Wave],
    cluster: AssessedCluster,
    live_nodes: Mapping[str, Iterable[str]],
) -> Wave:
    """Return a wave with notes on its workloads with smaller cards ahead.

    Args:
        wave: The wave.
        waves: All waves of the plan.
        cluster: The cluster.
        live_nodes: Workload to the nodes of its pods.
    """
    nodes = _Nodes(
        [node for entry in waves for node in entry.nodes],
        {entry.node: entry for entry in cluster.nodes},
        {node.metadata.name: node for node in cluster.state.nodes},
    )
    assessed = {workload.key.reference: workload for workload in cluster.workloads}
    workloads: list[PlannedWorkload] = []
    names: dict[_Smaller, list[str]] = {}
    for entry in wave.workloads:
        own = frozenset(live_nodes[entry.object])
        smaller = _smaller(assessed[entry.object], nodes, cluster.state.pods, own)
        if smaller is None:
            workloads.append(entry)
            continue
        names.setdefault(smaller, []).append(entry.object)
        loss = f"they may get cards of {smaller.size}, and have cards of {smaller.used} today"
        losses = (*entry.losses, loss) if entry.is_restarted else entry.losses
        workloads.append(msgspec.structs.replace(entry, losses=losses))
    notes = (_note(own, smaller) for smaller, own in names.items())
    return msgspec.structs.replace(wave, workloads=tuple(workloads), notes=(*wave.notes, *notes))


def _note(references: Sequence[str], smaller: _Smaller) -> str:
    if smaller.leaves:
        return (
            f"pods of {join_names(references)} leave their cards of {smaller.used}, and may get smaller cards: they request "
            f"whole cards or a percentage, their nodes get no driver of such claims, and {join_names(smaller.nodes)} with "
            f"cards of {smaller.size} get it; a node selector would leave them without a node, so request an amount of "
            "memory before this wave if they need more"
        )
    selector = (
        f"the node selector {smaller.label}, which their nodes have and these have not,"
        if smaller.label
        else "a node selector, by a label that you give their nodes,"
    )
    return (
        f"pods of {join_names(references)} may get smaller cards: they request whole cards or a percentage, run on cards of "
        f"{smaller.used} today, and fit {join_names(smaller.nodes)} with cards of {smaller.size} as soon as these have "
        f"the same driver; another system has kept them from these nodes so far; give them {selector} "
        "before this wave, or request an amount of memory"
    )


def _smaller(
    workload: AssessedWorkload,
    nodes: _Nodes,
    pods: Mapping[Name, Pod],
    own: Collection[str],
) -> _Smaller | None:
    """Return the nodes with smaller cards that a workload's pods may get; None if there are none."""
    pod = next((pod for name in sorted(workload.members) if (pod := pods.get(name))), None)
    claims = workload.result.claims if workload.result is not None else ()
    stays = workload.outcome is Outcome.NATIVE or workload.key.kind == DAEMON_SET
    if pod is None or stays or not any(map(_depends_on_card, claims)):
        return None
    own_nodes = [nodes.assessed[name] for name in own if name in nodes.assessed]
    used = [size for node in own_nodes for size in _sizes(node)]
    if not used:
        return None
    sources = {node.source for node in own_nodes}
    drivers = frozenset[str]().union(*(claim.drivers for claim in claims))
    free = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    sizes = {
        entry.name: min(own_sizes)
        for entry in nodes.planned
        if not drivers.isdisjoint(entry.devices)
        and nodes.assessed[entry.name].source not in sources
        and (own_sizes := _sizes(nodes.assessed[entry.name]))
        and min(own_sizes) < max(used)
        and counted_rejection(free, with_labels(nodes.stored[entry.name], entry.labels)) is None
    }
    if not sizes:
        return None
    serving = {entry.name for entry in nodes.planned if not drivers.isdisjoint(entry.devices)}
    served = [node.node for node in own_nodes if node.published or node.node in serving]
    label = _own_label(nodes, served, sizes) if served else ""
    return _Smaller(tuple(sorted(sizes)), min(sizes.values()), max(used), label, not served)


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
