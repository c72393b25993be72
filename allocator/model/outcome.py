"""The outcomes of an allocation attempt on a node.

An attempt ends with a `Plan`, with `DoesNotFit` (valid claims that this node cannot serve), with
`BudgetExhausted` (the search was cut off, so the answer is unknown), or it raises `AttemptFailed`
(invalid input that ends the attempt on every node, as plain errors do upstream).
"""

from enum import StrEnum
from typing import Final

import msgspec

from kube.errors import DrawbridgeError


class AttemptFailed(DrawbridgeError):
    """Invalid input that ends the attempt on all nodes: a missing class, a failing selector.

    On all nodes that the pod may use: upstream searches no others.

    Source: every error of upstream's Allocate but ErrFailedAllocationOnNode.

    Attributes:
        steps: Cost of the search that ended with it.
    """

    steps: int = 0

    def without_traceback(self) -> "AttemptFailed":
        """Return an equal error to keep: one that was raised keeps all values of its search alive."""
        error = AttemptFailed(*self.args)
        error.steps = self.steps
        return error


class Reason(StrEnum):
    """The reason a device or a request is rejected, as in events, metrics and JSON."""

    ALLOCATED = "allocated"
    SELECTOR = "selector"
    NODE_SELECTION = "nodeSelection"
    BINDING_CONDITIONS_DISABLED = "bindingConditionsDisabled"
    PARTITIONABLE_DEVICES_DISABLED = "partitionableDevicesDisabled"
    NODE_FEATURE = "nodeFeature"
    TAINT = "taint"
    CAPACITY_NOT_FOUND = "capacityNotFound"
    ABOVE_MAXIMUM = "aboveMaximum"
    NOT_MULTIPLE_OF_STEP = "notMultipleOfStep"
    NOT_IN_VALID_VALUES = "notInValidValues"
    CAPACITY = "capacity"
    COUNTERS = "counters"
    GROUPS = "compatibilityGroups"
    POLICY = "compatibilityPolicy"
    CONFLICTING_SHARING_CONFIG = "conflictingSharingConfig"
    CONSUMER_LIMIT = "consumerLimit"
    QUOTA = "quota"
    CONSTRAINT = "constraint"
    POOL_INCOMPLETE = "poolIncomplete"
    POOL_INVALID = "poolInvalid"
    NO_DEVICES = "noDevices"
    TOO_FEW_DEVICES = "tooFewDevices"
    TOO_MANY_DEVICES = "tooManyDevices"
    JOINTLY_INFEASIBLE = "jointlyInfeasible"
    NODE_NOT_ELIGIBLE = "nodeNotEligible"
    INSUFFICIENT_RESOURCE = "insufficientResource"
    GROUP_DOES_NOT_FIT = "groupDoesNotFit"
    GROUP_INCOMPLETE = "groupIncomplete"
    BUDGET_EXHAUSTED = "budgetExhausted"
    ATTEMPT_FAILED = "attemptFailed"


class Verb(StrEnum):
    """The verb of rejected devices, for several of them: `have` memory, `are on` a counter set."""

    NONE = ""
    ALLOW = "allow"
    ARE_ON = "are on"
    CO_LOCATED = "are co-located with"
    NOT_ACCEPTED = "are not accepted by"
    CONSUME = "consume"
    NOT_MATCHING = "do not match"
    EXCEED = "exceed"
    HAVE = "have"
    NEED = "need"
    NOT_ACCEPTING = "do not accept"

    @property
    def singular(self) -> str:
        """The verb for one device: `has`, `is on`."""
        first, _, rest = self.partition(" ")
        inflected = _IRREGULAR.get(first, f"{first}s") if first else ""
        return f"{inflected} {rest}" if rest else inflected


_IRREGULAR: Final = {"are": "is", "do": "does", "have": "has"}


class RejectionReason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason devices, or a request as a whole, are rejected.

    Its parts are values, so that devices that differ in one value only are reported together. None
    of them names objects of another namespace.

    Attributes:
        reason: The category.
        verb: `have`, for devices; none where the subject says all.
        subject: `memory`.
        value: `40Gi`.
        remark: The value's counterpart, or what is in the way: `< 100Gi`.
    """

    reason: Reason
    verb: Verb = Verb.NONE
    subject: str = ""
    value: str = ""
    remark: str = ""

    @property
    def detail(self) -> str:
        """The reason without the verb: `memory 40Gi (< 100Gi)`."""
        words = " ".join(part for part in (self.subject, self.value) if part)
        return f"{words} ({self.remark})" if self.remark else words

    @property
    def predicate(self) -> str:
        """Return the predicate of rejected devices: `have memory 40Gi (< 100Gi)`."""
        return f"{self.verb} {self.detail}" if self.verb else self.detail

    @property
    def predicate_of_one(self) -> str:
        """Return the predicate of one rejected device: `has memory 40Gi (< 100Gi)`."""
        return f"{self.verb.singular} {self.detail}" if self.verb else self.detail


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """The number of devices of a node that one request loses for one reason.

    Attributes:
        claim: `namespace/name`; empty if the reason concerns the node, whatever is requested.
        request: `name`, or `parent/name` of an alternative; empty if `claim` is.
        rejection: The reason, with the detail that all of these devices have in common.
        devices: Number of devices that it rules out; 0 if it concerns the request as a whole.
    """

    claim: str
    request: str
    rejection: RejectionReason
    devices: int = 0


class DoesNotFit(msgspec.Struct, frozen=True, kw_only=True):
    """The claims do not fit this node; `allocator.explain.node` has the reasons.

    Attributes:
        invalid_pools: A pool of the node is invalid, which upstream reports as an error of the
            node (ErrFailedAllocationOnNode).
        steps: Cost of the search.
    """

    invalid_pools: bool = False
    steps: int = 0


class BudgetExhausted(msgspec.Struct, frozen=True, kw_only=True):
    """The budget ended before the search did, so the outcome is unknown.

    Attributes:
        steps: Cost of the search.
        progress: The facts found nevertheless, for people.
    """

    steps: int
    progress: str
