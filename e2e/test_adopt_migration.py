"""A cluster of 40 nodes and 200 workloads moves from device plugins to DRA by the runbooks of a plan.

What the vendors run is played by `e2e.migration`; everything else is real: the runbooks, kubectl, Helm,
the control plane, the webhook and its controllers.
"""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.access import Object
from e2e.binaries import helm
from e2e.cluster import Cluster
from e2e.conftest import IMPATIENT
from e2e.drawbridge import ROOT, command_line, install_drawbridge, merged
from e2e.migration import (
    FULL,
    GPU,
    LOOK_S,
    MEMORY,
    SHARED_NODES,
    TEAMS,
    WHOLE_NODES,
    Vendors,
    Workload,
    budgets,
    gpu_operator,
    hami_driver,
    namespaces,
    nodes,
    quotas,
    workloads,
    write_driver_chart,
)
from e2e.quota_record import QuotaRecord, Status, excesses
from kube.names import REQUEST_ANNOTATION

WAVE_NODES: Final = 14
ROLLED_BACK: Final = 2
"""The wave that is taken back, and done again."""
TIMEOUT_S: Final = 180.0
OF_ITS_OWN: Final[dict[str, Any]] = {"client_qps": 500}
"""Of a control plane that no other story uses, so that nothing need be deleted in the end."""
SETTINGS: Final = merged(
    IMPATIENT,
    {
        "translation": {"mode": "OptIn"},
        "controllers": {"auditPeriod": "10m", "templateUnusedPeriod": "1m"},
    },
)


class Migration:
    """A cluster on its way, and what a person does with it."""

    def __init__(self, cluster: Cluster, folder: Path, members: list[Workload]) -> None:
        self.cluster = cluster
        self.folder = folder
        self.members = members

    def run(self, script: str) -> str:
        """Run a script of the plan as it is written; return what it says."""
        environment = self.cluster.environment()
        environment["PATH"] = f"{self.folder / 'bin'}:{environment['PATH']}"
        result = subprocess.run(
            ["bash", self.folder / "plan" / script],
            # Helm finds the chart here.
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{script}:\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def answer(self, *arguments: str | Path, status: int) -> Any:
        """Return the JSON of a command that ends with a status."""
        result = command_line(self.cluster, *arguments, "-o", "json")
        assert result.returncode == status, result.stdout + result.stderr
        return json.loads(result.stdout)

    def snapshot(self, name: str) -> Path:
        """Return a new snapshot of the cluster."""
        path = self.folder / name
        result = command_line(self.cluster, "snapshot", "-o", path)
        assert result.returncode == 0, result.stderr
        return path

    def pods(self) -> dict[str, list[Object]]:
        """Return the running pods by their workload."""
        names = {
            (member.namespace, member.document["metadata"]["name"]): member.reference
            for member in self.members
        }
        running: dict[str, list[Object]] = {}
        for pod in self.cluster.objects("pods"):
            metadata = pod["metadata"]
            key = (metadata["namespace"], metadata.get("labels", {}).get("app", ""))
            is_running = pod["status"].get("phase") == "Running"
            if key in names and is_running and "deletionTimestamp" not in metadata:
                running.setdefault(names[key], []).append(pod)
        return running

    def wait_whole(self, moment: str) -> None:
        """Return when every workload has exactly its pods."""
        expected = {member.reference: member.pods for member in self.members if member.pods}

        def is_whole() -> bool:
            found = {key: len(pods) for key, pods in self.pods().items()}
            if found != expected:
                time.sleep(LOOK_S)  # All pods are much to read.
            return found == expected

        self.cluster.wait_until(is_whole, f"no pod is missing {moment}", timeout_s=TIMEOUT_S)


@pytest.fixture
def migration(cluster: Cluster, tmp_path: Path) -> Migration:
    """The cluster before its migration, with Drawbridge installed and nothing opted in."""
    members = workloads()
    write_driver_chart(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "helm").symlink_to(helm())
    overlay = ROOT / "manifests" / "overlays" / "opt-in"
    install_drawbridge(cluster, manifests=overlay, settings=SETTINGS)
    cluster.apply([*namespaces(), gpu_operator()])
    cluster.add_nodes(nodes())
    for team in TEAMS:
        cluster.wait_for("serviceaccounts", "default", team, timeout_s=TIMEOUT_S)
    cluster.apply([*quotas(members), *budgets(members)])
    cluster.apply([member.document for member in members])
    return Migration(cluster, tmp_path, members)


@pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True)
def test_a_cluster_moves_wave_by_wave_and_one_wave_back(migration: Migration) -> None:
    with Vendors(migration.cluster), ExitStack() as stack:
        migration.wait_whole("at the start")
        record = stack.enter_context(QuotaRecord(migration.cluster))
        mend(migration)
        promised = assess(migration)
        plan = make_plan(migration)
        assert_the_quota_is_full(migration)

        migration.run("prepare.sh")
        migration.cluster.apply(hami_driver())
        for number, wave in enumerate(plan["waves"], start=1):
            move(migration, wave)
            if number == ROLLED_BACK:
                take_back(migration, wave)
                move(migration, wave)

        assert_counts(migration, promised)
        assert_the_quota_is_full(migration)
    versions = record.versions()
    assert set(TEAMS) <= {entry.namespace for entry in versions if isinstance(entry, Status)}
    found = excesses(versions)
    print("taken back by the quota controller:", *found.recounted, sep="\n")
    assert found.uncounted == []


