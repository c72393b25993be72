"""Lower bounds of the remaining demand, to leave infeasible branches of the search early.

The bounds count and do not search. Where the remaining requests need more devices or counters than
are available, no choice of devices can succeed. They are necessary conditions only, like forward
checking and the counting argument of an all-different constraint. They look ahead, so the search
does not use them while inspecting a device may abort the attempt (`Attempt.may_abort`).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.model.constraint import RemainingDemand
from allocator.search.attempt import Attempt, RequestCandidates, bits
from kube.api.resource import MAX_RESULTS

_MAX_SETS: Final = 16
"""Number of different candidate sets up to which every set is checked, and not only their union."""

_Alternatives = tuple[RequestCandidates, ...]
_Shares = tuple[tuple[int, ...], ...]


class _SetDemand(NamedTuple):
    """The number of devices, or shares, that have to come from a set of devices."""

    capacity: "_SetCapacity"
    needed: int


class _Suffix(NamedTuple):
    """All requests from one request on. Requests with admin access compete with no other request.

    Attributes:
        remaining: The first of the requests.
        slack: Number of devices that its claim may already have without exceeding the limit.
        requests: Distinct requests and how often they occur.
        single: The demand of each alternative, for each distinct request.
        counters: Nano-units that are needed at least, by name of the counter.
    """

    remaining: RemainingDemand
    slack: int
    requests: Mapping[Hashable, tuple[_Alternatives, int]]
    single: Mapping[tuple[_SetDemand, ...], None]
    counters: Mapping[str, int]


def has_bounds(attempt: Attempt) -> bool:
    """Return True unless `Attempt.infeasibility` has counted all: unshared devices for one request."""
    is_alone = len(attempt.requests) == 1 and len(attempt.requests[0]) == 1
    return not is_alone or bool(attempt.shareable) or attempt.counter_constraint is not None


class Demand:
    """The remaining demand of an attempt at each of its requests."""

    def __init__(self, attempt: Attempt) -> None:
        """Add requests up, starting with the last one."""
        self._attempt = attempt
        self._counters = attempt.counter_constraint
        self._capacities: dict[tuple[int, _Shares], _SetCapacity] = {}
        self._combined: dict[tuple[int, int], tuple[_SetDemand, ...]] = {}
        self._suffixes: list[list[_Suffix]] = [[] for _ in attempt.requests]
        later = _Suffix(RemainingDemand(claim=-1, index=-1, positions=0), 0, {}, {}, {})
        for claim in range(len(attempt.requests) - 1, -1, -1):
            # The limit on results is per claim, so the slack starts anew with each.
            later = later._replace(slack=MAX_RESULTS)
            for index in range(len(attempt.requests[claim]) - 1, -1, -1):
                later = self._prepend(later, claim, index, attempt.requests[claim][index])
                self._suffixes[claim].append(later)
            self._suffixes[claim].reverse()

    def remaining(self, claim: int, index: int) -> RemainingDemand:
        """Return the part of the attempt that is left when a request begins."""
        return self._suffixes[claim][index].remaining

    def slack(self, claim: int, index: int) -> int:
        """Return the number of devices that a claim may have before a request within the limit."""
        return self._suffixes[claim][index].slack

    def exceeds(self, claim: int, index: int, chosen_mask: int) -> bool:
        """Return True if the requests from one on need more than is available.

        Args:
            claim: Index of the claim.
            index: Index of the request in its claim.
            chosen_mask: Mask of the dedicated devices that are chosen.
        """
        suffix, free = self._suffixes[claim][index], ~chosen_mask
        for alternatives in suffix.single:
            if all(
                capacity.max_devices(free) < needed_count for capacity, needed_count in alternatives
            ):
                return True
        for capacity, needed_count in self._combined_demands(claim, index):
            if capacity.max_devices(free) < needed_count:
                return True
        if not suffix.counters or self._counters is None:
            return False
        available = self._counters.available_totals(suffix.remaining)
        return any(
            available.get(name, 0) < needed_nanos for name, needed_nanos in suffix.counters.items()
        )

    def _prepend(
        self, later: _Suffix, claim: int, index: int, alternatives: _Alternatives
    ) -> _Suffix:
        positions = later.remaining.positions
        for candidates in alternatives:
            positions |= candidates.candidates
            for position in candidates.all_positions or ():
                positions |= 1 << position
        remaining = RemainingDemand(claim=claim, index=index, positions=positions)
        slack = later.slack - max(candidates.count for candidates in alternatives)
        if self._attempt.may_abort or any(candidates.request.admin for candidates in alternatives):
            return later._replace(remaining=remaining, slack=slack)
        demands = tuple(
            _SetDemand(
                self._set_capacity(candidates.candidates, [((candidates,), 1)]), candidates.count
            )
            for candidates in alternatives
        )
        key = tuple(
            (
                candidates.candidates,
                candidates.count,
                frozenset((candidates.request.capacity or {}).items()),
            )
            for candidates in alternatives
        )
        _, number = later.requests.get(key, (alternatives, 0))
        return _Suffix(
            remaining=remaining,
            slack=slack,
            requests={**later.requests, key: (alternatives, number + 1)},
            single={demands: None, **later.single},
            counters=self._add_counters(later.counters, alternatives),
        )

    def _add_counters(
        self, later: Mapping[str, int], alternatives: _Alternatives
    ) -> Mapping[str, int]:
        """Return the counters that are needed with one request more."""
        if self._counters is None or any(
            # Several requests may share a device, which consumes its counters once.
            candidates.candidates & self._attempt.shareable
            for candidates in alternatives
        ):
            return later
        least = [
            {name: candidates.count * nanos for name, nanos in per_device.items()}
            for candidates in alternatives
            for per_device in (self._counters.least_consumption(candidates.candidates),)
        ]
        needed_amounts = dict(later)
        for name in set.intersection(*map(set, least)):
            needed_amounts[name] = needed_amounts.get(name, 0) + min(
                counters[name] for counters in least
            )
        return needed_amounts

    def _combined_demands(self, claim: int, index: int) -> tuple[_SetDemand, ...]:
        """Return the demands of all requests from one on together, by set of devices."""
        demands = self._combined.get((claim, index))
        if demands is None:
            demands = self._combined[claim, index] = self._combine(claim, index)
        return demands

    def _combine(self, claim: int, index: int) -> tuple[_SetDemand, ...]:
        requests = tuple(self._suffixes[claim][index].requests.values())
        if sum(number for _, number in requests) < 2:
            return ()
        sets = {_union(alternatives) for alternatives, _ in requests}
        union = 0
        for devices in sets:
            union |= devices
        demands = []
        for devices in sorted({union, *sets} if len(sets) <= _MAX_SETS else {union}):
            # By Hall's theorem, requests whose candidates are within a set need that many of it.
            within = [
                (alternatives, number)
                for alternatives, number in requests
                if not _union(alternatives) & ~devices
            ]
            needed_count = sum(
                number * min(candidates.count for candidates in alternatives)
                for alternatives, number in within
            )
            demands.append(_SetDemand(self._set_capacity(devices, within), needed_count))
        return tuple(demands)

    def _set_capacity(
        self, devices: int, requests: Sequence[tuple[_Alternatives, int]]
    ) -> "_SetCapacity":
        """Return the capacity of a set of devices for requests with their numbers, from a cache."""
        shares: _Shares = ()
        if devices & self._attempt.shareable:
            shares = tuple(self._shares(devices, requests))
        key = (devices, shares)
        capacity = self._capacities.get(key)
        if capacity is None:
            capacity = self._capacities[key] = _SetCapacity(self._attempt, devices, shares)
        return capacity

    def _shares(
        self, devices: int, requests: Sequence[tuple[_Alternatives, int]]
    ) -> Iterable[tuple[int, ...]]:
        """Yield position, number of requests and smallest amounts of each shareable device."""
        constraint = self._attempt.capacity_constraint
        for position in bits(devices & self._attempt.shareable):
            sharing = 0
            rows = []
            for alternatives, number in requests:
                suitable = [
                    candidates
                    for candidates in alternatives
                    if candidates.candidates >> position & 1
                ]
                sharing += number if suitable else 0
                if constraint is not None:
                    rows += [
                        constraint.share_amounts(candidates.request, position)
                        for candidates in suitable
                    ]
            # The least of each amount, even of different requests, keeps this an upper bound.
            yield (position, sharing, *(min(column) for column in zip(*rows, strict=True)))


class _SetCapacity:
    """An upper bound for the devices, or shares, that requests can get from a set of devices."""

    def __init__(self, attempt: Attempt, devices: int, shares: _Shares) -> None:
        """Group the devices by their kind of bound.

        Args:
            attempt: The attempt.
            devices: Mask of the devices.
            shares: The shares of each device that can be shared: its position, the number of
                requests that may get a share, and the smallest amount that one of them consumes of
                each capacity.
        """
        self._capacity = attempt.capacity_constraint
        self._counters = attempt.counter_constraint
        self._shares = shares
        dedicated_mask = devices & ~attempt.shareable
        counters = attempt.counter_constraint
        self._groups = () if counters is None else counters.group_by_counter_sets(dedicated_mask)
        for group in self._groups:
            dedicated_mask &= ~group.devices
        self._dedicated = dedicated_mask

    def max_devices(self, free: int) -> int:
        """Return the maximum number of devices or shares that the requests can get.

        Args:
            free: Mask of the dedicated devices that are not chosen.
        """
        most = (self._dedicated & free).bit_count()
        if self._counters is not None:
            for group in self._groups:
                most += min((group.devices & free).bit_count(), self._counters.max_devices(group))
        if self._capacity is not None:
            for position, requests, *amounts in self._shares:
                most += min(requests, self._capacity.max_shares(position, amounts))
        return most


def _union(alternatives: _Alternatives) -> int:
    union = 0
    for candidates in alternatives:
        union |= candidates.candidates
    return union
