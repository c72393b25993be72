"""Published devices as rules query them: selected devices by driver, and incomplete pools.

The answer for a chain of selectors is cached, since claims change far more often than the inventory.
When a pool changes, only its part of the answers is evaluated again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Final, Generic, TypeVar

import msgspec

from allocator.model.devices import DeviceId, PoolId, PublishedDevice, pool_of
from allocator.model.selectors import DeviceField, SelectorChain, SelectorFailure
from findings.text import quote_text
from kube.api.resource import DeviceAttribute, DeviceCapacity, ResourceSlice
from kube.cel.scope import AnswersPending
from kube.quantity import Format, Quantity
from rules.model.published_names import PublishedNames, names_of_devices, names_of_slices

T = TypeVar("T")

MAX_VALUES: Final = 8
"""Values of a field that are shown."""
MAX_CACHED: Final = 256
"""Chains of selectors whose answers are cached; beyond that the oldest is dropped."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that a chain of selectors chooses.

    Attributes:
        number: Number of devices.
        drivers: Their drivers.
        capacities: Names of capacities that at least one of them has.
        names: Names of attributes and capacities that at least one of them has.
        are_shared: All of them allow multiple allocations.
        failed: The first device on which a selector errors, with the runtime error, which is empty for
            a selector that does not compile; None without such a device.
    """

    number: int = 0
    drivers: frozenset[str] = frozenset()
    capacities: frozenset[str] = frozenset()
    names: PublishedNames = PublishedNames()
    are_shared: bool = False
    failure: tuple[DeviceId, str] | None = None


_NOTHING: Final = Selection()


class Inventory:
    """The devices of the newest generation of each pool. Not thread-safe.

    Attributes:
        pools: The slices of the newest generation of each pool.
    """

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        """Index the newest generation of each pool."""
        self.pools: dict[PoolId, tuple[ResourceSlice, ...]] = {}
        self._slices: dict[PoolId, list[ResourceSlice]] = {}
        self._devices: dict[PoolId, tuple[PublishedDevice, ...]] = {}
        self._all: tuple[PublishedDevice, ...] | None = None
        self._incomplete: set[PoolId] = set()
        self._names: dict[PoolId, PublishedNames] = {}
        self._values: dict[tuple[bytes, DeviceField], _CachedValues] = {}
        self._devices_of: dict[str, tuple[PublishedDevice, ...]] = {}
        self._cached_selections: dict[bytes, _CachedSelection] = {}
        # Of chains that administrators wrote: those of users evict none of them.
        self._class_selections: dict[bytes, _CachedSelection] = {}
        for slice_ in slices:
            self._slices.setdefault(pool_of(slice_), []).append(slice_)
        for pool in sorted(self._slices):
            self._index(pool)

    @property
    def devices(self) -> tuple[PublishedDevice, ...]:
        """All devices, pool by pool."""
        if self._all is None:
            self._all = tuple(device for pool in self._devices.values() for device in pool)
        return self._all

    def published_names(self) -> PublishedNames:
        """Return the names of attributes and capacities of all devices."""
        for pool in self.pools.keys() - self._names.keys():
            self._names[pool] = names_of_slices(self.pools[pool])
        # Most pools publish the same names.
        return reduce(or_, set(self._names.values()), PublishedNames())

    def published_values(self, field: DeviceField, of_class: SelectorChain) -> str:
        """Return the distinct values of a field of the devices of a class, as selectors write them.

        Args:
            of_class: The selectors of the class; an administrator wrote them, so there are few.

        Returns:
            Text; empty if no device has the field, or more than `MAX_VALUES` differ in it, as in an
            attribute that identifies them.

        Raises:
            AnswerInterrupted: As in `select`.
        """
        if not self.published_names().has(field):
            return ""
        cached_values = self._values.get((of_class.digest, field))
        if cached_values is None:
            cached_values = self._values[of_class.digest, field] = _CachedValues(self._devices)
        values = cached_values.total()
        for pool in sorted(cached_values.missing):
            if len(values) > MAX_VALUES:
                return ""
            pool_values = _selected_values(field, of_class, self._devices[pool])
            cached_values.add(pool, pool_values)
            values |= pool_values
        if len(values) > MAX_VALUES:
            return ""
        return ", ".join(text for _, text in sorted(values))

    def is_complete_for(self, drivers: Iterable[str]) -> bool:
        """Return True if all pools of the drivers are complete, and each driver has one."""
        driver_names = frozenset(drivers)
        published_drivers = {pool.driver for pool in self.pools}
        incomplete = {pool.driver for pool in self._incomplete}
        return (
            bool(driver_names)
            and driver_names <= published_drivers
            and driver_names.isdisjoint(incomplete)
        )

    def devices_of(self, driver: str) -> tuple[PublishedDevice, ...]:
        """Return the devices of a driver, pool by pool."""
        devices = self._devices_of.get(driver)
        if devices is None:
            pools = sorted(pool for pool in self._devices if pool.driver == driver)
            devices = tuple(device for pool in pools for device in self._devices[pool])
            self._devices_of[driver] = devices
        return devices

    def select(self, chain: SelectorChain) -> Selection:
        """Return the devices that selectors choose.

        Raises:
            AnswerInterrupted: It is not known yet; what is known is kept.
        """
        return self._select(chain, self._cached_selections)

    def class_drivers(self, chain: SelectorChain) -> frozenset[str]:
        """Return the drivers of the devices that the selectors of a class choose.

        Raises:
            AnswerInterrupted: As in `select`.
        """
        return self._select(chain, self._class_selections).drivers

    def _select(
        self, chain: SelectorChain, cached_selections: "dict[bytes, _CachedSelection]"
    ) -> Selection:
        cached_selection = cached_selections.get(chain.digest)
        if cached_selection is None:
            if len(cached_selections) >= MAX_CACHED:
                cached_selections.pop(next(iter(cached_selections)))
            cached_selection = cached_selections[chain.digest] = _CachedSelection(self._devices)
        pending: AnswersPending | None = None
        for pool in sorted(cached_selection.missing):
            try:
                cached_selection.add(pool, _select(chain, self._devices[pool]))
            except AnswersPending as error:
                pending = error
                if not error.has_room:
                    break
        if pending is not None:
            raise pending
        return cached_selection.total()

    def replace_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Add, change or remove a slice."""
        if old is not None:
            pool = pool_of(old)
            self._slices[pool] = [
                slice_
                for slice_ in self._slices.get(pool, ())
                if slice_.metadata.name != old.metadata.name
            ]
        if new is not None:
            self._slices.setdefault(pool_of(new), []).append(new)
        for pool in sorted({pool_of(slice_) for slice_ in (old, new) if slice_ is not None}):
            self._index(pool)

    def _index(self, pool: PoolId) -> None:
        """Index a pool again, and drop cached values about it."""
        self._all = None
        self._devices_of.pop(pool.driver, None)
        self._incomplete.discard(pool)
        self._names.pop(pool, None)
        slices = self._slices.get(pool)
        if slices:
            self.pools[pool] = _newest(slices)
            self._devices[pool] = tuple(_published_devices(pool, self.pools[pool]))
            if not _is_complete(self.pools[pool]):
                self._incomplete.add(pool)
        else:
            for index in (self._slices, self.pools, self._devices):
                index.pop(pool, None)
        cached_answers: Iterable[_ByPool[Selection] | _CachedValues] = (
            *self._cached_selections.values(),
            *self._class_selections.values(),
            *self._values.values(),
        )
        for cached_answer in cached_answers:
            cached_answer.drop(pool, exists=bool(slices))


