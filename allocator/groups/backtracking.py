"""The exact search for the members of each kind on every node: depth-first over the nodes.

Each node gets as many members as fit there together (`feasibility`), and what is left goes to the nodes after it.
Branches that contain no better placement are cut:

* equal members: only their number counts, so permutations of them are one branch;
* equal nodes: of the nodes of one class no more are looked at than there are members;
* dominated numbers: on a node that is linked to no other, only maximal numbers are tried;
* memoisation: whatever was placed before, the same rest fails on the same nodes;
* bounds: the members of each kind that the nodes after it could take if they had no others, and the devices
  that several nodes see (`supply`).

Nodes that are linked come first, and all of their plans are tried; see `linked_nodes`. The search can be continued
where a budget has ended it. The terms are those of docs/search.md.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.groups.feasibility import (
    CandidateNode,
    Feasibility,
    descending_counts,
    maximal_counts,
)
from allocator.groups.kinds import Counts
from allocator.groups.linked_nodes import LinkedNodes, LinkedState
from allocator.model.usage import Usage
from kube.cel.scope import current_scope


class _Choice(NamedTuple):
    """Members of each kind on a node, and the linked nodes with them."""

    counts: Counts
    state: LinkedState


_NO_MORE: Final = _Choice((), LinkedState(usage=Usage(), placed=()))


class _Frame:
    """The numbers of members that one node may get.

    Attributes:
        choices: The numbers that are not tried yet; None for numbers that need not be tried.
        counts: The numbers that are tried now.
    """

    def __init__(
        self,
        position: int,
        remaining: Counts,
        choices: Iterator[_Choice | None],
    ) -> None:
        self.position = position
        self.remaining = remaining
        self.choices = choices
        self.counts: Counts = ()


class Backtracking:
    """A search for the placement with the most members, that can be continued.

    Attributes:
        best: Node to members of each kind, of the best placement so far.
        best_state: The linked nodes of that placement.
        placed: Its number of members.
        is_complete: Every other placement has been ruled out.
        steps: Cost so far, beside that of feasibility and linked nodes.
    """

    def __init__(
        self,
        nodes: Sequence[CandidateNode],
        counts: Counts,
        feasibility: Feasibility,
        linked: LinkedNodes,
        start: LinkedState,
    ) -> None:
        """Begin with nothing placed.

        Args:
            nodes: The nodes in order of preference.
            counts: Members of each kind.
            feasibility: The answers about single nodes.
            linked: The plans of linked nodes.
            start: The usage of the cluster.
        """
        self.best: Mapping[str, Counts] = {}
        self.best_state = start
        self.placed = 0
        self.is_complete = False
        self.steps = 0
        self._counts = counts
        self._total = sum(counts)
        self._feasibility = feasibility
        self._linked = linked
        self._nodes = tuple(sorted(nodes, key=lambda node: not node.is_linked))
        self._start = start
        # The members of each kind that the last nodes could take, first of none of them, then of one.
        self._bounds: list[Counts] = [(0,) * len(counts)]
        self._supply = self._total
        self._failed: set[tuple[int, Counts]] = set()
        self._stack: list[_Frame] | None = None

    def offer(self, placement: Mapping[str, Counts]) -> None:
        """Take over a placement without linked nodes that another search has found, if it is better."""
        placed = sum(map(sum, placement.values()))
        if placed > self.placed:
            self.replace(placement)

    def replace(self, placement: Mapping[str, Counts]) -> None:
        """Take over a placement without linked nodes that is as large as the best, and better."""
        self.best, self.best_state = placement, self._start
        self.placed = sum(map(sum, placement.values()))
        self.is_complete = self.placed == self._total

    def run(self, goal: int, limit: int) -> None:
        """Search until a number of members is placed, or no step is left.

        Args:
            goal: Members to place; fewer do not end the search.
            limit: The most that the decision may cost, with the steps that it has taken already.
        """
        if self._is_done(goal) or not self._bound(limit):
            return
        goal = min(goal, self.upper_bound)
        if self._stack is None:
            self._stack = [self._frame(0, self._counts, self._start)]
        while not self._is_done(goal):
            if not self._stack:
                self.is_complete = True
                return
            if self._cost() > limit:
                return
            self._step(self._stack)

    def _is_done(self, goal: int) -> bool:
        return self.is_complete or self.placed >= goal

    @property
    def upper_bound(self) -> int:
        """A number of members that no placement exceeds, as far as it is known."""
        if len(self._bounds) <= len(self._nodes):
            return self._total
        return min(self._supply, sum(self._bounds[-1]))

    def _cost(self) -> int:
        return self.steps + self._feasibility.steps + self._linked.steps

    def _step(self, stack: list[_Frame]) -> None:
        """Try the next numbers of the last node, or leave it."""
        self.steps += 1
        current_scope().meter.count(1)
        frame = stack[-1]
        choice = next(frame.choices, _NO_MORE)
        if choice is _NO_MORE:
            stack.pop()
            if self._is_independent(frame.position):
                self._failed.add((frame.position, frame.remaining))
            return
        if choice is None:
            return
        frame.counts, state = choice
        remaining = _subtract(frame.remaining, frame.counts)
        placed = self._total - sum(remaining)
        if placed > self.placed:
            self.placed, self.best_state = placed, state
            self.best = {
                self._nodes[entry.position].name: entry.counts
                for entry in stack
                if any(entry.counts)
            }
            if placed == self._total:
                self.is_complete = True
                return
        position = frame.position + 1
        if position < len(self._nodes) and self._can_improve(position, remaining, placed):
            stack.append(self._frame(position, remaining, state))

    def _frame(self, position: int, remaining: Counts, state: LinkedState) -> _Frame:
        if position >= len(self._nodes):
            return _Frame(position, remaining, iter(()))
        node = self._nodes[position]
        choices = self._linked_choices if node.is_linked else self._choices
        return _Frame(position, remaining, choices(node, remaining, state))

    def _choices(
        self, node: CandidateNode, remaining: Counts, state: LinkedState
    ) -> Iterator[_Choice | None]:
        for counts in maximal_counts(node, remaining, self._feasibility):
            yield None if counts is None else _Choice(counts, state)

    def _linked_choices(
        self, node: CandidateNode, remaining: Counts, state: LinkedState
    ) -> Iterator[_Choice | None]:
        for counts in descending_counts(node, remaining, self._feasibility):
            if not any(counts):
                yield _Choice(counts, state)
                continue
            for after in self._linked.states(state, node.name, counts):
                yield None if after is None else _Choice(counts, after)

    def _can_improve(self, position: int, remaining: Counts, placed: int) -> bool:
        if (position, remaining) in self._failed:
            return False
        bound = self._bounds[len(self._nodes) - position]
        return placed + sum(map(min, remaining, bound)) > self.placed

    def _is_independent(self, position: int) -> bool:
        return position < len(self._nodes) and not self._nodes[position].is_linked

    def _bound(self, limit: int) -> bool:
        """Compute the bounds from the last node on; return false if no step is left before the first."""
        while len(self._bounds) <= len(self._nodes):
            if self._cost() > limit:
                return False
            node = self._nodes[len(self._nodes) - len(self._bounds)]
            most = [
                self._feasibility.most(node, kind, count) if node.options[kind] >= 0 else 0
                for kind, count in enumerate(self._counts)
            ]
            sums = map(sum, zip(self._bounds[-1], most, strict=True))
            self._bounds.append(tuple(map(min, self._counts, sums)))
            if len(self._bounds) > len(self._nodes) and self._nodes[0].is_linked:
                self._supply = self._linked.supply_bound(
                    self._counts, self._nodes, self._feasibility
                )
        return True


def without_surplus(
    nodes: Sequence[CandidateNode], members: int, needed: Collection[str]
) -> tuple[CandidateNode, ...]:
    """Return of equal nodes only as many as there are members, and those that are needed anyway."""
    counts: Counter[Hashable] = Counter()
    useful_nodes: list[CandidateNode] = []
    for node in nodes:
        counts[node.key] += 1
        if counts[node.key] <= members or node.name in needed:
            useful_nodes.append(node)
    return tuple(useful_nodes)


def _subtract(counts: Counts, others: Counts) -> Counts:
    return tuple([count - other for count, other in zip(counts, others, strict=True)])
