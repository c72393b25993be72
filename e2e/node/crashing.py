"""The driver, killed at a step: `python -m e2e.node.crashing STEP TIMES`.

It is the driver in everything else. It kills itself as the kernel would when memory runs out.
"""

import os
import signal
import sys
from functools import partial

import msgspec

from driver.__main__ import COMMAND
from driver.commands.driver import drive
from driver.model.steps import Step
from process.running.command import run_command


class Crash:
    """Kills this process when a step is reached for the nth time."""

    def __init__(self, step: Step, times: int) -> None:
        self._step = step
        self._left = times

    def __call__(self, step: Step) -> None:
        """Count a step."""
        self._left -= step is self._step
        if step is self._step and not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Return the exit status, if it comes to that."""
    crash = Crash(Step(sys.argv[1]), int(sys.argv[2]))
    return run_command(msgspec.structs.replace(COMMAND, start=partial(drive, at_step=crash)), [])


if __name__ == "__main__":
    sys.exit(main())