class _ByPool(Generic[T]):
    """An answer pool by pool; most pools are alike and share one value.

    Attributes:
        missing: Pools that are not evaluated yet.
    """

    def __init__(self, pools: Iterable[PoolId]) -> None:
        self.missing = set(pools)
        self._by_pool: dict[PoolId, T] = {}
        self._shared_values: dict[T, T] = {}
        self._pool_counts: Counter[T] = Counter()

    def add(self, pool: PoolId, value: T) -> None:
        self.missing.discard(pool)
        self._by_pool[pool] = self._shared_values.setdefault(value, value)
        self._pool_counts[value] += 1

    def drop(self, pool: PoolId, *, exists: bool) -> None:
        (self.missing.add if exists else self.missing.discard)(pool)
        value = self._by_pool.pop(pool, None)
        if value is None:
            return
        self._pool_counts[value] -= 1
        if not self._pool_counts[value]:
            del self._pool_counts[value], self._shared_values[value]


class _CachedSelection(_ByPool[Selection]):
    """The answer for a chain of selectors."""

    def total(self) -> Selection:
        """Return the selection over all pools, with the failure of the first device."""
        nonempty = [selection for selection in self._pool_counts if selection.number]
        failures = (
            selection.failure for selection in self._pool_counts if selection.failure is not None
        )
        return Selection(
            number=sum(selection.number * pools for selection, pools in self._pool_counts.items()),
            drivers=frozenset().union(*(selection.drivers for selection in nonempty)),
            capacities=frozenset().union(*(selection.capacities for selection in nonempty)),
            names=reduce(or_, (selection.names for selection in nonempty), PublishedNames()),
            are_shared=bool(nonempty) and all(selection.are_shared for selection in nonempty),
            failure=min(failures, default=None),
        )


