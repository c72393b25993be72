"""The scheduler of the bridge with FragmentationAware, which sees CPU and memory of the nodes.

The kinds of pods are learnt from those that arrived. A new distribution makes all verdicts new, so it is
taken over after 1, 2, 4, 8, ... pods.

Of the nodes that can take a pod, the hundred that lose least get ranks: 100 for the least loss, 99 for the
next, and so on; equal losses have equal ranks. Pods without devices are placed by the same ranks.

Unlike in the bridge of today, whose sidecar knows no CPU and is not asked about pods without devices.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Final

from allocator.cluster.verdicts import CachedVerdict, NodePlans, transfer_plan
from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from allocator.model.usage import Usage
from allocator.nodes.node_resources import NodeResources
from allocator.replay.bridge import ANSWER_NODES
from allocator.replay.profiles import DEFAULT_PROFILES, SchedulerProfiles
from allocator.replay.scheduler import Placement, StockScheduler, best_node, own_plan
from allocator.replay.state import ReplayState
from allocator.replay.tie_breaker import TieBreaker
from allocator.replay.workload import Candidate
from allocator.strategies.fragmentation_aware import FragmentationAware, Headroom
from allocator.strategies.load import usage_after
from allocator.strategies.pod_kinds import (
    MAX_KINDS,
    DeviceDemand,
    KindSlots,
    PodKind,
    demands_of,
    potential,
)
from allocator.strategies.strategy import Strategy

_MAX_RANK: Final = 100
_FEW: Final = 4
"""Losses are sorted anew where more than one of so many nodes changed."""

_KindKey = tuple[tuple[DeviceDemand, ...], int, int]
_Rows = tuple[KindSlots, ...]
_Loss = tuple[int, str]
"""The potential that a node loses, and its name."""


class KindCounts:
    """The pods with devices that arrived, by kind."""

    def __init__(self) -> None:
        self._counts: Counter[_KindKey] = Counter()
        self._total = 0
        self._next = 1

    def add(self, candidate: Candidate) -> bool:
        """Count a pod; return whether the distribution is to be taken over."""
        if candidate.pending is None:
            return False
        amounts = candidate.request.amounts
        self._counts[demands_of(candidate.pending), amounts.cpu_milli, amounts.memory] += 1
        self._total += 1
        if self._total < self._next:
            return False
        self._next *= 2
        return True

    def kinds(self) -> tuple[PodKind, ...]:
        """Return the most frequent kinds, with weights in thousandths."""
        return tuple(
            PodKind(
                demands=demands,
                cpu_milli=cpu_milli,
                memory=memory,
                weight=max(1, 1000 * count // self._total),
            )
            for (demands, cpu_milli, memory), count in self._counts.most_common(MAX_KINDS)
        )


class _Losses:
    """The nodes that can take the pods of one shape, by loss.

    Attributes:
        changes: Number of the cluster's changes that are taken in.
        order: The losses, the least first.
    """

    def __init__(self) -> None:
        self.changes = -1
        self.order: list[_Loss] = []
        self._loss_of: dict[str, int] = {}

    def replace(self, losses: Iterable[tuple[str, int | None]], *, are_few: bool) -> None:
        """Replace the losses of some nodes; None for those that cannot take the pod."""
        for name, loss in losses:
            before = self._loss_of.pop(name, None)
            if before is not None and are_few:
                del self.order[bisect_left(self.order, (before, name))]
            if loss is not None:
                self._loss_of[name] = loss
                if are_few:
                    insort(self.order, (loss, name))
        if not are_few:
            self.order = sorted((loss, name) for name, loss in self._loss_of.items())


class _Unscored(FragmentationAware):
    """The strategy without its score, which would be computed for nothing: losses rank the nodes here."""

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:  # noqa: ARG002
        """Return 0."""
        return 0


class FragmentationScheduler:
    """The scheduler of the bridge with FragmentationAware."""

    def __init__(
        self,
        ties: TieBreaker,
        profiles: SchedulerProfiles = DEFAULT_PROFILES,
        *,
        rates_plain_pods: bool = True,
    ) -> None:
        """Place pods where the usual ones lose least.

        Args:
            ties: Decides between nodes with equal totals.
            profiles: How the schedulers score nodes.
            rates_plain_pods: Place pods without devices by their loss; else as the stock scheduler.
        """
        self._ties = ties
        self._profiles = profiles
        self._plain = None if rates_plain_pods else StockScheduler(ties, profiles.stock)
        self._counts = KindCounts()
        self.strategy: Strategy
        self._use(_Unscored())

    def _use(self, strategy: FragmentationAware) -> None:
        """Take over a distribution of kinds, which makes all losses new."""
        self.strategy = self._fragmentation = strategy
        self._changes = 0
        self._before: dict[str, tuple[_Rows, int]] = {}
        self._after: dict[int, tuple[CachedVerdict, _Rows]] = {}
        self._losses: dict[Hashable, _Losses] = {}

    def choose(self, candidate: Candidate, state: ReplayState) -> Placement:
        """Return the node for a pod."""
        if self._counts.add(candidate):
            self._use(_Unscored(self._counts.kinds()))
        pending, plans = candidate.pending, None
        if pending is not None:
            plans = state.cluster.node_plans(
                pending, strategy=self._fragmentation, may_use=partial(state.fits, candidate)
            )
        elif self._plain is not None:
            return self._plain.choose(candidate, state)
        losses = self._update(candidate, state, plans)
        if not losses:
            return Placement()
        names, ranks = rank(losses[:ANSWER_NODES])
        totals = [
            self._profiles.strategy_weight * rank_of_node + score
            for rank_of_node, score in zip(
                ranks, state.scores(candidate, names, self._profiles.bridge), strict=True
            )
        ]
        node = best_node(names, totals, self._ties)
        plan = own_plan(pending, plans, node, state, self._fragmentation)
        return Placement(node=node, plan=plan)

    def _update(
        self, candidate: Candidate, state: ReplayState, plans: NodePlans | None
    ) -> Sequence[_Loss]:
        """Return the losses of all nodes that can take a pod, the least first."""
        for name in state.changes[self._changes :]:
            self._before.pop(name, None)
        self._changes = len(state.changes)
        losses = self._losses.setdefault(candidate.shape, _Losses())
        # A node that did not change has the loss that it had when such a pod came last.
        changed: Sequence[str] = state.names
        if losses.changes >= 0:
            changed = tuple(dict.fromkeys(state.changes[losses.changes :]))
        losses.changes = len(state.changes)
        losses.replace(
            ((name, self._loss(candidate, state, name, plans)) for name in changed),
            are_few=len(changed) * _FEW < len(state.names),
        )
        return losses.order

    def _loss(
        self, candidate: Candidate, state: ReplayState, name: str, plans: NodePlans | None
    ) -> int | None:
        """Return the potential that a node loses by a pod; None if it cannot take the pod."""
        if not state.fits(candidate, name):
            return None
        verdict = None
        if plans is not None:
            verdict = plans.fitting(name)
            if verdict is None:
                return None
        resources = state.resources[name]
        rows, before = self._potential(name, state, resources)
        if verdict is not None:
            rows = self._slots_after(verdict, name, state)
        amounts = candidate.request.amounts
        left = _headroom(resources, amounts.cpu_milli, amounts.memory)
        return before - potential(rows, left.cpu_milli, left.memory)

    def _potential(
        self, name: str, state: ReplayState, resources: NodeResources
    ) -> tuple[_Rows, int]:
        """Return the slots and the potential of a node as it is."""
        before = self._before.get(name)
        if before is None:
            devices = state.cluster.node_devices(name)
            rows = self._fragmentation.slots(devices, state.cluster.usage)
            left = _headroom(resources)
            before = self._before[name] = rows, potential(rows, left.cpu_milli, left.memory)
        return before

    def _slots_after(self, verdict: CachedVerdict, name: str, state: ReplayState) -> _Rows:
        """Return the slots of the nodes of a class after a plan."""
        after = self._after.get(id(verdict))
        if after is None:
            assert isinstance(verdict.outcome, Plan)
            devices, usage = state.cluster.node_devices(name), state.cluster.usage
            plan = transfer_plan(verdict.outcome, verdict.representative, devices)
            rows = self._fragmentation.slots(devices, usage_after(devices, usage, plan))
            # With the verdict, whose identity is the key.
            after = self._after[id(verdict)] = verdict, rows
        return after[1]


def rank(losses: Sequence[_Loss]) -> tuple[list[str], list[int]]:
    """Return the nodes of an answer, and the rank of each.

    Args:
        losses: The least first.

    >>> rank([(2, "b"), (5, "a"), (5, "c"), (7, "d")])
    (['b', 'a', 'c', 'd'], [100, 99, 99, 98])
    """
    ranks = []
    place, previous = _MAX_RANK + 1, None
    for loss, _ in losses:
        if loss != previous:
            place, previous = place - 1, loss
        ranks.append(max(0, place))
    return list(map(itemgetter(1), losses)), ranks


def _headroom(resources: NodeResources, cpu_milli: int = 0, memory: int = 0) -> Headroom:
    """Return the CPU and memory that a node has left after so much more is requested."""
    free_cpu, free_memory = resources.free_cpu_milli, resources.free_memory
    return Headroom(
        cpu_milli=None if free_cpu is None else max(0, free_cpu - cpu_milli),
        memory=None if free_memory is None else max(0, free_memory - memory),
    )
