"""The state of the fence that keeps others from the devices of owned drivers."""

from enum import StrEnum

from kube.api.meta import ApiStruct
from kube.api.ownership import OPEN_CONDITION


class FenceCondition(ApiStruct, frozen=True, kw_only=True):
    """A match condition."""

    name: str = ""
    expression: str = ""


class FenceSpec(ApiStruct, frozen=True, kw_only=True):
    """The parts that tell whether it restricts anything."""

    match_conditions: tuple[FenceCondition, ...] | None = None


class Fence(ApiStruct, frozen=True, kw_only=True):
    """The ValidatingAdmissionPolicy of the owned drivers."""

    spec: FenceSpec = FenceSpec()


class FenceState(StrEnum):
    """The state of the fence."""

    CLOSED = "closed"
    """It restricts writes. Which drivers it lists is seen to by `drawbridge bridge`."""
    OPEN = "open"
    """It restricts nothing: somebody rescues the cluster."""
    MISSING = "missing"
    UNKNOWN = "unknown"
    """It was not read."""

    @property
    def keeps_others_out(self) -> bool:
        """Whether the fence keeps others out, as far as is known."""
        return self not in {FenceState.OPEN, FenceState.MISSING}


def fence_state(fence: Fence | None) -> FenceState:
    """Return the state of a fence; None is one that does not exist."""
    if fence is None:
        return FenceState.MISSING
    conditions = fence.spec.match_conditions or ()
    is_open = any(condition.expression == OPEN_CONDITION["expression"] for condition in conditions)
    return FenceState.OPEN if is_open else FenceState.CLOSED
