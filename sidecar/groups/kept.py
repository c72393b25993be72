"""The devices that are kept for a group of pods, as people are shown them. Pure."""

from collections.abc import Sequence

from allocator.pods.claims import allocation_of
from kube.api.ownership import KeptGroup
from sidecar.plan.occupancy import Keep


def kept_devices(keep: Keep) -> Sequence[str]:
    """Return `driver/pool/device` of each device that is kept, once and in order."""
    allocations = [allocation_of(claim) for claim in keep.claims]
    return sorted(
        {
            f"{result.driver}/{result.pool}/{result.device}"
            for allocation in allocations
            if allocation is not None
            for result in allocation.devices.results or ()
        }
    )


def kept_group(keep: Keep) -> KeptGroup:
    """Return the entry of the AllocatorOwnership's status."""
    return KeptGroup(
        group_uid=keep.group,
        namespace=keep.namespace,
        group=keep.name,
        since=keep.since,
        devices=len(kept_devices(keep)),
        nodes=tuple(sorted(keep.nodes)),
    )
