"""A lock between processes, by a file: the kernel releases it when its holder ends, however it ends."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Final, TypeVar

from driver.node.files import PRIVATE_FILE
from kube.errors import DrawbridgeError

T = TypeVar("T")

_POLL_S: Final = 0.005


class LockTimeout(DrawbridgeError):
    """Another process held a lock for too long."""


@asynccontextmanager
async def file_lock(path: Path, *, timeout_s: float | None) -> AsyncIterator[None]:
    """Hold the lock that a file stands for; waiting does not block the event loop.

    Args:
        path: The path of the lock file, which is created if it is missing, and stays.
        timeout_s: The maximum wait in seconds; None to wait without end.

    Raises:
        LockTimeout: Somebody else held it for all that time.
        OSError: The file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        await _acquire(descriptor, path, timeout_s)
        yield
    finally:
        os.close(descriptor)  # Releases it, too.


async def run_to_end(work: Callable[[], T]) -> T:
    """Do work on a thread, and return or raise only when it has ended, so that a lock is held for all of it.

    The thread goes on if the task that waits for it is cancelled, such as at the deadline of a call.
    """
    # No task, since the end of an event loop cancels these.
    working = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
    try:
        return await asyncio.shield(working)
    finally:
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        working.exception()  # Whoever was cancelled asks for it no more.


async def _acquire(descriptor: int, path: Path, timeout_s: float | None) -> None:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if deadline is not None and time.monotonic() > deadline:
                raise LockTimeout(f"{path} has been locked for {timeout_s:g} s") from None
            await asyncio.sleep(_POLL_S)
        else:
            return
