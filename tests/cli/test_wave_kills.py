"""`drawbridge wave`: killed anywhere, then called again, it ends as if nothing had happened."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from cli.reading.wave_cluster import StoredRecord
from cli.runbooks.plan_folder import read_plan
from cli.runbooks.plan_scripts import ScriptRunner, StepRunner
from cli.runbooks.wave_course import plan_course
from cli.verbs.wave.run import Operator, WaveRun
from clusterstate.wave_record import Direction, WaveRecord, parse_record
from kube.errors import ConfigError
from migration.wave.course import Course, Refusal, Task, back_tasks, next_tasks
from migration.wave.steps import Step, StepKind
from testing.migration import GPU, device_quota
from testing.waves import ScriptedCluster, write_plan

WRITES: Final = 28
STEPS: Final = 17
"""The steps of the whole plan."""
DIGEST: Final = f"sha256:{'0' * 64}"


BOTH_SIDES: Final = device_quota({"name": GPU})
"""A quota that counts keys and claims, so that its wave removes the line of the ResourceQuota."""


class Killed(Exception):
    """The process has ended here."""


@pytest.fixture(scope="module")
def written_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plan(tmp_path_factory.mktemp("plan"))


@pytest.fixture(scope="module")
def course(written_plan: Path) -> Course:
    return plan_course(read_plan(written_plan))


@pytest.fixture(scope="module")
def quota_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plan(tmp_path_factory.mktemp("quota-plan"), BOTH_SIDES)


class Store:
    """A ConfigMap in memory; at a number of its writes the process is killed, before or after it."""

    def __init__(self) -> None:
        self.stored: StoredRecord | None = None
        self.writes = 0
        self.killed_before = self.killed_after = 0

    def read(self) -> StoredRecord | None:
        return self.stored

    def write(self, data: Mapping[str, str], version: str) -> str:
        self.writes += 1
        if self.writes == self.killed_before:
            raise Killed
        if version != ("" if self.stored is None else self.stored.version):
            raise ConfigError("it was changed")
        self.stored = StoredRecord(dict(data), str(self.writes))
        if self.writes == self.killed_after:
            raise Killed
        return self.stored.version

    @property
    def record(self) -> WaveRecord | None:
        return None if self.stored is None else parse_record(self.stored.data)


class Model:
    """The effect of steps on nodes and namespaces, in a few words, and the pods that they evict."""

    def __init__(self, plan: Path) -> None:
        self.plan = read_plan(plan)
        self.course = plan_course(self.plan)
        self.cordoned: set[str] = set()
        self.switched: set[str] = set()
        self.opted_in: set[str] = set()
        self.without_lines: set[str] = set()
        self.evictions: list[str] = []
        self.runs = 0
        self.killed_before = self.killed_after = 0

    def run(self, step: Step) -> int:
        self.runs += 1
        if self.runs == self.killed_before:
            raise Killed
        self._apply(step)
        if self.runs == self.killed_after:
            raise Killed
        return 0

    def _apply(self, step: Step) -> None:
        folder, _, script = step.script.partition("/")
        is_back = script == "rollback.sh"
        match step.kind:
            case StepKind.WAIT:
                self.cordoned |= {step.node} if is_back else self._later(folder, step)
            case StepKind.DRAIN:
                if step.node not in self.cordoned:
                    self.evictions.append(step.node)
                self.switched = (
                    self.switched - {step.node} if is_back else self.switched | {step.node}
                )
            case StepKind.UNCORDON:
                self.cordoned.discard(step.node)
            case StepKind.BEGIN if self._removes_lines(folder):
                self.without_lines = (
                    self.without_lines - {folder} if is_back else self.without_lines | {folder}
                )
            case StepKind.NAMESPACES:
                self.opted_in = self.opted_in - {folder} if is_back else self.opted_in | {folder}
            case _:
                pass

    def _removes_lines(self, folder: str) -> bool:
        (wave,) = (wave for wave in self.plan.waves if folder == f"wave-{wave.wave}")
        return any(entry.namespace in wave.opted_in for entry in self.plan.replaced_lines)

    def _later(self, folder: str, step: Step) -> set[str]:
        part = self.course.parts[int(folder.removeprefix("wave-"))]
        nodes = [entry.node for entry in part.forward if entry.kind is StepKind.WAIT]
        return set(nodes[nodes.index(step.node) :])

    @property
    def state(self) -> tuple[frozenset[str], ...]:
        changed = (self.cordoned, self.switched, self.opted_in, self.without_lines)
        return tuple(map(frozenset, changed))


class Operations:
    """Calls of `next` and `back` with the steps of a plan."""

    def __init__(self, plan: Path, course: Course, store: Store, runner: StepRunner) -> None:
        self.plan, self.course, self.store, self.runner = plan, course, store, runner

    def call(self, direction: Direction) -> int:
        """Go on, as a new process does."""
        tasks: Mapping[Direction, Callable[..., tuple[Task, ...] | Refusal]] = {
            Direction.NEXT: next_tasks,
            Direction.BACK: back_tasks,
        }
        found = tasks[direction](self.course, self.store.record)
        assert not isinstance(found, Refusal), found
        run = WaveRun(
            self.plan,
            self.course,
            operator=Operator("ada", DIGEST, lambda: "2026-11-24T00:00:00Z", lambda _: True),
            store=self.store,
            runner=self.runner,
            version="" if self.store.stored is None else self.store.stored.version,
        )
        return run.run(found)

    def finish(self, direction: Direction, waves: int) -> None:
        """Call it until so many waves are done, or taken back."""
        for _ in range(3 * waves):
            record = self.store.record
            done = record is not None and record.is_finished and record.direction is direction
            if done and record is not None and record.wave == waves:
                return
            try:
                self.call(direction)
            except Killed:
                continue
        raise AssertionError(f"it is not done: {self.store.record}")


def killings() -> Iterator[tuple[str, str, int]]:
    """Yield each place for a process to end in a plan with two waves."""
    for port, most in (("store", WRITES), ("runner", STEPS)):
        for number in range(1, most + 1):
            for moment in ("before", "after"):
                yield port, moment, number


def test_each_place_is_tried(written_plan: Path, course: Course) -> None:
    store, model = Store(), Model(written_plan)

    Operations(written_plan, course, store, model).finish(Direction.NEXT, 2)

    assert (WRITES, STEPS) == (store.writes, model.runs)


@pytest.mark.parametrize(("port", "moment", "number"), tuple(killings()))
def test_killed_at_any_write_or_step_the_next_calls_end_alike(
    written_plan: Path, course: Course, port: str, moment: str, number: int
) -> None:
    undisturbed = Model(written_plan)
    Operations(written_plan, course, Store(), undisturbed).finish(Direction.NEXT, 2)
    store, model = Store(), Model(written_plan)
    setattr({"store": store, "runner": model}[port], f"killed_{moment}", number)

    Operations(written_plan, course, store, model).finish(Direction.NEXT, 2)

    assert undisturbed.state == model.state
    assert (frozenset(), frozenset({"hami-0", "hami-1", "hami-2"})) == model.state[:2]
    assert [] == model.evictions, "a node was drained while it took pods"
    assert model.runs > undisturbed.runs or port == "store"


@pytest.mark.parametrize(("port", "moment", "number"), tuple(killings()))
def test_killed_anywhere_a_wave_is_taken_back(
    quota_plan: Path, port: str, moment: str, number: int
) -> None:
    store, model = Store(), Model(quota_plan)
    course = model.course
    operations = Operations(quota_plan, course, store, model)
    setattr({"store": store, "runner": model}[port], f"killed_{moment}", number)
    for _ in range(2):
        try:
            operations.call(Direction.NEXT)
        except Killed:
            break
    record = store.record
    if isinstance(back_tasks(course, record), Refusal):
        assert (frozenset(),) * 4 == model.state
        return

    assert 0 == operations.call(Direction.BACK)
    while not isinstance(back_tasks(course, store.record), Refusal):
        assert 0 == operations.call(Direction.BACK)

    assert (frozenset(),) * 4 == model.state


@pytest.mark.parametrize("number", range(1, 14))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_while_it_is_taken_back_it_is_taken_back(
    written_plan: Path, course: Course, moment: str, number: int
) -> None:
    store, model = Store(), Model(written_plan)
    operations = Operations(written_plan, course, store, model)
    operations.finish(Direction.NEXT, 2)
    setattr(store, f"killed_{moment}", store.writes + number)

    for _ in range(5):
        if isinstance(back_tasks(course, store.record), Refusal):
            break
        try:
            operations.call(Direction.BACK)
        except Killed:
            continue

    assert (frozenset(),) * 4 == model.state


@pytest.fixture(scope="module")
def scripted_end(
    written_plan: Path, course: Course, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, dict[str, str]]:
    """The number of commands of an undisturbed run of real scripts, and their changes."""
    cluster = ScriptedCluster(tmp_path_factory.mktemp("undisturbed"))
    finish_scripts(written_plan, course, cluster, "")
    return len(cluster.lines("kubectl", "drawbridge")), cluster.snapshot()


def finish_scripts(plan: Path, course: Course, cluster: ScriptedCluster, kill: str) -> None:
    store = Store()
    for attempt in range(4):
        environment = cluster.environment(kill if attempt == 0 else "")
        runner = ScriptRunner(plan, kubeconfig=None, context="", environment=environment)
        operations = Operations(plan, course, store, runner)
        status = operations.call(Direction.NEXT)
        record = store.record
        if status == 0 and record is not None and record.is_finished and record.wave == 2:
            return
    raise AssertionError(f"it is not done: {store.record}")


@pytest.mark.parametrize("number", range(1, 28, 5))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_script_that_is_killed_at_a_command_is_gone_on_with(
    written_plan: Path,
    course: Course,
    tmp_path: Path,
    scripted_end: tuple[int, dict[str, str]],
    *,
    moment: str,
    number: int,
) -> None:
    count, end = scripted_end
    assert count >= 28
    shutil.copytree(written_plan, tmp_path / "plan")
    cluster = ScriptedCluster(tmp_path / "cluster")

    finish_scripts(tmp_path / "plan", course, cluster, f"{number} {moment}")

    assert end == cluster.snapshot()
    assert len(cluster.lines("kubectl", "drawbridge")) >= count
