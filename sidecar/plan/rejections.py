"""Rejections of pods: a code for programs, a sentence for the pod's status.

The sentence becomes the pod's condition, and each change of it is a write. So it has no number and no
name that differs from one attempt to the next.
"""

from enum import StrEnum
from typing import Final

import msgspec

from allocator.explain.selector import one_line
from sidecar.protocol import Verdict

MAX_MESSAGE: Final = 300
"""Characters; parts of it come from claims and selectors."""


class Code(StrEnum):
    """The reason, as in answers, events and metrics."""

    ATTEMPT_FAILED = "attemptFailed"
    BINDING_FAILED = "bindingFailed"
    BUDGET_EXHAUSTED = "budgetExhausted"
    CLAIMS_BEHIND = "claimsBehind"
    CLAIM_DELETED = "claimDeleted"
    CLAIM_NOT_AVAILABLE = "claimNotAvailable"
    CLAIM_NOT_CREATED = "claimNotCreated"
    CLAIM_NOT_FOUND = "claimNotFound"
    CLAIM_NOT_OWNED = "claimNotOwned"
    DEVICES_GONE = "devicesGone"
    DRIVER_NOT_OWNED = "driverNotOwned"
    EXTENDED_RESOURCE = "extendedResource"
    NO_DEVICES = "noDevices"
    NO_ELIGIBLE_NODE = "noEligibleNode"
    POD_GROUP = "podGroup"
    POD_UNKNOWN = "podUnknown"
    TOO_MANY_CONSUMERS = "tooManyConsumers"
    TOO_MANY_PARAMETERS = "tooManyParameters"
    WRITE_REFUSED = "writeRefused"
    WRITE_UNKNOWN = "writeUnknown"


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a pod gets no devices now.

    Attributes:
        verdict: UNSCHEDULABLE where victims could help, UNRESOLVABLE where they cannot, ERROR where
            the attempt is to be repeated.
    """

    verdict: Verdict
    code: Code
    message: str


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
    """Return a rejection after which the attempt is to be repeated."""
    return Rejection(verdict=Verdict.ERROR, code=code, message=one_line(message, MAX_MESSAGE))
