"""The nodes that have devices for a request, best first, kept up to date as the cluster changes.

A scheduler asks for the best hundred nodes thousands of times, and between two questions one
allocation changes one node. So a ranking is kept per request: a question costs the nodes that changed
since the last one and the nodes that are looked at, whatever the number of nodes and of their kinds.
Equivalence classes whose verdict is not known are searched when they are needed, within a limit; the
rest is searched by the next question.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Mapping

import msgspec

from allocator.cluster.verdicts import CachedVerdict, ClassKey
from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Plan

_FEW = 64
"""Changes that are inserted one by one; more than a quarter of the order is sorted anew."""

_Verdict = CachedVerdict | AttemptFailed | None
"""What is known about a node; None for one that is unknown or gone."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one answer may cost; what is left out is done for the next one.

    Attributes:
        nodes: Nodes whose devices are looked at for a request that was not asked for before.
        searches: Searches of a class.
        steps: Of all searches together.
    """

    nodes: int
    searches: int
    steps: int


class RankedNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question for nodes.

    Attributes:
        nodes: Name and score of the nodes, best first; equal scores by name.
        complete: No further node has devices for the request.
        is_known: The verdict about every node is known.
        rejected: Nodes that have devices and that the caller does not accept.
        cut_off: The search of some class was given up, so its nodes may have devices.
        steps: Cost of the searches that were made for this answer.
    """

    nodes: tuple[tuple[str, int], ...]
    complete: bool
    is_known: bool
    rejected: int
    cut_off: bool
    steps: int


class Ranking:
    """The known verdicts about all nodes, for one request.

    Attributes:
        changed: Nodes whose class may have changed since the last question.
    """

    def __init__(self, nodes: Mapping[str, Hashable]) -> None:
        """Know nothing about the nodes yet."""
        self.changed = set(nodes)
        self._verdicts: dict[str, CachedVerdict] = {}
        self._order: list[tuple[int, str]] = []
        self._unsearched: dict[ClassKey, None] = {}
        self._cut_off: set[str] = set()
        self._failed: dict[str, AttemptFailed] = {}

    def update(
        self,
        class_of: Mapping[str, ClassKey],
        find: Callable[[ClassKey], CachedVerdict | None],
    ) -> None:
        """Take in the nodes that changed.

        Args:
            class_of: Node to its class; without the nodes that are gone.
            find: Returns the cached verdict about a class.
        """
        verdicts: dict[str, _Verdict] = {}
        for name in self.changed:
            class_key = class_of.get(name)
            verdict = None if class_key is None else find(class_key)
            if verdict is None and class_key is not None:
                self._unsearched[class_key] = None
            verdicts[name] = verdict
        self.changed.clear()
        self._replace(verdicts)

    def search(
        self,
        members: Mapping[ClassKey, Mapping[str, None]],
        search: Callable[[ClassKey, str], CachedVerdict],
        limits: Limits | None,
    ) -> int:
        """Search classes whose verdict is unknown; return the steps.

        Args:
            members: Class to its nodes.
            search: Returns the verdict about a class, of which it gets one node; if it raises
                AttemptFailed, `answer` does, for those who may use such a node.
            limits: None for all.
        """
        searches = steps = 0
        verdicts: dict[str, _Verdict] = {}
        try:
            while self._unsearched and (
                limits is None or (searches < limits.searches and steps < limits.steps)
            ):
                class_key = next(iter(self._unsearched))
                names = members.get(class_key)
                if names:
                    searches += 1
                    verdict: _Verdict
                    try:
                        verdict = search(class_key, next(iter(names)))
                        steps += verdict.outcome.steps
                    except AttemptFailed as error:
                        verdict = error.without_traceback()
                        steps += error.steps
                    verdicts.update(dict.fromkeys(names, verdict))
                del self._unsearched[class_key]
        finally:
            self._replace(verdicts)
        return steps

    def answer(
        self,
        limit: int | None,
        accepts: Callable[[str, Plan], bool],
        *,
        may_use: Callable[[str], bool],
        steps: int,
        has_unassigned: bool,
    ) -> RankedNodes:
        """Return the best nodes.

        Args:
            limit: Maximum number of nodes; None for all.
            accepts: Whether the caller wants a node that fits, with the plan of its class.
            may_use: Whether a node counts on which the search failed.
            steps: Cost of the searches that were made for this answer.
            has_unassigned: There are nodes that are in no class yet.

        Raises:
            AttemptFailed: The search failed on a node that counts.
        """
        failed_names = [name for name in self._failed if may_use(name)]
        if failed_names:
            raise self._failed[min(failed_names)].without_traceback()
        is_known = not self._unsearched and not has_unassigned
        nodes: list[tuple[str, int]] = []
        rejected_count, is_whole = 0, True
        for negative_score, name in self._order:
            if limit is not None and len(nodes) == limit:
                is_whole = False
                break
            outcome = self._verdicts[name].outcome
            if isinstance(outcome, Plan) and accepts(name, outcome):
                nodes.append((name, -negative_score))
            else:
                rejected_count += 1
        return RankedNodes(
            nodes=tuple(nodes),
            complete=is_whole and is_known,
            is_known=is_known,
            rejected=rejected_count,
            cut_off=bool(self._cut_off),
            steps=steps,
        )

    def _replace(self, verdicts: Mapping[str, _Verdict]) -> None:
        """Replace what is known about some nodes."""
        is_bulk = len(verdicts) > _FEW + len(self._order) // 4
        for name, verdict in verdicts.items():
            before = self._verdicts.pop(name, None)
            if before is not None and not is_bulk:
                self._remove(name, before)
            self._cut_off.discard(name)
            self._failed.pop(name, None)
            if verdict is None:
                continue
            if isinstance(verdict, AttemptFailed):
                self._failed[name] = verdict
                continue
            self._verdicts[name] = verdict
            if isinstance(verdict.outcome, BudgetExhausted):
                self._cut_off.add(name)
            elif isinstance(verdict.outcome, Plan) and not is_bulk:
                insort(self._order, (-verdict.score, name))
        if is_bulk:
            self._order = sorted(
                (-verdict.score, name)
                for name, verdict in self._verdicts.items()
                if isinstance(verdict.outcome, Plan)
            )

    def _remove(self, name: str, verdict: CachedVerdict) -> None:
        if isinstance(verdict.outcome, Plan):
            del self._order[bisect_left(self._order, (-verdict.score, name))]
