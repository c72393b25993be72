"""The devices that the bridge holds back, of pods that were deleted by force. Pure."""

from collections.abc import Iterable, Iterator

from kube.api.ownership import OWNERSHIP, AllocatorOwnership


def held_devices(ownerships: Iterable[AllocatorOwnership]) -> Iterator[str]:
    """Yield a sentence for each device that nobody gets for now."""
    for ownership in ownerships:
        status = ownership.status
        if ownership.metadata.name != OWNERSHIP or status is None:
            continue
        for claim in status.held_back or ():
            for device in claim.devices:
                yield (
                    f"{device.driver}/{device.pool}/{device.device} until {claim.until} or until its "
                    f"driver says that it is free: pod {claim.namespace}/{claim.pod} on node "
                    f"{claim.node} was deleted by force"
                )
