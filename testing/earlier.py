"""The tree of an earlier commit of this repository, for tests that run two versions."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[1]


def extract(commit: str, folder: Path) -> str:
    """Write the tree of a commit into a folder; return the reason if that cannot be, such as a shallow clone."""
    if shutil.which("git") is None:
        return "git is not installed"
    archive = subprocess.run(
        ["git", "archive", commit], cwd=_ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        return f"this clone has no commit {commit}: {archive.stderr.decode().strip()}"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return ""
