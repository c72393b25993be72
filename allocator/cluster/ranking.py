"""The nodes that have devices for a request, best first, kept up to date as the cluster changes.

A scheduler asks for the best hundred nodes thousands of times, and between two questions one
allocation changes one node, or one pool that many nodes see. So a ranking of the equivalence classes is
kept per request: a question costs the classes that changed since the last one and the nodes that are
looked at, whatever the number of nodes and of their classes. Classes whose verdict is not known are
searched when they are needed, within a limit; the rest is searched by the next question.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

import msgspec

from allocator.cluster.preference import Preference
from allocator.cluster.verdicts import CachedVerdict, ClassKey, NodePlans, Usable
from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Plan
from kube.cel.scope import AnswerInterrupted, AnswersPending, BudgetSpent

_FEW = 64
"""Changes that are inserted one by one; more than a quarter of the order is sorted anew."""


class Members(Protocol):
    """The classes of a partition and their nodes."""

    @property
    def names(self) -> Mapping[ClassKey, Sequence[str]]:
        """Class to its nodes, sorted."""
        ...

    @property
    def class_of(self) -> Mapping[str, ClassKey]:
        """Node to its class."""
        ...

    @property
    def unassigned(self) -> Collection[str]:
        """Nodes that are in no class yet."""
        ...


class Failure(NamedTuple):
    """The search of a class that failed.

    Attributes:
        error: The failure. Its message names the claims and requests of the caller, and a device of
            the node.
        names: The names of the caller's claims and requests.
        node: The node that was searched.
    """

    error: AttemptFailed
    names: Hashable
    node: str

    @property
    def steps(self) -> int:
        """Cost of the search."""
        return self.error.steps


class FailedNode(NamedTuple):
    """A node with the failure of its search."""

    name: str
    class_key: ClassKey
    failure: Failure


_Verdict = CachedVerdict | Failure | None
"""The verdict about a class; None for a class that is unknown or gone."""

_Place = tuple[int, str, ClassKey]
"""The negative score of a class and its first node, by which classes are in order."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one answer may cost; the next answer continues with the rest.

    Attributes:
        nodes: Nodes whose devices are looked at for a request that was not asked for before.
        searches: Searches of a class.
        steps: The steps of all searches together.
    """

    nodes: int
    searches: int
    steps: int


class RankedNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question for nodes.

    Attributes:
        nodes: Name and score of the nodes, best first; equal scores by name. Those that the caller does not
            prefer come last.
        preferred: The number of nodes in `nodes` that the caller prefers; all without a preference.
        complete: No further node that the caller prefers has devices for the request.
        is_known: The verdict about every node is known.
        is_settled: True if unknown verdicts would change nothing, as nodes are taken in turn and there are enough.
        rejected: Nodes that have devices and that the caller does not accept.
        cut_off: The search of some class was given up, so its nodes may have devices.
        interruption: The reason for which the answer ended before its limits; None if it did not.
    """

    nodes: tuple[tuple[str, int], ...]
    preferred: int = 0
    complete: bool
    is_known: bool
    is_settled: bool = False
    rejected: int
    cut_off: bool
    interruption: AnswerInterrupted | None = None


def interrupted(interruption: AnswerInterrupted) -> RankedNodes:
    """Return the answer for a cluster that nothing is known of."""
    return RankedNodes(
        nodes=(),
        complete=False,
        is_known=False,
        rejected=0,
        cut_off=False,
        interruption=interruption,
    )


