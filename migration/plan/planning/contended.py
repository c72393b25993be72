"""Evicted pods in competition with a later wave for devices. Pure.

The plan places an evicted pod where it leaves room for later waves; kube-scheduler does not know of these.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple

import msgspec

from findings.text import count_text, join_names
from kube.api.workloads import DAEMON_SET
from migration.assessment.outcomes import AssessedWorkload, Outcome, devices_of_pod
from migration.plan.model.plan import Wave
from migration.plan.search.device_map import NodeState, NodeUse, WaveDetails

_NAMES: Final = 4
"""The most workloads, nodes and needs that a note names."""


class _Need(NamedTuple):
    """The need of a wave for the devices of some nodes.

    Attributes:
        number: The number of the wave.
        workload: The workload that may use no others.
        size: The devices of one of its pods, which come from one node.
        spare: The pods of this size that the nodes could still take while the wave's are drained.
    """

    number: int
    workload: str
    nodes: frozenset[str]
    size: int
    spare: int


class _Contest(NamedTuple):
    """A need, and the evicted workloads that may together take more than it leaves."""

    need: _Need
    takers: tuple[str, ...]


def with_contended(
    waves: Sequence[Wave],
    details: Sequence[WaveDetails],
    workloads: Iterable[AssessedWorkload],
    usable: Mapping[str, frozenset[str]],
    *,
    bound_pods: frozenset[tuple[str, str]] = frozenset(),
) -> Iterator[Wave]:
    """Yield the waves, each with a note on evicted pods that may take the devices of a later one.

    Only pods of whole devices are looked at, which both systems serve by the same key.

    Args:
        waves: The waves, in order.
        details: The details of each of them.
        workloads: The cluster's workloads.
        usable: Workload, as `Kind/namespace/name`, to the nodes that its pods may use.
        bound_pods: Namespace and name of the pods with a volume of one node, which wait for that node.
    """
    sizes = {
        workload.key.reference: max(1, devices_of_pod(workload).total())
        for workload in workloads
        if workload.outcome is Outcome.NATIVE
        and usable.get(workload.key.reference)
        and workload.members.isdisjoint(bound_pods)
    }
    places = [_places(entry) for entry in details]
    # Workloads that may use the same nodes have the same need, and a wave has many of them.
    needs = {
        (need.number, need.nodes, need.size): need
        for wave, entry, own_places in zip(waves, details, places, strict=True)
        for need in _needs(wave.wave, entry, own_places, sizes, usable)
    }
    contests: dict[tuple[int, str], dict[frozenset[str], _Contest]] = {}
    # Of needs for the same nodes the tightest remains.
    for need in sorted(needs.values(), key=lambda need: (-need.spare, -need.number)):
        earlier = zip(details[: need.number], places, strict=False)
        takers = _takers(need, earlier, sizes, usable)
        if sum(pods for _, pods in takers.values()) > need.spare:
            for reference, (number, _) in takers.items():
                contest = _Contest(need, tuple(takers))
                contests.setdefault((number, reference), {})[need.nodes] = contest
    for wave in waves:
        names_by_needs: dict[tuple[_Contest, ...], list[str]] = {}
        for (number, reference), by_nodes in sorted(contests.items()):
            if number == wave.wave:
                tightest = sorted(
                    by_nodes.values(), key=lambda own: (own.need.spare, own.need.number)
                )
                names_by_needs.setdefault(tuple(tightest[:_NAMES]), []).append(reference)
        notes = tuple(_note(own, names) for own, names in names_by_needs.items())
        yield msgspec.structs.replace(wave, notes=(*wave.notes, *notes))


def _needs(
    number: int,
    details: WaveDetails,
    places: Mapping[str, Sequence[str]],
    sizes: Mapping[str, int],
    usable: Mapping[str, frozenset[str]],
) -> Iterator[_Need]:
    """Yield the needs of a wave's evicted pods."""
    drained = {name for name, use in details.during.items() if use.state is NodeState.DRAINED}
    for reference, size in sizes.items():
        # Pods of a DaemonSet look for devices of their own node only.
        moving = _moving(details, reference, len(places.get(reference, ())))
        if moving and not reference.startswith(f"{DAEMON_SET}/"):
            nodes = usable[reference]
            spare = _room(details.during, nodes - drained, size)
            yield _Need(number, reference, nodes, size, spare)


