"""An image without a registry: one static program, as `docker save` would write it."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any, Final

IMAGE: Final = "drawbridge.internal/box:1"
"""Pods on a real node use it with `imagePullPolicy: Never`, and name what it is to do in `args`."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(program: Path, archive: Path) -> None:
    """Write an archive that `ctr images import` takes."""
    layer = _tar({f"{program.name}": (program.read_bytes(), 0o755)})
    digest = hashlib.sha256(layer).hexdigest()
    config: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "Env": ["PATH=/"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "e2e/node/images.py"}],
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    archive.write_bytes(
        _tar(
            {
                "config.json": (json.dumps(config).encode(), 0o644),
                "layer.tar": (layer, 0o644),
                "manifest.json": (json.dumps(manifest).encode(), 0o644),
            }
        )
    )


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
