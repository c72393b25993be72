"""Removes the cgroups of a node: `python cgroups.py NAME`. Needs nothing but Python.

A keeper runs it when the test run was killed.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
CONTROLLERS: Final = "cgroup.controllers"
"""A file of every cgroup of version 2, and of no hierarchy of version 1."""
TIMEOUT_S: Final = 180.0


def remove_cgroups(name: str) -> None:
    """Remove the cgroups of a node with processes that have ended, or are about to."""
    deadline = time.monotonic() + TIMEOUT_S
    while [folder for folder in _folders(name) if not _is_removed(folder)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"cgroups {name} are still in use")
        time.sleep(0.05)


def _folders(name: str) -> Iterator[Path]:
    is_unified = (CGROUPS / CONTROLLERS).is_file()
    for hierarchy in [CGROUPS] if is_unified else CGROUPS.iterdir():
        if (hierarchy / name).is_dir():
            yield hierarchy / name


def _is_removed(folder: Path) -> bool:
    completed = subprocess.run(
        ["find", folder, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"],
        capture_output=True,
        check=False,
    )
    return completed.returncode == 0 and not folder.exists()


if __name__ == "__main__":
    remove_cgroups(sys.argv[1])