def _room(uses: Mapping[str, NodeUse], nodes: Collection[str], size: int) -> int:
    """Return the pods of a number of devices that nodes could take, each on one of them."""
    return sum((uses[name].devices - uses[name].in_use) // size for name in nodes if name in uses)


def _places(details: WaveDetails) -> dict[str, list[str]]:
    """Return workload to the nodes of its pods after a wave."""
    places: dict[str, list[str]] = {}
    for key, node in details.places.items():
        places.setdefault(key.workload, []).append(node)
    return places


def _takers(
    need: _Need,
    details: Iterable[tuple[WaveDetails, Mapping[str, Sequence[str]]]],
    sizes: Mapping[str, int],
    usable: Mapping[str, frozenset[str]],
) -> dict[str, tuple[int, int]]:
    """Return the rivals of a need: workload to the first wave that evicts pods of it, and the room for these.

    Args:
        need: The need.
        details: The details of the waves up to its own, in order, each with workload to the nodes of its pods.
        sizes: Workload to the devices of one of its pods.
        usable: Workload to the nodes that its pods may use.
    """
    takers: dict[str, tuple[int, int]] = {}
    for number, (entry, places) in enumerate(details, 1):
        for reference in sorted(entry.evicted):
            own = usable.get(reference, frozenset())
            if reference not in sizes or own.isdisjoint(need.nodes) or own <= need.nodes:
                continue
            outside = sum(node not in need.nodes for node in places.get(reference, ()))
            pods = _moving(entry, reference, len(places.get(reference, ())))
            # A smaller pod may break the room of a larger one on another node of these than that of the plan.
            moving = pods if sizes[reference] < need.size else min(pods, outside)
            amount = min(
                moving * ceil(sizes[reference] / need.size),
                _most_room(entry, need.nodes & own, need.size),
            )
            if amount:
                first, most = takers.get(reference, (number, 0))
                takers[reference] = first, max(most, amount)
    return takers


def _moving(details: WaveDetails, reference: str, after: int) -> int:
    """Return the pods of a workload that a wave moves: those that end first need and take nothing.

    Args:
        details: The details of the wave.
        reference: The workload.
        after: The number of its pods with a node after the wave.
    """
    starting = sum(key.workload == reference for key in details.starting)
    ended = max(0, details.placed.get(reference, 0) - (after - starting))
    return max(0, details.evicted.get(reference, 0) - ended)


def _most_room(details: WaveDetails, nodes: frozenset[str], size: int) -> int:
    """Return the most pods of a number of devices that nodes could take before, during or after a wave."""
    staying = frozenset(
        name
        for name in nodes
        if name in details.during and details.during[name].state is not NodeState.DRAINED
    )
    moments = ((details.before, staying), (details.during, staying), (details.after, nodes))
    return max(_room(uses, names, size) for uses, names in moments)


def _note(contests: Sequence[_Contest], names: Sequence[str]) -> str:
    places = "; or ".join(_contest_text(contest, names) for contest in contests)
    return (
        f"evicted pods of {join_names(names, _NAMES)} may also get {places}: before the first wave, give their templates a "
        "node affinity that leaves those nodes out, and plan again; or scale them down until the wave that needs the nodes "
        "is done; else their pods may find no devices"
    )


def _contest_text(contest: _Contest, names: Collection[str]) -> str:
    need = contest.need
    spare = f"{count_text(need.spare, 'device')} free"
    if need.size > 1:
        spare = f"room for {count_text(need.spare, 'more pod')} of {need.size} devices on one node"
    others = [name for name in contest.takers if name not in names]
    shared = (
        f" (evicted pods of {join_names(others, _NAMES)} may get them, too)"
        if others and need.spare
        else ""
    )
    return (
        f"{join_names(sorted(need.nodes), _NAMES)}, where wave {need.number} needs devices for {need.workload} and leaves "
        f"{spare}{shared}"
    )
