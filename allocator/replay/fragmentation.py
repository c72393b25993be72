"""The scheduler of the bridge with strategies that see CPU and memory of the nodes.

With FragmentationAware the hundred nodes that lose least get ranks: 100 for the least loss, 99 for the next, and
so on; equal losses have equal ranks. Pods without devices are placed by the same ranks, which the plugin computes for
the nodes that kube-scheduler looked at: its sidecar is not asked about them.

With others the nodes are in two steps (`allocator.strategies.in_two_steps`), and pods without devices
are placed as the stock scheduler does.
"""

from functools import partial
from itertools import islice

from allocator.cluster.node_losses import in_two_steps, ranked
from allocator.replay.bridge import ANSWER_NODES
from allocator.replay.profiles import DEFAULT_PROFILES, SchedulerProfiles
from allocator.replay.scheduler import Placement, StockScheduler, best_node, own_plan
from allocator.replay.state import ReplayState
from allocator.replay.tie_breaker import TieBreaker
from allocator.replay.usual_pods import UsualPods
from allocator.replay.workload import Candidate
from allocator.strategies.in_two_steps import InTwoSteps
from allocator.strategies.strategy import Strategy


class FragmentationScheduler:
    """The scheduler of the bridge with FragmentationAware."""

    searches_groups = True

    def __init__(
        self,
        ties: TieBreaker,
        profiles: SchedulerProfiles = DEFAULT_PROFILES,
    ) -> None:
        """Place pods at the least loss to the usual ones.

        Args:
            ties: Decides between nodes with equal totals.
            profiles: The scores of nodes that the schedulers use.
        """
        self._ties = ties
        self._profiles = profiles
        self._plain = StockScheduler(ties, profiles.bridge)
        self._usual = UsualPods()

    @property
    def strategy(self) -> Strategy:
        """The strategy with the kinds that are known."""
        return self._usual.strategy

    def choose(self, candidate: Candidate, state: ReplayState) -> Placement:
        """Return the node for a pod."""
        self._usual.learn(candidate)
        pending, plans = candidate.pending, None
        if pending is None:
            looked_at = frozenset(self._plain.feasible(candidate, state, None))
            ratings = self._usual.ratings(candidate, state, None)
            ranks = dict(ranked(entry for entry in ratings if entry[1] in looked_at))
        else:
            plans = state.cluster.node_plans(
                pending, strategy=self.strategy, may_use=partial(state.fits, candidate)
            )
            ranks = dict(ranked(self._usual.ratings(candidate, state, plans)[:ANSWER_NODES]))
        if not ranks:
            return Placement()
        node = _best_node(candidate, state, ranks, self._profiles, self._ties)
        plan = own_plan(pending, plans, node, state, self.strategy)
        return Placement(node=node, plan=plan)


class TwoStepScheduler:
    """The scheduler of the bridge with another strategy and its nodes in two steps."""

    searches_groups = True

    def __init__(
        self, strategy: Strategy, ties: TieBreaker, profiles: SchedulerProfiles = DEFAULT_PROFILES
    ) -> None:
        self._base = strategy
        self._ties = ties
        self._profiles = profiles
        self._plain = StockScheduler(ties, profiles.stock)
        self._usual = UsualPods()
        self.strategy: Strategy = InTwoSteps(strategy, self._usual.strategy)

    def choose(self, candidate: Candidate, state: ReplayState) -> Placement:
        """Return the node for a pod."""
        pending = candidate.pending
        if pending is None:
            return self._choose_plain(candidate, state)
        if self._usual.learn(candidate):
            self.strategy = InTwoSteps(self._base, self._usual.strategy)
        plans = state.cluster.node_plans(
            pending, strategy=self.strategy, may_use=partial(state.fits, candidate)
        )
        scores = dict(
            islice(in_two_steps(self._usual.ratings(candidate, state, plans)), ANSWER_NODES)
        )
        if not scores:
            return Placement()
        node = _best_node(candidate, state, scores, self._profiles, self._ties)
        plan = own_plan(pending, plans, node, state, self.strategy)
        return Placement(node=node, plan=plan)

    def _choose_plain(self, candidate: Candidate, state: ReplayState) -> Placement:
        """Return the node for a pod without devices: of those looked at, one by its cost to the usual pods."""
        looked_at = frozenset(self._plain.feasible(candidate, state, None))
        ratings = self._usual.ratings(candidate, state, None)
        ranks = dict(ranked(entry for entry in ratings if entry[1] in looked_at))
        if not ranks:
            return Placement()
        return Placement(node=_best_node(candidate, state, ranks, self._profiles, self._ties))


def _best_node(
    candidate: Candidate,
    state: ReplayState,
    scores: dict[str, int],
    profiles: SchedulerProfiles,
    ties: TieBreaker,
) -> str:
    """Return the node of an answer with the highest total of its score there and kube-scheduler's scores."""
    names = list(scores)
    others = state.scores(candidate, names, profiles.bridge)
    totals = [
        profiles.strategy_weight * score + other
        for score, other in zip(scores.values(), others, strict=True)
    ]
    return best_node(names, totals, ties)
