"""A lock between processes, by a file: the kernel releases it when its holder ends, however it ends."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from driver.node.files import PRIVATE_FILE
from kube.errors import DrawbridgeError

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
