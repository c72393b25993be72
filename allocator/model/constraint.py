"""The contract between the search and the rules about devices that are chosen together.

A feature with such a rule builds one constraint per attempt and node. The search adds a device to
every constraint in upstream's order and removes it in reverse order. It treats devices that have
equal keys in all constraints as symmetric.
"""

from collections.abc import Hashable
from typing import Protocol

import msgspec

from allocator.model.outcome import RejectionReason
from allocator.model.requests import Request


class RemainingDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an attempt that is left when a request begins. One value per request, hashable.

    Attributes:
        claim: Index of the request's claim; all later claims are left as well.
        index: Index of the request in its claim.
        positions: Mask of the devices that the remaining requests may inspect.
    """

    claim: int
    index: int
    positions: int


class Constraint(Protocol):
    """One rule about devices chosen together, with the state of one attempt.

    Laws (tests/property): `remove` after `add` restores `state_key()`; two positions with equal
    `equivalence_key` can be swapped in any history without changing any answer.
    """

    def equivalence_key(self, position: int) -> Hashable:
        """Return everything about a device that the rule reads, including its use before the attempt.

        No choice of the attempt changes it.
        """
        ...

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Choose a device for a request if the rule allows it; otherwise change nothing.

        Args:
            request: The request that gets the device.
            position: Position of the device.
            further_share: The device can be shared and a share of it is in use already, by an
                allocated claim or in this attempt.

        Raises:
            AttemptFailed: The rule cannot be evaluated (a fatal error upstream).
        """
        ...

    def remove(self, request: Request, position: int, *, further_share: bool) -> None:
        """Revert the latest successful `add`; it must have had the same arguments."""
        ...

    def state_key(self) -> Hashable:
        """Return the state of the attempt that later answers depend on."""
        ...

    def residual_key(self, remaining: RemainingDemand) -> Hashable:
        """Return the part of the state that answers about the remaining requests depend on.

        Constraints are monotonic: a further choice never turns a later no into a yes. So the rest
        of the search ends alike in two states with equal residual keys.
        """
        ...

    def rejection(
        self, request: Request, position: int, *, further_share: bool
    ) -> RejectionReason | None:
        """Return the reason `add` would fail now; None if it would succeed. Change nothing."""
        ...
