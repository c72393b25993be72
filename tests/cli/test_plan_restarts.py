"""`drawbridge plan`: the losses of pods by a restart are told with its wave, and asked about."""

import json
import os
import pty
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import SHARE, hami_node, workload
from testing.plan import checks_before, planned, script

CACHE: Final[dict[str, Any]] = {"volumes": [{"name": "cache", "emptyDir": {}}]}
MEMORY: Final[dict[str, Any]] = {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
LOST: Final = "what is in its emptyDir cache is lost"
STAYS: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
REFUSED: Final = f"{STAYS} is false"


def objects(
    notes: Mapping[str, str] | None = None, kind: str = "Deployment", **spec: Any
) -> list[dict[str, Any]]:
    """Two nodes of HAMi, and a workload on the one that is switched last."""
    owner, *pods = workload("web", SHARE, ["hami-0"], kind=kind, **spec)
    for pod in pods:
        pod["metadata"]["annotations"] = dict(notes or {})
    return [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), owner, *pods]


def restarted(plan: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
    """The wave that restarts the workload, and the workload in it."""
    return next((wave["wave"], entry) for wave in plan["waves"] for entry in wave["workloads"])


def test_an_empty_dir_is_reported_with_the_wave_that_restarts_its_pods(tmp_path: Path) -> None:
    """It was told with the drain of the node, a wave later."""
    plan = planned(tmp_path, objects(**CACHE), "--wave-nodes", 1)

    number, entry = restarted(plan)
    drained = next(
        wave["wave"]
        for wave in plan["waves"]
        if any(node["name"] == "hami-0" for node in wave["nodes"])
    )
    assert number < drained
    # Its pods have left the node by then.
    assert not any(wave["work"] for wave in plan["waves"])
    assert [LOST] == entry["losses"]
    note = "the restart of Deployment/team/web takes something from their pods"
    for phase in ("preflight", "switch"):
        assert note in script(tmp_path, phase, number)
    assert f"# Deployment/team/web: {LOST}" in script(tmp_path, "switch", number)
    assert f"# Deployment/team/web: {LOST}" in script(tmp_path, "rollback", number)
    readme = (tmp_path / "plan" / "README.md").read_text()
    assert f"- wave {number}, restarted: Deployment/team/web: {LOST}" in readme
    assert f"Deployment/team/web: 1 pod; {LOST}" in (tmp_path / "plan" / "plan.html").read_text()


@pytest.mark.parametrize(
    "found",
    [objects(**MEMORY), objects(), objects(kind="Job", restartPolicy="Never", **CACHE)],
    ids=["memory", "no volume", "a Job is not restarted"],
)
def test_what_loses_nothing_is_not_reported(tmp_path: Path, found: list[dict[str, Any]]) -> None:
    plan = planned(tmp_path, found, "--wave-nodes", 1)

    assert all(not entry["losses"] for wave in plan["waves"] for entry in wave["workloads"])


def test_a_template_that_gets_a_label_is_a_restart_too(tmp_path: Path) -> None:
    """A namespace with most of the devices moves in parts."""
    nodes = [hami_node(f"hami-{number}", 1) for number in range(3)]
    whole_card = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "40000"}
    workloads = [
        document
        for number in range(2)
        for document in workload(f"web-{number}", whole_card, [f"hami-{number}"], **CACHE)
    ]

    plan = planned(tmp_path, [*nodes, namespace("team"), *workloads], "--wave-nodes", 1)

    labelled = [
        (wave["wave"], entry)
        for wave in plan["waves"]
        for entry in wave["workloads"]
        if entry["labelled"]
    ]
    assert labelled
    for number, entry in labelled:
        assert [LOST] == entry["losses"]
        text = script(tmp_path, "switch", number)
        assert text.index(f"# {entry['object']}: {LOST}") < text.index("change_object deployment/")


def test_before_the_wave_it_is_told_as_it_is_then(tmp_path: Path) -> None:
    number, _ = restarted(planned(tmp_path, objects(), "--wave-nodes", 1))

    answer = checks_before(tmp_path, objects(**CACHE), number)

    checks = {check["object"]: check for check in answer}
    assert "note" == checks["Deployment/team/web"]["state"]
    assert f"it is restarted: {LOST}" == checks["Deployment/team/web"]["message"]


