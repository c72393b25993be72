"""Counters that devices of a pool share: partitions of one piece of hardware (KEP-4815).

What is available of a counter is what its pool declares less what all allocated devices of the
pool consume, each once, as their slices say it *now*. So a device that is no longer published
charges nothing, and a changed consumption counts as changed.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/allocator_experimental.go, checkAvailableCounters.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from allocator.core.model import (
    Features,
    NodeDevices,
    Pool,
    PoolUse,
    Request,
    Usage,
)
from allocator.core.outcome import Reason, Refusal
from allocator.core.tracker import Ahead
from kube.api.resource import Device
from kube.quantity import Quantity

_POOLS: Final = 8192
_NOTHING: Final[PoolUse] = {}

Takes = tuple[tuple[int, int], ...]
"""Number of a counter to nano-units, for each counter that has a say in whether a device fits."""


class Declared(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The counters of a pool and what its devices take from them, whoever holds them.

    Attributes:
        names: (counter set, counter), numbered by position here.
        amounts: What the pool declares of each.
        takes: Device name to what it takes; devices without `consumesCounters` are absent. Of all
            devices, also of those on slices that do not target the node.
    """

    names: tuple[tuple[str, str], ...] = ()
    amounts: tuple[Quantity, ...] = ()
    takes: dict[str, Takes] = msgspec.field(default_factory=dict)


