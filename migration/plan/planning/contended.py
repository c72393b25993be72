"""Evicted pods in competition with a later wave for devices. Pure.

The plan places an evicted pod where it leaves room for later waves; kube-scheduler does not know of these.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from findings.text import count_text, join_names
from kube.api.workloads import DAEMON_SET
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.plan.model.plan import Wave
from migration.plan.search.device_map import NodeState, WaveDetails

_NAMES: Final = 4
"""The most workloads, nodes and needs that a note names."""


class _Need(NamedTuple):
    """The need of a wave for the devices of some nodes.

    Attributes:
        number: The number of the wave.
        workload: The workload that may use no others.
        spare: The devices that stay free on them while the wave's nodes are drained.
    """

    number: int
    workload: str
    nodes: frozenset[str]
    spare: int


def with_contended(
    waves: Sequence[Wave],
    details: Sequence[WaveDetails],
    workloads: Iterable[AssessedWorkload],
    usable: Mapping[str, frozenset[str]],
) -> Iterator[Wave]:
    """Yield the waves, each with a note on evicted pods that may take the devices of a later one.

    Only pods of whole devices are looked at, which both systems serve by the same key.

    Args:
        waves: The waves, in order.
        details: The details of each of them.
        workloads: The cluster's workloads.
        usable: Workload, as `Kind/namespace/name`, to the nodes that its pods may use.
    """
    native = [
        workload.key.reference
        for workload in workloads
        if workload.outcome is Outcome.NATIVE and usable.get(workload.key.reference)
    ]
    needs = [
        need
        for wave, entry in zip(waves, details, strict=True)
        for need in _needs(wave.wave, entry, native, usable)
    ]
    noted_workloads: set[str] = set()
    for wave, entry in zip(waves, details, strict=True):
        moving = {
            reference: entry.evicted[reference]
            for reference in native
            if entry.evicted.get(reference) and reference not in noted_workloads
        }
        contested = _contested(wave.wave, moving, entry, needs, usable)
        noted_workloads.update(name for names in contested.values() for name in names)
        notes = tuple(_note(own, names) for own, names in contested.items())
        yield msgspec.structs.replace(wave, notes=(*wave.notes, *notes))


def _needs(
    number: int,
    details: WaveDetails,
    native: Iterable[str],
    usable: Mapping[str, frozenset[str]],
) -> Iterator[_Need]:
    """Yield the needs of a wave's evicted pods."""
    for reference in native:
        # Pods of a DaemonSet look for devices of their own node only.
        if details.evicted.get(reference) and not reference.startswith(f"{DAEMON_SET}/"):
            nodes = usable[reference]
            yield _Need(number, reference, nodes, _free(details, nodes))


def _free(details: WaveDetails, nodes: frozenset[str]) -> int:
    """Return the devices that are free on some nodes while those of a wave are drained."""
    return sum(
        use.devices - use.in_use
        for name, use in details.during.items()
        if name in nodes and use.state is not NodeState.DRAINED
    )


def _contested(
    number: int,
    moving: Mapping[str, int],
    details: WaveDetails,
    needs: Iterable[_Need],
    usable: Mapping[str, frozenset[str]],
) -> dict[tuple[_Need, ...], list[str]]:
    """Return needs with fewer spare devices than evicted workloads may take, each with these workloads.

    Of needs for the same nodes the tightest is among them.
    """
    contested: dict[tuple[_Need, ...], list[str]] = {}
    for reference, pods in sorted(moving.items()):
        own = usable[reference]
        places = [node for key, node in details.places.items() if key.workload == reference]
        tight = {
            need.nodes: need
            for need in sorted(needs, key=lambda need: (-need.spare, -need.number))
            if need.number >= number
            and need.workload != reference
            and not own.isdisjoint(need.nodes)
            and not own <= need.nodes
            and min(
                pods, sum(node not in need.nodes for node in places), _free(details, need.nodes)
            )
            > need.spare
        }
        if tight:
            key = tuple(sorted(tight.values(), key=lambda need: (need.spare, need.number))[:_NAMES])
            contested.setdefault(key, []).append(reference)
    return contested


def _note(needs: Sequence[_Need], names: Sequence[str]) -> str:
    places = "; or ".join(
        f"{join_names(sorted(need.nodes), _NAMES)}, which wave {need.number} needs for {need.workload} and where it leaves "
        f"{count_text(need.spare, 'device')} free"
        for need in needs
    )
    return (
        f"evicted pods of {join_names(names, _NAMES)} may also get {places}: first give their templates a node affinity that "
        "leaves those nodes out, or scale them down until then; else preflight.sh of that wave may find no devices"
    )
