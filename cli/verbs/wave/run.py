"""Go through steps of a plan: show each, ask, record that it begins, run it, and record its end."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from cli.output.progress import INTERRUPTED
from cli.output.standard_error import print_line
from cli.reading.wave_cluster import RecordStore
from cli.runbooks.plan_scripts import StepRunner
from cli.runbooks.wave_course import group_title, step_lines, task_groups
from clusterstate.wave_record import StepState, WaveRecord, record_data
from findings.text import printable
from kube.errors import ConfigError
from migration.wave.course import Course, Task, build_record
from migration.wave.steps import Step


class Operator(NamedTuple):
    """The person that goes on with a migration, and their plan.

    Attributes:
        who: The user, and their account and machine.
        digest: The digest of the plan's files.
        clock: Returns the time in RFC 3339.
        confirms: Asks whether a step is to be run.
    """

    who: str
    digest: str
    clock: Callable[[], str]
    confirms: Callable[[str], bool]


class WaveRun:
    """One call of `drawbridge wave next` or `back`."""

    def __init__(
        self,
        folder: Path,
        course: Course,
        *,
        operator: Operator,
        store: RecordStore,
        runner: StepRunner,
        version: str,
    ) -> None:
        """Prepare a call.

        Args:
            folder: The plan's folder.
            course: The plan's steps.
            operator: The person that goes on.
            store: The store of the position.
            runner: The runner of steps.
            version: The version of the position that the steps follow; empty without one.
        """
        self._folder = folder
        self._course = course
        self._operator = operator
        self._store = store
        self._runner = runner
        self._version = version
        self.record: WaveRecord | None = None
        """The position that was written last."""

    def run(self, tasks: Sequence[Task]) -> int:
        """Run steps, and return 0 when all are done, else the exit status of the call.

        Raises:
            ConfigError: A script has no such step, or somebody else has changed the position.
            KubeError: The position cannot be written; a step that begins was not run.
        """
        groups = list(task_groups(tasks))
        for task in tasks:
            self._lines(task.step)  # Nothing is begun with a script that has not all of its steps.
        for group in groups:
            self._show(group)
            if not self._operator.confirms("Run it?"):
                print_line("stopped: it was not run, nor what comes after it")
                return 1
            for task in group:
                self._write(task, StepState.BEGUN)
                status = self._runner.run(task.step)
                if status:
                    name = printable(task.step.name)
                    print_line(
                        f"stopped: {task.step.script}, step {name}, ended with status {status}; "
                        f"drawbridge wave {task.direction} goes on with it"
                    )
                    return INTERRUPTED if status == INTERRUPTED else 1
            # That a step of the group has begun says that those before it are done.
            self._write(group[-1], StepState.DONE)
        return 0

    def _write(self, task: Task, state: StepState) -> None:
        operator = self._operator
        record = build_record(
            *(self._course, task, state),
            digest=operator.digest,
            who=operator.who,
            when=operator.clock(),
        )
        self._version = self._store.write(record_data(record), self._version)
        self.record = record

    def _show(self, group: Sequence[Task]) -> None:
        title = group_title(group, self._course.waves)
        print_line("")
        print_line(title, is_bold=True)
        print_line(f"  {self._folder / group[0].step.script}")
        for task in group:
            for line in self._lines(task.step):
                print_line(f"    {line}")

    def _lines(self, step: Step) -> Sequence[str]:
        """Return the lines of a step, as the file of the plan has them."""
        path = self._folder / step.script
        lines = step_lines(path.read_text(encoding="utf-8"), step)
        if lines is None:
            raise ConfigError(
                f"{path} has no step {step.name}: the plan is of another version of drawbridge, or was "
                "edited; plan again, or run its scripts by hand"
            )
        return lines
