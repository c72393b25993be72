"""The waves of one search. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from findings.text import join_names
from migration.plan.model.parts import AwaitedNodes, Part
from migration.plan.search.attempts import WaveSearch
from migration.plan.search.couplings import IdleWorkload
from migration.plan.search.late_nodes import late_nodes, youngest_first
from migration.plan.search.losses import NodeLosses
from migration.plan.search.moments import (
    Attempt,
    Moment,
    Obstacle,
    PlanProgress,
    Policy,
    without_spare,
)
from migration.plan.search.remaining_waves import RemainingWave, merged_waves, node_chunks
from migration.plan.stage.placement import Placer

_WORK_LAST: Final = (
    "on all other nodes scripts wait for pods, or ask about them, and these nodes come last"
)
_ENDLESS_LAST: Final = "on all other nodes pods never end by themselves, and these nodes come last"
_EARLY: Final = (
    "waves after this one do not need the end of the work on {}, and come after it all the same: before it, one of them would "
    "leave no node to spare of those with {}; --spare-nodes 0, which tries no loss of a node, lets them come first"
)
_PARTS_FIRST: Final = "its namespaces would wait for the work of each further node"
_KEPT: Final = "{} needs {} for its next pods until its namespace is opted in"
_TRIED_GAPS: Final = 8
"""Workloads for whose next pods a node is kept."""
_REPEATED: Final = 128
"""Waves that are repeated to leave nodes out, about."""
_SHARED: Final = "each wave moves its share of the pods that get claims, by the number of its nodes"


class SearchedWaves(msgspec.Struct, frozen=True, kw_only=True):
    """The waves of one search, each with the moment before it.

    Attributes:
        end: The moment after the last wave.
        obstacle: The obstacle to the next wave; None if everything has a wave.
        lacked_spare: Something was tried in vain for want of a node to spare.
    """

    waves: tuple[tuple[Moment, Attempt], ...]
    end: Moment
    obstacle: Obstacle | None
    lacked_spare: bool = False

    def switched(self) -> frozenset[str]:
        """Return the nodes of all waves."""
        return frozenset(entry.node.name for _, attempt in self.waves for entry in attempt.nodes)

    def is_whole(self) -> bool:
        """Return True if every node and every part has a wave."""
        return not self.end.nodes and not self.end.parts

    def early(self) -> dict[str, tuple[AwaitedNodes, ...]]:
        """Return the namespaces that are not opted in, with the nodes that they wait for in vain."""
        waiting = {
            part.namespace: self.end.awaiting(part, frozenset())
            for part in self.end.parts
            if part.completes
        }
        return {name: entries for name, entries in waiting.items() if entries}

    def keeps_spare(self) -> bool:
        """Return True if a node of each side may be lost after every wave."""
        return not any(attempt.without_spare for _, attempt in self.waves)

    def parts_without_spare(self) -> tuple[Part, ...]:
        """Return the parts before the first wave without a node to spare; else those that are left."""
        parts = (moment.parts for moment, attempt in self.waves if attempt.without_spare)
        return next(parts, self.end.parts)

    def begin_parts(self) -> tuple[Part, ...]:
        """Return the parts before the first wave."""
        return self.waves[0][0].parts if self.waves else self.end.parts


def search_policies(
    placer: Placer,
    losses: NodeLosses,
    moment: Moment,
    policies: Sequence[Policy],
    progress: PlanProgress,
) -> SearchedWaves:
    """Return the waves of the first policy, followed by those of the next ones.

    Args:
        placer: Places the pods.
        losses: The losses of nodes that waves are tried with.
        moment: The moment before the first wave.
        policies: The policies.
        progress: Follows the search.
    """
    total = len(moment.nodes)
    waves: list[tuple[Moment, Attempt]] = []
    obstacle: Obstacle | None = None
    lacked_spare = False
    fails_alike: Policy | None = None
    for policy in policies:
        if policy == fails_alike or policy.leaves_nothing(moment.nodes):
            continue
        obstacle = None
        search = WaveSearch(placer, policy, losses, progress.stops)
        while (moment.nodes or moment.parts) and not progress.stops():
            attempt = search.find(moment)
            lacked_spare |= search.lacks_spare
            if attempt is None:
                obstacle = search.explained(moment)
                # Where no node to spare was missed, nothing fits without one, either.
                fails_alike = None if search.lacks_spare else without_spare(policy)
                break
            waves.append((moment, attempt))
            moment = moment.following(attempt)
            if attempt.nodes:
                progress(total - len(moment.nodes))
    return SearchedWaves(
        waves=tuple(waves),
        end=moment,
        obstacle=obstacle,
        lacked_spare=lacked_spare,
    )


def completed(
    searched: SearchedWaves, placer: Placer, wave_search: WaveSearch, wave_nodes: int
) -> SearchedWaves:
    """Return the waves with work last, with nodes for later pods, and with reasons for their sizes and for parts.

    Args:
        searched: The waves.
        placer: Places the pods.
        wave_search: A search of the same pods.
        wave_nodes: The most nodes of a wave.
    """
    late = _with_late_work(searched, placer, wave_search, wave_nodes)
    late = msgspec.structs.replace(
        late, waves=tuple((moment, _youngest_work_first(attempt)) for moment, attempt in late.waves)
    )
    late = _with_kept_nodes(late, wave_search, wave_nodes)
    explained = tuple(
        (moment, _with_order_reason(moment, attempt, wave_nodes)) for moment, attempt in late.waves
    )
    late = msgspec.structs.replace(late, waves=explained)
    return _with_part_reasons(late, wave_search)


def without_nodes(
    searched: SearchedWaves, names: Collection[str], wave_search: WaveSearch
) -> SearchedWaves:
    """Return the waves without some nodes, as far as the others fit without them.

    All of them are tried first, then those of each wave, then single ones.

    Args:
        searched: The waves.
        names: The names of the nodes.
        wave_search: A search of the same pods.
    """
    own = [
        [entry.node.name for entry in attempt.nodes if entry.node.name in names]
        for _, attempt in searched.waves
    ]
    every = [name for wave in own for name in wave]
    steps_left = _REPEATED
    for choice in (every, *reversed(own), *([name] for name in every)):
        remaining = [RemainingWave.of(attempt, choice) for _, attempt in searched.waves]
        changed = [number for number, wave in enumerate(remaining) if wave.left]
        if changed and steps_left > 0:
            planned = [wave._replace(left=()) for wave in remaining[changed[0] :]]
            steps_left -= len(planned)
            searched = _rebuilt(searched, changed[0], planned, wave_search) or searched
    return searched


def _youngest_work_first(attempt: Attempt) -> Attempt:
    """Return a wave with the work that began last first, as such waves are ordered: its script does the most early."""
    ending = youngest_first(
        [entry for entry in attempt.nodes if entry.has_work and not entry.never_ends]
    )
    idle = [entry for entry in attempt.nodes if not entry.has_work]
    endless = [entry for entry in attempt.nodes if entry.never_ends]
    return msgspec.structs.replace(attempt, nodes=(*idle, *ending, *endless))


def _with_order_reason(moment: Moment, attempt: Attempt, wave_nodes: int) -> Attempt:
    """Return a wave with the reason that it has no further nodes, if they come later for their work."""
    names = {entry.node.name for entry in attempt.nodes}
    left = [entry for entry in moment.nodes if entry.node.name not in names]
    if not names or len(names) >= wave_nodes or not left:
        return msgspec.structs.replace(attempt, order_reason="")
    if attempt.obstacles or attempt.order_reason:
        return attempt
    reason = ""
    if not any(entry.has_work for entry in attempt.nodes):
        reason = _WORK_LAST if all(entry.has_work for entry in left) else ""
    elif attempt.parts:
        reason = _PARTS_FIRST
    elif all(entry.never_ends for entry in left) and not _never_ends(attempt):
        reason = _ENDLESS_LAST
    return msgspec.structs.replace(attempt, order_reason=reason)


def _with_late_work(
    searched: SearchedWaves, placer: Placer, wave_search: WaveSearch, wave_nodes: int
) -> SearchedWaves:
    """Return the waves with work last that no later wave has to wait for.

    A wave begins once those before it are done, so it would wait for that work in vain. Nodes with pods that never end
    stay behind them. What began last comes first of these nodes. The waves stay as they are where that does not fit; a note says
    so where a node to spare is the only reason.

    Args:
        searched: The waves.
        placer: Places the pods.
        wave_search: A search of the same pods.
        wave_nodes: The most nodes of a wave.
    """
    waves = searched.waves
    end = next(
        (number for number, (_, attempt) in enumerate(waves) if _never_ends(attempt)), len(waves)
    )
    sides = frozenset(side for _, attempt in waves for side in attempt.without_spare)
    explained: SearchedWaves | None = None
    for first, late in late_nodes(waves, end, placer):
        names = {entry.node.name for nodes in late.values() for entry in nodes}
        before, rest = list[RemainingWave](), list[RemainingWave]()
        for number in range(first, len(waves) + 1):
            planned = before if number < end else rest
            chunks = node_chunks(late.get(number, ()), wave_nodes)
            planned += [RemainingWave(nodes, allowed=sides) for nodes in chunks]
            planned += [
                RemainingWave.of(attempt, names) for _, attempt in waves[number : number + 1]
            ]
        for way in (merged_waves(before, wave_nodes), before):
            rebuilt = _rebuilt(searched, first, (*way, *rest), wave_search)
            if rebuilt is not None:
                return rebuilt
        if explained is None:
            explained = _with_early_notes(searched, first, (*before, *rest), names, wave_search)
    return explained or searched


def _with_early_notes(
    searched: SearchedWaves,
    first: int,
    planned: Iterable[RemainingWave],
    late: Collection[str],
    wave_search: WaveSearch,
) -> SearchedWaves | None:
    """Return the waves with notes on nodes that come early for want of a node to spare; None if that is not the reason.

    Args:
        searched: The waves.
        first: The number of the first one with such nodes.
        planned: The nodes and parts from there on, with these nodes later.
        late: The names of these nodes.
        wave_search: A search of the same pods.
    """
    rebuilt = _rebuilt(searched, first, planned, wave_search, keeps_spare=False)
    if rebuilt is None:
        return None
    sides = sorted({side for _, attempt in rebuilt.waves[first:] for side in attempt.without_spare})
    waves = []
    for moment, attempt in searched.waves:
        names = [entry.node.name for entry in attempt.nodes if entry.node.name in late]
        note = _EARLY.format(join_names(names), " and of those with ".join(sides))
        is_last = attempt is searched.waves[-1][1]
        early = note if names and not is_last else ""
        waves.append((moment, msgspec.structs.replace(attempt, early_note=early)))
    return msgspec.structs.replace(searched, waves=tuple(waves))


def _with_kept_nodes(
    searched: SearchedWaves, wave_search: WaveSearch, wave_nodes: int
) -> SearchedWaves:
    """Return the waves with the last node for the next pods of a workload once its namespace is opted in.

    It comes with the next nodes then, or in a wave of its own; where no other node would serve the namespace, it comes
    last in that wave. The waves stay as they are where nothing of this fits.

    Args:
        searched: The waves.
        wave_search: A search of the same pods.
        wave_nodes: The most nodes of a wave.
    """
    idle = searched.waves[0][0].idle if searched.waves else ()
    # Those with the same nodes and namespace have the same gap.
    different = {(entry.nodes, entry.namespace): entry for entry in reversed(idle)}
    moves = _moves(searched)
    gaps = [(entry.gap(moves)[1], entry) for entry in different.values()]
    waiting = sorted((gap for gap in gaps if gap[0]), key=lambda gap: gap[0], reverse=True)
    # A node that is kept for the namespace that comes last serves the others, too.
    for _, entry in waiting[:_TRIED_GAPS]:
        first, last = entry.gap(_moves(searched))
        if last:
            ways = _ways_to_keep(searched, entry, first, last, wave_nodes)
            rebuilt = (_rebuilt(searched, first - 1, way, wave_search) for way in ways)
            searched = next(filter(None, rebuilt), searched)
    return searched


def _ways_to_keep(
    searched: SearchedWaves, idle: IdleWorkload, first: int, last: int, wave_nodes: int
) -> Iterator[list[RemainingWave]]:
    """Yield the waves from the first one on, with a node of it in the wave after the last one, after that one, and in it.

    Args:
        searched: The waves.
        idle: The workload that the node is kept for.
        first: The number of the wave that leaves it no node.
        last: The number of the wave that opts its namespace in.
        wave_nodes: The most nodes of a wave.
    """
    own = searched.waves[first - 1][1].nodes
    last_node = min(
        (entry for entry in own if entry.node.name in idle.nodes),
        key=lambda entry: (entry.has_work, entry.never_ends, entry.node.name),
    )
    sides = frozenset(side for _, attempt in searched.waves for side in attempt.without_spare)
    waves = [
        RemainingWave.of(attempt, {last_node.node.name})._replace(allowed=sides)
        for _, attempt in searched.waves[first - 1 :]
    ]
    reason = _KEPT.format(idle.workload, last_node.node.name)
    waves = [
        wave if number > last else wave.for_reason(reason)
        for number, wave in enumerate(waves, start=first)
    ]
    before, (opting, *after) = waves[: last - first], waves[last - first :]
    if after and after[0].takes_alike(last_node, wave_nodes):
        yield [*before, opting, after[0].with_node(last_node, wave_nodes), *after[1:]]
    yield [*before, opting, RemainingWave((last_node,), allowed=sides), *after]
    if len(opting.nodes) < wave_nodes:
        yield [*before, opting.with_node(last_node, wave_nodes), *after]


def _moves(searched: SearchedWaves) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Return the nodes that each wave switches, and the namespaces that it opts in."""
    return [
        (
            frozenset(entry.node.name for entry in attempt.nodes),
            frozenset(part.namespace for part in attempt.parts if part.completes),
        )
        for _, attempt in searched.waves
    ]