class _CachedValues(_ByPool[frozenset[tuple[int, str]]]):
    """The values of a field, each as the number to sort it by and as text."""

    def total(self) -> frozenset[tuple[int, str]]:
        return frozenset().union(*self._pool_counts)


def _selected_values(
    field: DeviceField, of_class: SelectorChain, devices: Sequence[PublishedDevice]
) -> frozenset[tuple[int, str]]:
    verdicts = zip(devices, of_class.verdicts(devices), strict=True)
    return frozenset(
        value
        for device, verdict in verdicts
        if verdict is True
        for value in _values_of(field, device)
    )


def _values_of(field: DeviceField, device: PublishedDevice) -> Iterator[tuple[int, str]]:
    """Yield the values of a field of one device, each as the number to sort it by and as text."""
    value = field.value(device.id.driver, device.device)
    for published_value in value if isinstance(value, tuple) else (value,):
        match published_value:
            case DeviceCapacity(value=amount):
                yield amount.nanos, str(Quantity.from_nanos(amount.nanos, Format.BINARY))
            case DeviceAttribute(string=str() as text):
                yield 0, quote_text(text)
            case DeviceAttribute(version=str() as text):
                yield 0, f"semver({quote_text(text)})"
            case DeviceAttribute(bool_=bool() as flag):
                yield 0, str(flag).lower()
            case DeviceAttribute(int_=int() as number):
                yield number, str(number)
            case _:
                pass


def _newest(slices: Iterable[ResourceSlice]) -> tuple[ResourceSlice, ...]:
    generation = max(slice_.spec.pool.generation for slice_ in slices)
    newest = [slice_ for slice_ in slices if slice_.spec.pool.generation == generation]
    return tuple(sorted(newest, key=lambda slice_: slice_.metadata.name))


def _is_complete(slices: tuple[ResourceSlice, ...]) -> bool:
    return all(slice_.spec.pool.resource_slice_count == len(slices) for slice_ in slices)


def _published_devices(
    pool: PoolId, slices: tuple[ResourceSlice, ...]
) -> Iterator[PublishedDevice]:
    for slice_ in slices:
        for device in slice_.spec.devices or ():
            name = DeviceId(pool.driver, pool.pool, device.name)
            yield PublishedDevice(id=name, device=device, slice=slice_)


def _select(chain: SelectorChain, devices: Sequence[PublishedDevice]) -> Selection:
    selected_devices: list[PublishedDevice] = []
    failure: tuple[DeviceId, str] | None = None
    for device, verdict in zip(devices, chain.verdicts(devices), strict=True):
        if isinstance(verdict, SelectorFailure):
            failure = failure or (device.id, verdict.runtime_error)
        elif verdict:
            selected_devices.append(device)
    if not selected_devices and failure is None:
        return _NOTHING
    return Selection(
        number=len(selected_devices),
        drivers=frozenset(device.id.driver for device in selected_devices),
        capacities=frozenset(
            key for device in selected_devices for key in device.device.capacity or ()
        ),
        names=names_of_devices((device.device, device.id.driver) for device in selected_devices),
        are_shared=bool(selected_devices)
        and all(device.device.allow_multiple_allocations for device in selected_devices),
        failure=failure,
    )
