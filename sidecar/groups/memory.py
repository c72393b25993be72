"""The sidecar's memory of groups between calls: their last places, and the searches without an answer."""

from typing import Final

from kube.collections.least_recently_used import LeastRecentlyUsed
from sidecar.groups.places import GroupOutcome, Places
from sidecar.groups.searches import GroupSearches
from sidecar.groups.waking import Unplaceable

MAX_GROUPS: Final = 1024
"""Groups whose places are remembered. A reserved pod of another one is placed by itself."""


class GroupMemory:
    """The places of groups by UID.

    Attributes:
        searches: The unfinished searches.
        unplaceable: The groups that plans of the waiting pods need not ask about.
    """

    def __init__(self) -> None:
        """Begin without a group."""
        self.searches: Final = GroupSearches()
        self.unplaceable: Final = Unplaceable()
        self._places = LeastRecentlyUsed[str, Places](MAX_GROUPS)

    def take(self, uid: str, outcome: GroupOutcome) -> None:
        """Take the answer about a group."""
        if isinstance(outcome, Places):
            self._places[uid] = outcome
        else:
            self._places.pop(uid)

    def places(self, uid: str) -> Places | None:
        """Return the places of a group; None if its last answer was that it has none."""
        return self._places.get(uid)
