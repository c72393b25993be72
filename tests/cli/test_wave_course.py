"""The course of a plan, as values: the steps that follow each position."""

from typing import Final

import msgspec
import pytest

from cli.runbooks.wave_course import group_title, step_lines
from clusterstate.wave_record import (
    Direction,
    StepState,
    WaveRecord,
    describe_progress,
    parse_record,
    record_data,
)
from kube.errors import ConfigError
from migration.wave.course import (
    Course,
    Refusal,
    Task,
    WaveSteps,
    back_tasks,
    build_record,
    describe_earlier_wave,
    next_tasks,
    taken_back,
)
from migration.wave.steps import Step, StepKind

DIGEST: Final = f"sha256:{'a' * 64}"
NODE_STEPS: Final = (StepKind.WAIT, StepKind.DRAIN, StepKind.UNCORDON)


def steps(number: int, *nodes: str) -> WaveSteps:
    """Return the steps of a wave with nodes and one namespace."""

    def step(script: str, kind: StepKind, node: str = "") -> Step:
        return Step(script=f"wave-{number}/{script}.sh", kind=kind, node=node)

    return WaveSteps(
        forward=(
            step("preflight", StepKind.PREFLIGHT),
            *(step("switch", kind, node) for node in nodes for kind in NODE_STEPS),
            step("switch", StepKind.NAMESPACES),
            step("verify", StepKind.VERIFY),
        ),
        backward=(
            step("rollback", StepKind.NAMESPACES),
            *(step("rollback", kind, node) for node in nodes for kind in NODE_STEPS),
        ),
        nodes=len(nodes),
        workloads=frozenset({f"Deployment/team/{number}"}),
    )


COURSE: Final = Course(
    parts=(
        WaveSteps(
            forward=(Step(script="prepare.sh", kind=StepKind.PREPARE),),
            backward=(),
            nodes=0,
            workloads=frozenset(),
        ),
        steps(1, "a", "b"),
        steps(2, "c"),
    )
)


def names(tasks: tuple[Task, ...] | Refusal) -> list[str]:
    assert not isinstance(tasks, Refusal), tasks
    return [f"{task.wave} {task.step.name}" for task in tasks]


def at(direction: Direction, wave: int, name: str, state: StepState) -> WaveRecord:
    """Return the record of a step that begins, or has ended."""
    record: WaveRecord | None = None
    for _ in range(6):
        tasks = next_tasks(COURSE, record)
        if direction is Direction.BACK and record is not None and record.wave == wave:
            tasks = back_tasks(COURSE, record)
        assert not isinstance(tasks, Refusal)
        for task in tasks:
            record = record_of(task, StepState.DONE)
            if (direction, wave, name) == (task.direction, task.wave, task.step.name):
                return record_of(task, state)
    raise AssertionError(f"there is no {name}")


def record_of(task: Task, state: StepState) -> WaveRecord:
    return build_record(COURSE, task, state, digest=DIGEST, who="ada", when="now")


def test_a_plan_begins_with_its_preparation_and_the_first_wave() -> None:
    assert [
        *("0 prepare", "1 preflight", "1 wait/a", "1 drain/a", "1 uncordon/a"),
        *("1 wait/b", "1 drain/b", "1 uncordon/b", "1 namespaces", "1 verify"),
    ] == names(next_tasks(COURSE, None))


@pytest.mark.parametrize(
    ("wave", "name", "state", "first"),
    [
        (0, "prepare", StepState.BEGUN, "0 prepare"),
        (0, "prepare", StepState.DONE, "1 preflight"),
        (1, "wait/b", StepState.BEGUN, "1 wait/b"),
        (1, "wait/b", StepState.DONE, "1 drain/b"),
        (1, "drain/b", StepState.BEGUN, "1 wait/b"),
        (1, "uncordon/b", StepState.BEGUN, "1 uncordon/b"),
        (1, "verify", StepState.BEGUN, "1 verify"),
        (1, "verify", StepState.DONE, "2 preflight"),
    ],
)
def test_a_step_that_has_begun_is_repeated(
    wave: int, name: str, state: StepState, first: str
) -> None:
    assert first == names(next_tasks(COURSE, at(Direction.NEXT, wave, name, state)))[0]


def test_after_the_last_wave_there_is_nothing() -> None:
    assert () == next_tasks(COURSE, at(Direction.NEXT, 2, "verify", StepState.DONE))


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("wait/a", ["1 uncordon/a", "1 uncordon/b"]),
        ("drain/a", ["1 wait/a", "1 drain/a", "1 uncordon/a", "1 uncordon/b"]),
        (
            "namespaces",
            ["1 namespaces", *(f"1 {kind}/{node}" for node in "ab" for kind in NODE_STEPS)],
        ),
    ],
)
def test_only_what_has_begun_is_taken_back(name: str, want: list[str]) -> None:
    assert want == names(back_tasks(COURSE, at(Direction.NEXT, 1, name, StepState.BEGUN)))


