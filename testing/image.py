"""Build the environment of the image from its Containerfile, without a container engine.

The wheel is built from exactly the paths that the build stage copies, and installed beside the locked
requirements of requirements/base.txt. Packages come from uv's cache; nothing is downloaded.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
CONTAINERFILE: Final = ROOT / "Containerfile"

_COPY: Final = re.compile(r"^COPY (?!--)(?P<sources>.+) \S+$", re.MULTILINE)


class MissingPackages(Exception):
    """A locked package is not in uv's cache."""


def copied_paths(containerfile: str) -> tuple[str, ...]:
    """Return the paths of the build context that a Containerfile copies.

    >>> copied_paths("COPY a.toml b.md ./\\nCOPY kube kube\\nCOPY --from=build /venv /venv")
    ('a.toml', 'b.md', 'kube')
    """
    return tuple(
        source for match in _COPY.finditer(containerfile) for source in match["sources"].split()
    )


def build_environment(folder: Path) -> Path:
    """Build the image's virtual environment in an empty folder; return its directory of programs.

    Raises:
        MissingPackages: A locked package is not in uv's cache.
    """
    context = folder / "build"
    for path in copied_paths(CONTAINERFILE.read_text()):
        _copy(ROOT / path, context / Path(path))
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=context)
    (wheel,) = folder.glob("*.whl")

    environment = folder / "venv"
    programs = environment / "bin"
    python = ("--python", programs / "python")
    _uv("venv", "--python", sys.executable, environment)
    try:
        _uv("pip", "sync", *python, "--require-hashes", context / "requirements" / "base.txt")
    except subprocess.CalledProcessError as error:
        raise MissingPackages(error.stderr) from error
    _uv("pip", "install", *python, "--no-deps", "--no-index", wheel)
    return programs


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _uv(*arguments: str | Path) -> None:
    _run(sys.executable, "-m", "uv", "--offline", "--quiet", *arguments)


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True)
