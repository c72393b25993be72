"""The document of `drawbridge wave -o json`, and its text. Pure."""

from collections.abc import Iterator

import msgspec

from clusterstate.wave_record import (
    Direction,
    WaveRecord,
    describe_progress,
    describe_state,
)
from migration.wave.course import Course, Refusal, Task, back_tasks, next_tasks


class WaveReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The position of a cluster in a plan.

    Attributes:
        progress: The progress in one line; empty before the first step.
        record: The position; null before the first step.
        same_plan: The plan that was named is that of the position; null without either.
        next: The steps of the next `drawbridge wave next`, as `script step`.
        back: The steps of the next `drawbridge wave back`.
        refusal: The reason `next` would do nothing; empty if it would not refuse.
    """

    progress: str = ""
    record: WaveRecord | None = None
    same_plan: bool | None = None
    next: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    refusal: str = ""


def report_wave(record: WaveRecord | None, course: Course | None, digest: str) -> WaveReport:
    """Return the report.

    Args:
        record: The position; None before the first step.
        course: The steps of the plan that was named; None without one.
        digest: The digest of the plan's files.
    """
    is_same = None if record is None or course is None else record.digest == digest
    report = WaveReport(
        progress="" if record is None else describe_progress(record),
        record=record,
        same_plan=is_same,
    )
    if course is None or is_same is False:
        return report
    forward, backward = next_tasks(course, record), back_tasks(course, record)
    return msgspec.structs.replace(
        report,
        next=() if isinstance(forward, Refusal) else _names(forward),
        back=() if isinstance(backward, Refusal) else _names(backward),
        refusal=forward.message if isinstance(forward, Refusal) else "",
    )


def _names(tasks: tuple[Task, ...]) -> tuple[str, ...]:
    return tuple(f"{task.step.script} {task.step.name}" for task in tasks)


def wave_lines(report: WaveReport) -> Iterator[str]:
    """Yield the report as text."""
    record = report.record
    if record is None:
        yield "not begun: no step of a plan has been run with drawbridge wave"
        if report.next:
            yield f"next: drawbridge wave next begins with {report.next[0]}"
        return
    yield report.progress
    yield describe_state(record)
    if report.same_plan is False:
        yield f"the plan that was named is another one; this is {record.digest}"
    elif report.refusal:
        yield f"next: {report.refusal}"
    elif report.next:
        yield f"next: drawbridge wave next goes on with {report.next[0]}"
    elif record.direction is Direction.NEXT and record.wave == record.waves and record.is_finished:
        yield "all waves are done; next: drawbridge assess --live --residue"
