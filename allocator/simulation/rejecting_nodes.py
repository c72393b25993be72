"""The nodes that reject a pod although its devices are free there."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from allocator.cluster.cluster import Cluster
from allocator.explain.failure import NodeGroup
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
