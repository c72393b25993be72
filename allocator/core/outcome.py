"""How an attempt to allocate can end.

A plan, or one of three ways to say no that never mix: `Unfit` (a good claim that does not fit this
node), `GaveUp` (the budget ended before the search did) and `AttemptFailed` (broken input that
ends the attempt on every node, as upstream's plain errors do).
"""

from enum import StrEnum

import msgspec

from kube.errors import DrawbridgeError


class AttemptFailed(DrawbridgeError):
    """Ends the attempt on all nodes: a missing class, CEL that fails, an amount out of range.

    Source: every error of upstream's Allocate but ErrFailedAllocationOnNode.
    """


class Reason(StrEnum):
    """Why a device, or a whole request, will not do; the one word for events, metrics and JSON."""

    TAKEN = "taken"
    SELECTOR = "selector"
    NODE_SELECTION = "nodeSelection"
    BINDING_CONDITIONS_OFF = "bindingConditionsOff"
    PARTITIONS_OFF = "partitionsOff"
    NODE_FEATURE = "nodeFeature"
    TAINT = "taint"
    NO_SUCH_CAPACITY = "noSuchCapacity"
    ABOVE_MAXIMUM = "aboveMaximum"
    NOT_A_STEP = "notAStep"
    NOT_A_VALID_VALUE = "notAValidValue"
    CAPACITY = "capacity"
    COUNTERS = "counters"
    GROUPS = "compatibilityGroups"
    POLICY = "compatibilityPolicy"
    CONFIGURATION = "configuration"
    CONSTRAINT = "constraint"
    POOL_INCOMPLETE = "poolIncomplete"
    POOL_INVALID = "poolInvalid"
    NO_DEVICES = "noDevices"
    TOO_FEW = "tooFew"
    LIMIT = "limit"
    COMBINATION = "combination"
    NODE = "node"
    GAVE_UP = "gaveUp"
    ATTEMPT_FAILED = "attemptFailed"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why one device, or one request as a whole, will not do.

    Attributes:
        reason: The kind of no.
        detail: What was found and what would be needed: `memory 16Gi below 40Gi`. Bounded; never
            names another namespace's objects.
    """

    reason: Reason
    detail: str = ""


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """How many devices of a node one request loses for one reason.

    Attributes:
        claim: `namespace/name`; empty where it is about the node whatever is asked.
        request: `name`, or `parent/name` of an alternative; empty where `claim` is.
        refusal: The reason, with the detail that all of these devices have in common.
        devices: How many devices it rules out; 0 where it is about the request as a whole.
    """

    claim: str
    request: str
    refusal: Refusal
    devices: int = 0


class Unfit(msgspec.Struct, frozen=True, kw_only=True):
    """The claims do not fit this node; `allocator.explain` finds out why.

    Attributes:
        invalid_pools: Whether a pool of the node is invalid, which upstream reports as an error of
            the node (ErrFailedAllocationOnNode).
        steps: What the search cost.
    """

    invalid_pools: bool = False
    steps: int = 0


class GaveUp(msgspec.Struct, frozen=True, kw_only=True):
    """The budget ended before the search did: neither fits nor does not fit is proved.

    Attributes:
        steps: Spent.
        proved: What is known all the same, in words.
    """

    steps: int
    proved: str
