"""The devices that ResourceSlices publish, as charges of quotas need them."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

from allocator.model.devices import DeviceId, PoolId, PublishedDevice
from kube.api.resource import ResourceSlice
from quotas.device_quotas.limits import Measured, amount_of

_MAX_MEASURES: Final = 64
"""Measures of limits whose largest amount is kept up to date."""


class PublishedDevices:
    """All devices of all generations of all pools, complete or not.

    A quota counts what may be allocated next: an incomplete pool may be complete next, and a node sees an
    older generation of its pool where no slice of the newest is for it.
    """

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        """Collect the devices."""
        self._slices: dict[PoolId, dict[str, ResourceSlice]] = {}
        self._pool_of: dict[str, PoolId] = {}
        self._devices: dict[PoolId, Sequence[PublishedDevice]] = {}
        self._newest: dict[PoolId, Mapping[str, PublishedDevice]] = {}
        self._all: Sequence[PublishedDevice] | None = None
        self._largest: dict[tuple[object, ...], _LargestAmount] = {}
        for slice_ in slices:
            self._store(slice_.metadata.name, slice_)
        for pool in self._slices:
            self._collect(pool)

    def replace_slice(self, name: str, slice_: ResourceSlice | None) -> frozenset[PoolId]:
        """Take a slice that was added, changed or, with None, deleted; return the pools it concerns."""
        pools = self._store(name, slice_)
        for pool in pools:
            self._collect(pool)
        self._all = None
        for largest in self._largest.values():
            largest.outdated |= pools
        return pools

    @property
    def devices(self) -> Sequence[PublishedDevice]:
        """Return all devices."""
        if self._all is None:
            self._all = tuple(device for of_pool in self._devices.values() for device in of_pool)
        return self._all

    def find(self, device: DeviceId) -> PublishedDevice | None:
        """Return the device as the newest slice publishes it; None if none does."""
        return self._newest.get(PoolId(device.driver, device.pool), {}).get(device.device)

    def largest_amount(self, measured: Measured) -> int:
        """Return the largest charge for a device of the limit's driver, without regard to the limit's selectors.

        No share is charged with more than its device.
        """
        key = (measured.driver, measured.measure, measured.capacity, measured.counter)
        largest = self._largest.get(key)
        if largest is None:
            if len(self._largest) >= _MAX_MEASURES:
                self._largest.clear()
            largest = self._largest[key] = _LargestAmount()
            largest.outdated |= self._devices.keys()
        if largest.outdated:
            largest.update(self._devices, measured)
        return largest.amount

    def _store(self, name: str, slice_: ResourceSlice | None) -> frozenset[PoolId]:
        pools: set[PoolId] = set()
        old = self._pool_of.pop(name, None)
        if old is not None:
            del self._slices[old][name]
            pools.add(old)
        if slice_ is not None:
            pool = PoolId(slice_.spec.driver, slice_.spec.pool.name)
            self._pool_of[name] = pool
            self._slices.setdefault(pool, {})[name] = slice_
            pools.add(pool)
        return frozenset(pools)

    def _collect(self, pool: PoolId) -> None:
        slices = self._slices.get(pool)
        if not slices:
            self._slices.pop(pool, None)
            self._devices.pop(pool, None)
            self._newest.pop(pool, None)
            return
        self._devices[pool] = tuple(
            PublishedDevice(
                id=DeviceId(pool.driver, pool.pool, device.name), device=device, slice=slice_
            )
            for slice_ in sorted(slices.values(), key=lambda slice_: slice_.spec.pool.generation)
            for device in slice_.spec.devices or ()
        )
        self._newest[pool] = {device.id.device: device for device in self._devices[pool]}


class _LargestAmount:
    """The largest amount of a device by some measure, and that of each pool.

    Attributes:
        amount: The largest of all pools.
        outdated: The pools that have changed since.
    """

    def __init__(self) -> None:
        self.amount = 0
        self.outdated: set[PoolId] = set()
        self._of_pool: dict[PoolId, int] = {}

    def update(
        self, devices: Mapping[PoolId, Sequence[PublishedDevice]], measured: Measured
    ) -> None:
        """Take the pools that have changed."""
        # Devices of a cluster differ in little but their names, and readers share equal capacities.
        amounts: dict[Hashable, int] = {}
        for pool in self.outdated:
            self._of_pool.pop(pool, None)
            if pool.driver != measured.driver:
                continue
            for published_device in devices.get(pool, ()):
                device = published_device.device
                shape = (id(device.capacity), id(device.consumes_counters))
                amount = amounts.get(shape)
                if amount is None:
                    amount = amounts[shape] = amount_of(published_device, {}, measured)
                if amount > self._of_pool.get(pool, 0):
                    self._of_pool[pool] = amount
        self.outdated.clear()
        self.amount = max(self._of_pool.values(), default=0)


def node_of(published_device: PublishedDevice) -> str | None:
    """Return the only node that can use a device; None if several can."""
    spec = published_device.slice.spec
    return published_device.device.node_name if spec.per_device_node_selection else spec.node_name
