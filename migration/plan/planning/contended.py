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
"""The most workloads and nodes that a note names."""


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
        notes = tuple(_note(need, names) for need, names in contested.items())
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
            spare = sum(
                use.devices - use.in_use
                for name, use in details.during.items()
                if name in nodes and use.state is not NodeState.DRAINED
            )
            yield _Need(number, reference, nodes, spare)


def _contested(
    number: int,
    moving: Mapping[str, int],
    details: WaveDetails,
    needs: Iterable[_Need],
    usable: Mapping[str, frozenset[str]],
) -> dict[_Need, list[str]]:
    """Return the tightest need of each evicted workload that may take more devices than it leaves."""
    contested: dict[_Need, list[str]] = {}
    for reference, pods in sorted(moving.items()):
        own = usable[reference]
        places = [node for key, node in details.places.items() if key.workload == reference]
        tight = [
            need
            for need in needs
            if need.number >= number
            and need.workload != reference
            and not own.isdisjoint(need.nodes)
            and not own <= need.nodes
            and min(pods, sum(node not in need.nodes for node in places)) > need.spare
        ]
        if tight:
            contested.setdefault(min(tight, key=lambda need: need.spare), []).append(reference)
    return contested


def _note(need: _Need, names: Sequence[str]) -> str:
    nodes = join_names(sorted(need.nodes), _NAMES)
    return (
        f"evicted pods of {join_names(names, _NAMES)} may also get {nodes}, which wave {need.number} needs for {need.workload} "
        f"and where it leaves {count_text(need.spare, 'device')} free: first give their templates a node affinity that leaves "
        f"those nodes out, or scale them down until that wave is done; else its preflight.sh may find no devices"
    )
