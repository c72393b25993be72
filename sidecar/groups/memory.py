"""The sidecar's memory of groups between calls: their last places, kept devices, and the searches without an answer."""

from collections.abc import Callable, Iterable
from typing import Final

from kube.api.ownership import MAX_KEPT_GROUPS
from kube.collections.least_recently_used import LeastRecentlyUsed
from sidecar.groups.infeasible import InfeasibleGroups
from sidecar.groups.places import GroupOutcome, Places
from sidecar.groups.searches import GroupSearches
from sidecar.groups.waking import Unplaceable
from sidecar.plan.occupancy import Keep

MAX_KEEPS: Final = MAX_KEPT_GROUPS
"""Groups that keep devices at a time, one of each namespace: the others are not to stand still for one tenant."""
MAX_GROUPS: Final = 1024
"""Groups whose places are remembered. A reserved pod of another one is placed by itself."""


class GroupMemory:
    """The places of groups by UID.

    Attributes:
        searches: The unfinished searches.
        infeasible: The groups that do not fit on an idle cluster.
        unplaceable: The groups that plans of the waiting pods need not ask about.
        keeps: The devices kept for groups that have waited for long, the most important first.
    """

    def __init__(self) -> None:
        """Begin without a group."""
        self.searches: Final = GroupSearches()
        self.infeasible: Final = InfeasibleGroups()
        self.unplaceable: Final = Unplaceable()
        self.keeps: tuple[Keep, ...] = ()
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

    def keep_of(self, uid: str) -> Keep | None:
        """Return the devices that a group keeps; None for none."""
        return next((keep for keep in self.keeps if keep.group == uid), None)

    def may_keep(self, keep: Keep) -> bool:
        """Return True if a group is important enough to keep devices beside the others that do.

        Args:
            keep: The keep that it would have; its devices do not matter.
        """
        return keep in choose_keeps([*self._keeps_of_others(keep.group), keep])

    def replace_keep(self, uid: str, keep: Keep | None) -> bool:
        """Have a group keep other devices than before, None for none; return true if anything changed."""
        before = self.keeps
        others = self._keeps_of_others(uid)
        self.keeps = choose_keeps([*others, keep] if keep is not None else others)
        return self.keeps != before

    def end_keeps(self, is_waiting: Callable[[str], bool]) -> bool:
        """Keep nothing for groups that do not wait any more; return true if there were some.

        Args:
            is_waiting: Returns whether the group of a UID waits.
        """
        before = self.keeps
        self.keeps = tuple(keep for keep in before if is_waiting(keep.group))
        return self.keeps != before

    def _keeps_of_others(self, uid: str) -> list[Keep]:
        return [keep for keep in self.keeps if keep.group != uid]


def choose_keeps(keeps: Iterable[Keep]) -> tuple[Keep, ...]:
    """Return those that count, the most important group first."""
    by_namespace: dict[str, Keep] = {}
    for keep in sorted(keeps, key=lambda keep: keep.importance):
        by_namespace.setdefault(keep.namespace, keep)
    return tuple(by_namespace.values())[:MAX_KEEPS]
