"""`python -m controllers.uninstall`: unlock pods before the controllers are removed.

It deletes the policies that hold back pods for DeviceQuotas, removes the gate of every pod, and ends. The
chart runs it as a hook, with an account of its own that exists for that time only.
"""

import sys
import time
from collections.abc import Sequence
from typing import Final

from controllers.model.settings import VARIABLES, Settings
from controllers.uninstall.unlock import unlock_pods
from kube.logs import get_logger
from process.running.command import Command, Process, run_command

log = get_logger()


async def unlock(process: Process[Settings]) -> None:
    """Unlock all pods."""
    async with await process.client() as client:
        removed = await unlock_pods(client, time.monotonic)
    log.info("uninstall.unlocked", gates=removed)


COMMAND: Final = Command(
    package="controllers.uninstall",
    description=__doc__,
    kind=Settings,
    section="controllers",
    variables=VARIABLES,
    start=unlock,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_command(COMMAND, arguments)


if __name__ == "__main__":
    sys.exit(main())
