"""A bound on the members that nodes can take together if these see the same devices.

A member has devices of its node alone, or at least one of those that other nodes see, and of these there are only so many.
So no more members fit than the nodes could take without such devices, and one for each of them.
"""

from collections.abc import Iterable, Sequence

from allocator.cluster.cluster import Cluster
from allocator.groups.feasibility import CandidateNode, Feasibility
from allocator.groups.kinds import Counts, MemberKind
from allocator.groups.shared_pools import is_in_shared_pool
from allocator.model.devices import DeviceId


def supply_bound(
    cluster: Cluster,
    kinds: Sequence[MemberKind],
    counts: Counts,
    nodes: Sequence[CandidateNode],
    feasibility: Feasibility,
) -> int:
    """Return a number of members that is not exceeded, or the number of all members.

    Members that name one claim need no device each, so they count as if the nodes had all devices.
    """
    devices = shared_devices(cluster, [node.name for node in nodes if node.is_linked])
    if devices is None or any(map(_has_admin_access, kinds)):
        return sum(counts)
    bound = len(devices)
    for index, (kind, count) in enumerate(zip(kinds, counts, strict=True)):
        alone = 0
        for node in nodes:
            if alone >= count:
                break
            if node.options[index] >= 0:
                is_reduced = node.is_linked and not kind.shares_claims
                most = feasibility.most_alone if is_reduced else feasibility.most
                alone += most(node, index, count)
        bound += min(alone, count)
    return min(bound, sum(counts))


def _has_admin_access(kind: MemberKind) -> bool:
    """Return True if members may use devices that others use."""
    return any(
        request.exactly is not None and request.exactly.admin_access
        for option in kind.options
        for claim in option.claims
        for request in claim.spec.devices.requests or ()
    )


def shared_devices(cluster: Cluster, nodes: Iterable[str]) -> frozenset[DeviceId] | None:
    """Return the free devices that several nodes see; None if one of them can have several consumers."""
    devices: set[DeviceId] = set()
    for name in nodes:
        for device in cluster.node_devices(name).devices:
            if is_in_shared_pool(cluster.node_devices(name), device.id):
                if device.device.allow_multiple_allocations:
                    return None
                if cluster.usage.of(device.id) is None:
                    devices.add(device.id)
    return frozenset(devices)
