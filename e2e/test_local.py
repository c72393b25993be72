"""`make up` and `make down`, as a person runs them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.fleet import examples_fleet
from e2e.processes import running

ROOT = Path(__file__).parent.parent


def run(action: str, state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "e2e.local", action, "--state", state],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    run("down", tmp_path)


def test_up_twice_then_down_twice(state: Path) -> None:
    first = run("up", state)
    assert first.returncode == 0, first.stderr
    (export,) = first.stdout.splitlines()
    name, _, path = export.removeprefix("export ").partition("=")

    # What the output tells a person to do.
    environment = {**os.environ, name: path, "PATH": f"{state / 'bin'}:{os.environ['PATH']}"}
    nodes = subprocess.run(
        ["kubectl", "get", "nodes", "--output=name"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    _, recorded, _ = examples_fleet()
    assert nodes.stdout.split() == sorted(f"node/{node['metadata']['name']}" for node in recorded)

    again = run("up", state)
    assert again.returncode == 0
    assert first.stdout == again.stdout
    assert "runs already" in again.stderr

    started = [record.name for record in running(state / "cluster")]
    stopped = run("down", state)
    assert stopped.returncode == 0
    assert all(each in stopped.stderr for each in started)
    assert running(state / "cluster") == ()

    nothing = run("down", state)
    assert nothing.returncode == 0
    assert "Nothing runs." in nothing.stderr
