"""Python of the kubelet's protos: messages, and their types.

The protos are those of k8s.io/kubelet v0.37.1, byte for byte (tests/driver/kubelet compares them):
pkg/apis/dra/v1, pkg/apis/dra-health/v1 and pkg/apis/pluginregistration/v1.
"""

import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from grpc_tools import protoc

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = "driver/kubelet/api"
PROTOS: Final = ("dra_v1", "dra_health_v1", "pluginregistration_v1")


def paths() -> tuple[str, ...]:
    """Return the generated files, relative to the root."""
    return tuple(f"{FOLDER}/{name}_pb2.{end}" for name in PROTOS for end in ("py", "pyi"))


def text(path: str) -> str:
    """Return the content of a generated file."""
    return _generated_files()[path]


@cache
def _generated_files() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["", f"-I{ROOT}", f"--python_out={folder}", f"--pyi_out={folder}"]
        status = protoc.main([*arguments, *(f"{FOLDER}/{name}.proto" for name in PROTOS)])
        if status:
            raise RuntimeError(f"protoc ended with {status}")
        return {path: (Path(folder) / path).read_text() for path in paths()}
