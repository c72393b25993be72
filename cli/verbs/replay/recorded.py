"""The pods of a recording, for `drawbridge replay`."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from allocator.replay.workload import Order
from answers.manifests.replay_pods import ArrivingPods
from answers.model.findings import DEFAULT_NAMESPACE
from answers.model.inputs import ClusterObjects
from answers.recording.course import RecordedCluster, read_course
from cli.output.standard_error import print_line
from cli.reading.cluster_state import ClusterFlags
from cli.reading.options import TranslationFlags, pop_flags, with_state_and_manifests
from cli.reading.recordings import RecordingReader, open_recording
from cli.reading.snapshots import is_recording_file
from cli.verbs.replay.decided import decide_again
from cli.verbs.replay.moved import move_recorded
from kube.errors import ObjectFileError

RECORDED_PODS: Final = "recorded"
"""The value of --pods."""

_Command = Callable[..., Any]


def with_recording(command: _Command) -> _Command:
    """As `with_state_and_manifests`; with a recording, and no other pods, the command gets `recorded` and `decided`, else None.

    With another driver, or a migration at another moment, `recorded` is what would have been, and `happened` what was from
    that moment on; `happened` is None without.
    """
    otherwise = with_state_and_manifests(command)

    @wraps(otherwise)
    def run_command(**values: Any) -> None:
        recording = _find_recording(values)
        if recording is None:
            if values.pop("migrated_at") is not None:
                raise click.UsageError(
                    "--migrated-at needs the file of drawbridge record, as --snapshot."
                )
            otherwise(recorded=None, happened=None, decided=None, **values)
            return
        for name, flag in (("demand", "--demand"), ("draw_seed", "--draw-seed")):
            if values[name] is not None:
                raise click.UsageError(f"{flag} needs --pods from-snapshot.")
        cluster = read_course(recording.entries(), recording.name)
        pop_flags(ClusterFlags, values)
        moved = move_recorded(
            cluster,
            recording.header.started_at,
            values.pop("migrated_at"),
            pop_flags(TranslationFlags, values),
        )
        if unreadable := ", ".join(recording.header.unreadable):
            print_line(f"note: {unreadable} could not be listed, and count as if there were none")
        nothing = ClusterObjects(objects=(), namespace=DEFAULT_NAMESPACE)
        decided = None
        if cluster.has_decisions:
            decided = decide_again(recording.entries(), recording.name)
        command(
            cluster_objects=nothing,
            inputs=None,
            recorded=cluster if moved is None else moved.moved,
            happened=None if moved is None else moved.happened,
            decided=decided,
            **values,
        )

    return run_command


def _find_recording(values: dict[str, Any]) -> RecordingReader | None:
    """Return the recording of the pods that arrive; None if others do."""
    pods, snapshots = values["pods_file"], values["snapshots"]
    if pods not in {None, RECORDED_PODS} or (values["files"] and pods is None):
        return None
    others = [name for name in ("files", "live") if values[name]]
    if pods is None and len(snapshots) == 1 and not others and _is_empty(snapshots[0]):
        raise ObjectFileError(f"{snapshots[0]}: is empty; expected a recording")
    if len(snapshots) == 1 and not others and is_recording_file(snapshots[0]):
        return open_recording(snapshots[0])
    if pods == RECORDED_PODS:
        raise click.UsageError(
            f"--pods {RECORDED_PODS} needs one --snapshot, the file of drawbridge record, and no -f or --live."
        )
    return None


def _is_empty(name: str) -> bool:
    path = Path(name)
    return path.is_file() and not path.stat().st_size


def recorded_pods(recorded: RecordedCluster, *, has_quotas: bool = False) -> ArrivingPods:
    """Return the pods of a recording, and its first state.

    Args:
        has_quotas: Other quotas count in the replay, so pods arrive before recorded ones let them through.

    Raises:
        click.UsageError: No pod came while it was recorded.
    """
    course = recorded.course
    pods = course.arriving_without_quotas if has_quotas else course.arriving
    if not pods:
        raise click.UsageError("No pod came while the cluster was recorded.")
    return ArrivingPods(pods=pods, state=recorded.state, notes=recorded.notes)


def recorded_order(order: str) -> str:
    """Return the order of recorded pods: that of their seconds.

    Raises:
        click.UsageError: The flag says another.
    """
    source = click.get_current_context().get_parameter_source("order")
    if source is not ParameterSource.DEFAULT and order != Order.ARRIVAL:
        raise click.UsageError("The pods of a recording come in their seconds: leave out --order.")
    return Order.ARRIVAL.value
