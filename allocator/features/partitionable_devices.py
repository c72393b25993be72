"""Shared counters, consumed by the partitions of one piece of hardware (KEP-4815).

The available amount of a counter is what its pool declares minus the consumption of all allocated
devices of the pool, each counted once, as their slices state it now. So a device that is no longer
published consumes nothing, and a changed consumption takes effect at once.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/allocator_experimental.go, checkAvailableCounters.
"""

from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from allocator.model.constraint import RemainingDemand
from allocator.model.devices import NodeDevices, Pool
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason, Verb
from allocator.model.requests import Request
from allocator.model.usage import PoolUse, Usage
from kube.api.resource import Device
from kube.quantity import Quantity

_POOLS: Final = 8192
_NOTHING: Final[PoolUse] = {}

CounterAmounts = tuple[tuple[int, int], ...]
"""Counter number and nano-units, for each counter on which it depends whether a device fits."""


class PoolCounters(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The counters of a pool and the consumption of its devices, allocated or not.

    Attributes:
        names: Counter set and counter; the index is the number of the counter.
        amounts: The declared amount of each counter.
        consumption: Device name to its consumption, for all devices with `consumesCounters`,
            including those in slices that do not target the node.
    """

    names: tuple[tuple[str, str], ...] = ()
    amounts: tuple[Quantity, ...] = ()
    consumption: dict[str, CounterAmounts] = msgspec.field(default_factory=dict)


class Availability(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The amounts of a pool's counters that allocated devices leave.

    Attributes:
        counters: The counters.
        nanos: Nano-units by counter number; negative if more is consumed than declared.
    """

    counters: PoolCounters
    nanos: tuple[int, ...]


class CounterSetGroup(NamedTuple):
    """Devices that consume the same counter sets.

    Attributes:
        devices: Mask of their positions.
        least: The smallest consumption among them of each counter that all of them consume.
    """

    devices: int
    least: CounterAmounts


def rejection(device: Device, features: Features) -> RejectionReason | None:
    """Return the reason a device that consumes counters cannot be chosen; None if it can."""
    # "Devices that consume counters can not be allocated if the PartitionableDevices feature is
    # not enabled."
    if device.consumes_counters and not features.partitionable_devices:
        return RejectionReason(
            reason=Reason.PARTITIONABLE_DEVICES_DISABLED,
            verb=Verb.CONSUME,
            subject="shared counters",
            remark="needs feature gate DRAPartitionableDevices",
        )
    return None


@lru_cache(maxsize=_POOLS)
def pool_counters(pool: Pool) -> PoolCounters:
    """Return the counters of a pool, from a cache."""
    amounts = {
        (name, counter): amount.value
        for name, counter_set in pool.counter_sets.items()
        for counter, amount in (counter_set.counters or {}).items()
    }
    numbers = {name: number for number, name in enumerate(amounts)}
    consumption = {
        device.id.device: _device_consumption(device.device, numbers)
        for device in (*pool.devices, *pool.elsewhere)
        if device.device.consumes_counters
    }
    return PoolCounters(
        names=tuple(amounts), amounts=tuple(amounts.values()), consumption=consumption
    )


def available_counters(pool: Pool, use: PoolUse) -> Availability:
    """Return the available amounts of a pool's counters."""
    counters = pool_counters(pool)
    available = [amount.nanos for amount in counters.amounts]
    if counters.consumption:
        # A use counts whether it is exclusive, by share ids or only by consumed capacity.
        for name in use:
            for number, nanos in counters.consumption.get(name, ()):
                available[number] -= nanos
    return Availability(counters=counters, nanos=tuple(available))


def build_constraint(
    node: NodeDevices,
    usage: Usage,
    features: Features,
) -> "CounterConstraint | None":
    """Build the constraint of an attempt; None if no device of the node consumes counters."""
    if not features.partitionable_devices or not any(
        device.device.consumes_counters for device in node.devices
    ):
        return None
    return CounterConstraint(
        node,
        [available_counters(pool, usage.pools.get(pool.id, _NOTHING)) for pool in node.pools],
    )


class CounterConstraint:
    """The available amount of every counter that devices of a node consume."""

    def __init__(self, node: NodeDevices, pools: Iterable[Availability]) -> None:
        """Number the counters of all pools consecutively."""
        self._available: list[int] = []
        self._counters: list[tuple[str, str, Quantity]] = []
        # By counter number: the first counter of the same counter set.
        self._first_of_set: list[int] = []
        by_pool = [self._append_pool(available) for available in pools]
        self._consumption: list[CounterAmounts] = [
            by_pool[pool].get(device.id.device, ())
            for pool, device in zip(node.pool_of, node.devices, strict=True)
        ]
        ids: dict[CounterAmounts, int] = {}
        self._keys = [ids.setdefault(consumption, len(ids)) for consumption in self._consumption]
        self._remaining: dict[RemainingDemand, tuple[int, ...]] = {}

    def equivalence_key(self, position: int) -> Hashable:
        """Return a number for the consumption of a device."""
        return self._keys[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Consume a device's counters if enough is available of each."""
        consumption = self._consumption[position]
        # "Its counters are already accounted for, so a further share must not charge them again."
        if further_share or not consumption:
            return True
        available = self._available
        for number, nanos in consumption:
            if available[number] < nanos:
                return False
        for number, nanos in consumption:
            available[number] -= nanos
        return True

    def remove(self, request: Request, position: int, *, further_share: bool) -> None:
        """Release the consumption of `add`."""
        if not further_share:
            available = self._available
            for number, nanos in self._consumption[position]:
                available[number] += nanos

    def state_key(self) -> Hashable:
        """Return the available amount of each counter."""
        return tuple(self._available)

    def residual_key(self, remaining: RemainingDemand) -> Hashable:
        """Return the available amounts of the counters that remaining devices consume."""
        available = self._available
        return tuple([available[number] for number in self._counter_numbers(remaining)])

    def least_consumption(self, positions: int) -> Mapping[str, int]:
        """Return the least amount that each of these devices consumes, by name of the counter.

        Args:
            positions: Mask of the devices.
        """
        least: dict[str, int] | None = None
        for consumption in {
            consumption
            for position, consumption in enumerate(self._consumption)
            if positions >> position & 1
        }:
            by_name: dict[str, int] = {}
            for number, nanos in consumption:
                _, name, _ = self._counters[number]
                by_name[name] = by_name.get(name, 0) + nanos
            if least is None:
                least = by_name
            else:
                least = {name: min(nanos, by_name.get(name, 0)) for name, nanos in least.items()}
        return {name: nanos for name, nanos in (least or {}).items() if nanos > 0}

    def group_by_counter_sets(self, positions: int) -> "tuple[CounterSetGroup, ...]":
        """Group the devices that consume counters by the counter sets that they consume.

        Args:
            positions: Mask of the devices.
        """
        groups: dict[tuple[int, ...], tuple[int, dict[int, int]]] = {}
        for position, consumption in enumerate(self._consumption):
            positive = {number: nanos for number, nanos in consumption if nanos > 0}
            if not positive or not positions >> position & 1:
                continue
            # Placements on one GPU have counters of its set in common.
            counter_sets = tuple(sorted({self._first_of_set[number] for number in positive}))
            devices, least = groups.get(counter_sets, (0, positive))
            least = {
                number: min(nanos, positive[number])
                for number, nanos in least.items()
                if number in positive
            }
            groups[counter_sets] = (devices | 1 << position, least)
        return tuple(
            CounterSetGroup(devices, tuple(least.items()))
            for devices, least in groups.values()
            if least
        )

    def max_devices(self, group: "CounterSetGroup") -> int:
        """Return an upper bound for the number of devices of a group that fit together."""
        available = self._available
        return min([max(0, available[number]) // nanos for number, nanos in group.least])

    def available_totals(self, remaining: RemainingDemand) -> Mapping[str, int]:
        """Return the available amounts that remaining devices can consume, summed by name."""
        totals: dict[str, int] = {}
        for number in self._counter_numbers(remaining):
            _, name, _ = self._counters[number]
            totals[name] = totals.get(name, 0) + max(0, self._available[number])
        return totals

    def rejection(
        self, request: Request, position: int, *, further_share: bool
    ) -> RejectionReason | None:
        """Return the first counter with too little available for a device."""
        for number, nanos in () if further_share else self._consumption[position]:
            available = self._available[number]
            if available < nanos:
                return self._shortage(number, available, nanos)
        return None

    def _counter_numbers(self, remaining: RemainingDemand) -> tuple[int, ...]:
        numbers = self._remaining.get(remaining)
        if numbers is None:
            consumed_numbers = {
                number
                for position, consumption in enumerate(self._consumption)
                if remaining.positions >> position & 1
                for number, _ in consumption
            }
            numbers = self._remaining[remaining] = tuple(sorted(consumed_numbers))
        return numbers

    def _append_pool(self, pool: Availability) -> dict[str, CounterAmounts]:
        """Append a pool's counters; return its devices' consumption with the new numbers."""
        first = len(self._available)
        self._available += pool.nanos
        first_of_set: dict[str, int] = {}
        for number, (counter_set, _) in enumerate(pool.counters.names, start=first):
            self._first_of_set.append(first_of_set.setdefault(counter_set, number))
        self._counters += [
            (counter_set, counter, amount)
            for (counter_set, counter), amount in zip(
                pool.counters.names, pool.counters.amounts, strict=True
            )
        ]
        # An overdrawn counter excludes every device that consumes any counter of the pool, since
        # upstream compares all of them: consuming 0 of a negative amount is rejected.
        overdrawn_numbers = [number for number, nanos in enumerate(pool.nanos) if nanos < 0]
        if not first and not overdrawn_numbers:
            return pool.counters.consumption
        return {
            name: _sum_by_counter(
                [(first + number, nanos) for number, nanos in consumption]
                + [(first + number, 0) for number in overdrawn_numbers]
            )
            for name, consumption in pool.counters.consumption.items()
        }

    def _shortage(self, number: int, available: int, needed_nanos: int) -> RejectionReason:
        counter_set, counter, total = self._counters[number]
        rest = Quantity.from_nanos(max(available, 0), total.format)
        return RejectionReason(
            reason=Reason.COUNTERS,
            verb=Verb.NEED,
            subject=f"counter {counter}",
            value=str(Quantity.from_nanos(needed_nanos, total.format)),
            remark=f"{rest} free in counter set {counter_set}",
        )


def _device_consumption(device: Device, numbers: dict[tuple[str, str], int]) -> CounterAmounts:
    """Return a device's consumption of existing counters; validation rejects any other counter."""
    return _sum_by_counter(
        (numbers[consumption.counter_set, name], counter.value.nanos)
        for consumption in device.consumes_counters or ()
        for name, counter in (consumption.counters or {}).items()
        if (consumption.counter_set, name) in numbers
    )


def _sum_by_counter(amounts: Iterable[tuple[int, int]]) -> CounterAmounts:
    """Return one entry per counter, by number."""
    sums: dict[int, int] = {}
    for number, nanos in amounts:
        sums[number] = sums.get(number, 0) + nanos
    return tuple(sorted(sums.items()))
