"""Rejections of pods: a code for programs, a sentence for the pod's status.

The sentence becomes the pod's condition, and each change of it is a write. So it has no number and no
name that differs from one attempt to the next, but for what a DeviceQuota leaves and how many pods of a
group fit: a pod that waits for either is tried again when there is enough.
"""

from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.explain.selector import one_line
from sidecar.model.protocol import Verdict

MAX_MESSAGE: Final = 300
"""Characters; parts of it come from claims and selectors."""


class Code(StrEnum):
    """The reason, as in answers, events and metrics."""

    ATTEMPT_FAILED = "attemptFailed"
    """A claim cannot be evaluated: a selector fails on a device, is not supported, or names a class
    that does not exist. The message says which."""
    BINDING_FAILED = "bindingFailed"
    """A driver reports that it cannot make a device ready, or does not within `bindingTimeout`;
    PostFilter releases the claim."""
    BUDGET_EXHAUSTED = "budgetExhausted"
    """The answer takes more than one answer may: steps of the search, evaluations of the claim's selectors,
    or the share of time that pods of one namespace have while others wait. It goes on with the next
    attempt, which comes by itself; a node on which the search is cut off does not fit."""
    CLAIMS_BEHIND = "claimsBehind"
    """The scheduler has seen a version of a claim that the sidecar has not seen within
    `ownClaimsTimeout`. The pod is tried again."""
    CLAIM_DELETED = "claimDeleted"
    """A claim of the pod is being deleted."""
    CLAIM_NOT_AVAILABLE = "claimNotAvailable"
    """A claim of the pod is allocated on nodes that the pod may not use."""
    CLAIM_NOT_CREATED = "claimNotCreated"
    """kube-controller-manager has not made the claim of a template yet."""
    CLAIM_NOT_FOUND = "claimNotFound"
    """The pod names a claim that does not exist."""
    CLAIM_NOT_OWNED = "claimNotOwned"
    """A claim of the name that a template got belongs to another object."""
    DEVICES_HELD_BACK = "devicesHeldBack"
    """This namespace's pods that were deleted by force have as many devices held back as a
    namespace may have: `heldBackPerNamespace`. The pod is tried again once they are fewer."""
    DEVICES_GONE = "devicesGone"
    """The reserved devices are not free any more when the pod is bound. It is tried again."""
    DRIVER_NOT_OWNED = "driverNotOwned"
    """Only devices of a driver that the bridge does not own are free, or the fence of their driver
    is open. `drawbridge bridge status` says which."""
    EXCEEDS_DEVICE_QUOTA = "exceedsDeviceQuota"
    """The devices that the pod would get are more than a DeviceQuota leaves to its tenant. The pod waits
    until claims of the tenant are released, or the quota is raised; the message says what is left."""
    EXCEEDS_PER_REQUEST_QUOTA = "exceedsPerRequestQuota"
    """One request of the pod, or one device, is larger than a DeviceQuota allows for one."""
    EXTENDED_RESOURCE = "extendedResource"
    """The pod requests an extended resource that a DeviceClass maps. Request the device by a claim."""
    GROUP_DOES_NOT_FIT = "groupDoesNotFit"
    """Fewer pods of a group fit together than it needs. The message says how many do; `drawbridge why pod`
    says what the next one lacks."""
    GROUP_INCOMPLETE = "groupIncomplete"
    """Fewer pods of a group exist than it needs."""
    GROUP_LACKS_RESOURCES = "groupLacksResources"
    """The devices suffice for a group, but fewer pods than it needs fit with the CPU, the memory and the number of
    pods that nodes have left."""
    GROUP_NOT_COMPLETE = "groupNotComplete"
    """The pods of a group were reserved together, and too few of them came to be bound in time. None is
    bound, and the group is tried again."""
    GROUP_NOT_NEEDED = "groupNotNeeded"
    """There is no place for this pod beside the others of its group, which gets by without it."""
    GROUP_TOO_LARGE = "groupTooLarge"
    """A group has more than 512 pods without a node, or too many different ones for the size of the cluster: their
    kinds times the nodes are more than 200,000."""
    GROUP_UNSUPPORTED = "groupUnsupported"
    """Pods of several PodGroups are scheduled together, which is not supported."""
    KEPT_FOR_GROUP = "keptForGroup"
    """Devices are free, but kept for a group of pods of at least the same priority that has waited for longer than
    `keepForGroupAfter`. The pod, or a group that has waited for less, gets devices beside them, or when that group
    has its own or is gone."""
    NAMESPACE_UNKNOWN = "namespaceUnknown"
    """The sidecar has not seen the pod's namespace yet, whose labels say which DeviceQuotas it has. The pod
    is tried again."""
    NO_DEVICES = "noDevices"
    """No node has free devices for the claims within the limits of consumers, or those that are free are
    kept for pods for which others were evicted. `drawbridge why pod` has the reasons."""
    NO_ELIGIBLE_NODE = "noEligibleNode"
    """Devices are free, but on nodes that the pod's selector, affinity, tolerations or allocated
    claims rule out."""
    POD_GROUP = "podGroup"
    """The pod has claims and a `schedulingGroup`, and the scheduler schedules it by itself: its feature gate
    GenericWorkload is off."""
    POD_UNKNOWN = "podUnknown"
    """The sidecar has no reservation of the pod, or has not seen it yet. The pod is tried again."""
    TOO_MANY_CONSUMERS = "tooManyConsumers"
    """256 pods have a claim of the pod, or are being bound with it, and the API allows no more. The pod is tried again
    when one of them ends."""
    TOO_MANY_PARAMETERS = "tooManyParameters"
    """The opaque parameters of a claim have more values than are kept."""
    WRITE_REFUSED = "writeRefused"
    """The API server refuses to write a claim, or the claim changes faster than it can be written.
    The pod is tried again."""
    WRITE_UNKNOWN = "writeUnknown"
    """A write of a claim has no answer within `writeDeadline`. Its devices stay promised until it
    is settled, and the pod is tried again."""


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """The reason a pod gets no devices now.

    Attributes:
        verdict: UNSCHEDULABLE where victims could help, UNRESOLVABLE where they cannot, ERROR where
            the attempt is to be repeated.
        is_unfinished: True if there is no answer yet; the next attempt gets further.
    """

    verdict: Verdict
    code: Code
    message: str
    is_unfinished: bool = False

    @property
    def is_transient(self) -> bool:
        """True if the next attempt says more, without any change meanwhile."""
        return self.is_unfinished or self.verdict is Verdict.ERROR


def unresolvable(code: Code, message: str) -> Rejection:
    """Return a rejection that no victim can change."""
    return Rejection(
        verdict=Verdict.UNRESOLVABLE, code=code, message=one_line(message, MAX_MESSAGE)
    )


def unschedulable(code: Code, message: str) -> Rejection:
    """Return a rejection that victims, or time, may change."""
    return Rejection(
        verdict=Verdict.UNSCHEDULABLE, code=code, message=one_line(message, MAX_MESSAGE)
    )


def failed_rejection(code: Code, message: str) -> Rejection:
    """Return a rejection that asks to repeat the attempt."""
    return Rejection(verdict=Verdict.ERROR, code=code, message=one_line(message, MAX_MESSAGE))


def unfinished(message: str) -> Rejection:
    """Return the rejection of a pod without an answer yet: nobody is evicted for it."""
    return Rejection(
        verdict=Verdict.UNRESOLVABLE,
        code=Code.BUDGET_EXHAUSTED,
        message=one_line(message, MAX_MESSAGE),
        is_unfinished=True,
    )


def with_message(rejection: Rejection, message: str) -> Rejection:
    """Return a rejection in other words."""
    return replace(rejection, message=one_line(message, MAX_MESSAGE))