class Availability(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What allocated devices leave of a pool's counters.

    Attributes:
        declared: The counters.
        left: Nano-units by number of the counter; negative where more is in use than declared.
    """

    declared: Declared
    left: tuple[int, ...]


class Part(NamedTuple):
    """Devices that take from the same counter sets.

    Attributes:
        devices: A mask of positions.
        least: Number of a counter that each of them takes from to the least of what they take.
    """

    devices: int
    least: Takes


def refusal(device: Device, features: Features) -> Refusal | None:
    """Return why a device that consumes counters will not do while partitions are off."""
    # "Devices that consume counters can not be allocated if the PartitionableDevices feature is
    # not enabled."
    if device.consumes_counters and not features.partitionable_devices:
        return Refusal(
            reason=Reason.PARTITIONS_OFF,
            detail="it consumes counters, and DRAPartitionableDevices is off",
        )
    return None


@lru_cache(maxsize=_POOLS)
def declared(pool: Pool) -> Declared:
    """Return the counters of a pool; the same object for the same pool."""
    amounts = {
        (name, counter): amount.value
        for name, counter_set in pool.counter_sets.items()
        for counter, amount in (counter_set.counters or {}).items()
    }
    numbers = {name: number for number, name in enumerate(amounts)}
    takes = {
        each.id.device: _takes(each.device, numbers)
        for each in (*pool.devices, *pool.elsewhere)
        if each.device.consumes_counters
    }
    return Declared(names=tuple(amounts), amounts=tuple(amounts.values()), takes=takes)


def availability(pool: Pool, use: PoolUse) -> Availability:
    """Return what is left of a pool's counters; worth keeping while neither argument changes."""
    counters = declared(pool)
    left = [amount.nanos for amount in counters.amounts]
    if counters.takes:
        # Exclusively held, shared by id or known by its consumption only: a use is any of these.
        for name in use:
            for number, nanos in counters.takes.get(name, ()):
                left[number] -= nanos
    return Availability(declared=counters, left=tuple(left))


def tracker(
    node: NodeDevices,
    usage: Usage,
    features: Features,
    availability_of: Callable[[Pool, PoolUse], Availability] = availability,
) -> "Counters | None":
    """Return the tracker of an attempt; None when no device of the node consumes counters."""
    if not features.partitionable_devices or not any(
        each.device.consumes_counters for each in node.devices
    ):
        return None
    return Counters(
        node, [availability_of(pool, usage.pools.get(pool.id, _NOTHING)) for pool in node.pools]
    )


class Counters:
    """What is left of every counter that devices of a node consume."""

    def __init__(self, node: NodeDevices, pools: Iterable[Availability]) -> None:
        """Lay the counters of all pools out in one row."""
        self._left: list[int] = []
        self._counters: list[tuple[str, str, Quantity]] = []
        # By number: the first counter of the same set of the same pool.
        self._first_of: list[int] = []
        by_pool = [self._laid_out(each) for each in pools]
        self._takes: list[Takes] = [
            by_pool[pool].get(each.id.device, ())
            for pool, each in zip(node.pool_of, node.devices, strict=True)
        ]
        numbers: dict[Takes, int] = {}
        self._ahead: dict[Ahead, tuple[int, ...]] = {}
        self._sees = [numbers.setdefault(takes, len(numbers)) for takes in self._takes]

    def sees(self, position: int) -> Hashable:
        """Return which counters a device takes how much of, as a number."""
        return self._sees[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:  # noqa: ARG002
        """Charge a device's counters if enough is left of each."""
        takes = self._takes[position]
        # "Its counters are already accounted for, so a further share must not charge them again."
        if further_share or not takes:
            return True
        left = self._left
        for number, nanos in takes:
            if left[number] < nanos:
                return False
        for number, nanos in takes:
            left[number] -= nanos
        return True

    def undo(self, request: Request, position: int, *, further_share: bool) -> None:  # noqa: ARG002
        """Give back what `add` charged."""
        if not further_share:
            left = self._left
            for number, nanos in self._takes[position]:
                left[number] += nanos

    def state(self) -> Hashable:
        """Return what is left of each counter."""
        return tuple(self._left)

    def outlook(self, ahead: Ahead) -> Hashable:
        """Return what is left of the counters that devices ahead consume."""
        left = self._left
        return tuple([left[number] for number in self._numbers(ahead)])

    def least(self, positions: int) -> Mapping[str, int]:
        """Return what every one of these devices takes of counters of a name, whatever their set.

        Args:
            positions: A mask.
        """
        least: dict[str, int] | None = None
        for takes in {each for at, each in enumerate(self._takes) if positions >> at & 1}:
            sums: dict[str, int] = {}
            for number, nanos in takes:
                _, name, _ = self._counters[number]
                sums[name] = sums.get(name, 0) + nanos
            if least is None:
                least = sums
            else:
                least = {name: min(nanos, sums.get(name, 0)) for name, nanos in least.items()}
        return {name: nanos for name, nanos in (least or {}).items() if nanos > 0}

    def parts(self, positions: int) -> "tuple[Part, ...]":
        """Return devices by the counters that they take from, where they take from any.

        Args:
            positions: A mask.
        """
        groups: dict[tuple[int, ...], tuple[int, dict[int, int]]] = {}
        for position, takes in enumerate(self._takes):
            charged = {number: nanos for number, nanos in takes if nanos > 0}
            if not charged or not positions >> position & 1:
                continue
            # Placements on one GPU have counters of its set in common.
            pool_and_set = tuple(sorted({self._first_of[number] for number in charged}))
            devices, least = groups.get(pool_and_set, (0, charged))
            least = {
                number: min(nanos, charged[number])
                for number, nanos in least.items()
                if number in charged
            }
            groups[pool_and_set] = (devices | 1 << position, least)
        return tuple(
            Part(devices, tuple(least.items())) for devices, least in groups.values() if least
        )

    def most(self, part: "Part") -> int:
        """Return how many devices of a part there are counters for, at most."""
        left = self._left
        return min([max(0, left[number]) // nanos for number, nanos in part.least])

    def totals(self, ahead: Ahead) -> Mapping[str, int]:
        """Return what is left of the counters that devices ahead consume, added up by name."""
        totals: dict[str, int] = {}
        for number in self._numbers(ahead):
            _, name, _ = self._counters[number]
            totals[name] = totals.get(name, 0) + max(0, self._left[number])
        return totals

    def refusal(self, request: Request, position: int, *, further_share: bool) -> Refusal | None:  # noqa: ARG002
        """Return which counter has too little left for a device."""
        for number, nanos in () if further_share else self._takes[position]:
            left = self._left[number]
            if left < nanos:
                return Refusal(reason=Reason.COUNTERS, detail=self._detail(number, left, nanos))
        return None

    def _numbers(self, ahead: Ahead) -> tuple[int, ...]:
        numbers = self._ahead.get(ahead)
        if numbers is None:
            taken = {
                number
                for position, takes in enumerate(self._takes)
                if ahead.positions >> position & 1
                for number, _ in takes
            }
            numbers = self._ahead[ahead] = tuple(sorted(taken))
        return numbers

    def _laid_out(self, pool: Availability) -> dict[str, Takes]:
        """Append a pool's counters to the row; return its devices' takes, numbered for the row."""
        first = len(self._left)
        self._left += pool.left
        firsts: dict[str, int] = {}
        for number, (name, _) in enumerate(pool.declared.names, start=first):
            self._first_of.append(firsts.setdefault(name, number))
        of_pool = zip(pool.declared.names, pool.declared.amounts, strict=True)
        self._counters += [(name, counter, amount) for (name, counter), amount in of_pool]
        # A counter that is in the red stops every device that consumes any counter of the pool:
        # upstream compares all of them. Taking nothing from what is below nothing is refused.
        overdrawn = [number for number, left in enumerate(pool.left) if left < 0]
        if not first and not overdrawn:
            return pool.declared.takes
        return {
            name: _merged(
                [(first + number, nanos) for number, nanos in takes]
                + [(first + number, 0) for number in overdrawn]
            )
            for name, takes in pool.declared.takes.items()
        }

    def _detail(self, number: int, left: int, nanos: int) -> str:
        name, counter, amount = self._counters[number]
        if left < 0:
            over = Quantity.from_nanos(-left, amount.format)
            return f"counter {counter} on set {name} is overdrawn by {over}"
        needed, remains = (Quantity.from_nanos(each, amount.format) for each in (nanos, left))
        return f"counter {counter} on set {name} exhausted: needs {needed}, free {remains}"


def _takes(device: Device, numbers: dict[tuple[str, str], int]) -> Takes:
    """Return what a device takes of counters that exist; validation refuses to name others."""
    return _merged(
        (numbers[each.counter_set, name], counter.value.nanos)
        for each in device.consumes_counters or ()
        for name, counter in (each.counters or {}).items()
        if (each.counter_set, name) in numbers
    )


def _merged(takes: Iterable[tuple[int, int]]) -> Takes:
    """Return one entry per counter, in order."""
    sums: dict[int, int] = {}
    for number, nanos in takes:
        sums[number] = sums.get(number, 0) + nanos
    return tuple(sorted(sums.items()))
