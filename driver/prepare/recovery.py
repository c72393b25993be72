"""The state of the node on its disk is made readable before the driver does anything, however long that takes.

A disk that is full or broken is told in the log and by the readiness probe, and tried again: a process that
ended instead would say the same once per restart, and leave the node without a probe in between.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from driver.node.lock import LockTimeout
from kube.logs import get_logger

RETRY_S: Final = 2.0

log = get_logger()


class StateRecovery:
    """Repeats the recovery of the state until it succeeds."""

    def __init__(
        self,
        recover: Callable[[], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Begin without a state.

        Args:
            recover: Brings checkpoint and specs together; may raise OSError and LockTimeout.
            sleep: Waits for so many seconds.
        """
        self._recover = recover
        self._sleep = sleep
        self._problem = "the state of the node has not been read yet"

    def check(self) -> str:
        """Return the reason the state is not known, as a readiness check."""
        return self._problem

    async def run(self) -> None:
        """Return once the state is known."""
        while self._problem:
            try:
                await self._recover()
            except (OSError, LockTimeout) as error:
                if str(error) != self._problem:
                    log.warning("state.not_recovered", error=str(error))
                self._problem = str(error)
                await self._sleep(RETRY_S)
            else:
                self._problem = ""
