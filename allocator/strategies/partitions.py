"""The value of hardware that is cut into partitions, by the partitions that can still be allocated.

Partitions of one counter set exclude each other in ways that no single number shows: on a card
with seven slots a partition of three fits at slot 0 or at slot 4, and one slot allocated in the
middle costs both. So a counter set is scored by what can still be allocated: the sum, over all
partitions that fit now, of the share of the set's counters that each consumes.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.features.partitionable_devices import available_counters, pool_counters
from allocator.model.devices import Pool
from allocator.model.usage import PoolUse
from allocator.strategies.load import FULL

_POOLS: Final = 8192
_SHAPES: Final = 1024
_STATES: Final = 1 << 14
_NOTHING: Final[PoolUse] = {}

Amounts = tuple[int, ...]


class Shape(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The partitions of a counter set without names; one object for all sets that are alike.

    Attributes:
        consumption: Nano-units of each counter that each partition consumes.
        scores: Share of the set's counters that each partition consumes, of `FULL`.
    """

    consumption: tuple[Amounts, ...]
    scores: tuple[int, ...]


class _CounterSet(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A counter set of a pool.

    Attributes:
        shape: Its partitions.
        counters: Numbers of its counters in the pool.
        partitions: Names of the devices that consume them, in the order of the shape.
    """

    shape: Shape
    counters: tuple[int, ...]
    partitions: tuple[str, ...]


def blocked_scores(pool: Pool, use: PoolUse | None) -> dict[str, int]:
    """Return the score that allocating a device would cost beyond its own, by device name.

    Devices that consume no counters, or that do not fit now, are absent: they block nothing.
    """
    scores: dict[str, int] = {}
    counter_sets = _counter_sets(pool)
    if not counter_sets:
        return scores
    available = available_counters(pool, use or _NOTHING).nanos
    for counter_set in counter_sets:
        here, in_use = _state(counter_set, available, use)
        for number, score in enumerate(_blocked_scores(counter_set.shape, here, in_use)):
            if score:
                name = counter_set.partitions[number]
                scores[name] = scores.get(name, 0) + score
    return scores


def lost_score(pool: Pool, before: PoolUse | None, after: PoolUse | None) -> int:
    """Return the score that a change of use costs beyond the partitions in use, `FULL` per set."""
    counter_sets = _counter_sets(pool)
    if not counter_sets:
        return 0
    available_before = available_counters(pool, before or _NOTHING).nanos
    available_after = available_counters(pool, after or _NOTHING).nanos
    total = 0
    for counter_set in counter_sets:
        had, _ = _state(counter_set, available_before, before)
        # Partitions that are in use afterwards are allocated, not lost.
        has, in_use = _state(counter_set, available_after, after)
        total += _score(counter_set.shape, had, in_use) - _score(counter_set.shape, has, in_use)
    return total


def _state(
    counter_set: _CounterSet, available: Sequence[int], use: PoolUse | None
) -> tuple[Amounts, int]:
    """Return the set's available amounts, and a mask of the partitions in use."""
    in_use = 0
    if use:
        for number, name in enumerate(counter_set.partitions):
            if name in use:
                in_use |= 1 << number
    return tuple([available[counter] for counter in counter_set.counters]), in_use


@lru_cache(maxsize=_STATES)
def _blocked_scores(shape: Shape, available: Amounts, in_use: int) -> tuple[int, ...]:
    """Return the score that each partition blocks; 0 for those that do not fit."""
    now = _score(shape, available, in_use)
    scores = []
    for number, consumption in enumerate(shape.consumption):
        if in_use >> number & 1 or not _fits(consumption, available):
            scores.append(0)
            continue
        after = tuple([a - b for a, b in zip(available, consumption, strict=True)])
        scores.append(now - shape.scores[number] - _score(shape, after, in_use | 1 << number))
    return tuple(scores)


@lru_cache(maxsize=_STATES)
def _score(shape: Shape, available: Amounts, in_use: int) -> int:
    """Return the sum of the scores of all partitions that fit."""
    return sum(
        score
        for number, (consumption, score) in enumerate(
            zip(shape.consumption, shape.scores, strict=True)
        )
        if not in_use >> number & 1 and _fits(consumption, available)
    )


def _fits(consumption: Amounts, available: Amounts) -> bool:
    return all(map(int.__le__, consumption, available))


@lru_cache(maxsize=_POOLS)
def _counter_sets(pool: Pool) -> tuple[_CounterSet, ...]:
    """Return the counter sets that devices of this node consume."""
    counters = pool_counters(pool)
    if not counters.consumption:
        return ()
    numbers_of_set: dict[str, list[int]] = {}
    for number, (name, _) in enumerate(counters.names):
        numbers_of_set.setdefault(name, []).append(number)
    partitions_of_set: dict[str, list[str]] = {}
    for device in pool.devices:
        for device_consumption in device.device.consumes_counters or ():
            names = partitions_of_set.setdefault(device_consumption.counter_set, [])
            if device.id.device not in names:
                names.append(device.id.device)
    counter_sets = []
    for set_name, names in partitions_of_set.items():
        numbers = numbers_of_set.get(set_name, [])
        rows = [dict(counters.consumption.get(name, ())) for name in names]
        consumption = tuple(tuple([row.get(number, 0) for number in numbers]) for row in rows)
        declared_amounts = tuple([counters.amounts[number].nanos for number in numbers])
        counter_sets.append(
            _CounterSet(
                shape=_shape(consumption, declared_amounts),
                counters=tuple(numbers),
                partitions=tuple(names),
            )
        )
    return tuple(counter_sets)


@lru_cache(maxsize=_SHAPES)
def _shape(consumption: tuple[Amounts, ...], declared_amounts: Amounts) -> Shape:
    counted_indexes = [index for index, amount in enumerate(declared_amounts) if amount > 0]
    scores = tuple(
        sum(min(row[index] * FULL // declared_amounts[index], FULL) for index in counted_indexes)
        // len(counted_indexes)
        if counted_indexes
        else 0
        for row in consumption
    )
    return Shape(consumption=consumption, scores=scores)
