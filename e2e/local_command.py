"""`make up` and `make down`, with a state folder of the story's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent


def run_local(
    action: str, state: Path, *flags: str, path: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `up` or `down`.

    Args:
        path: The PATH; that of the tests where it is empty.
    """
    return subprocess.run(
        [sys.executable, "-m", "e2e.local", action, "--state", state, *flags],
        cwd=ROOT,
        env={**os.environ, **({"PATH": path} if path else {})},
        capture_output=True,
        text=True,
        check=False,
    )


def environment_of(started: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return the environment of a shell that has evaluated the output of `up`."""
    exported = dict(
        line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines()
    )
    path = exported["PATH"].replace("$PATH", os.environ["PATH"])
    return {**os.environ, **exported, "PATH": path}


@contextmanager
def state_folder(folder: Path) -> Iterator[Path]:
    """A state folder; everything that was started with it is stopped in the end."""
    try:
        yield folder
    finally:
        run_local("down", folder)
