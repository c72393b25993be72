"""The devices that the bridge holds back, of pods deleted by force, or keeps for groups of pods. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from findings.text import count_text, join_names
from kube.api.ownership import OWNERSHIP, AllocatorOwnership, AllocatorOwnershipStatus

_NODES_NAMED: Final = 3


def bridge_reports(ownerships: Iterable[AllocatorOwnership]) -> Iterator[AllocatorOwnershipStatus]:
    """Yield the report of the bridge, if there is one."""
    for ownership in ownerships:
        if ownership.metadata.name == OWNERSHIP and ownership.status is not None:
            yield ownership.status


def held_devices(ownerships: Iterable[AllocatorOwnership]) -> Iterator[str]:
    """Yield a sentence for each device that nobody gets for now."""
    for status in bridge_reports(ownerships):
        for claim in status.held_back or ():
            for device in claim.devices:
                yield (
                    f"{device.driver}/{device.pool}/{device.device} until {claim.until} or until its "
                    f"driver says that it is free: pod {claim.namespace}/{claim.pod} on node "
                    f"{claim.node} was deleted by force"
                )


def kept_for_groups(ownerships: Iterable[AllocatorOwnership]) -> Iterator[str]:
    """Yield a sentence for each group of pods with devices that are kept for it."""
    for status in bridge_reports(ownerships):
        for group in status.kept_for_groups or ():
            yield (
                f"{count_text(group.devices, 'device')} on {join_names(group.nodes, _NODES_NAMED)} for PodGroup "
                f"{group.namespace}/{group.group}, which has waited since {group.since}"
            )
