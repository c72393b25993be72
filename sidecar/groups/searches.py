"""The searches about groups that ended without an answer: the next attempt goes on if nothing has changed."""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from allocator.cluster.cluster import Cluster
from allocator.groups.decide import GroupSearch
from allocator.groups.model import GroupQuestion
from allocator.model.plan import Budget
from kube.api.resource import ResourceClaim
from sidecar.model.protocol import GroupReference

MAX_SEARCHES: Final = 16
"""Searches that are kept; each has what it found out about every class of nodes."""
MIN_STEPS: Final = 250
"""Steps of an attempt, however long they take."""


K = TypeVar("K")
V = TypeVar("V")


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


class _Shares(Generic[K, V]):
    """Values by key, the first of the namespace with most evicted first.

    So no namespace has the place of another one that has fewer.
    """

    def __init__(self) -> None:
        self._values: OrderedDict[K, tuple[str, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        return None if value is None else value[1]

    def pop(self, key: K) -> V | None:
        value = self._values.pop(key, None)
        return None if value is None else value[1]

    def put(self, namespace: str, key: K, value: V) -> None:
        self._values[key] = namespace, value
        self._values.move_to_end(key)
        if len(self._values) > MAX_SEARCHES:
            counts = Counter(owner for owner, _ in self._values.values())
            most = max(counts.values())
            entries = self._values.items()
            del self._values[next(uid for uid, (owner, _) in entries if counts[owner] == most)]


class GroupSearches:
    """The unfinished searches by group."""

    def __init__(self) -> None:
        """Begin without a search."""
        # By group, and whether the search is one within its budget, which follows one without.
        self._searches = _Shares[tuple[str, bool], _Search]()
        # Groups whose search took too much time for its steps, and the steps of their next attempt.
        self._budgets = _Shares[str, Budget]()

    def take(self, uid: str, cluster: Cluster, key: SearchKey) -> GroupSearch:
        """Return the search about a group: the earlier one in unchanged circumstances, or a new one.

        It is kept no more: after an interruption it cannot go on.

        Args:
            uid: The group's UID.
            cluster: The cluster, with what is assumed.
            key: The circumstances now.
        """
        earlier = self._searches.pop(_place(uid, key))
        if earlier is not None and earlier.cluster is cluster and earlier.key == key:
            return earlier.search
        return GroupSearch(cluster, key.question)

    def keep(
        self, group: GroupReference, cluster: Cluster, key: SearchKey, search: GroupSearch
    ) -> None:
        """Keep a search for the next attempt."""
        self._searches.put(group.namespace, _place(group.uid, key), _Search(key, cluster, search))

    def budget(self, uid: str, budget: Budget) -> Budget:
        """Return the budget of an attempt: as given, unless that took too much time before."""
        return self._budgets.get(uid) or budget

    def shorten(self, group: GroupReference, budget: Budget) -> bool:
        """Halve the steps of the next attempts, as these took too much time; return True if possible."""
        shorter = Budget(steps=max(MIN_STEPS, budget.steps // 2))
        self._budgets.put(group.namespace, group.uid, shorter)
        return budget.steps > MIN_STEPS


def _place(uid: str, key: SearchKey) -> tuple[str, bool]:
    return uid, key.question.budget is not None
