"""Everything that a release consists of, in one folder: `python -m tools.release`, see docs/release.md.

It pushes and publishes nothing. What is outside of the repository is named by arguments: the image with
its registry and digest, the place of the archives, the source.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tools import changelog, plugin_archive, sbom
from tools.install_manifest import install_manifest
from tools.provenance import digest, provenance

ROOT: Final = Path(__file__).parent.parent
OUT: Final = ROOT / "build" / "release"
CHART: Final = ROOT / "charts" / "drawbridge"
PYTHON_VERSION: Final = "3.13"
"""The version of the image, and of the archives."""
MATERIALS: Final = (
    "requirements/base.txt",
    "requirements/build.txt",
    "bridge/go.sum",
    "Containerfile",
)
_IMAGE: Final = re.compile(r"[\w.:/-]+@sha256:[0-9a-f]{64}")


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a release outside of the repository.

    Attributes:
        version: The version in pyproject.toml.
        date: The date of the release.
        image: The image with its registry and digest.
        address: The address of the files.
        source: The source of the repository.
        builder: The runner of the job, as a URI.
        platforms: The platforms of the archives of the plugin.
        python_version: The version that the archives are for.
        local: Packages are those of this machine, from uv's cache only.
    """

    version: str
    date: str
    image: str
    address: str
    source: str
    builder: str
    platforms: tuple[str, ...] = tuple(plugin_archive.PLATFORMS)
    python_version: str = PYTHON_VERSION
    local: bool = False


class ReleaseError(Exception):
    """The repository or an argument is not fit for a release."""


def check(release: Release) -> None:
    """Check the arguments.

    Raises:
        ReleaseError: One of them is wrong.
    """
    declared = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    if declared is None or declared[1] != release.version:
        found = declared[1] if declared else "missing"
        raise ReleaseError(f"the version in pyproject.toml is {found}, not {release.version}")
    if not _IMAGE.fullmatch(release.image):
        raise ReleaseError(f"name the image by its digest: NAME@sha256:..., not {release.image}")
    unknown = sorted(set(release.platforms) - plugin_archive.PLATFORMS.keys())
    if unknown:
        known = ", ".join(plugin_archive.PLATFORMS)
        raise ReleaseError(f"no platform {unknown[0]}; there are {known}")


def build(release: Release, out: Path, kubectl: Path, helm: Path | None, commit: str) -> list[Path]:
    """Write all files of a release, the checksums last; return them.

    Args:
        out: An empty folder.
        kubectl: Renders kustomizations.
        helm: Packages the chart; None leaves it out.
        commit: The commit of the repository.
    """
    check(release)
    out.mkdir(parents=True, exist_ok=True)
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out)
    (wheel,) = out.glob("*.whl")
    (out / "install.yaml").write_text(install_manifest(kubectl, release.image))
    _run(sys.executable, "-m", "tools.sbom", out / sbom.OUT.name)
    entries = changelog.read_fragments(changelog.FRAGMENTS)
    notes = changelog.format_section(release.version, release.date, entries)
    (out / "notes.md").write_text(notes)
    if helm is not None:
        _run(helm, "package", CHART, "--destination", out)
    _write_plugin(release, out, wheel)
    files = sorted(out.iterdir())
    statement = provenance(
        files,
        source=release.source,
        commit=commit,
        builder=release.builder,
        parameters={"version": release.version, "image": release.image},
        materials=[ROOT / name for name in MATERIALS],
        started=f"{release.date}T00:00:00Z",
    )
    (out / "provenance.intoto.json").write_text(statement)
    files = sorted(out.iterdir())
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in files)
    (out / "SHA256SUMS").write_text(sums)
    return [*files, out / "SHA256SUMS"]


def _write_plugin(release: Release, out: Path, wheel: Path) -> None:
    """Write the archives of the plugin of kubectl, and krew's manifest."""
    archives: dict[str, bytes] = {}
    for platform in release.platforms:
        folder = out / platform
        plugin_archive.install_packages(
            folder,
            wheel,
            release.python_version,
            None if release.local else plugin_archive.PLATFORMS[platform],
            offline=release.local,
        )
        archives[platform] = plugin_archive.archive(folder, release.python_version)
        shutil.rmtree(folder)
        name = plugin_archive.file_name(release.version, platform)
        (out / name).write_bytes(archives[platform])
    manifest = plugin_archive.krew_manifest(
        release.version, release.python_version, release.address, archives, release.source
    )
    (out / "krew.yaml").write_text(manifest)


def _run(*command: str | Path) -> None:
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    for name, help_text in (
        ("version", "as in pyproject.toml"),
        ("date", "of the release, such as 2026-11-21"),
        ("image", "with its registry and digest"),
        ("address", "under which the files will be found"),
        ("source", "where the repository is"),
        ("builder", "who runs the job, as a URI"),
    ):
        parser.add_argument(f"--{name}", required=True, help=help_text)
    parser.add_argument("--platform", action="append", help="of the plugin; all without")
    parser.add_argument("--out", type=Path, default=OUT)
    options = vars(parser.parse_args(arguments))
    platforms, out = tuple(options.pop("platform") or plugin_archive.PLATFORMS), options.pop("out")
    programs = {name: shutil.which(name) for name in ("kubectl", "helm", "git")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        print(f"release: {', '.join(missing)} cannot be found", file=sys.stderr)
        return 1
    if out.exists() and any(out.iterdir()):
        print(f"release: {out} is not empty", file=sys.stderr)
        return 1
    git = ("git", "-C", str(ROOT))
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    try:
        release = Release(**options, platforms=platforms)
        files = build(
            release, out, Path(str(programs["kubectl"])), Path(str(programs["helm"])), commit
        )
    except (ReleaseError, changelog.ChangelogError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print("\n".join(str(path) for path in files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
