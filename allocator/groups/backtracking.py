"""The exact search for the members of each kind on every node: depth-first over the nodes.

Each node gets as many members as fit there together (`feasibility`), and what is left goes to the nodes after it.
Branches that contain no better placement are cut:

* equal members: only their number counts, so permutations of them are one branch;
* equal nodes: of the nodes of one class no more are looked at than there are members;
* dominated numbers: on a node that is linked to no other, only maximal numbers are tried;
* memoisation: whatever was placed before, the same rest fails on the same nodes;
* bounds: the members of each kind that the nodes after it could take if they had no others, the members with
  equal claims that all nodes could take, the devices that several nodes see (`supply`), and the members that a
  budget lasts for on the places that are charged least (`budget`).

Nodes that are linked come first, and all of their plans are tried (`linked_nodes`); with a budget of the group, those of
all nodes. The search can be continued where its steps have ended it. The terms are those of docs/search.md.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.groups.budget import (
    Amounts,
    KindCharges,
    joined_charges,
    minus,
    most_payable,
)
from allocator.groups.feasibility import (
    KINDS_PER_STEP,
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


_CHARGED_AS: Final = 4
"""Comparisons that cost as much as the charges of one kind on a node."""
_NO_MORE: Final = _Choice((), LinkedState(usage=Usage(), placed=()))


class _Frame:
    """The numbers of members that one node may get.

    Attributes:
        amounts: The amounts of the budget that the nodes before it take.
        choices: The numbers that are not tried yet; None for numbers that need not be tried.
        counts: The numbers that are tried now.
    """

    def __init__(
        self,
        position: int,
        remaining: Counts,
        amounts: Amounts,
        choices: Iterator[_Choice | None],
    ) -> None:
        self.position = position
        self.remaining = remaining
        self.amounts = amounts
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
    ) -> None:
        """Begin with nothing placed.

        Args:
            nodes: The nodes in order of preference.
            counts: Members of each kind.
            feasibility: The answers about single nodes.
            linked: The plans of linked nodes.
        """
        start = linked.start
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
        self._most_of: dict[Hashable, Counts] = {}
        self._supply = self._total
        self._devices_bound = self._total
        # The least that members take of the budget on the last nodes, first on none of them, then on one.
        nowhere: KindCharges = ((),) * len(linked.left)
        self._charges: list[tuple[KindCharges, ...]] = [(nowhere,) * len(counts)]
        self._failed: set[tuple[int, Counts, Amounts]] = set()
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

    def disregard(self, members: int) -> None:
        """Look for placements of more members alone."""
        self.placed = members

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
        payable = self._payable(0, self._counts, self._start.taken)
        return min(self._supply, sum(self._bounds[-1]), payable, self._devices_bound)

    def _cost(self) -> int:
        return self.steps + self._feasibility.steps + self._linked.steps

    def _step(self, stack: list[_Frame]) -> None:
        """Try the next numbers of the last node, or leave it."""
        steps = 1 + len(self._counts) // KINDS_PER_STEP
        self.steps += steps
        current_scope().meter.count(steps)
        frame = stack[-1]
        choice = next(frame.choices, _NO_MORE)
        if choice is _NO_MORE:
            stack.pop()
            if self._is_independent(frame.position):
                self._failed.add((frame.position, frame.remaining, frame.amounts))
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
        if position < len(self._nodes) and self._can_improve(position, remaining, state.taken):
            stack.append(self._frame(position, remaining, state))

    def _frame(self, position: int, remaining: Counts, state: LinkedState) -> _Frame:
        if position >= len(self._nodes):
            return _Frame(position, remaining, state.taken, iter(()))
        node = self._nodes[position]
        has_states = node.is_linked or self._linked.has_budget
        choices = self._linked_choices if has_states else self._choices
        return _Frame(position, remaining, state.taken, choices(node, remaining, state))

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
            for after in self._linked.states(state, node, counts):
                yield None if after is None else _Choice(counts, after)

    def _can_improve(self, position: int, remaining: Counts, amounts: Amounts) -> bool:
        if (position, remaining, amounts) in self._failed:
            return False
        bound = tuple(map(min, remaining, self._bounds[len(self._nodes) - position]))
        most = min(sum(bound), self._payable(position, bound, amounts))
        return self._total - sum(remaining) + most > self.placed

    def _payable(self, position: int, counts: Counts, amounts: Amounts) -> int:
        """Return a number of members that the budget lasts for at most, on the nodes from a position on."""
        if not self._linked.has_budget:
            return sum(counts)
        charges = self._charges[len(self._nodes) - position]
        return most_payable(counts, charges, minus(self._linked.left, amounts))

    def _is_independent(self, position: int) -> bool:
        return position < len(self._nodes) and not self._nodes[position].is_linked

    def _most(self, node: CandidateNode) -> Counts:
        """Return the number of members of each kind that a node takes if it has no others."""
        most = self._most_of.get(node.key)
        if most is None:
            most = self._most_of[node.key] = tuple(
                [
                    self._feasibility.most(node, kind, count) if node.options[kind] >= 0 else 0
                    for kind, count in enumerate(self._counts)
                ]
            )
        return most

    def _bound(self, limit: int) -> bool:
        """Compute the bounds from the last node on; return false if no step is left before the first."""
        while len(self._bounds) <= len(self._nodes):
            if self._cost() > limit:
                return False
            node = self._nodes[len(self._nodes) - len(self._bounds)]
            most = self._most(node)
            sums = map(sum, zip(self._bounds[-1], most, strict=True))
            if self._linked.has_budget:
                self._feasibility.compare(_CHARGED_AS * len(most))
                self._charges.append(self._charges_with(node, most))
            self._bounds.append(tuple(map(min, self._counts, sums)))
            if len(self._bounds) > len(self._nodes) and self._nodes[0].is_linked:
                self._supply = self._linked.supply_bound(
                    self._counts, self._nodes, self._feasibility
                )
        self._devices_bound = self._feasibility.most_by_devices(self._nodes)
        return True

    def _charges_with(self, node: CandidateNode, most: Sequence[int]) -> tuple[KindCharges, ...]:
        """Return the charges of each kind on one node more.

        Args:
            most: The members of each kind that the node takes if it has no others.
        """
        return tuple(
            [
                joined_charges(charges, self._linked.charges(node, kind, number), count)
                for kind, (charges, number, count) in enumerate(
                    zip(self._charges[-1], most, self._counts, strict=True)
                )
            ]
        )


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