def mend(migration: Migration) -> None:
    """Do what the first assessment asks for, but for the quotas, which are the runbooks' task."""
    answer = migration.answer("assess", "--snapshot", migration.snapshot("first.json.gz"), status=1)
    blockers = {blocker["code"]: blocker["objects"] for blocker in answer["blockers"]}
    wrong = "Deployment/team-11/bytes"
    assert blockers.keys() == {"quotaNotCounted", "wrongUnit"}
    assert blockers["wrongUnit"] == [wrong]
    assert {row["object"]: row["outcome"] for row in answer["workloads"]}[wrong] == "refused"

    limits = {"/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpumem": "4096"}
    patch = [{"op": "replace", "path": path, "value": value} for path, value in limits.items()]
    migration.cluster.kubectl(
        *("patch", "deployment", "bytes", "--namespace", TEAMS[-1]),
        *("--type=json", "-p", json.dumps(patch)),
    )
    migration.cluster.kubectl(
        "rollout",
        "status",
        "deployment/bytes",
        "--namespace",
        TEAMS[-1],
        f"--timeout={TIMEOUT_S:.0f}s",
    )
    migration.wait_whole("after a manifest was mended")


def assess(migration: Migration) -> Mapping[str, Any]:
    """Return the assessment with the quotas as they will be; everything in it is expected."""
    taken = migration.snapshot("cluster.json.gz")
    result = command_line(migration.cluster, "quota", "convert", "--snapshot", taken, "-o", "yaml")
    assert result.returncode == 0, result.stderr
    converted = migration.folder / "quotas.yaml"
    converted.write_text(result.stdout)

    answer: Mapping[str, Any] = migration.answer(
        "assess", "--snapshot", taken, "--snapshot", converted, status=0
    )

    outcomes = {row["object"]: row["outcome"] for row in answer["workloads"]}
    expected = {member.reference: member.outcome for member in migration.members}
    assert outcomes == {
        key: "translated" if outcome == "refused" else outcome for key, outcome in expected.items()
    }
    assert answer["totals"] == {
        outcome: Counter(outcomes.values())[outcome] for outcome in answer["totals"]
    }
    sources = {node["name"]: (node["source"], node["devices"]) for node in answer["nodes"]}
    assert sources == {
        **dict.fromkeys(WHOLE_NODES, ("devicePlugin", 8)),
        **dict.fromkeys(SHARED_NODES, ("hami", 4)),
    }
    assert answer["capacity"]["unplaced"] == []
    return answer


def make_plan(migration: Migration) -> Mapping[str, Any]:
    """Return the plan; every node and every namespace has a wave."""
    folder = migration.folder / "plan"
    taken = migration.folder / "cluster.json.gz"
    flags = ("--wave-nodes", str(WAVE_NODES), "--output", folder)
    result = command_line(migration.cluster, "plan", "--snapshot", taken, *flags)
    assert result.returncode == 0, result.stdout + result.stderr
    plan: Mapping[str, Any] = yaml.safe_load((folder / "plan.yaml").read_text())
    waves = plan["waves"]
    assert len(waves) >= ROLLED_BACK
    planned = [node["name"] for wave in waves for node in wave["nodes"]]
    assert sorted(planned) == sorted((*WHOLE_NODES, *SHARED_NODES))
    assert sorted(team for wave in waves for team in wave["namespaces"]) == list(TEAMS)
    assert waves[ROLLED_BACK - 1]["namespaces"], "a wave without a namespace shows less"
    return plan


def move(migration: Migration, wave: Mapping[str, Any]) -> None:
    """Run the runbooks of a wave, and look at what became of the pods that it does not concern."""
    folder = f"wave-{wave['wave']}"
    left_alone = untouched(migration, wave)

    for script in ("preflight.sh", "switch.sh", "verify.sh"):
        migration.run(f"{folder}/{script}")

    migration.wait_whole(f"after {folder}")
    assert left_alone <= untouched(migration, wave)
    switched = {node["name"] for node in wave["nodes"]}
    assert published(migration, switched) == {
        node["name"]: sum(node["devices"].values()) for node in wave["nodes"]
    }
    assert offered(migration, switched) == {"0"}


