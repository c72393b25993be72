"""A memory cgroup with a limit, as a container has one; version 1 and 2."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path("/sys/fs/cgroup")
_REMOVED_WITHIN_S: Final = 20.0


class MemoryCgroup:
    """A cgroup with a memory limit: processes below it that together need more are killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_v2 = (folder / "memory.max").exists()

    def limit(self, limit_bytes: int) -> None:
        """Set the limit; memory that would be swapped counts."""
        file = "memory.max" if self._is_v2 else "memory.limit_in_bytes"
        (self._folder / file).write_text(str(limit_bytes))
        with suppress(OSError):  # Without swap there is nothing to limit.
            (self._folder / "memory.swappiness").write_text("0")

    def add(self, pid: int) -> None:
        """Move a process here; its later children begin here."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def is_empty(self) -> bool:
        """Return True if no process is here."""
        return not (self._folder / "cgroup.procs").read_text().strip()

    def anonymous_bytes(self) -> int:
        """Return the memory that cannot be dropped, unlike cached files."""
        stat = dict(
            line.split() for line in (self._folder / "memory.stat").read_text().splitlines()
        )
        return int(stat["anon"] if self._is_v2 else stat["rss"])

    def kills(self) -> int:
        """Return the number of processes that were killed here for want of memory."""
        file = "memory.events" if self._is_v2 else "memory.oom_control"
        lines = dict(line.split() for line in (self._folder / file).read_text().splitlines())
        return int(lines["oom_kill"])


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[MemoryCgroup]:
    """Create a cgroup; it is removed when its processes have ended."""
    parent = _ROOT / "memory" if (_ROOT / "memory").is_dir() else _ROOT
    folder = parent / f"drawbridge-story-{os.getpid()}"
    try:
        folder.mkdir()
        group = MemoryCgroup(folder)
        group.limit(limit_bytes)
    except OSError as fault:
        with suppress(OSError):
            folder.rmdir()
        pytest.skip(f"needs the right to create memory cgroups: {fault}")
    try:
        yield group
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _REMOVED_WITHIN_S
    while True:
        try:
            folder.rmdir()
        except OSError:  # Its processes are just ending.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