def test_a_wave_of_which_only_checks_were_run_leaves_the_one_before() -> None:
    record = at(Direction.NEXT, 2, "preflight", StepState.BEGUN)
    tasks = back_tasks(COURSE, record)

    assert "1 namespaces" == names(tasks)[0]
    assert not isinstance(tasks, Refusal)
    assert "nothing of wave 2 to take back, so this takes back wave 1" in describe_earlier_wave(
        record, tasks
    )


@pytest.mark.parametrize(
    ("direction", "wave", "name"),
    [
        (Direction.NEXT, 2, "wait/c"),
        (Direction.NEXT, 1, "verify"),
        (Direction.BACK, 2, "uncordon/c"),
    ],
)
def test_a_wave_that_has_changed_something_is_taken_back_without_a_warning(
    direction: Direction, wave: int, name: str
) -> None:
    record = at(direction, wave, name, StepState.DONE)
    tasks = back_tasks(COURSE, record)

    assert not isinstance(tasks, Refusal)
    assert "" == describe_earlier_wave(record, tasks)


@pytest.mark.parametrize(
    ("direction", "wave", "name", "state", "want"),
    [
        (Direction.NEXT, 1, "preflight", StepState.BEGUN, True),
        (Direction.NEXT, 2, "preflight", StepState.DONE, True),
        (Direction.NEXT, 2, "wait/c", StepState.BEGUN, False),
        (Direction.NEXT, 2, "verify", StepState.BEGUN, False),
        (Direction.NEXT, 2, "verify", StepState.DONE, True),
        (Direction.BACK, 2, "namespaces", StepState.BEGUN, False),
        (Direction.BACK, 2, "uncordon/c", StepState.DONE, True),
    ],
)
def test_checks_before_a_wave_leave_the_cluster_between_waves(
    direction: Direction, wave: int, name: str, state: StepState, *, want: bool
) -> None:
    assert want == at(direction, wave, name, state).is_between_waves


def with_quotas(part: WaveSteps) -> WaveSteps:
    """Return the steps of a wave that also changes quotas, in both directions."""
    preflight, *switch = part.forward
    begin = Step(script="wave-1/switch.sh", kind=StepKind.BEGIN)
    return msgspec.structs.replace(with_checks(part), forward=(preflight, begin, *switch))


def with_checks(part: WaveSteps) -> WaveSteps:
    """Return the steps of a wave with checks before it is taken back."""
    begin = Step(script="wave-1/rollback.sh", kind=StepKind.BEGIN)
    return msgspec.structs.replace(part, backward=(begin, *part.backward))


@pytest.mark.parametrize(
    ("nodes", "reached", "want"),
    [
        ((), 1, []),
        ((), 2, ["begin"]),
        ((), 3, ["begin", "namespaces"]),
        (("a",), 2, ["begin", "uncordon/a"]),
        (("a",), 3, ["begin", "uncordon/a"]),
    ],
)
def test_quotas_get_their_lines_back_before_a_namespace_has_moved(
    nodes: tuple[str, ...], reached: int, want: list[str]
) -> None:
    """The wave counted as taken back, and the lines that it had removed stayed away."""
    part = with_quotas(steps(1, *nodes))

    assert want == [step.name for step in taken_back(part, reached)]


@pytest.mark.parametrize(
    ("reached", "want"),
    [
        (1, []),
        (2, ["begin", "uncordon/a"]),
        (3, ["begin", "wait/a", "drain/a", "uncordon/a"]),
        (5, ["begin", "namespaces", "wait/a", "drain/a", "uncordon/a"]),
    ],
)
def test_the_checks_before_a_way_back_are_run_whatever_the_wave_began_with(
    reached: int, want: list[str]
) -> None:
    """Without quotas in the switch the node was drained unchecked, and pods got devices of a driver on its way out."""
    part = with_checks(steps(1, "a"))

    assert want == [step.name for step in taken_back(part, reached)]


def test_a_person_confirms_the_checks_before_a_way_back_as_checks() -> None:
    course = msgspec.structs.replace(COURSE, parts=(COURSE.parts[0], with_checks(steps(1, "a"))))
    going = next_tasks(course, None)
    assert not isinstance(going, Refusal)
    drained = going[3]
    record = build_record(course, drained, StepState.DONE, digest=DIGEST, who="ada", when="now")

    tasks = back_tasks(course, record)

    assert not isinstance(tasks, Refusal)
    assert "wave 1 of 1, back, step 1 of 4: checks, and lines of quotas" == group_title(
        tasks[:1], course.waves
    )


@pytest.mark.parametrize(
    ("reached", "want"),
    [
        (2, ["uncordon/a"]),
        (3, ["wait/a", "drain/a", "uncordon/a", "end"]),
        (5, ["namespaces", "wait/a", "drain/a", "uncordon/a", "end"]),
    ],
)
def test_a_way_back_that_drains_a_node_waits_for_its_pods(reached: int, want: list[str]) -> None:
    """A switch that had stopped at a node had opted nothing in, so pods with claims waited for ever."""
    part = with_waits(steps(1, "a"))

    assert want == [step.name for step in taken_back(part, reached)]


