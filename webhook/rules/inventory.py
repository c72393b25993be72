"""What drivers publish, as rules ask for it: by driver, with what is known to be missing.

A question about selectors is answered once per chain of them and kept, since the inventory changes
far less often than claims are made; when a pool changes, only that pool is looked at again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from allocator.core.inventory import Chain, Failure
from allocator.core.model import DeviceId, PoolId, PublishedDevice
from kube.api.resource import ResourceSlice

MAX_ANSWERS: Final = 256
"""Chains whose answer is kept, pool by pool; beyond that the oldest goes."""


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


_NOTHING: Final = Found()


class Inventory:
    """The devices of the newest generation of each pool. Not for several threads at once.

    Attributes:
        pools: The slices of the newest generation, by name.
    """

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        """Keep what the newest generation of each pool publishes."""
        self.pools: dict[PoolId, tuple[ResourceSlice, ...]] = {}
        self._slices: dict[PoolId, list[ResourceSlice]] = {}
        self._devices: dict[PoolId, tuple[PublishedDevice, ...]] = {}
        self._all: tuple[PublishedDevice, ...] | None = None
        self._incomplete: set[PoolId] = set()
        self._answers: dict[Chain, _Answer] = {}
        for one in slices:
            self._slices.setdefault(pool_of(one), []).append(one)
        for pool in sorted(self._slices):
            self._look(pool)

    @property
    def devices(self) -> tuple[PublishedDevice, ...]:
        """All devices, pool by pool."""
        if self._all is None:
            self._all = tuple(each for part in self._devices.values() for each in part)
        return self._all

    def is_proof(self, drivers: Iterable[str]) -> bool:
        """Whether all is known of these drivers, so that what they do not publish is not there."""
        named = frozenset(drivers)
        published = {pool.driver for pool in self.pools}
        incomplete = {pool.driver for pool in self._incomplete}
        return bool(named) and named <= published and named.isdisjoint(incomplete)

    def found(self, chain: Chain) -> Found:
        """Return what selectors find."""
        answer = self._answers.get(chain)
        if answer is None:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.pop(next(iter(self._answers)))
            answer = self._answers[chain] = _Answer(self._devices)
        for pool in sorted(answer.missing):
            answer.put(pool, _asked(chain, self._devices[pool]))
        return answer.together()

    def replace_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Take notice of a slice that came, changed or went."""
        if old is not None:
            pool = pool_of(old)
            left = [
                one for one in self._slices.get(pool, ()) if one.metadata.name != old.metadata.name
            ]
            self._slices[pool] = left
        if new is not None:
            self._slices.setdefault(pool_of(new), []).append(new)
        for pool in sorted({pool_of(one) for one in (old, new) if one is not None}):
            self._look(pool)

    def _look(self, pool: PoolId) -> None:
        """Look at a pool anew, and forget what was found out about it."""
        self._all = None
        self._incomplete.discard(pool)
        parts = self._slices.get(pool)
        if parts:
            self.pools[pool] = _newest(parts)
            self._devices[pool] = tuple(_published(pool, self.pools[pool]))
            if not _is_complete(self.pools[pool]):
                self._incomplete.add(pool)
        else:
            for kept in (self._slices, self.pools, self._devices):
                kept.pop(pool, None)
        for answer in self._answers.values():
            answer.forget(pool, is_there=bool(parts))


class _Answer:
    """What a chain finds, pool by pool; most pools are alike, and share what is kept of them.

    Attributes:
        missing: Pools that were not asked yet.
    """

    def __init__(self, pools: Iterable[PoolId]) -> None:
        self.missing = set(pools)
        self._parts: dict[PoolId, Found] = {}
        self._alike: dict[Found, Found] = {}
        self._often: Counter[Found] = Counter()

    def put(self, pool: PoolId, found: Found) -> None:
        self.missing.discard(pool)
        self._parts[pool] = self._alike.setdefault(found, found)
        self._often[found] += 1

    def forget(self, pool: PoolId, *, is_there: bool) -> None:
        (self.missing.add if is_there else self.missing.discard)(pool)
        found = self._parts.pop(pool, None)
        if found is None:
            return
        self._often[found] -= 1
        if not self._often[found]:
            del self._often[found], self._alike[found]

    def together(self) -> Found:
        """Return what all pools have; of several failures that of the first device."""
        having = [each for each in self._often if each.number]
        failures = (each.failed for each in self._often if each.failed is not None)
        return Found(
            number=sum(each.number * often for each, often in self._often.items()),
            drivers=frozenset().union(*(each.drivers for each in having)),
            capacities=frozenset().union(*(each.capacities for each in having)),
            are_shared=bool(having) and all(each.are_shared for each in having),
            failed=min(failures, default=None),
        )


def pool_of(one: ResourceSlice) -> PoolId:
    """Return the pool that a slice is of."""
    return PoolId(one.spec.driver, one.spec.pool.name)


def _newest(slices: Iterable[ResourceSlice]) -> tuple[ResourceSlice, ...]:
    generation = max(one.spec.pool.generation for one in slices)
    newest = [one for one in slices if one.spec.pool.generation == generation]
    return tuple(sorted(newest, key=lambda one: one.metadata.name))


def _is_complete(parts: tuple[ResourceSlice, ...]) -> bool:
    return all(one.spec.pool.resource_slice_count == len(parts) for one in parts)


def _published(pool: PoolId, parts: tuple[ResourceSlice, ...]) -> Iterator[PublishedDevice]:
    for part in parts:
        for device in part.spec.devices or ():
            name = DeviceId(pool.driver, pool.pool, device.name)
            yield PublishedDevice(id=name, device=device, slice=part)


def _asked(chain: Chain, devices: Iterable[PublishedDevice]) -> Found:
    found: list[PublishedDevice] = []
    failed: tuple[DeviceId, str] | None = None
    for device in devices:
        verdict = chain.verdict(device)
        if isinstance(verdict, Failure):
            failed = failed or (device.id, verdict.message)
        elif verdict:
            found.append(device)
    if not found and failed is None:
        return _NOTHING
    return Found(
        number=len(found),
        drivers=frozenset(each.id.driver for each in found),
        capacities=frozenset(key for each in found for key in each.device.capacity or ()),
        are_shared=bool(found) and all(each.device.allow_multiple_allocations for each in found),
        failed=failed,
    )
