"""What drivers publish, as rules ask for it: by driver, with what is known to be missing.

A question about selectors is answered once per chain of them and kept, since the inventory changes
far less often than claims are made.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from allocator.core.inventory import Chain, Failure
from allocator.core.model import DeviceId, PoolId, PublishedDevice
from kube.api.resource import ResourceSlice

MAX_ANSWERS: Final = 1024
"""Chains whose answer is kept; beyond that it starts anew."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a chain of selectors finds in an inventory.

    Attributes:
        number: Of devices that satisfy it.
        drivers: Whose they are.
        capacities: Names of capacities that any of them has.
        are_shared: Their driver lets several claims have each of them.
        failed: The first device on which it raises, with what it said; None where it never does.
    """

    number: int = 0
    drivers: frozenset[str] = frozenset()
    capacities: frozenset[str] = frozenset()
    are_shared: bool = False
    failed: tuple[DeviceId, str] | None = None


class Inventory:
    """The devices of the newest generation of each pool; never changed, but replaced."""

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        """Keep what the newest generation of each pool publishes."""
        self.pools = _newest(slices)
        self.devices = tuple(_devices(self.pools))
        self._incomplete = frozenset(
            pool.driver for pool, parts in self.pools.items() if not _is_complete(parts)
        )
        self._answers: dict[Chain, Found] = {}

    def is_proof(self, drivers: Iterable[str]) -> bool:
        """Whether all is known of these drivers, so that what they do not publish is not there."""
        named = frozenset(drivers)
        published = {pool.driver for pool in self.pools}
        return bool(named) and named <= published and named.isdisjoint(self._incomplete)

    def found(self, chain: Chain) -> Found:
        """Return what selectors find."""
        answer = self._answers.get(chain)
        if answer is None:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            answer = self._answers[chain] = _asked(chain, self.devices)
        return answer


def _newest(slices: Iterable[ResourceSlice]) -> Mapping[PoolId, tuple[ResourceSlice, ...]]:
    pools: dict[PoolId, list[ResourceSlice]] = {}
    for one in slices:
        pools.setdefault(PoolId(one.spec.driver, one.spec.pool.name), []).append(one)
    newest: dict[PoolId, tuple[ResourceSlice, ...]] = {}
    for pool in sorted(pools):
        generation = max(one.spec.pool.generation for one in pools[pool])
        newest[pool] = tuple(
            sorted(
                (one for one in pools[pool] if one.spec.pool.generation == generation),
                key=lambda one: one.metadata.name,
            )
        )
    return newest


def _is_complete(parts: tuple[ResourceSlice, ...]) -> bool:
    return all(one.spec.pool.resource_slice_count == len(parts) for one in parts)


def _devices(pools: Mapping[PoolId, tuple[ResourceSlice, ...]]) -> Iterator[PublishedDevice]:
    for pool, parts in pools.items():
        for part in parts:
            for device in part.spec.devices or ():
                name = DeviceId(pool.driver, pool.pool, device.name)
                yield PublishedDevice(id=name, device=device, slice=part)


def _asked(chain: Chain, devices: tuple[PublishedDevice, ...]) -> Found:
    found: list[PublishedDevice] = []
    failed: tuple[DeviceId, str] | None = None
    for device in devices:
        verdict = chain.verdict(device)
        if isinstance(verdict, Failure):
            failed = failed or (device.id, verdict.message)
        elif verdict:
            found.append(device)
    return Found(
        number=len(found),
        drivers=frozenset(each.id.driver for each in found),
        capacities=frozenset(key for each in found for key in each.device.capacity or ()),
        are_shared=bool(found) and all(each.device.allow_multiple_allocations for each in found),
        failed=failed,
    )
