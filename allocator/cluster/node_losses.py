"""The cost of pods on the nodes to the pods that usually come, given the CPU and memory left there.

The loss of a node is the potential before a pod minus that after it. What does not change is remembered:
the slots of a node until its devices or their use change, and those after a plan for all nodes of a class.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from allocator.cluster.cluster import Cluster
from allocator.cluster.verdicts import CachedVerdict, transfer_plan
from allocator.model.plan import Plan
from allocator.nodes.headroom import Headroom
from allocator.strategies.alternatives import chosen_alternatives
from allocator.strategies.fragmentation_aware import FragmentationAware
from allocator.strategies.in_two_steps import highest_loss, score_in_step
from allocator.strategies.load import usage_after
from allocator.strategies.pod_kinds import KindSlots, potential

MAX_RANK: Final = 100
"""The rank of the node that loses least."""

_FEW: Final = 4
"""Losses are sorted anew where more than one of so many nodes changed."""
_MAX_PLANS: Final = 1 << 14
_LATER_ALTERNATIVE: Final = 1 << 64
"""The loss of a plan for each place by which its alternatives come later, more than any potential: the order of
`firstAvailable` outweighs a strategy."""
_SCORES: Final = 7
"""Bits of a rating that hold 100 minus the score."""
_MAX_RATINGS: Final = 512
"""Different ratings in the first of two steps; where there are more, nodes that lose more are in the second."""

Loss = tuple[int, str]
"""The potential that a node loses, or its rating, and its name."""
_Rows = tuple[KindSlots, ...]


class NodeLosses:
    """The cost of pods on each node, for one distribution of kinds."""

    def __init__(self, strategy: FragmentationAware, cluster: Cluster) -> None:
        """Remember nothing yet.

        Args:
            strategy: The strategy, with its kinds.
            cluster: The devices of the nodes.
        """
        self.strategy = strategy
        self.cluster = cluster
        self._position = cluster.changes.position
        self._before: dict[str, tuple[_Rows, Headroom, int]] = {}
        self._after: dict[int, tuple[CachedVerdict, _Rows, int]] = {}

    def take_changes(self) -> None:
        """Forget the nodes with devices that changed; call it before asking for losses."""
        changed_names = self.cluster.changes.since(self._position)
        self._position = self.cluster.changes.position
        if changed_names is None:
            self._before.clear()
            return
        for name in changed_names:
            self._before.pop(name, None)

    def loss(
        self, name: str, verdict: CachedVerdict | None, headroom: Headroom, left: Headroom
    ) -> int:
        """Return the potential that a pod costs a node, and much more for each later alternative of its plan.

        Args:
            name: The node.
            verdict: The verdict about its class, which has a plan; None for a pod without devices.
            headroom: The resources left on the node.
            left: The resources left on it after the pod.
        """
        rows, before = self._potential(name, headroom)
        later = 0
        if verdict is not None:
            rows, later = self._after_plan(verdict, name)
        return before - potential(rows, left.cpu_milli, left.memory) + later

    def slots(self, name: str) -> tuple[KindSlots, ...]:
        """Return the slots of the usual pods on a node as it is."""
        cached = self._before.get(name)
        if cached is not None:
            return cached[0]
        return self.strategy.slots(self.cluster.node_devices(name), self.cluster.usage)

    def _potential(self, name: str, headroom: Headroom) -> tuple[_Rows, int]:
        """Return the slots and the potential of a node as it is."""
        cached = self._before.get(name)
        if cached is not None and cached[1] is headroom:
            return cached[0], cached[2]
        rows = self.slots(name)
        before = potential(rows, headroom.cpu_milli, headroom.memory)
        self._before[name] = rows, headroom, before
        return rows, before

    def _after_plan(self, verdict: CachedVerdict, name: str) -> tuple[_Rows, int]:
        """Return the slots of the nodes of a class after a plan, and the loss for its alternatives."""
        after = self._after.get(id(verdict))
        if after is None:
            assert isinstance(verdict.outcome, Plan)
            devices, usage = self.cluster.node_devices(name), self.cluster.usage
            plan = transfer_plan(verdict.outcome, verdict.representative, devices)
            rows = self.strategy.slots(devices, usage_after(devices, usage, plan))
            later = _LATER_ALTERNATIVE * sum(chosen_alternatives(plan))
            if len(self._after) >= _MAX_PLANS:
                self._after.clear()
            # With the verdict, whose identity is the key.
            after = self._after[id(verdict)] = verdict, rows, later
        return after[1], after[2]


def rating(loss: int, score: int) -> int:
    """Return the sort key of a node: by loss, and of equal losses the highest score first.

    >>> sorted([rating(5, 0), rating(4, 0), rating(4, 90)]) == [rating(4, 90), rating(4, 0), rating(5, 0)]
    True
    """
    return loss << _SCORES | 100 - score


def in_two_steps(order: Sequence[Loss]) -> Iterator[tuple[str, int]]:
    """Yield nodes with their scores in two steps: those of the first by score, then the others by loss.

    Args:
        order: Ratings and names, sorted.

    >>> list(in_two_steps([(rating(40, 10), "a"), (rating(42, 90), "b"), (rating(43, 90), "c")]))
    [('b', 95), ('a', 55), ('c', 45)]
    """
    if not order:
        return
    alternatives, least = divmod(order[0][0] >> _SCORES, _LATER_ALTERNATIVE)
    highest = alternatives * _LATER_ALTERNATIVE + highest_loss(least)
    # Most nodes of a large cluster are rated alike, and are passed over together.
    runs: list[tuple[int, int, int]] = []
    end = 0
    while end < len(order) and len(runs) < _MAX_RATINGS:
        value = order[end][0]
        if value >> _SCORES > highest:
            break
        start, end = end, bisect_left(order, (value + 1, ""), end)
        runs.append((-_score(value), start, end))
    for negative_score, start, stop in sorted(runs):
        score = score_in_step(-negative_score, is_first=True)
        for _, name in islice(order, start, stop):
            yield name, score
    for value, name in islice(order, end, None):
        yield name, score_in_step(_score(value), is_first=False)


def _score(value: int) -> int:
    """Return the score in a rating."""
    return 100 - (value & (1 << _SCORES) - 1)


class OrderedLosses:
    """The nodes with devices for one kind of pod, by loss.

    Attributes:
        order: The losses, the least first; equal ones by name.
    """

    def __init__(self) -> None:
        """Begin without a node."""
        self.order: list[Loss] = []
        self._loss_of: dict[str, int] = {}

    def forget(self) -> None:
        """Forget all nodes."""
        self.order = []
        self._loss_of.clear()

    def replace(
        self, names: Sequence[str], loss_of: Callable[[str], int | None], *, nodes: int
    ) -> None:
        """Replace the losses of some nodes.

        Args:
            names: The nodes.
            loss_of: Returns the loss of a node; None for one that cannot take the pod.
            nodes: Number of all nodes.
        """
        are_few = len(names) * _FEW < nodes
        for name in names:
            loss = loss_of(name)
            before = self._loss_of.pop(name, None)
            if before is not None and are_few:
                del self.order[bisect_left(self.order, (before, name))]
            if loss is not None:
                self._loss_of[name] = loss
                if are_few:
                    insort(self.order, (loss, name))
        if not are_few:
            self.order = sorted(zip(self._loss_of.values(), self._loss_of, strict=True))


def ranked(losses: Iterable[Loss]) -> Iterator[tuple[str, int]]:
    """Yield nodes with their ranks: equal losses have equal ranks, and those beyond the lowest rank have 0.

    Args:
        losses: The least first.

    >>> list(ranked([(2, "b"), (5, "a"), (5, "c"), (7, "d")]))
    [('b', 100), ('a', 99), ('c', 99), ('d', 98)]
    """
    rank, previous = MAX_RANK + 1, None
    for loss, name in losses:
        if loss != previous:
            rank, previous = max(0, rank - 1), loss
        yield name, rank
