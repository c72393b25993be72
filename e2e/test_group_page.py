"""A newcomer follows docs/groups.md on the cluster of `make up`: a Job waits whole, and runs with a node more."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from e2e.local_command import ROOT, environment_of, run_local, state_folder

TIMEOUT_S: Final = 360.0
PODS: Final = 4


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    with state_folder(tmp_path) as folder:
        yield folder


def commands() -> list[str]:
    """Return the commands of the block about the bridge, as people type them."""
    page = (ROOT / "docs" / "groups.md").read_text()
    (block,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for line in block.splitlines()]


def test_the_commands_of_the_page_say_what_is_missing_and_run_the_job(state: Path) -> None:
    up, own, create, describe, why, node, watch = commands()
    assert up == 'eval "$(make up BRIDGE=1 GROUPS=1 EXAMPLES=groups)"'
    started = run_local("up", state, "--bridge", "--groups", "--examples", "groups")
    assert started.returncode == 0, started.stderr
    environment = environment_of(started)

    def answered(command: str) -> str:
        completed = subprocess.run(
            command.split(), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert completed.returncode == 0, completed.stderr
        return " ".join(completed.stdout.split())

    def pods() -> list[dict[str, dict[str, str]]]:
        listed = json.loads(answered("kubectl get pods -o json"))
        return list(listed["items"])

    answered(own)
    answered(create)
    wait_until(lambda: "3 of 4 pods fit, and 4 are needed" in answered(describe))
    assert [None] * PODS == [entry["spec"].get("nodeName") for entry in pods()]
    assert "only 1 suitable device, 2 requested" in answered(why)

    answered(node)
    wait_until(lambda: all(entry["spec"].get("nodeName") for entry in pods()))
    assert "node-c" in answered(watch)
    wait_until(lambda: [entry["status"]["phase"] for entry in pods()] == ["Succeeded"] * PODS)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition is not met in time"
        time.sleep(0.5)
