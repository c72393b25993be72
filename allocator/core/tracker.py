"""What a feature that restrains combinations of devices shows to the search.

Each feature file that has such a rule makes one tracker per attempt and node. The search asks it
in upstream's order, undoes in reverse, and treats devices that all trackers see alike as
interchangeable.
"""

from collections.abc import Hashable
from typing import Protocol

import msgspec

from allocator.core.model import Request
from allocator.core.outcome import Refusal


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to do when a request begins; one value per request, so it can be a key.

    Attributes:
        claim: Index of the request's claim; all later claims lie ahead, too.
        index: Of the request in its claim.
        positions: Mask of the devices that may still be looked at.
    """

    claim: int
    index: int
    positions: int


class Tracker(Protocol):
    """One rule about devices chosen together; holds the state of one attempt.

    Laws (tests/property): `undo` after `add` restores `state()`; two positions for which `sees`
    is equal can be swapped in any history without changing any answer.
    """

    def sees(self, position: int) -> Hashable:
        """Return all that this rule's answers depend on of one device, its present use included."""
        ...

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Choose a device for a request if the rule allows; otherwise change nothing.

        Args:
            request: For which it is chosen.
            position: Of the device.
            further_share: The device can be shared and a share of it is in use already, by an
                allocated claim or in this attempt.

        Raises:
            AttemptFailed: The rule cannot be judged (upstream's fatal errors).
        """
        ...

    def undo(self, request: Request, position: int, *, further_share: bool) -> None:
        """Take back the latest `add` that returned true; called with the same arguments."""
        ...

    def state(self) -> Hashable:
        """Return all of this attempt that later answers depend on."""
        ...

    def outlook(self, ahead: Ahead) -> Hashable:
        """Return all of `state` on which answers about what lies ahead depend.

        Choosing more never makes a later answer better: where two states differ only in what was
        chosen, and the outlook is the same, the rest of the search ends alike.
        """
        ...

    def refusal(self, request: Request, position: int, *, further_share: bool) -> Refusal | None:
        """Return why `add` would say no now; None when it would say yes. Changes nothing."""
        ...
