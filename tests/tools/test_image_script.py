"""`make image`: with any engine, and a digest for a release. The engines are recorders."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DIGEST: Final = f"python@sha256:{'0' * 64}"
BOTH: Final = "linux/amd64,linux/arm64"
BASH: Final = shutil.which("bash") or "/bin/bash"


def build(
    folder: Path,
    *engines: str,
    arguments: tuple[str, ...] = (),
    release: str = "",
    platforms: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run the script with nothing but these engines to be found."""
    for engine in engines:
        program = folder / engine
        program.write_text(f'#!{BASH}\necho "{engine} $*"\n')
        program.chmod(0o755)
    return subprocess.run(
        [BASH, ROOT / "tools" / "image.sh", "drawbridge-dra:1", *arguments],
        env={
            "PATH": str(folder),
            "RELEASE": release,
            "PLATFORMS": platforms,
            "HOME": os.devnull,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("engines", "engine"),
    [
        (("docker", "podman", "buildah"), "docker"),
        (("podman", "buildah"), "podman"),
        (("buildah",), "buildah"),
    ],
)
def test_the_first_engine_that_is_there_builds(
    tmp_path: Path, engines: tuple[str, ...], engine: str
) -> None:
    built = build(tmp_path, *engines)

    assert built.returncode == 0
    assert built.stdout == (
        f"{engine} build --build-arg BASE=python:3.13-slim --tag drawbridge-dra:1 "
        "--file Containerfile .\n"
    )


def test_without_an_engine_it_fails_and_names_them(tmp_path: Path) -> None:
    built = build(tmp_path)

    assert (built.returncode, built.stdout) == (1, "")
    assert "docker, podman and buildah" in built.stderr


def test_a_release_names_its_base_by_digest(tmp_path: Path) -> None:
    by_tag = build(tmp_path, "docker", arguments=("python:3.13-slim",), release="1")
    by_digest = build(tmp_path, "docker", arguments=(DIGEST,), release="1")

    assert (by_tag.returncode, by_tag.stdout) == (2, "")
    assert "BASE=python@sha256:" in by_tag.stderr
    assert f"--build-arg BASE={DIGEST} " in by_digest.stdout


@pytest.mark.parametrize(
    ("engine", "command"),
    [
        (
            "docker",
            (
                f"docker buildx build --platform {BOTH} --build-arg BASE=python:3.13-slim "
                "--tag drawbridge-dra:1 --output type=oci,dest=build/image.tar --file Containerfile .\n"
            ),
        ),
        (
            "podman",
            (
                f"podman build --platform {BOTH} --build-arg BASE=python:3.13-slim "
                "--manifest drawbridge-dra:1 --file Containerfile .\n"
            ),
        ),
    ],
)
def test_several_platforms_become_one_list_of_images(
    tmp_path: Path, engine: str, command: str
) -> None:
    built = build(tmp_path, engine, platforms=BOTH)

    assert (built.returncode, built.stdout) == (0, command)
    assert f"for {BOTH}" in built.stderr


def test_the_containerfile_uses_the_base_that_the_script_names() -> None:
    text = (ROOT / "Containerfile").read_text()

    assert "ARG BASE=python:3.13-slim\n" in text
    assert text.count("FROM ${BASE}") == 2
    assert "FROM python" not in text
