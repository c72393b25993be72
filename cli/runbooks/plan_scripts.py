"""Run the scripts of a plan, one step at a time."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from cli.output.standard_error import print_line
from cli.runbooks.plan_folder import PLAN
from kube.errors import ConfigError
from migration.wave.steps import Step

_POLL_S: Final = 0.2


class StepRunner(Protocol):
    """A runner of steps."""

    def run(self, step: Step) -> int:
        """Run a step to its end, and return its exit status."""
        ...


class ScriptRunner:
    """The scripts of a folder, for one context of a kubeconfig.

    What they print goes to standard error, since standard output is for the answer.
    """

    def __init__(
        self,
        folder: Path,
        *,
        kubeconfig: str | None,
        context: str,
        options: Sequence[str] = (),
        lock: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare calls.

        Args:
            folder: The plan's folder.
            kubeconfig: A file in place of those of KUBECONFIG; None for these.
            context: The kubeconfig's context; empty for a kubeconfig without contexts.
            options: Further flags of `switch.sh` and `rollback.sh`.
            lock: A file descriptor that the scripts' processes inherit; None without one.
            environment: The environment of these processes; None for that of this process.
        """
        self._folder = folder
        self._locks = () if lock is None else (lock,)
        self._flags = [f"--context={context}"] if context else []
        self._flags += options
        self._environment = dict(os.environ if environment is None else environment)
        if kubeconfig is not None:
            self._environment["KUBECONFIG"] = str(Path(kubeconfig).absolute())
        # Scripts call drawbridge, which need not be on the path of who calls it by its path.
        own = str(Path(sys.argv[0]).absolute().parent)
        self._environment["PATH"] = os.pathsep.join(
            filter(None, (self._environment.get("PATH"), own))
        )

    def run(self, step: Step) -> int:
        """Run a step to its end, and return its exit status, as a shell has it."""
        call = ["bash", str(self._folder / step.script), f"--step={step.name}", *self._flags]
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        with _leaving_interrupts():
            process = subprocess.Popen(  # noqa: S603 - a script of the plan that the user named.
                call,
                env=self._environment,
                stdin=None if has_terminal else subprocess.DEVNULL,
                stdout=_standard_error(),
                stderr=_standard_error(),
                pass_fds=self._locks,
            )
            status = process.wait()
        return 128 - status if status < 0 else status


@contextmanager
def locked_plan(folder: Path) -> Iterator[int]:
    """Wait until nothing of a plan runs on this machine, and keep others from it.

    Commands that outlive a killed call inherit the lock, so a later call waits for their end.

    Raises:
        ConfigError: This machine has no such locks.
    """
    try:
        import fcntl  # noqa: PLC0415 - Windows has none, and the plan can be read there.
    except ImportError as error:
        raise ConfigError(
            "the scripts of a plan need bash 4.4 or later and locks of files, which this machine lacks; "
            "run the command on Linux, or on macOS with such a bash"
        ) from error
    with (folder / PLAN).open("rb") as file:
        is_told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not is_told:
                    text = "a command of this plan still runs on this machine; waiting for its end"
                    print_line(f"note: {text}")
                is_told = True
                time.sleep(_POLL_S)
            else:
                break
        yield file.fileno()


def _standard_error() -> int:
    """Return the descriptor of standard error; a test may have put something without one there."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError):
        return subprocess.DEVNULL


@contextmanager
def _leaving_interrupts() -> Iterator[None]:
    """Leave ^C to the script, since it uncordons nodes and reports its last step."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
