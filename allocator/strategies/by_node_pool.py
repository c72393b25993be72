"""The default strategies of pools of nodes, for pods that name none: each node by the strategy of its pool.

A node is scored by the strategies of the drivers whose devices its plan takes; of several, the mean counts.
The devices of each driver are in the order of its own strategy.

Scores of nodes in different pools are compared as they are, from 0 to 100: a packing pool is preferred
where it is fuller than half, a spreading pool where it is emptier. FirstFit prefers no node, so its nodes
are in the middle and do not lose to all others.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.selectors import DeviceField
from allocator.model.usage import Usage
from allocator.strategies.alternatives import rank_score
from allocator.strategies.capacity_weights import CapacityWeights
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.fragmentation_aware import FRAGMENTATION_AWARE, FragmentationAware
from allocator.strategies.load import drivers_of
from allocator.strategies.pod_kinds import PodKind
from allocator.strategies.registry import find_strategy, with_weights
from allocator.strategies.strategy import Strategy
from kube.api.ownership import OwnedDriver
from kube.errors import FieldError


class PoolStrategies(msgspec.Struct, frozen=True):
    """The default strategies of pools of nodes.

    Attributes:
        drivers: Driver to the name of the strategy on each of its pools, in the pools' order; None for
            that of the configuration. Drivers without such a pool are left out; sorted.
    """

    drivers: tuple[tuple[str, tuple[str | None, ...]], ...] = ()


_MIDDLE: Final = 50
NO_POOL_STRATEGIES: Final = PoolStrategies()


def pool_strategies(drivers: Iterable[OwnedDriver]) -> PoolStrategies:
    """Return the default strategies in the settings of drivers; unknown names are left out."""
    names = {
        driver.name: tuple(_known_name(pool.default_strategy) for pool in driver.pools or ())
        for driver in drivers
    }
    return PoolStrategies(tuple(sorted(entry for entry in names.items() if any(entry[1]))))


def _known_name(name: str | None) -> str | None:
    return None if name is None or isinstance(find_strategy(name), FieldError) else name


@lru_cache(maxsize=64)
def by_node_pool(
    default: Strategy,
    pools: PoolStrategies,
    weights: CapacityWeights,
    fragmentation: FragmentationAware = FRAGMENTATION_AWARE,
) -> Strategy:
    """Return a strategy that is that of its pool on each node; the default itself if no pool has one.

    Args:
        default: The strategy of other nodes and drivers, with its weights.
        pools: The strategies of pools.
        weights: The weights of capacities in the loads of these strategies.
        fragmentation: FragmentationAware with the kinds of pods that usually come.
    """
    return StrategyByPool(default, pools, weights, fragmentation) if pools.drivers else default


class StrategyByPool:
    """The strategy of its pool on each node.

    Attributes:
        default: The strategy of nodes without one of their own.
    """

    def __init__(
        self,
        default: Strategy,
        pools: PoolStrategies,
        weights: CapacityWeights,
        fragmentation: FragmentationAware,
    ) -> None:
        """Prepare the strategies of all pools; arguments as of `by_node_pool`."""
        self.default: Final = default
        self.weights = weights
        self._by_driver: Final[Mapping[str, tuple[Strategy, ...]]] = {
            driver: tuple(_strategy(name, default, weights, fragmentation) for name in names)
            for driver, names in pools.drivers
        }
        strategies = {default: None, **{s: None for of in self._by_driver.values() for s in of}}
        names = (
            f"{driver}: {', '.join(strategy.name for strategy in of_pools)}"
            for driver, of_pools in self._by_driver.items()
        )
        self.name = f"{default.name} ({'; '.join(names)})"
        self.fields: tuple[DeviceField, ...] = tuple(
            dict.fromkeys(field for strategy in strategies for field in strategy.fields)
        )
        self.reads_capacities = any(strategy.reads_capacities for strategy in strategies)
        self.kinds: tuple[PodKind, ...] = next(
            (strategy.kinds for strategy in strategies if strategy.kinds), ()
        )

    def order(
        self, node: NodeDevices, usage: Usage, pending: PendingClaims
    ) -> Sequence[int] | None:
        """Return the devices of each driver in the order of its strategy; None if that is upstream's."""
        drivers = [device.id.driver for device in node.devices]
        strategies = {driver: self.strategy_on(node, driver) for driver in dict.fromkeys(drivers)}
        orders = {
            strategy: strategy.order(node, usage, pending)
            for strategy in dict.fromkeys(strategies.values())
        }
        if len(orders) <= 1:
            return next(iter(orders.values()), None)
        if all(order is None for order in orders.values()):
            return None
        places = range(len(drivers))
        queues = {
            driver: iter(
                [place for place in orders[strategy] or places if drivers[place] == driver]
            )
            for driver, strategy in strategies.items()
        }
        return [next(queues[driver]) for driver in drivers]

    def score(self, node: NodeDevices, usage: Usage, plan: Plan) -> int:
        """Return the score by the strategies of the plan's drivers on this node."""
        strategies = dict.fromkeys(
            self.strategy_on(node, driver) for driver in sorted(drivers_of(plan))
        )
        scores = [
            rank_score(plan, _MIDDLE)
            if strategy is FIRST_FIT
            else strategy.score(node, usage, plan)
            for strategy in strategies or (self.default,)
        ]
        return sum(scores) // len(scores)

    def strategy_on(self, node: NodeDevices, driver: str) -> Strategy:
        """Return the strategy of a driver's devices on a node."""
        index, of_pools = node.node_pools.get(driver), self._by_driver.get(driver)
        return self.default if index is None or of_pools is None else of_pools[index]


def _strategy(
    name: str | None,
    default: Strategy,
    weights: CapacityWeights,
    fragmentation: FragmentationAware,
) -> Strategy:
    """Return the strategy of a pool; the default if the pool has none."""
    if name is None or name == default.name:
        return default
    if name == fragmentation.name and fragmentation.kinds:
        return fragmentation
    strategy = find_strategy(name)
    return default if isinstance(strategy, FieldError) else with_weights(strategy, weights)
