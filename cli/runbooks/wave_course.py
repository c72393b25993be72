"""The course of a plan: the steps of its scripts, and their text for people. Pure."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from cli.runbooks.shell import CLUSTER_SCRIPT, quoted
from cli.runbooks.wave_runbook import rollback_parts, switch_parts
from clusterstate.wave_record import Direction
from migration.plan.model.plan import Plan, Wave
from migration.wave.course import Course, Task, WaveSteps
from migration.wave.steps import PREPARE_SCRIPT, Step, StepKind

_TITLES: Final = {
    StepKind.PREPARE: "the preparation of the cluster",
    StepKind.PREFLIGHT: "checks before the wave",
    StepKind.BEGIN: "quotas, and marks for autoscalers",
    StepKind.WAIT: "node {node}",
    StepKind.DRAIN: "node {node}",
    StepKind.UNCORDON: "node {node}",
    StepKind.NAMESPACES: "namespaces",
    StepKind.RESTARTS: "workloads that are created again",
    StepKind.END: "marks for autoscalers, taken off",
    StepKind.VERIFY: "checks after the wave",
}
_BACK_TITLES: Final = {
    StepKind.BEGIN: "checks, and lines of quotas",
    StepKind.END: "pods that were evicted",
}
_SHARED_LINE: Final = f'{CLUSTER_SCRIPT}"'
"""The end of the last line of a script's head."""


def plan_course(plan: Plan) -> Course:
    """Return the steps of a plan."""
    prepare = Step(script=PREPARE_SCRIPT, kind=StepKind.PREPARE)
    preparation = WaveSteps(forward=(prepare,), backward=(), nodes=0, workloads=frozenset())
    return Course(parts=(preparation, *(_wave_steps(plan, wave) for wave in plan.waves)))


def task_groups(tasks: Sequence[Task]) -> Iterator[tuple[Task, ...]]:
    """Yield the steps that a person confirms together: those of one node, or a single one."""
    keys = groupby(tasks, lambda task: (task.wave, task.step.node or task.number))
    return (tuple(group) for _, group in keys)


def group_title(group: Sequence[Task], waves: int) -> str:
    """Return the title of the steps that a person confirms together, in one line."""
    first = group[0]
    title = _TITLES[first.step.kind].format(node=first.step.node)
    if first.wave == 0:
        return title
    is_back = first.direction is Direction.BACK
    if is_back:
        title = _BACK_TITLES.get(first.step.kind, title)
    back = "back, " if is_back else ""
    last = group[-1].number
    numbers = f"step {first.number}" if last == first.number else f"steps {first.number} to {last}"
    return f"wave {first.wave} of {waves}, {back}{numbers} of {first.steps}: {title}"


def step_lines(text: str, step: Step) -> list[str] | None:
    """Return the lines of a step in the text of its script; None if the script has no such step."""
    lines = text.splitlines()
    if step.is_whole_script:
        heads = (number for number, line in enumerate(lines) if line.endswith(_SHARED_LINE))
        return [line for line in lines[next(heads, -1) + 1 :] if line]
    begin = f"if step {quoted(step.name)}; then"
    if begin not in lines:
        return None
    first = lines.index(begin) + 1
    end = next((number for number in range(first, len(lines)) if lines[number] == "fi"), None)
    return None if end is None else [line.removeprefix("  ") for line in lines[first:end]]


def _wave_steps(plan: Plan, wave: Wave) -> WaveSteps:
    folder = f"wave-{wave.wave}"
    preflight = Step(script=f"{folder}/preflight.sh", kind=StepKind.PREFLIGHT)
    verify = Step(script=f"{folder}/verify.sh", kind=StepKind.VERIFY)
    return WaveSteps(
        forward=(preflight, *(part.step for part in switch_parts(plan, wave)), verify),
        backward=tuple(part.step for part in rollback_parts(plan, wave)),
        nodes=len(wave.nodes),
        workloads=frozenset(workload.object for workload in wave.workloads),
    )
