"""Images without a registry, as `docker save` would write them."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

IMAGE: Final = "drawbridge.internal/box:1"
"""Pods on a real node use it with `imagePullPolicy: Never`, and name what it is to do in `args`."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class Layer(NamedTuple):
    """A part of an image: a tar file, and its name in the archive."""

    name: str
    path: Path


def write_image(program: Path, archive: Path) -> None:
    """Write the image of one static program, as an archive that `ctr images import` takes."""
    config = {"Entrypoint": [f"/{program.name}"], "Env": ["PATH=/"]}
    write_program_image(IMAGE, program, f"/{program.name}", config, archive)


def write_program_image(
    name: str, program: Path, target: str, config: Mapping[str, Any], archive: Path
) -> None:
    """Write an image of nothing but one static program.

    Args:
        name: The name of the image, with its tag.
        program: Its file.
        target: Its path in the image.
        config: The configuration of containers, as an image's `config` has it.
        archive: The file to write, for `ctr images import`.
    """
    with TemporaryDirectory() as folder:
        layer = Layer("layer.tar", Path(folder) / "layer.tar")
        with tarfile.open(layer.path, mode="w") as file:
            _add(file, target.lstrip("/"), program.read_bytes(), 0o755)
        write_archive(name, (layer,), config, archive)


def write_archive(
    name: str, layers: Sequence[Layer], config: Mapping[str, Any], archive: Path
) -> None:
    """Write an image as an archive that `ctr images import` takes.

    Args:
        name: The name with its tag.
        layers: The layers from the lowest.
        config: The configuration of its containers, as an image's `config` has it.
        archive: The file to write.
    """
    digests = []
    for layer in layers:
        with layer.path.open("rb") as content:
            digests.append(f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}")
    image = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": digests},
        "history": [{"created_by": "e2e/node/images.py"} for _ in layers],
    }
    manifest = [
        {"Config": "config.json", "RepoTags": [name], "Layers": [layer.name for layer in layers]}
    ]
    with tarfile.open(archive, mode="w") as file:
        _add(file, "config.json", json.dumps(image).encode(), 0o644)
        for layer in layers:
            file.add(layer.path, layer.name)
        _add(file, "manifest.json", json.dumps(manifest).encode(), 0o644)


def _add(file: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    file.addfile(entry, io.BytesIO(content))
