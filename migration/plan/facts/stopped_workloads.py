"""The workloads of other projects without pods, for a person to start them again. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kube.names import TRANSLATE_LABEL
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.owners import controller
from migration.cluster.unread_templates import is_of_volcano
from migration.cluster.workloads import Workload
from migration.plan.facts.claim_losses import claim_losses
from migration.plan.facts.rollouts import (
    is_started_by_others,
    starts_on_schedule,
    starts_with_requests,
)
from migration.plan.model.plan import Wave
from migration.plan.model.stopped_workloads import StartRoom, StoppedWorkload

_START: Final = "resume it, or scale it up{}, after wave {}"
_START_VOLCANO_JOB: Final = (
    "start it again (vcctl job resume --name JOB --namespace NAMESPACE) after wave {}"
)
_LACKS_ROOM: Final = (
    "; free devices that its pods may have are enough for {} of its {} pods at a time then, and for {} today: free more first, "
    "or solve what holds nodes, and plan again from a new snapshot"
)
_BY_ITSELF: Final = "it starts by itself, with its next request: before wave {} is done it waits where no device is free"
_LABEL: Final = f"; give its pods the label {TRANSLATE_LABEL}=true first, since no wave opts in all of its namespace"
_HELD: Final = (
    "solve first what keeps its namespace out of all waves, and plan again from a new snapshot"
)
_UNSOLVED: Final = (
    "solve first what drawbridge assess says of it, and plan again from a new snapshot"
)
_OUTCOMES: Final = frozenset({Outcome.TRANSLATED, Outcome.LOSSY})


def find_stopped_workloads(
    workloads: Iterable[AssessedWorkload],
    groups: Mapping[str, Workload],
    waves: Sequence[Wave],
    opted_in: Collection[str],
    rooms: Mapping[str, StartRoom],
) -> tuple[StoppedWorkload, ...]:
    """Return the workloads that start after the last wave, most by a person; none for a plan without a wave.

    One with a schedule starts by it, as a CronJob does, and is none of them.

    Args:
        workloads: The cluster's workloads.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods with devices.
        waves: All waves of the plan.
        opted_in: The namespaces that are opted in today.
        rooms: Workload, as `Kind/namespace/name`, to the devices for its next pods.
    """
    short = {name: room for name, room in rooms.items() if room.is_lost}
    opted_in_by = {**dict.fromkeys(opted_in, 1), **_opted_in_by(waves)}
    partial = {entry.namespace for wave in waves for entry in wave.partial_namespaces}
    stopped = (
        entry
        for entry in workloads
        for group in [groups[entry.key.reference]]
        if is_started_by_others(group) and not starts_on_schedule(group)
    )
    return tuple(
        StoppedWorkload(
            object=workload.key.reference,
            reason=_reason(workload),
            fix=_fix(
                *(workload, groups[workload.key.reference], len(waves), opted_in_by, partial),
                room=short.get(workload.key.reference),
            ),
            earliest_wave=0
            if workload.key.reference in short
            else _earliest(workload, groups[workload.key.reference], len(waves), opted_in_by),
            outcome=workload.outcome.value,
            claim_losses=tuple(claim_losses(workload)),
        )
        for workload in (stopped if waves else ())
    )


def _opted_in_by(waves: Sequence[Wave]) -> dict[str, int]:
    """Map each namespace that waves opt in as a whole to the wave that does it."""
    return {name: wave.wave for wave in waves for name in wave.namespaces}


def _earliest(
    workload: AssessedWorkload, group: Workload, last: int, opted_in_by: Mapping[str, int]
) -> int:
    """Return the first wave to give the next pods of a workload claims; 0 for the last one and for an unknown one."""
    if workload.outcome not in _OUTCOMES or starts_with_requests(group):
        return 0
    first = opted_in_by.get(workload.key.namespace, last)
    return first if first < last else 0


def _reason(workload: AssessedWorkload) -> str:
    state = "it is suspended" if workload.suspended else "no pod of it requests devices now"
    keys = ", ".join(sorted(workload.keys))
    return f"{state}, and its next pods request {keys or 'some'}"


def _start(group: Workload, wave: int) -> str:
    """Return the way to start a workload after a wave: of a Deployment, say, the owner that scales it."""
    if starts_with_requests(group):
        return _BY_ITSELF.format(wave)
    if is_of_volcano(group):
        return _START_VOLCANO_JOB.format(wave)
    owner = controller(group.owner) if group.owner is not None else None
    return _START.format(f" by its {' '.join(owner)}" if owner is not None else "", wave)


def _fix(
    workload: AssessedWorkload,
    group: Workload,
    last: int,
    whole: Collection[str],
    partial: Collection[str],
    *,
    room: StartRoom | None,
) -> str:
    """Return the way to start a workload.

    Args:
        workload: The workload.
        group: Its owner.
        last: The last wave, after which nothing moves any more.
        whole: The namespaces that are opted in as a whole by then.
        partial: Those of which waves opt in some workloads.
        room: The devices for its next pods, of which the waves leave fewer; None where they leave as many.
    """
    lack = _LACKS_ROOM.format(room.after, room.pods, room.today) if room is not None else ""
    start = f"{_start(group, last)}{lack}"
    if workload.outcome is Outcome.NATIVE:
        return start
    if workload.outcome not in _OUTCOMES:
        return _UNSOLVED
    if workload.key.namespace in whole:
        return start
    return f"{start}{_LABEL}" if workload.key.namespace in partial else _HELD


def without_started_by_others(wave: Wave, groups: Mapping[str, Workload]) -> Wave:
    """Return a wave without the workloads that others start: the next pods get claims, and no script restarts them."""
    workloads = tuple(
        entry
        for entry in wave.workloads
        if entry.object not in groups or not is_started_by_others(groups[entry.object])
    )
    return replace(wave, workloads=workloads)
