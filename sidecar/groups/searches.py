"""The searches about groups that ended without an answer: the next attempt goes on where nothing has changed."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from allocator.cluster.cluster import Cluster
from allocator.groups.decide import GroupSearch
from allocator.groups.model import GroupQuestion
from kube.api.resource import ResourceClaim
from kube.collections.least_recently_used import LeastRecentlyUsed

MAX_SEARCHES: Final = 16
"""Searches that are kept; each has what it found out about every class of nodes."""


class SearchKey(NamedTuple):
    """The circumstances of a search.

    Attributes:
        version: The version of the cluster.
        question: The group.
        assumed: The claims that are taken to be released, and those that are taken to be allocated.
    """

    version: int
    question: GroupQuestion
    assumed: tuple[Sequence[ResourceClaim], Sequence[ResourceClaim]]


class _Search(NamedTuple):
    key: SearchKey
    cluster: Cluster
    search: GroupSearch
    attempts: int


class GroupSearches:
    """The unfinished searches by group."""

    def __init__(self) -> None:
        """Begin without a search."""
        self._searches = LeastRecentlyUsed[str, _Search](MAX_SEARCHES)

    def find(self, uid: str, cluster: Cluster, key: SearchKey) -> tuple[GroupSearch, int]:
        """Return the search about a group, and the number of attempts that it had; a new one has none.

        Args:
            uid: The group's UID.
            cluster: The cluster, with what is assumed.
            key: The circumstances now.
        """
        earlier = self._searches.get(uid)
        if earlier is not None and earlier.cluster is cluster and earlier.key == key:
            return earlier.search, earlier.attempts
        return GroupSearch(cluster, key.question), 0

    def keep(
        self, uid: str, cluster: Cluster, key: SearchKey, search: GroupSearch, attempts: int
    ) -> None:
        """Keep a search that has had so many attempts."""
        self._searches[uid] = _Search(key, cluster, search, attempts)

    def end(self, uid: str) -> None:
        """Forget the search about a group: there is an answer, or the group is gone."""
        self._searches.pop(uid)
