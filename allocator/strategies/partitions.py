"""What hardware that is cut into partitions can still give.

Partitions of one counter set exclude each other in ways that no single number shows: on a card
with seven slots a partition of three fits at slot 0 or at slot 4, and one slot taken in the middle
costs both. So the worth of a set is counted in what can still be taken from it: the sum, over all
partitions that fit now, of the share of the set's counters that each takes.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.core.counters import availability, declared
from allocator.core.model import Pool, PoolUse
from allocator.strategies.load import FULL

_POOLS: Final = 8192
_CARDS: Final = 1024
_STATES: Final = 1 << 14
_NOTHING: Final[PoolUse] = {}

Takes = tuple[int, ...]


class Card(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A counter set, blind to names; one object for all sets that are alike.

    Attributes:
        takes: What each partition takes of each counter, in nano-units.
        worth: Share of the set's counters that each partition takes, of `FULL`.
    """

    takes: tuple[Takes, ...]
    worth: tuple[int, ...]


class _Seat(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A counter set of a pool.

    Attributes:
        card: What it is like.
        counters: Numbers of its counters in the pool.
        partitions: Names of the devices that consume them, as numbered by the card.
    """

    card: Card
    counters: tuple[int, ...]
    partitions: tuple[str, ...]


def blocked(pool: Pool, use: PoolUse | None) -> dict[str, int]:
    """Return what becomes impossible if a device is taken, beyond itself, by its name.

    Devices that consume no counters, or that cannot be taken now, are absent: nothing is blocked.
    """
    costs: dict[str, int] = {}
    seats = _seats(pool)
    if not seats:
        return costs
    left = availability(pool, use or _NOTHING).left
    for seat in seats:
        here, gone = _state(seat, left, use)
        for number, cost in enumerate(_costs(seat.card, here, gone)):
            if cost:
                name = seat.partitions[number]
                costs[name] = costs.get(name, 0) + cost
    return costs


def lost(pool: Pool, before: PoolUse | None, after: PoolUse | None) -> int:
    """Return what a change of use makes impossible, beyond what it takes: of `FULL` per set."""
    seats = _seats(pool)
    if not seats:
        return 0
    left_before = availability(pool, before or _NOTHING).left
    left_after = availability(pool, after or _NOTHING).left
    total = 0
    for seat in seats:
        left, _ = _state(seat, left_before, before)
        still_left, gone = _state(seat, left_after, after)
        total += _worth(seat.card, left, gone) - _worth(seat.card, still_left, gone)
    return total


def _state(seat: _Seat, left: Sequence[int], use: PoolUse | None) -> tuple[Takes, int]:
    """Return what is left of a set's counters, and a mask of the partitions that are in use."""
    gone = 0
    if use:
        for number, name in enumerate(seat.partitions):
            if name in use:
                gone |= 1 << number
    return tuple([left[counter] for counter in seat.counters]), gone


@lru_cache(maxsize=_STATES)
def _costs(card: Card, left: Takes, gone: int) -> tuple[int, ...]:
    """Return what each partition blocks; 0 for those that cannot be taken."""
    now = _worth(card, left, gone)
    costs = []
    for number, takes in enumerate(card.takes):
        if gone >> number & 1 or not _fits(takes, left):
            costs.append(0)
            continue
        after = tuple([a - b for a, b in zip(left, takes, strict=True)])
        costs.append(now - card.worth[number] - _worth(card, after, gone | 1 << number))
    return tuple(costs)


@lru_cache(maxsize=_STATES)
def _worth(card: Card, left: Takes, gone: int) -> int:
    """Return the sum of what partitions that fit are worth."""
    return sum(
        worth
        for number, (takes, worth) in enumerate(zip(card.takes, card.worth, strict=True))
        if not gone >> number & 1 and _fits(takes, left)
    )


def _fits(takes: Takes, left: Takes) -> bool:
    return all(map(int.__le__, takes, left))


@lru_cache(maxsize=_POOLS)
def _seats(pool: Pool) -> tuple[_Seat, ...]:
    """Return the counter sets that devices of this node consume."""
    counters = declared(pool)
    if not counters.takes:
        return ()
    of_set: dict[str, list[int]] = {}
    for number, (name, _) in enumerate(counters.names):
        of_set.setdefault(name, []).append(number)
    members: dict[str, list[str]] = {}
    for each in pool.devices:
        for consumed in each.device.consumes_counters or ():
            names = members.setdefault(consumed.counter_set, [])
            if each.id.device not in names:
                names.append(each.id.device)
    seats = []
    for set_name, names in members.items():
        numbers = of_set.get(set_name, [])
        rows = [dict(counters.takes.get(name, ())) for name in names]
        takes = tuple(tuple([row.get(number, 0) for number in numbers]) for row in rows)
        amounts = tuple([counters.amounts[number].nanos for number in numbers])
        seats.append(
            _Seat(card=_card(takes, amounts), counters=tuple(numbers), partitions=tuple(names))
        )
    return tuple(seats)


@lru_cache(maxsize=_CARDS)
def _card(takes: tuple[Takes, ...], amounts: Takes) -> Card:
    counted = [index for index, amount in enumerate(amounts) if amount > 0]
    worth = tuple(
        sum(min(row[index] * FULL // amounts[index], FULL) for index in counted) // len(counted)
        if counted
        else 0
        for row in takes
    )
    return Card(takes=takes, worth=worth)
