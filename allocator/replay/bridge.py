"""The scheduler of the bridge: a strategy chooses a hundred nodes, kube-scheduler's scores one of these.

The hundred are nodes with the CPU and memory for the pod as long as there are any, as the sidecar chooses
them; of equal ones those from a place on that the pod's name decides. The strategy's score counts a hundred
times as much as each score of kube-scheduler. If none of the hundred takes the pod, it is tried again with all
nodes. Pods without devices are placed as the stock scheduler does.

Unlike the sidecar, which finds out about nodes over several answers, all of them are known here.
"""

from typing import Final

from allocator.cluster.preference import RoomFirst, start_of
from allocator.model.plan import Plan
from allocator.replay.profiles import DEFAULT_PROFILES, SchedulerProfiles
from allocator.replay.scheduler import Placement, StockScheduler, best_node, own_plan
from allocator.replay.state import ReplayState
from allocator.replay.tie_breaker import TieBreaker
from allocator.replay.workload import Candidate
from allocator.strategies.strategy import Strategy

ANSWER_NODES: Final = 100
"""Nodes in an answer of the sidecar."""


class BridgeScheduler:
    """The scheduler of the bridge with a strategy that scores devices alone."""

    searches_groups = True

    def __init__(
        self, strategy: Strategy, ties: TieBreaker, profiles: SchedulerProfiles = DEFAULT_PROFILES
    ) -> None:
        self.strategy = strategy
        self._ties = ties
        self._profiles = profiles
        self._plain = StockScheduler(ties, profiles.stock)

    def choose(self, candidate: Candidate, state: ReplayState) -> Placement:
        """Return the node for a pod."""
        pending = candidate.pending
        if pending is None:
            return self._plain.choose(candidate, state)
        eligible = candidate.eligible

        def is_eligible(name: str, _plan: Plan) -> bool:
            return eligible is None or name in eligible

        amounts = candidate.request.amounts
        metadata = candidate.pod.pod.metadata
        start = start_of(f"{metadata.namespace}/{metadata.name}", state.names)
        ranked_nodes = state.cluster.rank_nodes(
            pending,
            strategy=self.strategy,
            limit=ANSWER_NODES,
            accepts=is_eligible,
            preference=RoomFirst(amounts.cpu_milli, amounts.memory, state.headroom, start),
        )
        nodes = [entry for entry in ranked_nodes.nodes if state.fits(candidate, entry[0])]
        plans = state.cluster.node_plans(pending, strategy=self.strategy)
        attempts = 1
        if not nodes and ranked_nodes.nodes and not ranked_nodes.complete:
            attempts = 2
            nodes = [
                (name, verdict.score)
                for name in state.names
                if state.fits(candidate, name) and (verdict := plans.fitting(name)) is not None
            ]
        if not nodes:
            return Placement(attempts=attempts)
        names = [name for name, _ in nodes]
        totals = [
            self._profiles.strategy_weight * score + other
            for (_, score), other in zip(
                nodes, state.scores(candidate, names, self._profiles.bridge), strict=True
            )
        ]
        node = best_node(names, totals, self._ties)
        plan = own_plan(pending, plans, node, state, self.strategy)
        return Placement(node=node, plan=plan, attempts=attempts)
