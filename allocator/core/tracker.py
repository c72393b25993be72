"""What a feature that restrains combinations of devices shows to the search.

Each feature file that has such a rule makes one tracker per attempt and node. The search asks it
in upstream's order, undoes in reverse, and treats devices that all trackers see alike as
interchangeable.
"""

from collections.abc import Hashable
from typing import Protocol

from allocator.core.model import Request
from allocator.core.outcome import Refusal


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

    def refusal(self, request: Request, position: int, *, further_share: bool) -> Refusal | None:
        """Return why `add` would say no now; None when it would say yes. Changes nothing."""
        ...
