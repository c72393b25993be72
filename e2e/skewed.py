"""A process of ours with a wrong clock: `python -m e2e.skewed PACKAGE FILE`.

It is the process in everything else. FILE holds the seconds that its clock is ahead, and is read each
time that the clock is, so that a story can set the clock of a process that runs.
"""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from e2e.substitute import command_with
from process.running.command import Process, run_command


class SkewedProcess(Process[Any], frozen=True, kw_only=True):
    """A process with such a clock."""

    ahead: ClassVar[Path]

    @staticmethod
    def now() -> datetime:
        """Return the time by this clock."""
        return Process.now() + timedelta(seconds=float(SkewedProcess.ahead.read_text()))


def main(package: str, file: str) -> int:
    """Run the process and return its exit status."""
    SkewedProcess.ahead = Path(file)
    return run_command(command_with(package, SkewedProcess), [])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
