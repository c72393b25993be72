"""The nodes with work that may come later, since no pod needs their devices until then. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from migration.plan.search.moments import Attempt, Candidate, Moment
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import PodKey

_Wave = tuple[Moment, Attempt]
_Late = tuple[int, Mapping[int, Sequence[Candidate]]]


def late_nodes(waves: Sequence[_Wave], end: int, placer: Placer) -> Iterator[_Late]:
    """Yield the number of the first wave with nodes that may come later, and these by the wave that they come before.

    No pod goes to such a node once its own work has ended, and before that wave: in the first way each comes before the
    first wave with a pod that fits nowhere else, in the next ones all come last. Then in the second way there is no such
    pod, and in the third none goes there at all. Those of the last wave are no reason to order them anew, but come with
    others.

    Args:
        waves: The waves.
        end: The number of waves before the nodes with pods that never end.
        placer: Places the pods.
    """
    ways: list[_Late] = []
    for way in (
        _deferred_nodes(waves, end, placer),
        _late_nodes(waves, end, placer),
        _late_nodes(waves, end, None),
    ):
        if way[1] and way not in ways:
            ways.append(way)
            yield way


def _deferred_nodes(waves: Sequence[_Wave], end: int, placer: Placer) -> _Late:
    """Return the nodes that no pod needs before a wave later than the next one."""
    needed: dict[str, int] = {}
    needs: list[tuple[int, int, Candidate]] = []
    for number in reversed(range(len(waves))):
        wave = waves[number]
        attempt, busy = wave[1], _busy_nodes(waves[: min(number + 1, end)])
        during = attempt.during.nodes if attempt.during is not None else {}
        after: Mapping[PodKey, str] = attempt.after.nodes
        if not busy.isdisjoint((*after.values(), *during.values())):
            during, after = _places_without(busy, wave, placer)
        needed.update(dict.fromkeys((*after.values(), *during.values()), number))
        if number < end:
            needs += [
                (number, min(needed.get(entry.node.name, end), end), entry)
                for entry in attempt.nodes
                if entry.has_work
            ]
    first_need: dict[tuple[str, ...], int] = {}
    for _, need, entry in needs:
        first_need[entry.groups] = min(first_need.get(entry.groups, end), need)
    late: dict[int, list[Candidate]] = {}
    first = end
    for number, need, entry in needs:
        # The nodes of one training come together.
        place = first_need[entry.groups] if entry.groups else need
        if place > number + 1 or place == end:
            late.setdefault(place, []).append(entry)
            first = min(first, number)
    if first >= end - 1:
        return 0, {}
    return first, {place: youngest_first(nodes) for place, nodes in sorted(late.items())}


def _late_nodes(waves: Sequence[_Wave], end: int, placer: Placer | None) -> _Late:
    """Return the nodes that may come last; without a placer each pod needs the node that it has."""
    used: set[str] = set()
    first, late = 0, list[Candidate]()
    for number in reversed(range(len(waves))):
        wave = waves[number]
        attempt, during = wave[1], wave[1].during
        after_nodes = attempt.after.nodes
        during_nodes = during.nodes if during is not None else {}
        busy = _busy_nodes(waves[: min(number + 1, end)]) - used
        if placer is not None and not busy.isdisjoint(
            (*after_nodes.values(), *during_nodes.values())
        ):
            during_nodes, after_nodes = _places_without(busy, wave, placer)
        used.update(after_nodes.values())
        own = [
            entry
            for entry in attempt.nodes
            if number < end and entry.has_work and entry.node.name not in used
        ]
        first = number if own else first
        late += own
        used.update(during_nodes.values())
    if first == end - 1 or not late:
        return 0, {}
    return first, {end: youngest_first(late)}


def youngest_first(nodes: Sequence[Candidate]) -> list[Candidate]:
    """Return nodes with the oldest work last, and those of one workload that loses work as a whole one after another."""
    since: dict[tuple[str, ...], str] = {}
    for entry in nodes:
        since[entry.groups] = min(since.get(entry.groups, entry.works_since), entry.works_since)
    ordered = sorted(nodes, key=lambda entry: (entry.groups, entry.node.name))
    ordered.sort(
        key=lambda entry: since[entry.groups] if entry.groups else entry.works_since, reverse=True
    )
    return ordered


def _busy_nodes(waves: Sequence[_Wave]) -> frozenset[str]:
    """Return the nodes of waves with work."""
    return frozenset(
        entry.node.name for _, attempt in waves for entry in attempt.nodes if entry.has_work
    )


def _places_without(
    nodes: frozenset[str], wave: _Wave, placer: Placer
) -> tuple[Mapping[PodKey, str], Mapping[PodKey, str]]:
    """Return the places of pods during the drains of a wave and after it, away from some nodes as far as others fit.

    Args:
        nodes: The nodes that take no pods, but keep those that find no other place.
        wave: The wave, with the moment before it.
        placer: Places the pods.
    """
    moment, attempt = wave
    stage = msgspec.structs.replace(moment.stage, closed=moment.stage.closed | nodes)
    before, during = moment.placement, dict[PodKey, str]()
    if attempt.during is not None:
        names = frozenset(entry.node.name for entry in attempt.nodes)
        draining = msgspec.structs.replace(stage, draining=names, waits=True)
        drained = placer.place(draining, before)
        during = {**attempt.during.nodes, **drained.nodes}
        before = drained.after(before)
    after = placer.place(msgspec.structs.replace(moment, stage=stage).stage_with(attempt), before)
    return during, {**attempt.after.nodes, **after.nodes}
