"""The resources left on nodes beside devices, and the nodes by a pod's cost to the usual ones."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.cluster.node_losses import (
    NodeLosses,
    OrderedLosses,
    in_two_steps,
    ranked,
    rating,
)
from allocator.cluster.preference import Preference, RoomFirst, start_of
from allocator.cluster.ranking import RankedNodes
from allocator.cluster.verdicts import NodePlans
from allocator.nodes.headroom import UNLIMITED, Headroom
from allocator.nodes.node_changes import NodeChanges
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.fragmentation_aware import FRAGMENTATION_AWARE, FragmentationAware
from allocator.strategies.in_two_steps import InTwoSteps, score_in_step
from allocator.strategies.strategy import Strategy
from kube.cel.scope import AnswersPending, BudgetSpent
from kube.collections.least_recently_used import LeastRecentlyUsed
from sidecar.model.protocol import ResourceRequests

MAX_ORDERS: Final = 64
"""Kinds of pods whose nodes are kept in order; as many as rankings of the allocator."""
MIN_ORDERS: Final = 8
MAX_PLACES: Final = 320_000
"""Places of nodes in all orders, each of some 200 bytes; above 5,000 nodes they are fewer orders."""


class Room(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The resources left on nodes, and the usual pods.

    Attributes:
        headroom: Node to what it has left, as the scheduler said last; empty if it never did.
        strategy: FragmentationAware with the kinds of pods that usually come.
        orders: The nodes by what pods cost them; None if only devices count.
    """

    headroom: Mapping[str, Headroom] = {}
    strategy: FragmentationAware = FRAGMENTATION_AWARE
    orders: "LossOrders | None" = None

    def preference(
        self,
        requests: ResourceRequests | None,
        strategy: Strategy,
        *,
        pod: str = "",
        names: Sequence[str] = (),
    ) -> tuple[Preference | None, Strategy]:
        """Return the nodes that come first for a pod, and the strategy that orders devices and other nodes.

        Args:
            requests: The pod's requests; None if they are not compared with nodes. Then there is no
                preference, but for the place where FirstFit begins.
            strategy: Its strategy.
            pod: Its namespace and name.
            names: All nodes, sorted.
        """
        start = start_of(pod, names) if strategy is FIRST_FIT else ""
        if requests is None:
            return (RoomFirst(0, 0, {}, start) if start else None), strategy
        cpu_milli, memory = requests.cpu_milli, requests.memory
        if self.orders is not None and strategy is self.strategy:
            preference = LeastLossFirst(cpu_milli, memory, self.headroom, self.orders)
            return preference, self.orders.losses.strategy
        if self.orders is not None and strategy is not FIRST_FIT:
            steps = TwoSteps(cpu_milli, memory, self.headroom, self.orders)
            return steps, InTwoSteps(strategy, self.orders.strategy)
        return RoomFirst(cpu_milli, memory, self.headroom, start), strategy


class _Order(OrderedLosses):
    """The ratings of the nodes for one question and one amount of CPU and memory.

    Attributes:
        plans: The verdicts of the question.
        device_position: The changes of devices that are taken in.
        headroom_position: The changes of what nodes have left that are taken in.
        unsearched: Nodes whose verdict is not known yet.
        unrated: Nodes with devices and room whose loss is not known yet.
        short: Nodes with devices that have too little CPU, memory or places left.
    """

    def __init__(self, plans: NodePlans) -> None:
        super().__init__()
        self.plans = plans
        self.device_position = self.headroom_position = -1
        self.unsearched: set[str] = set()
        self.unrated: set[str] = set()
        self.short: set[str] = set()


