"""The waves of one search. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from migration.plan.model.parts import AwaitedNodes, Part
from migration.plan.search.attempts import WaveSearch
from migration.plan.search.couplings import IdleWorkload
from migration.plan.search.late_nodes import late_nodes, youngest_first
from migration.plan.search.losses import NodeLosses
from migration.plan.search.moments import (
    Attempt,
    Candidate,
    Moment,
    Obstacle,
    PlanProgress,
    Policy,
    without_spare,
)
from migration.plan.stage.placement import Placer

_LATE: Final = "no wave before {} needs the end of the work on {}, so {} later"
_WORK_LAST: Final = (
    "on all other nodes scripts wait for pods, or ask about them, and these nodes come last"
)
_ENDLESS_LAST: Final = "on all other nodes pods never end by themselves, and these nodes come last"
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
        remaining = [_Remaining.of(attempt, choice) for _, attempt in searched.waves]
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
    stay behind them. What began last comes first of these nodes. The waves stay as they are where that does not fit.

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
    for first, late in late_nodes(waves, end, placer):
        names = {entry.node.name for nodes in late.values() for entry in nodes}
        before, rest = list[_Remaining](), list[_Remaining]()
        for number in range(first, len(waves) + 1):
            planned = before if number < end else rest
            chunks = _chunks(late.get(number, ()), wave_nodes)
            planned += [_Remaining(nodes, allowed=sides) for nodes in chunks]
            planned += [_Remaining.of(attempt, names) for _, attempt in waves[number : number + 1]]
        for way in (_merged(before, wave_nodes), before):
            rebuilt = _rebuilt(searched, first, (*way, *rest), wave_search)
            if rebuilt is not None:
                return rebuilt
    return searched


class _Remaining(NamedTuple):
    """The rest of a wave without the nodes of later ones.

    Attributes:
        left: The names of the other nodes.
        allowed: The sides that may be without a node to spare after it.
        obstacles: The obstacles to more nodes, where it is as it was.
        reason: The reason that it is no larger, other than work of the others; empty without one.
    """

    nodes: tuple[Candidate, ...]
    parts: tuple[Part, ...] = ()
    left: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()
    obstacles: tuple[Obstacle, ...] = ()
    reason: str = ""

    @classmethod
    def of(cls, attempt: Attempt, late: Collection[str]) -> "_Remaining":
        """Return a wave without some nodes."""
        left = tuple(entry.node.name for entry in attempt.nodes if entry.node.name in late)
        return cls(
            nodes=tuple(entry for entry in attempt.nodes if entry.node.name not in late),
            parts=attempt.parts,
            left=left,
            allowed=frozenset(attempt.without_spare),
            obstacles=() if left else attempt.obstacles,
            reason=attempt.order_reason,
        )

    def with_node(self, node: Candidate, wave_nodes: int) -> "_Remaining":
        """Return the wave with one more node; nothing keeps a full one small."""
        nodes = (*self.nodes, node)
        return self._replace(
            nodes=nodes, obstacles=self.obstacles if len(nodes) < wave_nodes else ()
        )

    def takes_alike(self, node: Candidate, wave_nodes: int) -> bool:
        """Return True if nothing of it would wait for the work of one more node, nor that for its work."""
        work = (node.has_work, node.never_ends)
        return (
            len(self.nodes) < wave_nodes
            and all((entry.has_work, entry.never_ends) == work for entry in self.nodes)
            and not (node.has_work and self.parts)
        )

    def for_reason(self, reason: str) -> "_Remaining":
        """Return the wave with one more reason that it is no larger."""
        return self._replace(reason="; ".join(filter(None, (self.reason, reason))))

    @property
    def is_work(self) -> bool:
        """Return True if it is nodes with work alone."""
        return not self.parts and all(entry.has_work for entry in self.nodes)

    @property
    def order_reason(self) -> str:
        """Return the reason that it is no larger; empty without other nodes."""
        if self.reason:
            return self.reason
        if not self.left:
            return ""
        several = len(self.left) > 1
        own, come = ("theirs", "these nodes come") if several else ("its own", "this node comes")
        return _LATE.format(own, ", ".join(self.left), come)


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
) -> Iterator[list[_Remaining]]:
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
        _Remaining.of(attempt, {last_node.node.name})._replace(allowed=sides)
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
    yield [*before, opting, _Remaining((last_node,), allowed=sides), *after]
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


def _merged(waves: Iterable[_Remaining], wave_nodes: int) -> list[_Remaining]:
    """Return waves with those of work alone together as far as one may have their nodes."""
    merged: list[_Remaining] = []
    for wave in waves:
        if not wave.nodes and not wave.parts:
            continue
        former = merged[-1] if merged else None
        if (
            former is not None
            and (former.left or wave.left)
            and former.is_work
            and wave.is_work
            and len(former.nodes) + len(wave.nodes) <= wave_nodes
        ):
            merged[-1] = _Remaining(
                nodes=(*former.nodes, *wave.nodes),
                left=(*former.left, *wave.left),
                allowed=former.allowed | wave.allowed,
            )
        else:
            merged.append(wave)
    return merged


def _rebuilt(
    searched: SearchedWaves, first: int, planned: Iterable[_Remaining], wave_search: WaveSearch
) -> SearchedWaves | None:
    """Return the waves with others from one on; None if these do not fit.

    Args:
        searched: The waves.
        first: The number of the first one that changes.
        planned: The nodes and parts from there on.
        wave_search: A search of the same pods.
    """
    moment = searched.waves[first][0]
    rebuilt = list(searched.waves[:first])
    for wave in planned:
        if not wave.nodes and not wave.parts:
            continue
        attempt = wave_search.repeat(moment, wave.nodes, wave.parts)
        if attempt is None or not wave.allowed.issuperset(attempt.without_spare):
            return None
        attempt = msgspec.structs.replace(
            attempt, obstacles=wave.obstacles, order_reason=wave.order_reason
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


def _chunks(nodes: Sequence[Candidate], size: int) -> Iterator[tuple[Candidate, ...]]:
    """Yield nodes in chunks, with those of one training in the same one as far as it has space."""
    chunk: tuple[Candidate, ...] = ()
    for _, group in groupby(nodes, key=lambda entry: entry.groups or entry.node.name):
        block = tuple(group)
        if chunk and len(chunk) + min(len(block), size) > size:
            yield chunk
            chunk = ()
        chunk += block
        while len(chunk) > size:
            yield chunk[:size]
            chunk = chunk[size:]
    if chunk:
        yield chunk
