"""The next steps in a plan, forwards and backwards, from a recorded position. Pure.

A step that has begun is repeated, since nobody knows whether it has ended; every step may be.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from clusterstate.wave_record import FIRST_CHANGE, Direction, StepState, WaveRecord
from migration.wave.steps import Step, StepKind

_OF_NAMESPACES: Final = frozenset({StepKind.NAMESPACES, StepKind.RESTARTS})
_ALWAYS_BACK: Final = frozenset({StepKind.BEGIN, StepKind.UNCORDON})


class WaveSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a wave.

    Attributes:
        forward: The steps that switch the wave, with the checks before and after.
        backward: The steps that take it back.
        nodes: The number of nodes that it switches.
        workloads: `Kind/namespace/name` of those whose pods change.
    """

    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    nodes: int
    workloads: frozenset[str]


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a plan; the first of `parts` is the preparation."""

    parts: tuple[WaveSteps, ...]

    @property
    def waves(self) -> int:
        """Return the number of waves."""
        return len(self.parts) - 1


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A step at its place.

    Attributes:
        wave: 0 for the preparation.
        direction: The direction: the wave is switched or taken back.
        number: The step's place among those of the wave in this direction, from 1.
        steps: The number of steps in that direction.
        reached: The furthest step that has begun in the direction `next`, with this one.
        step: The step itself.
    """

    wave: int
    direction: Direction
    number: int
    steps: int
    reached: int
    step: Step


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for having no step."""

    message: str


def next_tasks(course: Course, record: WaveRecord | None) -> tuple[Task, ...] | Refusal:
    """Return the steps up to the end of the current wave, or of the next one; none after the last."""
    if record is None:
        return (*_forward(course, 0, 1, 0), *_first_wave(course))
    if fault := _find_mismatch(course, record):
        return fault
    if record.direction is Direction.BACK:
        if record.is_finished:
            return (*_forward(course, record.wave, 1, 0),)
        return Refusal(
            message=f"wave {record.wave} is being taken back: drawbridge wave back finishes that first"
        )
    if not record.is_finished:
        first = _resumed(course.parts[record.wave].forward, record)
        tasks = _forward(course, record.wave, first, record.reached)
        return (*tasks, *(_first_wave(course) if record.wave == 0 else ()))
    if record.wave == course.waves:
        return ()
    return (*_forward(course, record.wave + 1, 1, 0),)


def back_tasks(course: Course, record: WaveRecord | None) -> tuple[Task, ...] | Refusal:
    """Return the steps that take back the current wave, or the last one that changed something."""
    if record is None:
        return _nothing_to_take_back()
    if fault := _find_mismatch(course, record):
        return fault
    if record.direction is Direction.BACK and not record.is_finished:
        steps = taken_back(course.parts[record.wave], record.reached)
        return (*_backward(record.wave, steps, _resumed(steps, record), record.reached),)
    wave, reached = record.wave, record.reached
    if record.direction is Direction.BACK:
        wave, reached = _former(course, wave)
    while wave > 0:
        steps = taken_back(course.parts[wave], reached)
        if steps:
            return (*_backward(wave, steps, 1, reached),)
        wave, reached = _former(course, wave)
    return _nothing_to_take_back()


def describe_earlier_wave(record: WaveRecord | None, tasks: Sequence[Task]) -> str:
    """Return a warning if `back` takes back a finished wave in place of the current one; empty if not.

    Args:
        record: The position.
        tasks: The steps of `back`.
    """
    if record is None or not tasks or record.direction is Direction.BACK:
        return ""
    wave = tasks[0].wave
    if wave == record.wave:
        return ""
    return f"there is nothing of wave {record.wave} to take back, so this takes back wave {wave}, which is done"


def taken_back(part: WaveSteps, reached: int) -> tuple[Step, ...]:
    """Return the steps that undo the begun steps of a wave.

    A node that was not drained yet is only uncordoned, and namespaces that were not opted in stay as
    they are, but for the lines that their quotas had before. The first step of the way back is never
    left out: its checks change nothing, and a wave with quotas has begun with these.

    Args:
        part: The steps of the wave.
        reached: The furthest step that has begun.
    """
    if reached < FIRST_CHANGE:
        return ()
    begun = part.forward[:reached]
    drained = {step.node for step in begun if step.kind is StepKind.DRAIN}
    opted_in = not _OF_NAMESPACES.isdisjoint(step.kind for step in begun)
    steps: list[Step] = []
    for step in part.backward:
        if step.kind in _OF_NAMESPACES:
            is_needed = opted_in
        elif step.kind is StepKind.END:
            is_needed = bool(drained)
        else:
            is_needed = step.kind in _ALWAYS_BACK or step.node in drained
        if is_needed:
            steps.append(step)
    return tuple(steps)


def build_record(
    course: Course, task: Task, state: StepState, *, digest: str, who: str, when: str
) -> WaveRecord:
    """Return the record of a step that begins or has ended."""
    nodes, workloads = _finished(course, task, state)
    return WaveRecord(
        digest=digest,
        direction=task.direction,
        wave=task.wave,
        step=task.step.name,
        node=task.step.node,
        number=task.number,
        steps=task.steps,
        reached=task.reached,
        state=state,
        who=who,
        when=when,
        waves=course.waves,
        nodes=nodes,
        nodes_total=sum(part.nodes for part in course.parts),
        workloads=workloads,
        workloads_total=len(_workloads(course.parts)),
    )


def _finished(course: Course, task: Task, state: StepState) -> tuple[int, int]:
    """Return the numbers of switched nodes and of changed workloads."""
    done = task.number if state is StepState.DONE else task.number - 1
    part = course.parts[task.wave]
    if task.direction is Direction.NEXT:
        steps = part.forward[:done]
        is_changed = done >= task.steps - 1  # The last step is a check.
    else:
        former = _uncordoned(part.forward[: task.reached])
        back = _uncordoned(taken_back(part, task.reached)[:done])
        return (
            _switched_before(course, task.wave) + len(former - back),
            len(_workloads(course.parts[: task.wave])),
        )
    parts = course.parts[: task.wave + 1] if is_changed else course.parts[: task.wave]
    return _switched_before(course, task.wave) + len(_uncordoned(steps)), len(_workloads(parts))


def _switched_before(course: Course, wave: int) -> int:
    return sum(part.nodes for part in course.parts[:wave])


def _uncordoned(steps: Sequence[Step]) -> set[str]:
    return {step.node for step in steps if step.kind is StepKind.UNCORDON}


def _workloads(parts: Sequence[WaveSteps]) -> frozenset[str]:
    return frozenset[str]().union(*(part.workloads for part in parts))


def _first_wave(course: Course) -> Iterator[Task]:
    if course.waves:
        yield from _forward(course, 1, 1, 0)


def _forward(course: Course, wave: int, first: int, reached: int) -> Iterator[Task]:
    steps = course.parts[wave].forward
    for number in range(first, len(steps) + 1):
        yield Task(
            wave=wave,
            direction=Direction.NEXT,
            number=number,
            steps=len(steps),
            reached=max(number, reached),
            step=steps[number - 1],
        )


def _backward(wave: int, steps: Sequence[Step], first: int, reached: int) -> Iterator[Task]:
    for number in range(first, len(steps) + 1):
        yield Task(
            wave=wave,
            direction=Direction.BACK,
            number=number,
            steps=len(steps),
            reached=reached,
            step=steps[number - 1],
        )


def _former(course: Course, wave: int) -> tuple[int, int]:
    """Return the wave before one, done as a whole."""
    return wave - 1, len(course.parts[max(0, wave - 1)].forward)


def _resumed(steps: Sequence[Step], record: WaveRecord) -> int:
    """Return the number of the step that goes on from a record."""
    if record.state is StepState.DONE:
        return record.number + 1
    # Meanwhile the node may have been uncordoned, so its work is looked for again before the drain.
    is_drain = steps[record.number - 1].kind is StepKind.DRAIN
    return record.number - 1 if is_drain else record.number


def _find_mismatch(course: Course, record: WaveRecord) -> Refusal | None:
    """Return the refusal for a record that cannot be a position in a plan; None if it can."""
    message = f"the record is at step {record.number} of wave {record.wave}, {record.step}, and the plan has no such step"
    if record.wave > course.waves:
        return Refusal(message=message)
    part = course.parts[record.wave]
    if record.reached > len(part.forward) or record.waves != course.waves:
        return Refusal(message=message)
    steps = part.forward if record.direction is Direction.NEXT else taken_back(part, record.reached)
    if not 1 <= record.number <= len(steps) or record.steps != len(steps):
        return Refusal(message=message)
    step = steps[record.number - 1]
    if (step.name, step.node) != (record.step, record.node):
        return Refusal(message=message)
    if record.direction is Direction.NEXT and record.reached < record.number:
        return Refusal(message=message)
    return None


def _nothing_to_take_back() -> Refusal:
    return Refusal(message="no wave has changed anything, so there is nothing to take back")
