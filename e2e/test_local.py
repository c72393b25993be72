"""`make up` and `make down`, as a person runs them."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.fleet import examples_fleet
from e2e.local_command import ROOT, environment_of, run_local, state_folder
from e2e.processes import running
from kube.names import SCHEDULER_NAME


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    with state_folder(tmp_path) as folder:
        yield folder


@pytest.mark.long
def test_up_twice_then_down_twice(state: Path) -> None:
    first = run_local("up", state)
    assert first.returncode == 0, first.stderr

    # What the output tells a person to do.
    nodes = subprocess.run(
        ["kubectl", "get", "nodes", "--output=name"],
        env=environment_of(first),
        capture_output=True,
        text=True,
        check=True,
    )
    _, recorded, _ = examples_fleet()
    assert nodes.stdout.split() == sorted(f"node/{node['metadata']['name']}" for node in recorded)

    again = run_local("up", state)
    assert again.returncode == 0
    assert first.stdout == again.stdout
    assert "Already running:" in again.stderr
    assert "Ended since" not in again.stderr

    started = [record.name for record in running(state / "cluster")]
    stopped = run_local("down", state)
    assert stopped.returncode == 0
    assert all(name in stopped.stderr for name in started)
    assert running(state / "cluster") == ()

    nothing = run_local("down", state)
    assert nothing.returncode == 0
    assert "Nothing to stop." in nothing.stderr


@pytest.mark.long
def test_the_events_of_the_page_come_in_its_cluster(state: Path) -> None:
    first = run_local("up", state, "--examples", "waiting")
    assert first.returncode == 0, first.stderr
    kubectl = state / "bin" / "kubectl"
    environment = environment_of(first)

    def answered(*words: str) -> str:
        completed = subprocess.run(
            [kubectl, *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return completed.stdout

    answered("apply", "-f", "examples/waiting/pods.yaml")
    page = (ROOT / "docs/howto/read-a-denial.md").read_text()
    want = set(re.findall(r"^Warning   (\w+)   Pod/(\S+)   (.+)$", page, re.MULTILINE))
    assert len(want) >= 10

    deadline = time.monotonic() + 360
    notes: set[tuple[str, str, str]] = set()
    while want - notes and time.monotonic() < deadline:
        time.sleep(0.5)
        events = json.loads(answered("get", "events.events.k8s.io", "-n", "team", "-o", "json"))
        notes = {
            (event["reason"], event["regarding"]["name"], event.get("note", ""))
            for event in events["items"]
        }

    assert set() == want - notes, notes


def test_a_legacy_pod_gets_its_share_from_the_bridge(state: Path) -> None:
    first = run_local("up", state, "--bridge")
    assert first.returncode == 0, first.stderr
    environment = environment_of(first)

    def answered(*words: str) -> str:
        completed = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    answered("kubectl", "drawbridge", "bridge", "own", "hami-core-gpu.project-hami.io", "--apply")
    deadline = time.monotonic() + 360
    scheduler = ""
    while scheduler != SCHEDULER_NAME and time.monotonic() < deadline:
        time.sleep(0.5)
        dry_run = ("kubectl", "create", "--dry-run=server", "-f", "examples/share.yaml")
        scheduler = answered(*dry_run, "-o", "jsonpath={.spec.schedulerName}")
    assert scheduler == SCHEDULER_NAME
    answered("kubectl", "apply", "-f", "examples/share.yaml")
    ready = "jsonpath={.status.phase}=Running"
    answered("kubectl", "wait", "-f", "examples/share.yaml", f"--for={ready}", "--timeout=360s")

    assert "holder" in answered("kubectl", "get", "aown", "default", "-o", "yaml")


def test_an_example_that_does_not_exist(state: Path) -> None:
    result = run_local("up", state, "--examples", "nope")

    assert result.returncode == 2
    assert "no example cluster 'nope'; there are " in result.stderr
