"""The contract of a scheduler in a replay, and the stock kube-scheduler.

The stock scheduler looks at nodes in turn, from where the last pod left off, until enough of them fit; it
takes the one with the highest score, and one by chance of those with equal scores. Devices are the first
that fit. Of the plugins NodeResourcesFit and NodeResourcesBalancedAllocation score alone.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/schedule_one.go, findNodesThatPassFilters,
numFeasibleNodesToFind and selectHost.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from allocator.cluster.verdicts import CachedVerdict, NodePlans, assign_requests, transfer_plan
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.nodes.scoring import DEFAULT_PROFILE, ScoringProfile
from allocator.replay.state import ReplayState
from allocator.replay.tie_breaker import TieBreaker
from allocator.replay.workload import Candidate
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy

STOCK: Final = "stock"
STOCK_MOST_ALLOCATED: Final = "stock-most-allocated"

_MIN_NODES: Final = 100
_MIN_PERCENTAGE: Final = 5


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The node that a scheduler chooses for a pod.

    Attributes:
        node: The node; None if the pod fits none.
        plan: The devices; None for a pod without devices.
        attempts: Number of scheduling cycles that it took.
    """

    node: str | None = None
    plan: Plan | None = None
    attempts: int = 1


class Scheduler(Protocol):
    """A scheduler that places pods.

    Attributes:
        searches_groups: It places the pods of a group by one search, and not one after the other.
    """

    searches_groups: bool

    @property
    def strategy(self) -> Strategy:
        """The strategy that orders devices."""
        ...

    def choose(self, candidate: Candidate, state: ReplayState) -> Placement:
        """Return the node for a pod."""
        ...


class StockScheduler:
    """The stock kube-scheduler."""

    searches_groups = False

    def __init__(self, ties: TieBreaker, profile: ScoringProfile = DEFAULT_PROFILE) -> None:
        """Place pods as kube-scheduler does.

        Args:
            ties: Decides between nodes with equal scores.
            profile: The scores of nodes, and the number of nodes to score.
        """
        self.strategy: Strategy = FIRST_FIT
        self._ties = ties
        self._profile = profile
        self._start = 0

    def choose(self, candidate: Candidate, state: ReplayState) -> Placement:
        """Return the node for a pod."""
        plans = None
        if candidate.pending is not None:
            plans = state.cluster.node_plans(
                candidate.pending, may_use=partial(state.fits, candidate)
            )
        nodes = self.feasible(candidate, state, plans)
        if not nodes:
            return Placement()
        node = best_node(nodes, state.scores(candidate, nodes, self._profile), self._ties)
        return Placement(node=node, plan=own_plan(candidate.pending, plans, node, state, FIRST_FIT))

    def feasible(
        self, candidate: Candidate, state: ReplayState, plans: NodePlans | None
    ) -> list[str]:
        """Return enough nodes that a pod fits; the next pod's begin behind them.

        Args:
            candidate: The pod.
            state: The cluster.
            plans: The plans of its claims; None for a pod without devices.
        """
        names = state.names
        enough = nodes_to_find(len(names), self._profile.percentage_of_nodes)
        feasible: list[str] = []
        looked_at = 0
        for number in range(len(names)):
            name = names[(self._start + number) % len(names)]
            looked_at += 1
            if state.fits(candidate, name) and (plans is None or plans.fitting(name) is not None):
                feasible.append(name)
                if len(feasible) == enough:
                    break
        self._start = (self._start + looked_at) % max(1, len(names))
        return feasible


def nodes_to_find(nodes: int, percentage: int = 0) -> int:
    """Return the number of feasible nodes that ends kube-scheduler's search for more.

    Args:
        nodes: Number of all nodes.
        percentage: `percentageOfNodesToScore`; 0 for its default.

    >>> [nodes_to_find(nodes) for nodes in (50, 100, 1000, 1213, 10_000)]
    [50, 100, 420, 497, 500]
    """
    if nodes < _MIN_NODES:
        return nodes
    percentage = percentage or max(_MIN_PERCENTAGE, 50 - nodes // 125)
    return max(_MIN_NODES, nodes * percentage // 100)


def best_node(nodes: Sequence[str], scores: Sequence[int], ties: TieBreaker) -> str:
    """Return the node with the highest score, by chance among equal ones."""
    highest = max(scores)
    best = [name for name, score in zip(nodes, scores, strict=True) if score == highest]
    return best[ties.below(len(best))] if len(best) > 1 else best[0]


def own_plan(
    pending: PendingClaims | None,
    plans: NodePlans | None,
    node: str,
    state: ReplayState,
    strategy: Strategy,
) -> Plan | None:
    """Return the plan for a node with the requests of these claims; None without claims."""
    if pending is None or plans is None:
        return None
    verdict = plans.fitting(node)
    if verdict is None or strategy is FIRST_FIT:
        # Its classes ignore the order of devices, so the plan may be that of another order.
        outcome = state.cluster.verdict(pending, node, strategy=strategy)
        return outcome if isinstance(outcome, Plan) else None
    return _transferred(verdict, pending, node, state)


def _transferred(
    verdict: CachedVerdict, pending: PendingClaims, node: str, state: ReplayState
) -> Plan:
    assert isinstance(verdict.outcome, Plan)
    devices = state.cluster.node_devices(node)
    plan = transfer_plan(verdict.outcome, verdict.representative, devices)
    return assign_requests(plan, pending)
