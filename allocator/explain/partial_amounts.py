"""Amounts that a request can have of the rest of a capacity."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from allocator.model.requests import PendingClaims, Request
from kube.api.resource import DeviceCapacity
from kube.quantity import Format

_PARTS: Final = (1, 2, 3, 4, 8)
"""Numbers of equal shares into which the rest of a device may be divided."""
_MAX_OTHERS: Final = 4
"""Different amounts of other requests beside which the rest of a device is an amount to try."""

Place = tuple[int, int]
"""The index of a claim, and that of a request in it."""


def amounts_within(capacity: DeviceCapacity, free_nanos: int) -> Iterator[int]:
    """Yield amounts that a request can have of the rest of a capacity, in nano-units.

    These are the whole rest and even parts of it, each lowered to what the request policy allows.
    """
    policy = capacity.request_policy
    limit = policy.valid_range if policy is not None else None
    for parts in _PARTS:
        part = _round_down(free_nanos // parts, capacity.value.format)
        if policy is not None and policy.valid_values:
            valid = [value.nanos for value in policy.valid_values if value.nanos <= part]
            part = max(valid, default=0)
        elif limit is not None:
            if limit.max is not None:
                part = min(part, limit.max.nanos)
            if limit.min is not None and limit.step is not None and limit.step.nanos > 0:
                part -= (part - limit.min.nanos) % limit.step.nanos
            if limit.min is not None and part < limit.min.nanos:
                continue
        yield part


def amounts_beside(pending: PendingClaims) -> Mapping[Place, Mapping[str, Collection[int]]]:
    """Return for each request the amounts of other requests that may be on its device, in nano-units by capacity.

    These are the amount of each other request, of many different ones only the smallest, and the sum of all.
    """
    amounts = {
        (claim, index): _largest_amounts(alternatives)
        for claim, requests in enumerate(pending.requests)
        for index, alternatives in enumerate(requests)
    }
    numbers_by_name: dict[str, Counter[int]] = {}
    for by_name in amounts.values():
        for name, nanos in by_name.items():
            numbers_by_name.setdefault(name, Counter())[nanos] += 1
    smallest = {
        name: sorted(numbers)[: _MAX_OTHERS + 1] for name, numbers in numbers_by_name.items()
    }
    totals = {
        name: sum(nanos * number for nanos, number in numbers.items())
        for name, numbers in numbers_by_name.items()
    }

    def others(own: Mapping[str, int], name: str) -> set[int]:
        own_nanos = own.get(name)
        numbers = numbers_by_name[name]
        single = [nanos for nanos in smallest[name] if nanos != own_nanos or numbers[nanos] > 1][
            :_MAX_OTHERS
        ]
        return {*single, totals[name] - (own_nanos or 0)} - {0}

    return {place: {name: others(own, name) for name in own} for place, own in amounts.items()}


def _largest_amounts(alternatives: Sequence[Request]) -> Mapping[str, int]:
    """Return the largest amount of any alternative by capacity, in nano-units."""
    largest: dict[str, int] = {}
    for request in alternatives:
        for name, amount in (request.capacity or {}).items():
            largest[name] = max(amount.nanos, largest.get(name, 0))
    return largest


def _round_down(nanos: int, family: Format) -> int:
    """Return an amount in whole mebibytes, or whole units, if it is large enough."""
    unit = (2**20 if family is Format.BINARY else 1) * 10**9
    return nanos - nanos % unit if nanos >= unit else nanos
