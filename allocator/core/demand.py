"""What lies ahead of each request of an attempt, counted, so that a hopeless branch is left early.

The bounds count and never search: where one of them says that too little is left, no choice of
devices can succeed. They are necessary conditions only. Nothing here may be asked while looking at
a device can end the attempt (`Problem.is_treacherous`).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from allocator.core.problem import Problem, Table
from allocator.core.tracker import Ahead
from kube.api.resource import MAX_RESULTS

_GROUPS: Final = 16
"""Different sets of candidates up to which every set is weighed against all that it contains."""

Wanted = tuple[int, int]
"""Candidates as a mask, and how many of them are needed."""


class _Suffix(NamedTuple):
    """All requests from one on.

    Attributes:
        ahead: Of the first of them.
        spare: How many devices its claim may have by then without running out of results.
        requests: Each different set of alternatives once.
        dedicated: Mask of dedicated candidates to how many of them are needed at least.
        counters: Nano-units that are needed at least, by name of the counter.
    """

    ahead: Ahead
    spare: int
    requests: dict[tuple[Wanted, ...], None]
    dedicated: dict[int, int]
    counters: dict[str, int]


class Demand:
    """The requests of an attempt from each of them on."""

    def __init__(self, problem: Problem) -> None:
        """Add requests up, the last one first."""
        self._problem = problem
        self._counters = problem.counters
        self._suffixes: list[list[_Suffix]] = [[] for _ in problem.tables]
        self._groups: dict[tuple[int, int], tuple[Wanted, ...]] = {}
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
        for alternatives in suffix.requests:
            if all((devices & free).bit_count() < need for devices, need in alternatives):
                return True
        for devices, need in self._grouped(claim, index):
            if (devices & free).bit_count() < need:
                return True
        if not suffix.counters or self._counters is None:
            return False
        left = self._counters.totals(suffix.ahead)
        return any(left.get(name, 0) < need for name, need in suffix.counters.items())

    def _with(
        self, later: _Suffix, claim: int, index: int, alternatives: Sequence[Table]
    ) -> _Suffix:
        positions, candidates = later.ahead.positions, 0
        for table in alternatives:
            candidates |= table.candidates
            positions |= table.candidates
            for position in table.listed or ():
                positions |= 1 << position
        ahead = Ahead(claim=claim, index=index, positions=positions)
        spare = later.spare - max(table.need for table in alternatives)
        if any(table.request.admin for table in alternatives):
            # Admin access to a device that another claim holds is possible.
            return later._replace(ahead=ahead, spare=spare)
        wanted = tuple((table.candidates, table.need) for table in alternatives)
        shareable = self._problem.shareable
        least = min(need - (devices & shareable).bit_count() for devices, need in wanted)
        dedicated = dict(later.dedicated)
        if least > 0:
            own = candidates & ~shareable
            dedicated[own] = dedicated.get(own, 0) + least
        return _Suffix(
            ahead=ahead,
            spare=spare,
            requests={wanted: None} | later.requests,
            dedicated=dedicated,
            counters=self._charged(later.counters, wanted),
        )

    def _charged(self, later: dict[str, int], alternatives: Iterable[Wanted]) -> dict[str, int]:
        """Return the counters that are needed with one request more."""
        if self._counters is None:
            return later
        # Several requests may share a device, which is charged once.
        shareable = self._problem.shareable
        least = [
            {}
            if devices & shareable
            else {name: need * nanos for name, nanos in self._counters.least(devices).items()}
            for devices, need in alternatives
        ]
        charged = dict(later)
        for name in set.intersection(*map(set, least)):
            charged[name] = charged.get(name, 0) + min(each[name] for each in least)
        return charged

    def _grouped(self, claim: int, index: int) -> tuple[Wanted, ...]:
        """Return sets of dedicated devices with all that has to come from within each of them."""
        found = self._groups.get((claim, index))
        if found is None:
            dedicated = self._suffixes[claim][index].dedicated
            every = 0
            for devices in dedicated:
                every |= devices
            sets = {every, *dedicated} if len(dedicated) <= _GROUPS else {every}
            found = self._groups[claim, index] = tuple(
                (
                    within,
                    sum(need for devices, need in dedicated.items() if not devices & ~within),
                )
                for within in sorted(sets)
            )
        return found
