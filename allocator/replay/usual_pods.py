"""The pods that usually come, learnt during a replay, and the cost of each pod to them.

They are learnt as the sidecar learns them.
"""

from collections.abc import Hashable, Sequence

from allocator.cluster.node_losses import Loss, NodeLosses, OrderedLosses, rating
from allocator.cluster.verdicts import NodePlans
from allocator.replay.state import ReplayState
from allocator.replay.workload import Candidate
from allocator.strategies.fragmentation_aware import FragmentationAware
from allocator.strategies.kind_counts import KindCounts
from allocator.strategies.pod_kinds import demands_of


class _Losses(OrderedLosses):
    """The ratings of the nodes that can take the pods of one shape.

    Attributes:
        changes: Number of the cluster's changes that are taken in.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes = -1


class UsualPods:
    """The usual pods, and the losses of the nodes.

    Attributes:
        strategy: FragmentationAware with their kinds.
    """

    def __init__(self) -> None:
        """Know no pod."""
        self._counts = KindCounts()
        self.strategy: FragmentationAware
        self._use(FragmentationAware())

    def _use(self, strategy: FragmentationAware) -> None:
        """Take over a distribution of kinds; this makes all losses new."""
        self.strategy = strategy.without_score()
        self._node_losses: NodeLosses | None = None
        self._losses: dict[Hashable, _Losses] = {}

    def learn(self, candidate: Candidate) -> bool:
        """Count a pod with devices; return True if other kinds were taken over."""
        if candidate.pending is None:
            return False
        amounts, demands = candidate.request.amounts, demands_of(candidate.pending)
        if not self._counts.add(demands, amounts.cpu_milli, amounts.memory):
            return False
        self._use(FragmentationAware(self._counts.kinds))
        return True

    def ratings(
        self, candidate: Candidate, state: ReplayState, plans: NodePlans | None
    ) -> Sequence[Loss]:
        """Return the ratings of all nodes that can take a pod, the least loss first.

        Args:
            candidate: The pod.
            state: The cluster.
            plans: The plans of its claims; None for a pod without devices.
        """
        if self._node_losses is None:
            self._node_losses = NodeLosses(self.strategy, state.cluster)
        node_losses = self._node_losses
        node_losses.take_changes()
        amounts = candidate.request.amounts

        def rating_of(name: str) -> int | None:
            """Return the rating of a node; None if it cannot take the pod."""
            if not state.fits(candidate, name):
                return None
            verdict = None if plans is None else plans.fitting(name)
            if plans is not None and verdict is None:
                return None
            headroom = state.headroom[name]
            left = headroom.after(amounts.cpu_milli, amounts.memory)
            score = 0 if verdict is None else verdict.score
            return rating(node_losses.loss(name, verdict, headroom, left), score)

        losses = self._losses.setdefault(candidate.shape, _Losses())
        # A node that did not change has the rating that it had when such a pod came last.
        changed: Sequence[str] = state.names
        if losses.changes >= 0:
            changed = tuple(dict.fromkeys(state.changes[losses.changes :]))
        losses.changes = len(state.changes)
        losses.replace(changed, rating_of, nodes=len(state.names))
        return losses.order
