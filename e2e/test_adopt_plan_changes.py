"""The scripts of a plan on a real API server, after somebody else has changed the same fields."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e.access import Access
from e2e.drawbridge import command_line
from kube.names import TRANSLATE_LABEL
from testing.documents import namespace, resource_quota
from testing.migration import GPU, SHARE, hami_node, workload

TEAM: Final = "changed-team"
LINE: Final = f"requests.{GPU}"
TIMEOUT_S: Final = 60.0


class Plan:
    """A plan of a node, a namespace and its quota, all of them in the cluster."""

    def __init__(self, cluster: Access, folder: Path) -> None:
        """Write the plan, as from a snapshot."""
        self.cluster = cluster
        self.folder = folder / "plan"
        quota = resource_quota({LINE: "8", "pods": "9"}, namespace=TEAM)
        cluster.apply([namespace(TEAM)])
        cluster.wait_for("serviceaccounts", "default", TEAM, timeout_s=TIMEOUT_S)
        cluster.apply([quota])
        snapshot = folder / "cluster.yaml"
        web = workload("web", SHARE, [], namespace=TEAM)
        objects = [hami_node("changed-hami"), namespace(TEAM), quota, *web]
        snapshot.write_text(yaml.safe_dump_all(objects))
        made = command_line(cluster, "plan", "--snapshot", snapshot, "-o", self.folder)
        assert made.returncode == 0, made.stdout + made.stderr

    def run(self, script: str, step: str) -> subprocess.CompletedProcess[str]:
        """Run a step of a script of the wave."""
        return subprocess.run(
            ["bash", self.folder / "wave-1" / script, f"--step={step}"],
            env=self.cluster.environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    def lines(self) -> dict[str, str]:
        """Return the lines of the quota."""
        hard: dict[str, str] = self.cluster.get("resourcequotas", "gpus", TEAM)["spec"]["hard"]
        return hard

    def label(self) -> str | None:
        """Return the label of the namespace."""
        labels = self.cluster.get("namespaces", TEAM)["metadata"]["labels"]
        value: str | None = labels.get(TRANSLATE_LABEL)
        return value


@pytest.fixture
def plan(cluster: Access, tmp_path: Path) -> Iterator[Plan]:
    yield Plan(cluster, tmp_path)
    cluster.delete("namespaces", TEAM)
    cluster.wait_gone("namespaces", TEAM)


def test_a_quota_that_was_raised_since_stays_so_and_the_wave_stops(plan: Plan) -> None:
    raise_it = f'{{"spec": {{"hard": {{"{LINE}": "16"}}}}}}'
    patch = ("patch", "resourcequota", "gpus", "-n", TEAM, "--type=merge", "-p")
    plan.cluster.kubectl(*patch, raise_it)

    stopped = plan.run("switch.sh", "begin")

    assert 0 != stopped.returncode
    assert "is 16, and the plan expects 8" in stopped.stderr
    assert {LINE: "16", "pods": "9"} == plan.lines()
    # Put back, it goes on, and may be repeated; the API server tests missing lines by null.
    plan.cluster.kubectl(*patch, raise_it.replace("16", "8"))
    for _ in range(2):
        result = plan.run("switch.sh", "begin")
        assert 0 == result.returncode, result.stdout + result.stderr
    lines = plan.lines()
    assert ("8", "9") == (lines.pop(LINE), lines.pop("pods"))
    assert lines
    assert all(line.endswith("deviceclass.resource.k8s.io/devices") for line in lines)


def test_a_namespace_that_opted_out_since_stays_so(plan: Plan) -> None:
    label = ("label", "namespace", TEAM, "--overwrite")
    plan.cluster.kubectl(*label, f"{TRANSLATE_LABEL}=false")

    stopped = plan.run("switch.sh", "namespaces")
    assert 0 != stopped.returncode, stopped.stdout
    assert r"drawbridge\.internal/translate is false, and the plan expects" in stopped.stderr

    # Its pods have device keys again, so a way back goes on and leaves the label.
    result = plan.run("rollback.sh", "namespaces")
    assert 0 == result.returncode, result.stdout + result.stderr
    assert f"namespace/{TEAM} is opted out, and stays so" in result.stdout
    assert "false" == plan.label()

    # What the wave has set is taken back, once and again.
    plan.cluster.kubectl(*label, f"{TRANSLATE_LABEL}=true")
    for _ in range(2):
        result = plan.run("rollback.sh", "namespaces")
        assert 0 == result.returncode, result.stdout + result.stderr
        assert plan.label() is None
