"""The searches of one answer: the classes of nodes to search, and the error that ends the attempt."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from allocator.cluster.canonical_requests import names_of
from allocator.cluster.preference import Preference
from allocator.cluster.ranking import FailedNode, Failure, Limits, Members, Ranking
from allocator.cluster.verdict_cache import Question
from allocator.cluster.verdicts import CachedVerdict, ClassKey, Outcome
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.strategies.strategy import Strategy
from kube.cel.scope import AnswerInterrupted, AnswersPending, BudgetSpent

_FEW: Final = 8
"""Classes that are searched wherever their nodes are."""


class ClassSearches(NamedTuple):
    """The classes of an answer, and the functions that look up and search their verdicts.

    Attributes:
        partition: The classes and their nodes.
        find: Returns the cached verdict about a class; a search of this answer may have cached it.
        search: Returns the verdict about a class; it gets one node of the class.
    """

    partition: Members
    find: Callable[[ClassKey], CachedVerdict | None]
    search: Callable[[ClassKey, str], CachedVerdict | Failure]


class Turn(NamedTuple):
    """The nodes in turn; the first that fit are wanted.

    Attributes:
        names: All nodes, sorted.
        start: The node with which they begin.
        preference: Says which of them come first.
        enough: Number of nodes that are wanted; None for all.
        wants: A predicate that is true if the caller wants a node that fits; it gets the plan of its class.
    """

    names: Sequence[str]
    start: str
    preference: Preference
    enough: int | None
    wants: Callable[[str, Plan], bool]

    def nodes(self) -> Iterator[str]:
        """Yield the preferred nodes in turn."""
        place = bisect_left(self.names, self.start)
        yield from filter(self.preference.prefers, islice(self.names, place, None))
        yield from filter(self.preference.prefers, islice(self.names, place))


class Searched(NamedTuple):
    """The results of the searches.

    Attributes:
        interruption: The reason for an early end; None if there was none.
        unknown: The first node in turn whose verdict is not known; None where nodes are not taken in turn,
            or no such verdict is needed.
        is_settled: Nodes are taken in turn, and enough of them are wanted.
    """

    interruption: AnswerInterrupted | None = None
    unknown: str | None = None
    is_settled: bool = False


class NodeVerdict(Protocol):
    """Searches one node."""

    def __call__(
        self, pending: PendingClaims, node: str, *, strategy: Strategy, budget: Budget
    ) -> Outcome:
        """Return the outcome of the search."""
        ...


def search_wanted(
    ranking: Ranking, classes: ClassSearches, turn: Turn | None, limits: Limits | None
) -> Searched:
    """Search classes with an unknown verdict: those of the nodes in turn, or else any.

    Args:
        ranking: The verdicts that are known.
        classes: The classes.
        turn: The nodes in turn; None where they are not taken so.
        limits: The most that the answer may cost; None for no limits.
    """
    partition, find, search = classes
    if turn is None or turn.enough is None or limits is None:
        return Searched(interruption=ranking.search(partition.names, find, search, limits))
    if not limits.searches and (ranking.unsearched or partition.unassigned):
        return Searched(unknown=turn.start)
    if ranking.unsearched <= min(_FEW, limits.searches) and not partition.unassigned:
        # Mostly one class is new, and where few nodes fit, a look at all nodes in turn costs more than its search.
        interruption = ranking.search(partition.names, find, search, limits)
        return Searched(
            interruption=interruption, unknown=turn.start if ranking.unsearched else None
        )
    unsearched = ranking.unsearched
    searched = _search_in_turn(ranking, classes, turn, limits)
    if searched == Searched() and ranking.unsearched == unsearched:
        # After those in turn the nodes that are not preferred.
        interruption = ranking.search(partition.names, find, search, limits)
        return Searched(interruption=interruption)
    return searched


def _search_in_turn(
    ranking: Ranking, classes: ClassSearches, turn: Turn, limits: Limits
) -> Searched:
    """Search the nodes in turn until enough of them are wanted, and no other."""
    partition, find, search = classes
    searches = steps = accepted_count = 0
    verdicts: dict[ClassKey, CachedVerdict | Failure] = {}
    try:
        for name in turn.nodes():
            class_key = partition.class_of.get(name)
            if class_key is None:
                return Searched(unknown=name)
            verdict = verdicts.get(class_key) or ranking.verdict_of(class_key) or find(class_key)
            if verdict is None:
                if searches >= limits.searches or steps >= limits.steps:
                    return Searched(unknown=name)
                try:
                    verdict = search(class_key, partition.names[class_key][0])
                except (AnswersPending, BudgetSpent) as error:
                    return Searched(interruption=error, unknown=name)
                searches += 1
                steps += verdict.steps
            if ranking.verdict_of(class_key) is None:
                verdicts[class_key] = verdict
            if isinstance(verdict, CachedVerdict) and isinstance(verdict.outcome, Plan):
                accepted_count += turn.wants(name, verdict.outcome)
            if accepted_count == turn.enough:
                return Searched(is_settled=True)
    finally:
        ranking.take(verdicts, partition.names)
    return Searched()


def own_error(
    verdict: NodeVerdict, question: Question, ranking: Ranking, failed_node: FailedNode
) -> AttemptFailed:
    """Return the error of a node with the names of the claims that are asked about.

    If an equal question had it before, or another node of its class, the node is searched once
    more: the error names other claims, or a device of the other node.

    Args:
        verdict: Searches the node.
        question: The claims.
        ranking: Takes the error.
        failed_node: The node, and the error that is known.
    """
    name, class_key, failure = failed_node
    names = names_of(question.pending)
    if failure.names == names and failure.node == name:
        return failure.error
    try:
        verdict(question.pending, name, strategy=question.strategy, budget=question.budget)
    except AttemptFailed as error:
        failure = Failure(error.without_traceback(), names, name)
        ranking.replace_failure(class_key, failure)
    return failure.error
