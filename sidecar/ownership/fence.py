"""The state of the fence: the policies that keep other schedulers from owned drivers' devices.

The fence is four objects: the policy of the owned drivers, the policy of the process that holds the Lease,
and a binding of each, without which a policy is about no write. `admission/fence.py` writes them.
The Lease itself is not looked at: who reads this holds it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kube.api.meta import ApiStruct
from kube.api.ownership import EXCLUDING_FIELDS, FencePolicy
from kube.cel.quoting import quote
from kube.names import BRIDGE_LEASE, FENCE, HOLDER_FENCE


class Parameter(ApiStruct, frozen=True, kw_only=True):
    """The object that a policy reads."""

    name: str = ""


class BindingSpec(ApiStruct, frozen=True, kw_only=True):
    """The parts that show a policy to be in force or not."""

    policy_name: str = ""
    validation_actions: tuple[str, ...] | None = None
    param_ref: Parameter | None = None
    match_resources: Mapping[str, Any] | None = None


class Binding(ApiStruct, frozen=True, kw_only=True):
    """A ValidatingAdmissionPolicyBinding of the fence."""

    spec: BindingSpec = BindingSpec()


class Part(StrEnum):
    """An object of the fence, as `Kind/name`."""

    POLICY = f"ValidatingAdmissionPolicy/{FENCE}"
    BINDING = f"ValidatingAdmissionPolicyBinding/{FENCE}"
    HOLDER_POLICY = f"ValidatingAdmissionPolicy/{HOLDER_FENCE}"
    HOLDER_BINDING = f"ValidatingAdmissionPolicyBinding/{HOLDER_FENCE}"


class FenceState(StrEnum):
    """The state of the fence as a whole."""

    CLOSED = "closed"
    """It restricts writes of allocations, of the drivers in its text."""
    OPEN = "open"
    """It restricts nothing: somebody rescues the cluster."""
    MISSING = "missing"
    """Its first policy does not exist."""
    INCOMPLETE = "incomplete"
    """Another part does not exist, or does not deny all that it should."""
    UNKNOWN = "unknown"
    """The first policy was not read."""


class Fence(NamedTuple):
    """The state of the fence and its parts.

    Attributes:
        idle_parts: The parts that do not exist or do not deny all that they should, if the state is
            `INCOMPLETE`.
        policy: The first policy; None if there is none, or it was not read.
    """

    state: FenceState
    idle_parts: tuple[Part, ...] = ()
    policy: FencePolicy | None = None

    def keeps_others_from(self, driver: str) -> bool:
        """Return True if others are kept from the devices of a driver, as far as is known."""
        if self.state is FenceState.UNKNOWN:
            return True
        return self.state is FenceState.CLOSED and self.lists(driver)

    def lists(self, driver: str) -> bool:
        """Return True if a driver is in the text of the first policy."""
        return self.policy is not None and self.policy.lists(quote(driver))


UNKNOWN_FENCE: Final = Fence(FenceState.UNKNOWN)

_BINDINGS: Final[Mapping[Part, tuple[str, str]]] = {
    Part.BINDING: (FENCE, ""),
    Part.HOLDER_BINDING: (HOLDER_FENCE, BRIDGE_LEASE),
}
"""Binding to the policy that it has to name, and the parameter."""


def fence_of(parts: Mapping[Part, FencePolicy | Binding | None]) -> Fence:
    """Return the state of the fence as its objects define it together.

    Args:
        parts: None for one that does not exist; one that was not read is not there, and counts as it
            should be.
    """
    if Part.POLICY not in parts:
        return UNKNOWN_FENCE
    policy = parts[Part.POLICY]
    if not isinstance(policy, FencePolicy):
        return Fence(FenceState.MISSING)
    if policy.is_open:
        return Fence(FenceState.OPEN, policy=policy)
    idle_parts = tuple(part for part in Part if part in parts and not _denies(part, parts[part]))
    state = FenceState.INCOMPLETE if idle_parts else FenceState.CLOSED
    return Fence(state, idle_parts=idle_parts, policy=policy)


def _denies(part: Part, part_object: FencePolicy | Binding | None) -> bool:
    """Return True if a part denies all that it should, by this part alone."""
    match part_object:
        case FencePolicy():
            constraints = part_object.spec.match_constraints or {}
            is_whole = not any(constraints.get(field) for field in EXCLUDING_FIELDS)
            # Otherwise a write by another version of the API passes.
            is_whole &= constraints.get("matchPolicy") != "Exact"
            return bool(part_object.spec.validations) and is_whole
        case Binding():
            policy_name, parameter = _BINDINGS[part]
            spec = part_object.spec
            return (
                spec.policy_name == policy_name
                and "Deny" in (spec.validation_actions or ())
                and not spec.match_resources
                and (spec.param_ref or Parameter()).name == parameter
            )
        case _:
            return False