def test_a_person_confirms_the_last_step_of_a_way_back_as_a_wait() -> None:
    course = msgspec.structs.replace(COURSE, parts=(COURSE.parts[0], with_waits(steps(1, "a"))))
    going = next_tasks(course, None)
    assert not isinstance(going, Refusal)
    record = build_record(course, going[3], StepState.DONE, digest=DIGEST, who="ada", when="now")

    tasks = back_tasks(course, record)

    assert not isinstance(tasks, Refusal)
    assert "wave 1 of 1, back, step 4 of 4: pods that were evicted" == group_title(
        tasks[-1:], course.waves
    )


def with_waits(part: WaveSteps) -> WaveSteps:
    """Return the steps of a wave with waits once it is taken back."""
    end = Step(script="wave-1/rollback.sh", kind=StepKind.END)
    return msgspec.structs.replace(part, backward=(*part.backward, end))


def test_a_drain_that_was_begun_is_taken_back_even_if_its_wait_is_repeated() -> None:
    record = at(Direction.NEXT, 1, "drain/b", StepState.BEGUN)
    tasks = next_tasks(COURSE, record)
    assert not isinstance(tasks, Refusal)
    waiting = record_of(tasks[0], StepState.BEGUN)

    assert "wait/b" == waiting.step
    assert "1 drain/b" in names(back_tasks(COURSE, waiting))


def test_a_wave_that_was_taken_back_can_be_switched_again() -> None:
    record = at(Direction.BACK, 1, "uncordon/b", StepState.DONE)

    assert "1 preflight" == names(next_tasks(COURSE, record))[0]
    assert isinstance(back_tasks(COURSE, record), Refusal)


@pytest.mark.parametrize(
    ("record", "want"),
    [
        (
            at(Direction.NEXT, 1, "uncordon/a", StepState.BEGUN),
            "wave 1 of 2, 0 of 3 nodes, 0 of 2 workloads",
        ),
        (
            at(Direction.NEXT, 1, "wait/b", StepState.BEGUN),
            "wave 1 of 2, 1 of 3 nodes, 0 of 2 workloads",
        ),
        (
            at(Direction.NEXT, 1, "verify", StepState.BEGUN),
            "wave 1 of 2, 2 of 3 nodes, 1 of 2 workloads",
        ),
        (
            at(Direction.NEXT, 2, "verify", StepState.DONE),
            "wave 2 of 2, 3 of 3 nodes, 2 of 2 workloads",
        ),
        (
            at(Direction.BACK, 2, "drain/c", StepState.BEGUN),
            "wave 2 of 2, 3 of 3 nodes, 1 of 2 workloads",
        ),
        (
            at(Direction.BACK, 2, "uncordon/c", StepState.DONE),
            "wave 2 of 2, 2 of 3 nodes, 1 of 2 workloads",
        ),
    ],
)
def test_progress_counts_nodes_and_workloads(record: WaveRecord, want: str) -> None:
    assert want == describe_progress(record)


def test_a_record_is_read_as_it_was_written() -> None:
    record = at(Direction.NEXT, 1, "drain/b", StepState.BEGUN)

    assert record == parse_record(record_data(record))
    assert "drain/b" == record_data(record)["step"]


@pytest.mark.parametrize(
    "change",
    [
        {"step": "drain/a"},
        {"node": "a"},
        {"wave": 3},
        {"wave": 2},
        {"number": 99},
        {"steps": 4},
        {"reached": 99},
        {"reached": 1},
        {"waves": 7},
        {"direction": Direction.BACK},
    ],
    ids=str,
)
def test_a_position_that_the_plan_has_not_is_refused(change: dict[str, object]) -> None:
    record = msgspec.structs.replace(at(Direction.NEXT, 1, "drain/b", StepState.BEGUN), **change)

    for tasks in (next_tasks(COURSE, record), back_tasks(COURSE, record)):
        assert isinstance(tasks, Refusal)
        assert "the plan has no such step" in tasks.message


@pytest.mark.parametrize(
    "change",
    [
        {"wave": "one"},
        {"wave": "-1"},
        {"number": "0"},
        {"number": "1e99"},
        {"state": "failed"},
        {"direction": "away"},
        {"digest": "sha256:"},
        {"who": "a" * 600},
        {"nodes": "99999999999"},
    ],
    ids=str,
)
def test_what_is_no_record_is_an_error(change: dict[str, str]) -> None:
    data = record_data(at(Direction.NEXT, 1, "drain/b", StepState.BEGUN))

    with pytest.raises(ConfigError, match="is not of drawbridge wave"):
        parse_record({**data, **change})
    with pytest.raises(ConfigError, match="is not of drawbridge wave"):
        parse_record({key: value for key, value in data.items() if key != next(iter(change))})


def test_the_lines_of_a_step_are_those_of_its_block() -> None:
    text = "#!/bin/bash\nif step drain/a; then\n  one\n  if x; then y; fi\nfi\nif step b; then\n  two\nfi\n"
    drain = Step(script="s", kind=StepKind.DRAIN, node="a")

    assert ["one", "if x; then y; fi"] == step_lines(text, drain)
    assert step_lines(text, msgspec.structs.replace(drain, node="b")) is None
    assert step_lines("if step drain/a; then\n  one\n", drain) is None