class Switch:
    """The last steps of a switch with a workload that asks not to be evicted."""

    def __init__(self, folder: Path) -> None:
        plan = planned(folder, objects({STAYS: "false"}), "--wave-nodes", 1)
        number, self.entry = restarted(plan)
        self._script = folder / "plan" / f"wave-{number}" / "switch.sh"
        self._calls = folder / "calls"
        self._bin = folder / "bin"
        self._bin.mkdir()
        for program in ("kubectl", "drawbridge"):
            path = self._bin / program
            is_there = 'case "$*" in *--output=name) echo "deployment.apps/web" ;; esac'
            path.write_text(f'#!/bin/sh\necho {program} "$@" >> {self._calls}\n{is_there}\n')
            path.chmod(0o755)

    def run(self, *arguments: str, typed: str = "") -> tuple[int, bool, str]:
        """Return the status, True if the workload was restarted, and the output."""
        self._calls.write_text("")
        terminal, end = pty.openpty()
        os.write(terminal, typed.encode())
        ran = subprocess.run(
            [self._script, "--step", "restarts", *arguments],
            env={"PATH": f"{self._bin}:{os.environ['PATH']}"},
            stdin=end if typed else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        os.close(terminal)
        os.close(end)
        is_restarted = "kubectl rollout restart" in self._calls.read_text()
        return ran.returncode, is_restarted, ran.stdout + ran.stderr


def test_pods_that_ask_not_to_be_evicted_are_restarted_by_a_person_only(tmp_path: Path) -> None:
    """A restart killed pods that a drain waits for."""
    switch = Switch(tmp_path)

    assert ([REFUSED], True) == (switch.entry["losses"], switch.entry["asks"])
    status, is_restarted, text = switch.run()
    assert (1, False) == (status, is_restarted)
    name = switch.entry["object"]
    assert f"--evict-jobs={name} restarts it all the same" in text
    assert (0, True) == switch.run(f"--evict-jobs={name}")[:2]
    assert (0, True) == switch.run("--evict-jobs=all")[:2]
    assert (1, False) == switch.run("--evict-jobs=gpu-0")[:2]
    assert (0, True) == switch.run(typed="r\n")[:2]
    status, is_restarted, text = switch.run(typed="s\n")
    assert (0, False) == (status, is_restarted)
    assert "is left as it is: its pods change when they are created again" in text
    assert "no script waits for that" in text
    assert (1, False) == switch.run(typed="a\n")[:2]


@pytest.mark.parametrize(
    ("observed", "state"),
    [
        pytest.param({"observedGeneration": 3, "updatedReplicas": 1}, "note", id="skipped"),
        pytest.param({"observedGeneration": 2, "updatedReplicas": 1}, "waiting", id="restarted"),
        pytest.param({"observedGeneration": 3, "updatedReplicas": 0}, "waiting", id="on its way"),
        pytest.param({}, "waiting", id="not known"),
    ],
)
def test_the_check_after_the_wave_does_not_wait_for_what_a_person_has_skipped(
    tmp_path: Path, observed: Mapping[str, int], state: str
) -> None:
    """It waited for half an hour, and no later wave could begin."""
    found = objects({STAYS: "false"})
    number, _ = restarted(planned(tmp_path, found, "--wave-nodes", 1))
    *_, owner, pod = found
    owner["metadata"]["generation"], owner["status"] = 3, dict(observed)
    pod["status"] = {"phase": "Running"}
    now = tmp_path / "now.yaml"
    now.write_text(dump_yaml(found))

    folder = tmp_path / "plan" / f"wave-{number}"
    result = drawbridge("verify", "--snapshot", now, "--wave", folder, "-o", "json")

    checks = {check["object"]: check for check in json.loads(result.stdout)["checks"]}
    assert state == checks["Deployment/team/web"]["state"]
    skipped = "1 of 1 pods have device keys still, since nobody has restarted them: web-0"
    assert checks["Deployment/team/web"]["message"].startswith(skipped) is (state == "note")


@pytest.mark.parametrize("value", ["true", ""])
def test_others_are_restarted_without_a_question(tmp_path: Path, value: str) -> None:
    planned(tmp_path, objects({STAYS: value}), "--wave-nodes", 1)

    assert "may_restart" not in script(tmp_path, "switch")
