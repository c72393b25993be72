"""Weights of the capacities of a shared device in its load, by driver.

Without weights the fullest capacity counts alone, the one that runs out first. With `memory: 3, cores: 1`
three quarters of the load are that of the memory, and capacities without a weight count for nothing.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from kube.api.ownership import OwnedDriver


class CapacityWeights(msgspec.Struct, frozen=True):
    """The weights of capacities.

    Attributes:
        drivers: Driver to its weights, each a name of a capacity and a number above 0; sorted.
    """

    drivers: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()

    def weights_of(self, driver: str) -> Mapping[str, int]:
        """Return the weights of a driver's capacities by name; empty if it has none."""
        return _by_driver(self).get(driver, _NONE)


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
            if (
                entries := tuple(
                    (name, of_driver[name]) for name in sorted(of_driver) if of_driver[name] > 0
                )
            )
        )
    )


def driver_weights(drivers: Iterable[OwnedDriver]) -> CapacityWeights:
    """Return the weights in the settings of drivers."""
    return capacity_weights({driver.name: driver.capacity_weights or {} for driver in drivers})


@lru_cache(maxsize=64)
def _by_driver(weights: CapacityWeights) -> Mapping[str, Mapping[str, int]]:
    return {driver: dict(entries) for driver, entries in weights.drivers}
