"""Files that are replaced as a whole: readers see a complete file, also after a crash."""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

PRIVATE_FOLDER: Final = 0o700
PRIVATE_FILE: Final = 0o600
TEMPORARY: Final = ".partial"
"""End of the name of a file that is being written."""


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file.

    Args:
        path: The file's path. Links, pipes and devices are rejected.
        max_bytes: One more is read of a file that has more.

    Raises:
        OSError: There is no file, or it cannot be read.
    """
    # Opening a pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(max_bytes + 1)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder that root alone can enter; one that is there keeps its mode."""
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)


def replace_file(path: Path, content: bytes, *, before_rename: Callable[[], None]) -> None:
    """Write a file and return once the disk has it under its name; on failure the old one stays.

    Raises:
        OSError: The disk is full, read-only or broken.
    """
    write_file(path, content, before_rename=before_rename)
    sync_folder(path.parent)


def write_file(path: Path, content: bytes, *, before_rename: Callable[[], None]) -> None:
    """Write a file and return once the disk has its content; its name needs `sync_folder`, too.

    Args:
        path: The file's path. No other process may write it at the same time.
        content: All of it.
        before_rename: Called between writing and renaming.

    Raises:
        OSError: The disk is full, read-only or broken.
    """
    # Text and not Path: a call of the kubelet writes a file for each of its claims.
    name = os.fspath(path)
    temporary = f"{name}{TEMPORARY}"
    try:
        _write_new(temporary, content)
        before_rename()
        os.replace(temporary, name)  # noqa: PTH105 - see above
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108 - see above
        # A descriptor has no name, and people have to know which disk is full.
        if error.errno is not None and error.filename is None:
            error.filename = name
        raise


def _write_new(name: str, content: bytes) -> None:
    """Create a file; the leftover of a process that died is removed first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, PRIVATE_FILE)
    except FileExistsError:
        os.unlink(name)  # noqa: PTH108 - a link is not followed
        descriptor = os.open(name, flags, PRIVATE_FILE)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Return once the disk has the names in a folder as they are."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