def take_back(migration: Migration, wave: Mapping[str, Any]) -> None:
    """Run the rollback of a wave; it is as if the wave had never been."""
    left_alone = untouched(migration, wave)

    migration.run(f"wave-{wave['wave']}/rollback.sh")

    migration.wait_whole("after the rollback")
    assert left_alone <= untouched(migration, wave)
    switched = {node["name"] for node in wave["nodes"]}
    assert published(migration, switched) == {}
    assert "0" not in offered(migration, switched)

    def is_back() -> bool:
        # In the middle of a rollout there are as many pods as in the end, of both kinds.
        time.sleep(LOOK_S)
        return not any(
            is_translated(pod)
            for reference, pods in migration.pods().items()
            if reference.split("/")[1] in wave["namespaces"]
            for pod in pods
        )

    migration.cluster.wait_until(is_back, "no pod of the wave has claims", timeout_s=TIMEOUT_S)


def untouched(migration: Migration, wave: Mapping[str, Any]) -> set[str]:
    """Return the pods on other nodes that no wave restarts: those of other namespaces, and native ones."""
    switched = {node["name"] for node in wave["nodes"]}
    restarted = {
        workload["object"] for workload in wave["workloads"] if workload["outcome"] != "native"
    }
    return {
        pod["metadata"]["uid"]
        for reference, pods in migration.pods().items()
        if reference not in restarted
        for pod in pods
        if pod["spec"]["nodeName"] not in switched
    }


def published(migration: Migration, names: Collection[str]) -> dict[str, int]:
    """Return how many devices are published for nodes."""
    counts = Counter[str]()
    for piece in migration.cluster.objects("resourceslices"):
        counts[piece["spec"]["nodeName"]] += len(piece["spec"]["devices"])
    return {name: count for name, count in counts.items() if name in names}


def offered(migration: Migration, names: Collection[str]) -> set[str]:
    """Return the amounts of GPUs that kubelets of nodes offer."""
    return {
        node["status"]["allocatable"][GPU]
        for node in migration.cluster.objects("nodes")
        if node["metadata"]["name"] in names
    }


def is_translated(pod: Object) -> bool:
    return REQUEST_ANNOTATION in pod["metadata"].get("annotations", {})


def assert_counts(migration: Migration, promised: Mapping[str, Any]) -> None:
    """Every count of the assessment is what the API server shows, and nothing legacy is left."""
    rows = {row["object"]: row for row in promised["workloads"]}
    pods = migration.pods()
    # A suspended CronJob has no pod; its next run would have one.
    idle = {member.reference for member in migration.members if not member.pods}
    assert {key: len(running) for key, running in pods.items()} == {
        key: row["pods"] for key, row in rows.items() if key not in idle
    }
    running_pods = sum(map(len, pods.values()))
    assert running_pods + len(idle) == promised["capacity"]["pods"]
    for reference, running in pods.items():
        is_native = rows[reference]["outcome"] == "native"
        for pod in running:
            limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
            assert is_translated(pod) is not is_native, reference
            assert (GPU in limits) is is_native, reference
            assert MEMORY not in limits, reference
            assert pod["spec"]["schedulerName"] == "default-scheduler", reference
    assert published(migration, (*WHOLE_NODES, *SHARED_NODES)) == {
        node["name"]: node["devices"] for node in promised["nodes"]
    }

    residue = migration.answer("assess", "--live", "--residue", status=0)
    assert residue["totals"] == promised["totals"]
    assert {node["source"] for node in residue["nodes"]} == {"dra"}


def assert_the_quota_is_full(migration: Migration) -> None:
    """One more pod of the team whose quota is used up gets no device."""
    target = ("deployment/serve-000", "--namespace", FULL)
    cluster = migration.cluster
    running = len(migration.pods()[f"Deployment/{FULL}/serve-000"])
    before = refusals(migration)
    cluster.kubectl("scale", *target, f"--replicas={running + 1}")
    try:
        cluster.wait_until(
            lambda: refusals(migration) > before,
            f"the quota of {FULL} refuses one more",
            timeout_s=TIMEOUT_S,
        )
        assert len(migration.pods()[f"Deployment/{FULL}/serve-000"]) == running
    finally:
        cluster.kubectl("scale", *target, f"--replicas={running}")
    migration.wait_whole("after a pod too many")


def refusals(migration: Migration) -> int:
    """Return how often the quota of the full team refused something."""
    return sum(
        event.get("series", {}).get("count", event.get("deprecatedCount", 1))
        for event in migration.cluster.objects("events.events.k8s.io", FULL)
        if "exceeded quota" in event.get("note", "")
    )