class Ranking:
    """The known verdicts about all classes of nodes, for one request.

    Attributes:
        changed: Classes that are new or gone, or have other nodes than at the last question.
        stale: Classes whose verdict may be another than at the last question.
    """

    def __init__(self, classes: Iterable[ClassKey]) -> None:
        """Know nothing about the classes yet."""
        self.changed = set(classes)
        self.stale: set[ClassKey] = set()
        self._verdicts: dict[ClassKey, CachedVerdict] = {}
        self._places: dict[ClassKey, _Place] = {}
        self._order: list[_Place] = []
        self._unsearched: dict[ClassKey, None] = {}
        self._cut_off: set[ClassKey] = set()
        self._failed: dict[ClassKey, Failure] = {}

    @property
    def lag(self) -> int:
        """Number of keys of classes that the next question has to take in."""
        return len(self.changed) + len(self.stale)

    @property
    def unsearched(self) -> int:
        """Number of classes that have to be searched."""
        return len(self._unsearched)

    @property
    def verdicts(self) -> Mapping[ClassKey, CachedVerdict]:
        """The known verdicts; they change with the next question."""
        return self._verdicts

    def update(
        self,
        names: Mapping[ClassKey, Sequence[str]],
        find: Callable[[ClassKey], CachedVerdict | None],
    ) -> None:
        """Take in the classes that changed.

        Args:
            names: Class to its nodes, sorted; without the classes that are gone.
            find: Returns the cached verdict about a class.
        """
        for class_key in self.stale:
            self._verdicts.pop(class_key, None)
            self._failed.pop(class_key, None)
        verdicts: dict[ClassKey, _Verdict] = {}
        for class_key in self.changed | self.stale:
            if class_key not in names:
                verdicts[class_key] = None
                self._unsearched.pop(class_key, None)
                continue
            verdict = self._verdicts.get(class_key) or self._failed.get(class_key)
            if verdict is None:
                verdict = find(class_key)
            if verdict is None:
                self._unsearched[class_key] = None
            else:
                self._unsearched.pop(class_key, None)
            verdicts[class_key] = verdict
        self.changed.clear()
        self.stale.clear()
        self._replace(verdicts, names)

    def search(
        self,
        names: Mapping[ClassKey, Sequence[str]],
        find: Callable[[ClassKey], CachedVerdict | None],
        search: Callable[[ClassKey, str], CachedVerdict | Failure],
        limits: Limits | None,
    ) -> AnswerInterrupted | None:
        """Search classes with an unknown verdict; return the reason for an early end, or None.

        Args:
            names: Class to its nodes, sorted.
            find: A function that returns the cached verdict about a class; a search of this answer
                may have cached it.
            search: A function that returns the verdict about a class; it gets one node of the
                class.
            limits: The most that the answer may cost; None for no limits.
        """
        searches = steps = 0
        verdicts: dict[ClassKey, _Verdict] = {}
        try:
            while self._unsearched and (
                limits is None or (searches < limits.searches and steps < limits.steps)
            ):
                class_key = next(iter(self._unsearched))
                verdict: _Verdict = find(class_key) if searches else None
                if verdict is None:
                    verdict = search(class_key, names[class_key][0])
                    searches += 1
                    steps += verdict.steps
                verdicts[class_key] = verdict
                del self._unsearched[class_key]
        except (AnswersPending, BudgetSpent) as error:
            return error
        finally:
            self._replace(verdicts, names)
        return None

    def verdict_of(self, class_key: ClassKey) -> CachedVerdict | Failure | None:
        """Return the known verdict about a class; None if it has to be searched."""
        return self._verdicts.get(class_key) or self._failed.get(class_key)

    def take(
        self,
        verdicts: Mapping[ClassKey, CachedVerdict | Failure],
        names: Mapping[ClassKey, Collection[str]],
    ) -> None:
        """Take in verdicts about classes that had to be searched.

        Args:
            verdicts: Class to its verdict.
            names: Class to its nodes, sorted.
        """
        for class_key in verdicts:
            self._unsearched.pop(class_key, None)
        self._replace(verdicts, names)

    def search_used(
        self,
        names: Mapping[ClassKey, Sequence[str]],
        find: Callable[[ClassKey], CachedVerdict | None],
        search: Callable[[ClassKey, str], CachedVerdict | Failure],
        may_use: Usable,
    ) -> None:
        """Search the classes with a node that counts; the others stay unknown.

        Arguments as of `search` and `failed_node`.

        Raises:
            AnswerInterrupted: Not all of them could be looked at.
        """
        verdicts: dict[ClassKey, _Verdict] = {}
        try:
            for class_key in tuple(self._unsearched):
                if any(map(may_use, names[class_key])):
                    # A search of this answer may have cached it.
                    verdict: _Verdict = find(class_key) if verdicts else None
                    if verdict is None:
                        verdict = search(class_key, names[class_key][0])
                    verdicts[class_key] = verdict
                    del self._unsearched[class_key]
        finally:
            self._replace(verdicts, names)

    def failed_node(
        self, names: Mapping[ClassKey, Sequence[str]], may_use: Callable[[str], bool]
    ) -> FailedNode | None:
        """Return the first node by name that counts and has a failed search; None if there is none.

        Args:
            names: Class to its nodes, sorted.
            may_use: A predicate that is true if a node counts.
        """
        failed_nodes = [
            FailedNode(name, class_key, failure)
            for class_key, failure in self._failed.items()
            if (name := next(filter(may_use, names[class_key]), None)) is not None
        ]
        return min(failed_nodes, key=lambda failed_node: failed_node.name, default=None)

    def replace_failure(self, class_key: ClassKey, failure: Failure) -> None:
        """Replace the failure of a class by one with other names, or of another of its nodes."""
        self._failed[class_key] = failure

    def answer(
        self,
        partition: Members,
        limit: int | None,
        accepts: Callable[[str, Plan], bool],
        preference: Preference | None,
        interruption: AnswerInterrupted | None,
        *,
        unknown: str | None = None,
    ) -> RankedNodes:
        """Return the best nodes.

        Args:
            partition: The classes and their nodes.
            limit: Maximum number of nodes; None for all.
            accepts: A predicate that is true if the caller wants a node that fits; it gets the plan
                of the node's class.
            preference: Says which nodes come first; None for the strategy's order alone.
            interruption: The reason for an early end, as in `RankedNodes`.
            unknown: The first node in turn whose verdict is not known; nodes of the lowest score that come later are
                left out if there are others. None where nodes are not taken in turn, or all of them are known.
        """
        is_known = not self._unsearched and not partition.unassigned
        class_of, verdicts = partition.class_of, self._verdicts
        order = None if preference is None else preference.order(NodePlans(class_of, verdicts))
        if order is None:
            order = self._best_first(partition.names, preference.start if preference else "")
        nodes: list[tuple[str, int]] = []
        others: list[tuple[str, int]] = []
        rejected_count, is_whole = 0, True
        start = preference.start if preference else ""
        turn_of_unknown = None if unknown is None else (unknown < start, unknown)
        for name, score in order:
            is_late = turn_of_unknown is not None and (name < start, name) > turn_of_unknown
            if (limit is not None and len(nodes) == limit) or (is_late and nodes and not score):
                is_whole = False
                break
            outcome = verdicts[class_of[name]].outcome
            if preference is not None and not preference.prefers(name):
                # Where CPU is short these are most nodes, and few of them are needed.
                others.append((name, score))
            elif isinstance(outcome, Plan) and accepts(name, outcome):
                nodes.append((name, score))
            else:
                rejected_count += 1
        preferred = len(nodes)
        for name, score in others:
            if limit is not None and len(nodes) == limit:
                break
            outcome = verdicts[class_of[name]].outcome
            if isinstance(outcome, Plan) and accepts(name, outcome):
                nodes.append((name, score))
            else:
                rejected_count += 1
        return RankedNodes(
            nodes=tuple(nodes),
            preferred=preferred,
            complete=is_whole and is_known,
            is_known=is_known,
            rejected=rejected_count,
            cut_off=bool(self._cut_off),
            interruption=interruption,
        )

    def _best_first(
        self, names: Mapping[ClassKey, Sequence[str]], start: str
    ) -> Iterator[tuple[str, int]]:
        """Yield the nodes that fit and their scores, the highest first.

        Args:
            names: Class to its nodes, sorted.
            start: The name with which nodes of equal score begin, in the order of names; those before it
                come last.
        """
        place = 0
        while place < len(self._order):
            negative_score = self._order[place][0]
            end = bisect_left(self._order, (negative_score + 1,), place)
            middle = bisect_left(self._order, (negative_score, start), place, end)
            for name in _merged(self._order[place:middle], self._order[middle:end], names, start):
                yield name, -negative_score
            for name in _merged((), self._order[place:middle], names, ""):
                if name >= start:
                    break
                yield name, -negative_score
            place = end

    def _replace(
        self, verdicts: Mapping[ClassKey, _Verdict], names: Mapping[ClassKey, Collection[str]]
    ) -> None:
        """Replace the verdicts about some classes."""
        is_bulk = len(verdicts) > _FEW + len(self._order) // 4
        for class_key, verdict in verdicts.items():
            before = self._places.pop(class_key, None)
            if before is not None and not is_bulk:
                del self._order[bisect_left(self._order, before)]
            self._verdicts.pop(class_key, None)
            self._cut_off.discard(class_key)
            self._failed.pop(class_key, None)
            if verdict is None:
                continue
            if isinstance(verdict, Failure):
                self._failed[class_key] = verdict
                continue
            self._verdicts[class_key] = verdict
            if isinstance(verdict.outcome, BudgetExhausted):
                self._cut_off.add(class_key)
            elif isinstance(verdict.outcome, Plan):
                first_name = next(iter(names[class_key]))
                place = self._places[class_key] = (-verdict.score, first_name, class_key)
                if not is_bulk:
                    insort(self._order, place)
        if is_bulk:
            self._order = sorted(self._places.values())


def _merged(
    begun: Iterable[_Place],
    places: Sequence[_Place],
    names: Mapping[ClassKey, Sequence[str]],
    start: str,
) -> Iterator[str]:
    """Yield the nodes of classes from a name on, merged as far as they are read.

    Args:
        begun: Classes whose first node comes before the name.
        places: Classes whose first node does not, by name.
        names: Class to its nodes, sorted.
        start: The name.
    """
    # A heap: the next node of each class.
    heads = [
        (members[number], class_key, number)
        for _, _, class_key in begun
        if (members := names[class_key])[-1] >= start
        for number in (bisect_left(members, start),)
    ]
    heapify(heads)
    place = 0
    while heads or place < len(places):
        if place < len(places) and (not heads or places[place][1] < heads[0][0]):
            _, name, class_key = places[place]
            number = 0
            place += 1
        else:
            name, class_key, number = heappop(heads)
        yield name
        members, number = names[class_key], number + 1
        if number < len(members):
            heappush(heads, (members[number], class_key, number))
