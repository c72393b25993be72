"""A process of ours whose clock is wrong: `python -m e2e.skewed PACKAGE FILE`.

It is the process in everything else. FILE holds the seconds that its clock is ahead, and is read each
time that the clock is, so that a story can set the clock of a process that runs.
"""

import sys
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from process.command import Command, Process, run_command


class SkewedProcess(Process[Any], frozen=True, kw_only=True):
    """A process with such a clock."""

    ahead: ClassVar[Path]

    @staticmethod
    def now() -> datetime:
        """Return the time by this clock."""
        return Process.now() + timedelta(seconds=float(SkewedProcess.ahead.read_text()))


def _start(
    start: Callable[[Process[Any]], Coroutine[Any, Any, None]], process: Process[Any]
) -> Coroutine[Any, Any, None]:
    return start(
        SkewedProcess(
            settings=process.settings, kubeconfig=process.kubeconfig, identity=process.identity
        )
    )


def main(package: str, file: str) -> int:
    """Run the process and return its exit status."""
    SkewedProcess.ahead = Path(file)
    command: Command[Any] = import_module(f"{package}.__main__").COMMAND
    return run_command(msgspec.structs.replace(command, start=partial(_start, command.start)), [])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