class LossOrders:
    """The nodes in order of loss, for the kinds of pods that are asked about; kept up to date.

    Attributes:
        strategy: The strategy.
        losses: The losses, for this strategy and one cluster.
    """

    def __init__(
        self,
        strategy: FragmentationAware,
        cluster: Cluster,
        headroom: Mapping[str, Headroom],
        changes: NodeChanges,
    ) -> None:
        """Begin without an order.

        Args:
            strategy: The strategy, with its kinds.
            cluster: The devices of the nodes.
            headroom: Node to what it has left; it changes with `changes`.
            changes: The nodes that have something else left.
        """
        self.strategy: Final = strategy
        self.losses: Final = NodeLosses(strategy.without_score(), cluster)
        self._headroom = headroom
        self._changes = changes
        count = MAX_PLACES // max(1, len(cluster.nodes))
        self._orders = LeastRecentlyUsed[tuple[int, int, int], _Order](
            max(MIN_ORDERS, min(count, MAX_ORDERS))
        )

    def order(self, plans: NodePlans, cpu_milli: int, memory: int) -> Iterator[tuple[str, int]]:
        """Yield the nodes with devices and the negative rating of each, then those without a loss or room."""
        order = self._up_to_date(plans, cpu_milli, memory)
        for value, name in order.order:
            yield name, -value
        lowest = -order.order[-1][0] - 1 if order.order else 0
        for name in (*sorted(order.unrated), *sorted(order.short)):
            yield name, lowest

    def two_steps(self, plans: NodePlans, cpu_milli: int, memory: int) -> Iterator[tuple[str, int]]:
        """Yield the nodes with devices and their scores in two steps; those without a loss or room are last."""
        order = self._up_to_date(plans, cpu_milli, memory)
        yield from in_two_steps(order.order)
        for name in (*sorted(order.unrated), *sorted(order.short)):
            score = plans.verdicts[plans.class_of[name]].score
            yield name, score_in_step(score, is_first=False)

    def _up_to_date(self, plans: NodePlans, cpu_milli: int, memory: int) -> _Order:
        self.losses.take_changes()
        # A question that is ranked anew has another mapping; the order refers to it, so its id stays its own.
        key = (id(plans.verdicts), cpu_milli, memory)
        order = self._orders.get(key)
        if order is None or order.plans.class_of is not plans.class_of:
            order = self._orders[key] = _Order(plans)
        cluster = self.losses.cluster
        names = self._changed_since(order)
        order.device_position = cluster.changes.position
        order.headroom_position = self._changes.position
        order.replace(
            names,
            partial(self._loss, order, cpu_milli=cpu_milli, memory=memory),
            nodes=len(cluster.nodes),
        )
        return order

    def _changed_since(self, order: _Order) -> Sequence[str]:
        """Return the nodes that may have another loss than the order has."""
        cluster = self.losses.cluster
        devices = cluster.changes.since(order.device_position)
        headroom = self._changes.since(order.headroom_position)
        if devices is None or headroom is None:
            order.unsearched.clear()
            order.unrated.clear()
            order.short.clear()
            order.forget()
            return tuple(cluster.nodes)
        # While a request is new these are most nodes, and those without a verdict have no loss yet.
        class_of, verdicts = order.plans
        searched = [name for name in order.unsearched if class_of.get(name) in verdicts]
        return tuple(dict.fromkeys((*devices, *headroom, *searched, *order.unrated)))

    def _loss(self, order: _Order, name: str, *, cpu_milli: int, memory: int) -> int | None:
        """Return the rating of a node by a pod's cost to it; None if it is none of those that can take it."""
        class_of, verdicts = order.plans
        order.unsearched.discard(name)
        order.unrated.discard(name)
        order.short.discard(name)
        if name not in self.losses.cluster.nodes:
            return None
        class_key = class_of.get(name)
        if class_key is None or class_key not in verdicts:
            order.unsearched.add(name)
            return None
        verdict = order.plans.fitting(name)
        if verdict is None:
            return None
        headroom = self._headroom.get(name, UNLIMITED)
        if not headroom.takes(cpu_milli, memory):
            order.short.add(name)
            return None
        try:
            left = headroom.after(cpu_milli, memory)
            return rating(self.losses.loss(name, verdict, headroom, left), verdict.score)
        except (AnswersPending, BudgetSpent):
            order.unrated.add(name)  # It fits, whatever it is worth.
            return None


class _ByLoss(RoomFirst):
    """Nodes with room in an order that depends on losses."""

    def __init__(
        self, cpu_milli: int, memory: int, headroom: Mapping[str, Headroom], orders: LossOrders
    ) -> None:
        super().__init__(cpu_milli, memory, headroom)
        self._orders = orders


class LeastLossFirst(_ByLoss):
    """The nodes with the least cost of a pod to the usual pods come first; those without room last."""

    def order(self, plans: NodePlans) -> Iterator[tuple[str, int]]:
        """Return the nodes by loss."""
        return self._orders.order(plans, self.cpu_milli, self.memory)


class TwoSteps(_ByLoss):
    """Nodes that lose no place for the usual pods come first; the strategy orders both steps."""

    def order(self, plans: NodePlans) -> Iterator[tuple[str, int]]:
        """Return the nodes by step."""
        return self._orders.two_steps(plans, self.cpu_milli, self.memory)


def with_ranks(ranked_nodes: RankedNodes, preference: Preference | None) -> RankedNodes:
    """Return an answer with ranks from 100 down as scores, if nodes are in order of loss.

    Equal losses have equal ranks, so that other scores decide among them. What is beyond the lowest rank, and
    what has no room, has 0. Others keep their scores, and are put in order by these.
    """
    if isinstance(preference, TwoSteps) or (preference is not None and preference.start):
        nodes, count = ranked_nodes.nodes, ranked_nodes.preferred
        best_first = sorted(nodes[:count], key=lambda node: (-node[1], node[0]))
        return replace(ranked_nodes, nodes=(*best_first, *nodes[count:]))
    if not isinstance(preference, LeastLossFirst):
        return ranked_nodes
    nodes, count = ranked_nodes.nodes, ranked_nodes.preferred
    ranks = tuple(ranked((-score, name) for name, score in nodes[:count]))
    return replace(ranked_nodes, nodes=(*ranks, *((name, 0) for name, _ in nodes[count:])))
