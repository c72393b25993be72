"""The nodes that reject a pod although its devices are free there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.explain.failure import NodeGroup, NodeReason
from allocator.model.outcome import AttemptFailed, Reason
from allocator.model.plan import Plan
from allocator.pods.claims import allocation_of
from allocator.pods.extended_resource_claim import (
    device_plugin_resources,
    extended_resource_claim,
    mapped_resources,
)
from kube.api.core import Pod
from kube.api.resource import ResourceClaim

_REJECTING: Final = frozenset({Reason.NODE_NOT_ELIGIBLE, Reason.INSUFFICIENT_RESOURCE})


_NO_FREE_DEVICES: Final = NodeReason(
    code=Reason.NO_DEVICES, message="no free devices that the pod requests"
)


def rejects_pod(group: NodeGroup) -> bool:
    """Return True if nodes are rejected before any device is evaluated."""
    return all(reason.code in _REJECTING for reason in group.reasons)


def rejecting_nodes_with_devices(
    cluster: Cluster,
    pod: Pod,
    claims: Sequence[ResourceClaim],
    extended_resources: Mapping[str, str],
    groups: Sequence[NodeGroup],
) -> Iterator[tuple[Sequence[str], NodeGroup]]:
    """Yield the nodes of each group that reject the pod, though its devices are free there.

    Args:
        claims: The claims of the pod.
        extended_resources: Name of an extended resource to name of the class that maps it.
        groups: The nodes by their reasons.
    """
    unallocated_claims = tuple(claim for claim in claims if allocation_of(claim) is None)
    resources = mapped_resources(pod, extended_resources)
    for group in filter(rejects_pod, groups):
        nodes_by_resources: dict[frozenset[str], list[str]] = {}
        for name in group.nodes:
            from_claims = resources - device_plugin_resources(cluster.nodes[name])
            nodes_by_resources.setdefault(from_claims, []).append(name)
        free_nodes: list[str] = []
        for from_claims, names in nodes_by_resources.items():
            needed_claims = unallocated_claims
            if from_claims:
                claim = extended_resource_claim(pod, from_claims, extended_resources)
                needed_claims = (*needed_claims, claim)
            free_nodes += _nodes_with_devices(cluster, needed_claims, names)
        if free_nodes:
            yield sorted(free_nodes), group


def divide_by_devices(
    groups: Sequence[NodeGroup], rejecting: Iterable[tuple[Sequence[str], NodeGroup]]
) -> tuple[NodeGroup, ...]:
    """Return groups, each divided into nodes with free devices for the pod and nodes without.

    Args:
        groups: The nodes by their reasons.
        rejecting: The nodes with free devices of each group, as from `rejecting_nodes_with_devices`.
    """
    free_nodes = {id(group): frozenset(nodes) for nodes, group in rejecting}
    if not free_nodes:
        return tuple(groups)
    divided: list[NodeGroup] = []
    for group in groups:
        if not rejects_pod(group):
            divided.append(group)
            continue
        free = free_nodes.get(id(group), frozenset())
        with_devices = tuple(name for name in group.nodes if name in free)
        without_devices = tuple(name for name in group.nodes if name not in free)
        if with_devices:
            divided.append(replace(group, nodes=with_devices))
        if without_devices:
            reasons = (*group.reasons, _NO_FREE_DEVICES)
            divided.append(NodeGroup(nodes=without_devices, reasons=reasons))
    return tuple(divided)


def _nodes_with_devices(
    cluster: Cluster, claims: Sequence[ResourceClaim], nodes: Sequence[str]
) -> list[str]:
    """Return the nodes with devices for claims; none without claims, or if the attempt ends."""
    if not claims:
        return []
    try:
        verdicts = cluster.verdicts(cluster.resolve(claims), nodes=nodes)
    except AttemptFailed:
        return []
    return [node for node, outcome, _ in verdicts if isinstance(outcome, Plan)]
