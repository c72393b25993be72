"""The product's own image, without a registry and without a container engine.

The steps of the Containerfile run on a small Debian with Python 3.11 in place of the image that its
`FROM` names. mmdebstrap makes that root file system with the machine's own apt configuration. It, the
locked wheels and what the steps add are kept by the hash of what they are made from, in
`drawbridge/image` of the cache.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from e2e.binaries import cache_directory
from e2e.node.containerfile import Environment, Stage, build_layer, read_config, read_stages
from e2e.node.images import Layer, write_archive
from e2e.node.namespaces import missing as missing_for_node
from testing.image import CONTAINERFILE, ROOT, copied_paths

NAME: Final = "drawbridge-dra:0.1.0"
"""The name of the image in the manifests."""

SUITE: Final = "bookworm"
PYTHON: Final = "3.11"
_PACKAGES: Final = ("python3", "python3-venv", "python-is-python3", "libstdc++6")
"""Slim images of Python have the last one through apt, which is left out here."""
_REQUIREMENTS: Final = ("base.txt", "build.txt")
_UNUSED: Final = ("doc", "man", "locale", "info", "lintian")
_RECIPE: Final = (
    "--mode=root",
    "--variant=essential",
    "--format=tar",
    f"--include={','.join(_PACKAGES)}",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _UNUSED),
    # Where packages came from is nobody's business.
    '--customize-hook=rm -rf "$1"/etc/apt/sources.list* "$1"/var/lib/apt/lists "$1"/var/cache/apt',
)


def missing() -> str:
    """Return the reason the image cannot be built on this machine; empty when it can."""
    if shutil.which("mmdebstrap") is None:
        return "the image needs mmdebstrap (Debian: apt-get install mmdebstrap)"
    return missing_for_node()


def write_product_image(archive: Path) -> None:
    """Write an archive of the image that `ctr images import` takes."""
    stages = read_stages(CONTAINERFILE.read_text())
    base = _cached_path("root.tar", "\n".join((SUITE, platform.machine(), *_RECIPE)), _make_root)
    locked = "".join((ROOT / "requirements" / name).read_text() for name in _REQUIREMENTS)
    wheels = _cached_path("wheels", f"{PYTHON} {platform.machine()} {locked}", _download_wheels)
    environment = Environment(context=ROOT, base=base, wheels=wheels)
    made_from = f"{base.name} {wheels.name} {_context_hash()}"
    layer = _cached_path("layer.tar", made_from, partial(_make_layer, stages, environment))
    for other in layer.parent.glob("*-layer.tar"):
        if other != layer:  # Of sources that have changed since.
            other.unlink()
    layers = (Layer("root.tar", base), Layer("layer.tar", layer))
    write_archive(f"docker.io/library/{NAME}", layers, read_config(stages), archive)


def _context_hash() -> str:
    """Return a hash of the Containerfile, and of all files that it copies."""
    digest = hashlib.sha256(CONTAINERFILE.read_bytes())
    for path in copied_paths(CONTAINERFILE.read_text()):
        files = [ROOT / path] if (ROOT / path).is_file() else sorted((ROOT / path).rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _make_layer(stages: tuple[Stage, ...], environment: Environment, target: Path) -> None:
    layer = build_layer(stages, target.parent / "build", environment)
    _run("tar", "-cf", target, "-C", layer, ".")


def _cached_path(name: str, made_from: str, make: Callable[[Path], None]) -> Path:
    """Return a file or folder of the cache, made if it is not there yet."""
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:16]
    cached = cache_directory() / "image" / f"{digest}-{name}"
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cached.parent) as folder:
            unfinished = Path(folder) / name
            make(unfinished)
            unfinished.rename(cached)
    return cached


def _make_root(target: Path) -> None:
    _run("mmdebstrap", *_RECIPE, SUITE, target, *_sources())


def _sources() -> list[Path]:
    """Return the files of the machine's apt that have the suite; none for mmdebstrap's default."""
    folder = Path("/etc/apt")
    files = (folder / "sources.list", *sorted(folder.glob("sources.list.d/*")))
    return [
        file
        for file in files
        if file.suffix in {".list", ".sources"} and file.is_file() and SUITE in file.read_text()
    ]


def _download_wheels(target: Path) -> None:
    target.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        # The project's own environment has no pip.
        _run(sys.executable, "-m", "venv", folder)
        pip = (Path(folder) / "bin" / "pip", "download", "--quiet", "--require-hashes")
        flags = ("--only-binary=:all:", f"--python-version={PYTHON}", f"--dest={target}")
        tags = [
            f"--platform=manylinux_2_{minor}_{platform.machine()}" for minor in range(36, 16, -1)
        ]
        tags.append(f"--platform=manylinux2014_{platform.machine()}")
        for name in _REQUIREMENTS:
            _run(*pip, *flags, *tags, "--requirement", ROOT / "requirements" / name)


def _run(*command: str | Path) -> None:
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise AssertionError(
            f"{command[0]} ended with {completed.returncode}\n{completed.stderr[-4000:]}"
        )
