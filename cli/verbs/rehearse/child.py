"""The process of a rehearsal; it ends with the command that started it."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit while a block runs, so that its effects are cleaned up."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def run_child(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    """Run a program to its end, and return its exit status.

    Its output goes to standard error. If we are to end before it, it gets SIGTERM and is waited for. If we are killed,
    its standard input ends, which it has to watch.

    Args:
        command: The words of its command line.
        folder: Its working directory.
        environment: All of its environment variables.
    """
    with subprocess.Popen(  # noqa: S603
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=sys.stderr
    ) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
