"""The plugin of kubectl as an archive for one platform, and krew's manifest of all archives.

An archive has a launcher, the product's wheel and the locked packages as wheels of that platform; it
needs a Python of the version that its wheels are for. The manifest names the place of the archives only
by argument.
"""

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kube.manifests.dump import dump_yaml

ROOT: Final = Path(__file__).parent.parent
LOCKED: Final = ROOT / "requirements" / "base.txt"
PROGRAM: Final = "kubectl-drawbridge"
PLATFORMS: Final[Mapping[str, str]] = {
    "linux-amd64": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "darwin-amd64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
}
"""Platform as krew names it to the name that uv has for it."""
_LAUNCHER: Final = """\
#!/bin/sh
# krew links to this file, so its folder is that of the link's target.
file=$0
while [ -L "$file" ]; do
  target=$(readlink "$file")
  case $target in /*) file=$target ;; *) file=$(dirname "$file")/$target ;; esac
done
here=$(cd "$(dirname "$file")" && pwd)
exec "${DRAWBRIDGE_PYTHON:-python@VERSION@}" -c '
import sys
sys.path.insert(0, sys.argv.pop(1))
sys.argv[0] = "kubectl-drawbridge"
from cli.__main__ import main
main()
' "$here/lib" "$@"
"""
_EPOCH: Final = 0
"""The same packages give the same bytes."""


def launcher(python_version: str) -> str:
    """Return the program in an archive.

    Args:
        python_version: Such as `3.13`.
    """
    return _LAUNCHER.replace("@VERSION@", python_version)


def install_packages(
    folder: Path, wheel: Path, python_version: str, platform: str | None, *, offline: bool = False
) -> None:
    """Install the product and its locked packages into a folder.

    Args:
        folder: Made here.
        wheel: The wheel of the product.
        python_version: The version that the packages are for.
        platform: The platform in uv's words; None for this one.
        offline: True to install from uv's cache only.
    """
    uv = [sys.executable, "-m", "uv", "--quiet", *(["--offline"] if offline else [])]
    into = ["pip", "install", "--target", str(folder), "--python-version", python_version]
    into += ["--python-platform", platform] if platform else []
    only = ["--only-binary", ":all:"]
    for packages in (
        ["--no-deps", "--require-hashes", "--requirement", str(LOCKED)],
        ["--no-deps", str(wheel)],
    ):
        subprocess.run([*uv, *into, *only, *packages], check=True, capture_output=True, text=True)


def archive(folder: Path, python_version: str) -> bytes:
    """Return the archive of a folder of packages, with the launcher and the licence."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=_EPOCH) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        _add(tar, PROGRAM, launcher(python_version).encode(), mode=0o755)
        _add(tar, "LICENSE", (ROOT / "LICENSE").read_bytes())
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                _add(tar, f"lib/{path.relative_to(folder)}", path.read_bytes())
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), mode, _EPOCH
    tar.addfile(member, io.BytesIO(content))


def file_name(version: str, platform: str) -> str:
    """Return the name of an archive."""
    return f"{PROGRAM}-{version}-{platform}.tar.gz"


def krew_manifest(
    version: str, python_version: str, address: str, archives: Mapping[str, bytes], homepage: str
) -> str:
    """Return krew's manifest.

    Args:
        version: The version without a `v`.
        python_version: The version that the archives are for.
        address: The address of the archives, without their names.
        archives: Platform to archive.
        homepage: The homepage of the project.

    Source: krew, docs of the developer guide, apiVersion krew.googlecontainertools.github.com/v1alpha2.
    """
    document: dict[str, Any] = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "drawbridge"},
        "spec": {
            "version": f"v{version}",
            "homepage": homepage,
            "shortDescription": "Move pods from device plugins to DRA, and explain allocations",
            "description": "Translates and checks manifests with GPU and RDMA device keys, assesses "
            "clusters before a migration, plans it in waves, and tells why pods wait for devices.\n",
            "caveats": f"Needs Python {python_version}, as `python{python_version}` on the PATH, or "
            "named by DRAWBRIDGE_PYTHON.\n",
            "platforms": [
                {
                    "selector": {
                        "matchLabels": dict(zip(("os", "arch"), platform.split("-"), strict=True))
                    },
                    "uri": f"{address.rstrip('/')}/{file_name(version, platform)}",
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "bin": PROGRAM,
                }
                for platform, content in sorted(archives.items())
            ],
        },
    }
    return dump_yaml([document])
