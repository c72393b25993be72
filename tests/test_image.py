"""The image: its entry points start with the packages that the Containerfile copies and locks."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from testing.image import (
    CONTAINERFILE,
    ROOT,
    MissingPackages,
    build_environment,
    copied_paths,
)

PROCESSES: Final = tuple(
    sorted(
        str(file.parent.relative_to(ROOT)).replace("/", ".")
        for path in copied_paths(CONTAINERFILE.read_text())
        for file in (ROOT / path).glob("**/__main__.py")
        if path != "cli"
    )
)
COMMANDS: Final = (
    *(("python", "-I", "-m", process, "--help") for process in PROCESSES),
    *(("python", "-I", "-m", process, "--print-settings") for process in PROCESSES),
    ("drawbridge", "--help"),
    ("drawbridge", "demo"),
    ("kubectl-drawbridge", "--help"),
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of programs of the image's environment."""
    try:
        return build_environment(tmp_path_factory.mktemp("image"))
    except MissingPackages as error:
        reason = f"`make setup` fills uv's cache with the locked packages: {error}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def test_every_process_is_started() -> None:
    started = (
        "controllers",
        "controllers.certificates",
        "controllers.uninstall",
        "driver",
        "observer",
        "sidecar",
        "webhook",
    )
    assert started == PROCESSES


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_entry_point_starts(programs: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    program, *arguments = command
    environment = {"PATH": str(programs), "HOME": str(tmp_path)}

    result = subprocess.run(
        [programs / program, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (result.returncode, result.stderr)
    assert result.stdout


def test_environment_has_the_locked_packages_only(programs: Path) -> None:
    matches = re.findall(
        r"^([\w.-]+)(?:\[.*\])?==", (ROOT / "requirements" / "base.txt").read_text(), re.MULTILINE
    )
    (site_packages,) = programs.parent.glob("lib/python*/site-packages")
    installed = {
        folder.name.partition("-")[0].lower().replace("_", "-").replace(".", "-")
        for folder in site_packages.glob("*.dist-info")
    }

    assert {name.replace(".", "-") for name in matches} | {"drawbridge-dra"} == installed
