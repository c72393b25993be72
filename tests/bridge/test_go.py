"""The Go module `bridge/`: formatted, vetted, its tests pass, and it is built on one Kubernetes."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from e2e.binaries import BRIDGE_FOLDER, BUILD_ENVIRONMENT, COMPILER_FLAGS
from tools.go import go_command

ROOT: Final = Path(__file__).parents[2]
REQUIREMENT: Final = re.compile(r"^\s*(k8s\.io/\S+) (v\S+)$", re.MULTILINE)


def run(*arguments: str | Path) -> str:
    """Run a program in the module and return its output; a failure shows all of it."""
    completed = subprocess.run(
        arguments,
        cwd=BRIDGE_FOLDER,
        env={**os.environ, **BUILD_ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout
    return completed.stdout


@pytest.mark.oracle
def test_it_is_formatted() -> None:
    gofmt = Path(run(go_command(), "env", "GOROOT").strip()) / "bin" / "gofmt"

    assert run(gofmt, "-l", ".") == ""


@pytest.mark.oracle
def test_vet_finds_nothing() -> None:
    run(go_command(), "vet", COMPILER_FLAGS, "./...")


@pytest.mark.oracle
def test_its_tests_pass() -> None:
    # Without -vet=off, all that the module imports is vetted once more, for fewer analyzers than by `go vet`.
    report = run(go_command(), "test", COMPILER_FLAGS, "-vet=off", "./...")

    assert set(re.findall(r"^ok\s+\S+/(\w+)\s", report, re.MULTILINE)) == {"plugin", "sidecar"}


def test_it_is_built_on_the_kubernetes_that_stories_run() -> None:
    versions, others = (
        dict(REQUIREMENT.findall((ROOT / folder / "go.mod").read_text()))
        for folder in ("bridge", "e2e/controlplane")
    )

    assert "v1.37.1" == versions["k8s.io/kubernetes"]
    assert {name: version for name, version in versions.items() if name in others} == {
        name: version for name, version in others.items() if name in versions
    }
