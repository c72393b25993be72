"""The scheduler of the bridge with FragmentationAware, which sees CPU and memory of the nodes.

The kinds of pods are learnt from those that arrived, as the sidecar learns them.

Of the nodes that can take a pod, the hundred that lose least get ranks: 100 for the least loss, 99 for the
next, and so on; equal losses have equal ranks. Pods without devices are placed by the same ranks.

Unlike in the bridge of today, whose sidecar is not asked about pods without devices.
"""

from collections.abc import Hashable, Sequence
from functools import partial

from allocator.cluster.node_losses import Loss, NodeLosses, OrderedLosses, ranked
from allocator.cluster.verdicts import NodePlans
from allocator.replay.bridge import ANSWER_NODES
from allocator.replay.profiles import DEFAULT_PROFILES, SchedulerProfiles
from allocator.replay.scheduler import Placement, StockScheduler, best_node, own_plan
from allocator.replay.state import ReplayState
from allocator.replay.tie_breaker import TieBreaker
from allocator.replay.workload import Candidate
from allocator.strategies.fragmentation_aware import FragmentationAware
from allocator.strategies.kind_counts import KindCounts
from allocator.strategies.pod_kinds import demands_of
from allocator.strategies.strategy import Strategy


class _Losses(OrderedLosses):
    """The nodes that can take the pods of one shape, by loss.

    Attributes:
        changes: Number of the cluster's changes that are taken in.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes = -1


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
        self._use(FragmentationAware())

    def _use(self, strategy: FragmentationAware) -> None:
        """Take over a distribution of kinds, which makes all losses new."""
        self.strategy = self._fragmentation = strategy.without_score()
        self._node_losses: NodeLosses | None = None
        self._losses: dict[Hashable, _Losses] = {}

    def choose(self, candidate: Candidate, state: ReplayState) -> Placement:
        """Return the node for a pod."""
        self._learn(candidate)
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
        ranks = dict(ranked(losses[:ANSWER_NODES]))
        names = list(ranks)
        totals = [
            self._profiles.strategy_weight * rank + score
            for rank, score in zip(
                ranks.values(), state.scores(candidate, names, self._profiles.bridge), strict=True
            )
        ]
        node = best_node(names, totals, self._ties)
        plan = own_plan(pending, plans, node, state, self._fragmentation)
        return Placement(node=node, plan=plan)

    def _learn(self, candidate: Candidate) -> None:
        """Count a pod with devices; take the kinds over now and then."""
        if candidate.pending is None:
            return
        amounts, demands = candidate.request.amounts, demands_of(candidate.pending)
        if self._counts.add(demands, amounts.cpu_milli, amounts.memory):
            self._use(FragmentationAware(self._counts.kinds))

    def _update(
        self, candidate: Candidate, state: ReplayState, plans: NodePlans | None
    ) -> Sequence[Loss]:
        """Return the losses of all nodes that can take a pod, the least first."""
        if self._node_losses is None:
            self._node_losses = NodeLosses(self._fragmentation, state.cluster)
        node_losses = self._node_losses
        node_losses.take_changes()
        amounts = candidate.request.amounts

        def loss_of(name: str) -> int | None:
            """Return the potential that a node loses by the pod; None if it cannot take the pod."""
            if not state.fits(candidate, name):
                return None
            verdict = None if plans is None else plans.fitting(name)
            if plans is not None and verdict is None:
                return None
            headroom = state.headroom[name]
            left = headroom.after(amounts.cpu_milli, amounts.memory)
            return node_losses.loss(name, verdict, headroom, left)

        losses = self._losses.setdefault(candidate.shape, _Losses())
        # A node that did not change has the loss that it had when such a pod came last.
        changed: Sequence[str] = state.names
        if losses.changes >= 0:
            changed = tuple(dict.fromkeys(state.changes[losses.changes :]))
        losses.changes = len(state.changes)
        losses.replace(changed, loss_of, nodes=len(state.names))
        return losses.order