def _rebuilt(
    searched: SearchedWaves,
    first: int,
    planned: Iterable[RemainingWave],
    wave_search: WaveSearch,
    *,
    keeps_spare: bool = True,
) -> SearchedWaves | None:
    """Return the waves with others from one on; None if these do not fit.

    Args:
        searched: The waves.
        first: The number of the first one that changes.
        planned: The nodes and parts from there on.
        wave_search: A search of the same pods.
        keeps_spare: No wave may be without a node to spare but those that are allowed to.
    """
    moment = searched.waves[first][0]
    rebuilt = list(searched.waves[:first])
    for wave in planned:
        if not wave.nodes and not wave.parts:
            continue
        attempt = wave_search.repeat(moment, wave.nodes, wave.parts)
        lacks_spare = attempt is not None and not wave.allowed.issuperset(attempt.without_spare)
        if attempt is None or (keeps_spare and lacks_spare):
            return None
        attempt = msgspec.structs.replace(
            attempt,
            obstacles=wave.obstacles,
            order_reason=wave.order_reason,
            early_note=wave.early_note,
        )
        rebuilt.append((moment, attempt))
        moment = moment.following(attempt)
    return msgspec.structs.replace(searched, waves=tuple(rebuilt), end=moment)


def _with_part_reasons(searched: SearchedWaves, wave_search: WaveSearch) -> SearchedWaves:
    """Return the waves with the reason that no more of a namespace gets claims, for each that moves in part."""
    waves = []
    for moment, attempt in searched.waves:
        moving = {part.namespace for part in attempt.parts}
        following: dict[str, Part] = {}
        for part in moment.parts:
            if part.namespace in moving and part not in attempt.parts:
                following.setdefault(part.namespace, part)
        reasons = {
            name: wave_search.explain_part(moment, attempt, part) or _SHARED
            for name, part in following.items()
        }
        waves.append((moment, msgspec.structs.replace(attempt, part_reasons=reasons)))
    return msgspec.structs.replace(searched, waves=tuple(waves))


def _never_ends(attempt: Attempt) -> bool:
    return any(entry.never_ends for entry in attempt.nodes)
