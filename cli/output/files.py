"""Write files at once: no reader ever sees half of one."""

import os
import stat
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read; of a symbolic link the file that it names.

    A device, a pipe or a socket is written to and keeps its place.

    Raises:
        OSError: The directory, or what the path names, cannot be written.
    """
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        path.write_bytes(content)
    else:
        _replace(Path(os.path.realpath(path)), content, mode=None)


def rewrite(path: Path, content: bytes) -> None:
    """Write a file that exists, with its permissions; of a symbolic link the file that it names.

    Raises:
        OSError: The file does not exist, or the directory cannot be written.
    """
    target = path.resolve(strict=True)
    _replace(target, content, mode=target.stat().st_mode)


def _replace(path: Path, content: bytes, mode: int | None) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        if mode is not None:
            temporary.chmod(mode & 0o7777)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
