"""The causes of pending pods: missing devices, or other obstacles between a pod and free devices."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from allocator.explain.failure import NodeGroup
from allocator.model.outcome import Reason


class Cause(StrEnum):
    """The reason of an event about a pending pod."""

    DEVICES_MISSING = "DevicesMissing"
    """No node has the devices now."""
    NODE_NOT_ELIGIBLE = "NodeNotEligible"
    """Nodes with free devices reject the pod: by their labels, their taints, or its affinity."""
    INSUFFICIENT_RESOURCE = "InsufficientResource"
    """Nodes with free devices have too little CPU, memory or another counted resource for the pod."""
    CLAIM_MISSING = "ClaimMissing"
    """A claim or template that the pod names does not exist."""
    GROUP_INCOMPLETE = "GroupIncomplete"
    """Fewer pods of the pod's group exist than it needs."""
    GROUP_DOES_NOT_FIT = "GroupDoesNotFit"
    """There is no place for as many pods of the group together as it needs, or others go first."""
    DEVICE_QUOTA_EXCEEDED = "DeviceQuotaExceeded"
    """A DeviceQuota leaves too little for the pod."""


CAUSES: Final[Mapping[str, Cause]] = {
    "claimDeleted": Cause.CLAIM_MISSING,
    "claimNotAvailable": Cause.NODE_NOT_ELIGIBLE,
    "claimNotCreated": Cause.CLAIM_MISSING,
    "claimNotFound": Cause.CLAIM_MISSING,
    "claimNotOwned": Cause.CLAIM_MISSING,
    "exceedsDeviceQuota": Cause.DEVICE_QUOTA_EXCEEDED,
    "exceedsPerRequestQuota": Cause.DEVICE_QUOTA_EXCEEDED,
    Reason.GROUP_DOES_NOT_FIT: Cause.GROUP_DOES_NOT_FIT,
    Reason.GROUP_INCOMPLETE: Cause.GROUP_INCOMPLETE,
    "groupLacksResources": Cause.GROUP_DOES_NOT_FIT,
    "groupNotComplete": Cause.GROUP_DOES_NOT_FIT,
    "groupNotNeeded": Cause.GROUP_DOES_NOT_FIT,
    "groupTooLarge": Cause.GROUP_DOES_NOT_FIT,
    "groupUnsupported": Cause.GROUP_DOES_NOT_FIT,
    "keptForGroup": Cause.GROUP_DOES_NOT_FIT,
    "noEligibleNode": Cause.NODE_NOT_ELIGIBLE,
    Reason.QUOTA: Cause.DEVICE_QUOTA_EXCEEDED,
}
"""Code of a simulation, or of the bridge, to the cause; of all others the devices are missing."""


def cause_of_code(code: str) -> Cause:
    """Return the cause by the code of a simulation, or of the bridge.

    >>> print(cause_of_code("groupIncomplete"), cause_of_code("noDevices"))
    GroupIncomplete DevicesMissing
    """
    return CAUSES.get(code, Cause.DEVICES_MISSING)


def cause_of_rejection(group: NodeGroup | None) -> Cause:
    """Return the cause by the reasons of nodes with free devices; without such nodes, the devices are missing."""
    if group is None:
        return Cause.DEVICES_MISSING
    codes = {reason.code for reason in group.reasons}
    is_eligible = Reason.NODE_NOT_ELIGIBLE not in codes
    return Cause.INSUFFICIENT_RESOURCE if is_eligible else Cause.NODE_NOT_ELIGIBLE
