"""Files that are replaced as a whole: whoever reads one, also after a crash, sees all of it."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

PRIVATE_FOLDER: Final = 0o700
PRIVATE_FILE: Final = 0o600
TEMPORARY: Final = ".partial"
"""End of the name of a file that is being written."""


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
        path: Of the file; nobody else writes it at the same time.
        content: All of it.
        before_rename: Called between writing and renaming.

    Raises:
        OSError: The disk is full, read-only or broken.
    """
    temporary = path.with_name(f"{path.name}{TEMPORARY}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        before_rename()
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Return once the disk has the names in a folder as they are."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
