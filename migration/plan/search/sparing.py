"""Other waves of the same nodes and namespaces, with a node to spare after each of them. Pure.

The search for waves takes the largest one that leaves a node to spare, though later ones may have none for it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, TypeVar

import msgspec

from migration.assessment.outcomes import AssessedWorkload
from migration.plan.model.parts import Divisible, Part, divide, numbers_to_try, share_of_wave
from migration.plan.search.attempts import WaveSearch
from migration.plan.search.losses import NodeLosses
from migration.plan.search.moments import (
    Attempt,
    Candidate,
    Moment,
    PlanProgress,
    Policy,
    nodes_in_order,
    rounds,
    with_left,
    with_spare,
    with_those_of,
)
from migration.plan.search.searched import SearchedWaves
from migration.plan.stage.placement import Placer

_STEPS: Final = 10_000
"""Waves that are tried, times the pods of the cluster."""
_MOST_STEPS: Final = 800
"""The most waves that are tried."""
_KINDS: Final = 16
"""Kinds of nodes, by their group and their pods, that a wave is made of."""
_PARTS: Final = 5
"""Parts of which each choice is tried, beside the first ones in their order."""
_SMALLER: Final = (
    "with other nodes or namespaces in it, this or a later wave leaves no node to spare"
)

T = TypeVar("T")

_Wave = tuple[Moment, Attempt]
_Key = tuple[frozenset[str], frozenset[Part]]


class SparingSearch:
    """Searches for waves with a node to spare, depth first, and gives up after a number of steps."""

    def __init__(
        self,
        placer: Placer,
        losses: NodeLosses,
        policy: Policy,
        moving: tuple[Sequence[AssessedWorkload], Divisible],
        progress: PlanProgress,
    ) -> None:
        """Prepare the search.

        Args:
            placer: Places the pods.
            losses: The losses of nodes that waves are tried with.
            policy: The sizes of waves.
            moving: The cluster's workloads, and those that can get claims by themselves.
            progress: Follows the search, and may end it.
        """
        self._placer = placer
        self._policy = with_spare(policy)
        self._search = WaveSearch(placer, self._policy, losses, progress.stops)
        self._groups = placer.node_groups()
        self._moving = moving
        self._progress = progress
        self._steps_left = 0
        self._tried: set[_Key] = set()

    def sparing(self, searched: SearchedWaves) -> SearchedWaves:
        """Return waves of the same nodes and parts, each with a node to spare, if there are such; else the same waves.

        The last waves before that without a node to spare are changed first.
        """
        waves = searched.waves
        lacking = (number for number, (_, attempt) in enumerate(waves) if attempt.without_spare)
        first = next(lacking, None)
        if first is None:
            return searched
        moments = [with_those_of(waves[start][0], waves[start:]) for start in range(first + 1)]
        for begins in (moments, list(map(self._divided, moments))):
            self._tried.clear()
            self._steps_left = min(_MOST_STEPS, _STEPS // max(1, len(self._placer.pods)))
            for start in range(first, -1, -1):
                rest = self._rest(begins[start])
                if rest is not None:
                    end = rest[-1][0].following(rest[-1][1])
                    return msgspec.structs.replace(
                        searched,
                        waves=(
                            *waves[:start],
                            *(
                                (with_left(moment, searched.end), attempt)
                                for moment, attempt in rest
                            ),
                        ),
                        end=with_left(end, searched.end),
                    )
        return searched

    def _divided(self, moment: Moment) -> Moment:
        """Return a moment with its namespaces divided into their workloads."""
        workloads, divisible = self._moving
        if not all(part.completes for part in moment.parts):
            return moment
        parts = divide(
            moment.parts,
            {part.namespace for part in moment.parts},
            *(workloads, moment.stage.selected, divisible),
            waiting=moment.awaited.keys(),
            staying=moment.staying,
        )
        return msgspec.structs.replace(moment, parts=parts)

    def _rest(self, moment: Moment) -> list[_Wave] | None:
        """Return waves of everything that is left at a moment; None without such waves, or after the last step."""
        if not moment.nodes and not moment.parts:
            return []
        key = (moment.stage.switched, frozenset(moment.parts))
        if key in self._tried:
            return None
        self._tried.add(key)
        for attempt in self._attempts(moment):
            following = self._rest(moment.following(attempt))
            if following is not None:
                return [(moment, attempt), *following]
        return None

    def _attempts(self, moment: Moment) -> Iterator[Attempt]:
        """Yield the next waves that leave a node to spare, large ones first."""
        for nodes in self._node_choices(moment):
            names = frozenset(entry.node.name for entry in nodes)
            if names and not self._steps():
                return
            if names and self._search.check_drain(moment, names):
                continue
            for parts in _part_choices(moment, nodes):
                if not self._steps():
                    return
                attempt = self._search.repeat(moment, nodes, parts)
                if attempt is not None:
                    yield msgspec.structs.replace(attempt, order_reason=_SMALLER)

    def _steps(self) -> bool:
        """Take a step; return False after the last one."""
        self._steps_left -= 1
        return self._steps_left >= 0 and not self._progress.stops()

    def _node_choices(self, moment: Moment) -> Iterator[tuple[Candidate, ...]]:
        """Yield the nodes of the next wave, without work as long as there are such, and one choice of equal nodes."""
        bound = self._placer.daemon_pods.bound_nodes(moment.stage, moment.placement)
        ordered = next(rounds(nodes_in_order(moment, bound), self._policy), [])
        pods: dict[str, Counter[str]] = {}
        for key, name in moment.placement.nodes.items():
            pods.setdefault(name, Counter())[key.workload] += 1
        kinds: dict[object, list[Candidate]] = {}
        for entry in ordered:
            name = entry.node.name
            kind = (self._groups[name], frozenset(pods.get(name, Counter()).items()))
            kinds.setdefault(kind, []).append(entry)
        for size in range(min(self._policy.wave_nodes, len(ordered)), -1, -1):
            yield from choices_of_kinds(list(kinds.values())[:_KINDS], size)


def choices_of_kinds(kinds: Sequence[Sequence[T]], size: int) -> Iterator[tuple[T, ...]]:
    """Yield each choice of a size, of each kind the first ones; the next one is there at once, however many there are.

    >>> [*choices_of_kinds(["aa", "b", "cc"], 3)]
    [('a', 'a', 'b'), ('a', 'a', 'c'), ('a', 'b', 'c'), ('a', 'c', 'c'), ('b', 'c', 'c')]
    """
    if not kinds:
        if not size:
            yield ()
        return
    left = sum(map(len, kinds[1:]))
    for number in range(min(size, len(kinds[0])), max(0, size - left) - 1, -1):
        for others in choices_of_kinds(kinds[1:], size - number):
            yield (*kinds[0][:number], *others)


def _part_choices(moment: Moment, nodes: Sequence[Candidate]) -> Iterator[tuple[Part, ...]]:
    """Yield the parts that may move with some nodes: as many as their share, then more, then fewer."""
    parts = moment.parts
    if len(nodes) > 1 and nodes[0].has_work:
        # They would wait for the work of all these nodes.
        parts = ()
    share = share_of_wave(len(parts), len(nodes), len(moment.nodes)) if nodes else len(parts)
    tried: set[frozenset[Part]] = set()
    for number in numbers_to_try(min(share, len(parts)), len(parts)):
        every = combinations(parts, number) if len(parts) <= _PARTS else iter([parts[:number]])
        for chosen in every:
            if (
                (nodes or chosen)
                and frozenset(chosen) not in tried
                and _completes_last(moment, chosen)
            ):
                tried.add(frozenset(chosen))
                yield chosen


def _completes_last(moment: Moment, parts: Sequence[Part]) -> bool:
    """Return True if no part of a namespace is left once the namespace itself is opted in."""
    whole = {part.namespace for part in parts if part.completes}
    return not any(part.namespace in whole and part not in parts for part in moment.parts)
