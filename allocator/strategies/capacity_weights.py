"""Weights of the capacities of a shared device in its load, by driver.

Without weights the fullest capacity counts alone, the one that runs out first. With `memory: 3, cores: 1`
three quarters of the load are that of the memory, and capacities without a weight count for nothing.
A driver may have other weights on a pool of nodes.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.model.devices import NodeDevices
from kube.api.ownership import OwnedDriver, node_pools

Weights = tuple[tuple[str, int], ...]
"""The name of a capacity and a number above 0; sorted."""


class CapacityWeights(msgspec.Struct, frozen=True):
    """The weights of capacities.

    Attributes:
        drivers: Driver to its weights; sorted.
        pools: Driver to its weights on each of its pools of nodes, in the pools' order; sorted by driver.
    """

    drivers: tuple[tuple[str, Weights], ...] = ()
    pools: tuple[tuple[str, tuple[Weights, ...]], ...] = ()

    def weights_of(self, driver: str) -> Mapping[str, int]:
        """Return the weights of a driver's capacities by name; empty if it has none."""
        return _by_driver(self).get(driver, _NONE)

    def weights_on(self, node: NodeDevices, driver: str) -> Mapping[str, int]:
        """Return the weights of a driver's capacities on a node, or those of the node's own pool."""
        index = node.node_pools.get(driver)
        by_pool = None if index is None else _by_pool(self).get(driver)
        return self.weights_of(driver) if by_pool is None or index is None else by_pool[index]


_NONE: Final[Mapping[str, int]] = {}
NO_WEIGHTS: Final = CapacityWeights()


def capacity_weights(weights: Mapping[str, Mapping[str, int]]) -> CapacityWeights:
    """Return weights by driver as a value; those that are not above 0 are left out.

    >>> capacity_weights({"gpu.example.com": {"memory": 3, "cores": 0}}).weights_of("gpu.example.com")
    {'memory': 3}
    """
    return CapacityWeights(
        tuple(
            (driver, entries)
            for driver, of_driver in sorted(weights.items())
            if (entries := _weights(of_driver))
        )
    )


def _weights(weights: Mapping[str, int] | None) -> Weights:
    return tuple(sorted((name, weight) for name, weight in (weights or {}).items() if weight > 0))


def driver_weights(drivers: Iterable[OwnedDriver]) -> CapacityWeights:
    """Return the weights in the settings of drivers."""
    by_driver: dict[str, Mapping[str, int]] = {}
    by_pool: dict[str, tuple[Weights, ...]] = {}
    for driver in drivers:
        by_driver[driver.name] = driver.capacity_weights or {}
        weights = tuple(_weights(pool.capacity_weights) for pool in node_pools(driver))
        if set(weights) - {_weights(driver.capacity_weights)}:
            by_pool[driver.name] = weights
    return replace(capacity_weights(by_driver), pools=tuple(sorted(by_pool.items())))


@lru_cache(maxsize=64)
def _by_driver(weights: CapacityWeights) -> Mapping[str, Mapping[str, int]]:
    return {driver: dict(entries) for driver, entries in weights.drivers}


@lru_cache(maxsize=64)
def _by_pool(weights: CapacityWeights) -> Mapping[str, tuple[Mapping[str, int], ...]]:
    return {driver: tuple(map(dict, by_pool)) for driver, by_pool in weights.pools}
