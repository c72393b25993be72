"""What lies ahead of each request of an attempt, counted, so that a hopeless branch is left early.

The bounds count and never search: where one of them says that too little is left, no choice of
devices can succeed. They are necessary conditions only. Nothing here may be asked while looking at
a device can end the attempt (`Problem.is_treacherous`).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.core.problem import Problem, Table, bits
from allocator.core.tracker import Ahead
from kube.api.resource import MAX_RESULTS

_GROUPS: Final = 16
"""Different sets of candidates up to which every set is weighed against all that it contains."""

_Alternatives = tuple[Table, ...]
_Shares = tuple[tuple[int, ...], ...]


class _Wanted(NamedTuple):
    """How many devices, or shares of them, have to come from one supply."""

    supply: "_Supply"
    need: int


class _Suffix(NamedTuple):
    """All requests from one on. Those with admin access need nothing that others need.

    Attributes:
        ahead: Of the first of them.
        spare: How many devices its claim may have by then without running out of results.
        requests: Those that ask for the same, and how many they are.
        single: For each request that is like no other, what each of its alternatives needs.
        counters: Nano-units that are needed at least, by name of the counter.
    """

    ahead: Ahead
    spare: int
    requests: Mapping[Hashable, tuple[_Alternatives, int]]
    single: Mapping[tuple[_Wanted, ...], None]
    counters: Mapping[str, int]


class Demand:
    """The requests of an attempt from each of them on."""

    def __init__(self, problem: Problem) -> None:
        """Add requests up, the last one first."""
        self._problem = problem
        self._counters = problem.counters
        self._supplies: dict[tuple[int, _Shares], _Supply] = {}
        self._together: dict[tuple[int, int], tuple[_Wanted, ...]] = {}
        self._suffixes: list[list[_Suffix]] = [[] for _ in problem.tables]
        later = _Suffix(Ahead(claim=-1, index=-1, positions=0), 0, {}, {}, {})
        for claim in range(len(problem.tables) - 1, -1, -1):
            later = later._replace(spare=MAX_RESULTS)
            for index in range(len(problem.tables[claim]) - 1, -1, -1):
                later = self._with(later, claim, index, problem.tables[claim][index])
                self._suffixes[claim].append(later)
            self._suffixes[claim].reverse()

    def ahead(self, claim: int, index: int) -> Ahead:
        """Return what is left to do when a request begins."""
        return self._suffixes[claim][index].ahead

    def spare(self, claim: int, index: int) -> int:
        """Return how many devices a claim may have when a request begins without running out."""
        return self._suffixes[claim][index].spare

    def exceeds(self, claim: int, index: int, taken: int) -> bool:
        """Return whether requests from one on need more than is left.

        Args:
            taken: Mask of dedicated devices that are chosen.
        """
        suffix, free = self._suffixes[claim][index], ~taken
        for alternatives in suffix.single:
            if all(supply.most(free) < need for supply, need in alternatives):
                return True
        for supply, need in self._weighed(claim, index):
            if supply.most(free) < need:
                return True
        if not suffix.counters or self._counters is None:
            return False
        left = self._counters.totals(suffix.ahead)
        return any(left.get(name, 0) < need for name, need in suffix.counters.items())

    def _with(self, later: _Suffix, claim: int, index: int, tables: _Alternatives) -> _Suffix:
        positions = later.ahead.positions
        for table in tables:
            positions |= table.candidates
            for position in table.listed or ():
                positions |= 1 << position
        ahead = Ahead(claim=claim, index=index, positions=positions)
        spare = later.spare - max(table.need for table in tables)
        if self._problem.is_treacherous or any(table.request.admin for table in tables):
            return later._replace(ahead=ahead, spare=spare)
        wanted = tuple(
            _Wanted(self._supply(table.candidates, [((table,), 1)]), table.need) for table in tables
        )
        same = tuple(
            (table.candidates, table.need, frozenset((table.request.capacity or {}).items()))
            for table in tables
        )
        _, number = later.requests.get(same, (tables, 0))
        return _Suffix(
            ahead=ahead,
            spare=spare,
            requests={**later.requests, same: (tables, number + 1)},
            single={wanted: None, **later.single},
            counters=self._charged(later.counters, tables),
        )

    def _charged(self, later: Mapping[str, int], tables: _Alternatives) -> Mapping[str, int]:
        """Return the counters that are needed with one request more."""
        if self._counters is None or any(
            # Several requests may share a device, which is charged once.
            table.candidates & self._problem.shareable
            for table in tables
        ):
            return later
        least = [
            {name: table.need * nanos for name, nanos in each.items()}
            for table in tables
            for each in (self._counters.least(table.candidates),)
        ]
        charged = dict(later)
        for name in set.intersection(*map(set, least)):
            charged[name] = charged.get(name, 0) + min(each[name] for each in least)
        return charged

    def _weighed(self, claim: int, index: int) -> tuple[_Wanted, ...]:
        """Return what has to come from sets of devices for all requests from one on together."""
        found = self._together.get((claim, index))
        if found is None:
            found = self._together[claim, index] = self._together_from(claim, index)
        return found

    def _together_from(self, claim: int, index: int) -> tuple[_Wanted, ...]:
        requests = tuple(self._suffixes[claim][index].requests.values())
        if sum(number for _, number in requests) < 2:
            return ()
        sets = {_candidates(tables) for tables, _ in requests}
        every = 0
        for devices in sets:
            every |= devices
        wanted = []
        for devices in sorted({every, *sets} if len(sets) <= _GROUPS else {every}):
            within = [each for each in requests if not _candidates(each[0]) & ~devices]
            need = sum(number * min(table.need for table in tables) for tables, number in within)
            wanted.append(_Wanted(self._supply(devices, within), need))
        return tuple(wanted)

    def _supply(self, devices: int, requests: Sequence[tuple[_Alternatives, int]]) -> "_Supply":
        """Return what requests, each so many times, can get from devices; made once."""
        shares: _Shares = ()
        if devices & self._problem.shareable:
            shares = tuple(self._shares(devices, requests))
        key = (devices, shares)
        supply = self._supplies.get(key)
        if supply is None:
            supply = self._supplies[key] = _Supply(self._problem, devices, shares)
        return supply

    def _shares(
        self, devices: int, requests: Sequence[tuple[_Alternatives, int]]
    ) -> Iterable[tuple[int, ...]]:
        """Yield of each device that can be shared: position, requests, and the smallest amounts."""
        capacity = self._problem.capacity
        for position in bits(devices & self._problem.shareable):
            sharing = 0
            rows = []
            for tables, number in requests:
                among = [table for table in tables if table.candidates >> position & 1]
                sharing += number if among else 0
                if capacity is not None:
                    rows += [capacity.amounts(table.request, position) for table in among]
            yield (position, sharing, *(min(column) for column in zip(*rows, strict=True)))


class _Supply:
    """How many devices, or shares of them, some requests can get at most from a set of devices."""

    def __init__(self, problem: Problem, devices: int, shares: _Shares) -> None:
        """Take devices apart.

        Args:
            shares: Of each device that can be shared: its position, how many requests may have a
                share, and the smallest amount that one of them takes of each capacity.
        """
        self._capacity = problem.capacity
        self._counters = problem.counters
        self._shares = shares
        dedicated = devices & ~problem.shareable
        self._parts = () if problem.counters is None else problem.counters.parts(dedicated)
        for part in self._parts:
            dedicated &= ~part.devices
        self._dedicated = dedicated

    def most(self, free: int) -> int:
        """Return how many they can get at most.

        Args:
            free: Mask of the dedicated devices that are not chosen.
        """
        most = (self._dedicated & free).bit_count()
        if self._counters is not None:
            for part in self._parts:
                most += min((part.devices & free).bit_count(), self._counters.most(part))
        if self._capacity is not None:
            for position, requests, *amounts in self._shares:
                most += min(requests, self._capacity.shares(position, amounts))
        return most


def _candidates(tables: _Alternatives) -> int:
    candidates = 0
    for table in tables:
        candidates |= table.candidates
    return candidates
