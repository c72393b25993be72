"""A cluster moves from device plugins to DRA by the runbooks of a plan, and a checker without our code checks it.

15 nodes and 81 workloads in `make test`, and 41 nodes and 257 workloads in `make rehearsal`, where a node dies on
the way. What the vendors run is played by `e2e.vendors`; everything else is real: the runbooks, kubectl, Helm, the
control plane, the webhook and its controllers. A team that moves in parts has a limit of memory (`e2e.metered`).
"""

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.access import Object
from e2e.binaries import helm
from e2e.checker.check import check, report
from e2e.checker.rules import Allowance
from e2e.cluster import Cluster
from e2e.conftest import IMPATIENT
from e2e.drawbridge import ROOT, command_line, install_drawbridge, merged
from e2e.history_record import HistoryRecord
from e2e.metered import MeteredTenant
from e2e.migration import (
    GPU,
    LARGE,
    MEMORY,
    SMALL,
    Workload,
    agent,
    budgets,
    kind_of_node,
    legacy_source,
    namespaces,
    nodes,
    offered_amounts,
    quotas,
    workloads,
)
from e2e.quota_record import QuotaRecord, Status, excesses
from e2e.vendors import LOOK_S, OPERATOR, Vendors, gpu_operator, hami_driver, write_driver_chart
from kube.names import REQUEST_ANNOTATION, TRANSLATE_LABEL

IS_LARGE: Final = bool(os.environ.get("DRAWBRIDGE_E2E_REHEARSAL"))
FLEET: Final = LARGE if IS_LARGE else SMALL
WAVE_NODES: Final = 12 if IS_LARGE else 8
LOSES_NODE: Final = 2 if IS_LARGE else 0
"""The wave in which a node dies that is not switched yet; 0 for none."""
TIMEOUT_S: Final = 300.0
JOB_TIMEOUT: Final = "--job-timeout=5m"
OF_ITS_OWN: Final[dict[str, Any]] = {"client_qps": 500}
"""The parameters of a control plane that no other story uses, so that nothing need be deleted in the end."""
SETTINGS: Final = merged(
    IMPATIENT,
    {
        "translation": {"mode": "OptIn"},
        "controllers": {"auditPeriod": "10m", "templateUnusedPeriod": "1m"},
    },
)


class Migration:
    """A cluster on its way, and the actions of a person on it.

    Attributes:
        plan: The folder of the plan that is followed.
        lost: Nodes that died.
        is_reverted: A label has been taken back.
        is_taken_back: A wave has.
    """

    def __init__(self, cluster: Cluster, folder: Path, members: list[Workload]) -> None:
        self.cluster = cluster
        self.folder = folder
        self.members = members
        self.metered = MeteredTenant(cluster, FLEET.metered)
        self.plan = folder / "plan"
        self.lost: set[str] = set()
        self.is_reverted = self.is_taken_back = False

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the nodes that have not died."""
        return tuple(name for name in FLEET.node_names() if name not in self.lost)

    def run(self, script: str, *arguments: str) -> str:
        """Run a script of the plan as it is written; return its output."""
        result = self.attempt(script, *arguments)
        assert result.returncode == 0, f"{script}:\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def attempt(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the plan that may stop."""
        environment = self.cluster.environment()
        environment["PATH"] = f"{self.folder / 'bin'}:{environment['PATH']}"
        return subprocess.run(
            ["bash", self.plan / script, *arguments],
            # Helm finds the chart here.
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

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
        """Wait until every workload has exactly its pods."""
        expected = {member.reference: member.pods for member in self.members if member.pods}

        def is_whole() -> bool:
            found = {key: len(pods) for key, pods in self.pods().items() if key in expected}
            if found != expected:
                time.sleep(LOOK_S)  # All pods are much to read.
            return found == expected

        self.cluster.wait_until(is_whole, f"no pod is missing {moment}", timeout_s=TIMEOUT_S)


@pytest.fixture
def migration(cluster: Cluster, tmp_path: Path) -> Migration:
    """The cluster before its migration, with Drawbridge installed and nothing opted in."""
    members = workloads(FLEET)
    write_driver_chart(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "helm").symlink_to(helm())
    overlay = ROOT / "manifests" / "overlays" / "opt-in"
    install_drawbridge(cluster, manifests=overlay, settings=SETTINGS)
    cluster.apply([*namespaces(FLEET), gpu_operator()])
    cluster.add_nodes(nodes(FLEET))
    for team in FLEET.team_names:
        cluster.wait_for("serviceaccounts", "default", team, timeout_s=TIMEOUT_S)
    cluster.apply([*quotas(FLEET, members), *budgets(members), agent(FLEET)])
    migration = Migration(cluster, tmp_path, members)
    cluster.apply([member.document for member in members])
    return migration


@pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True)
def test_a_cluster_moves_wave_by_wave_and_one_wave_back(migration: Migration) -> None:
    with Vendors(migration.cluster, FLEET.node_names()), ExitStack() as stack:
        migration.wait_whole("at the start")
        wait_for_work(migration)
        record = stack.enter_context(QuotaRecord(migration.cluster))
        history = stack.enter_context(HistoryRecord(migration.cluster))
        stack.callback(history.write, migration.folder / "history.jsonl")
        migration.metered.wait_enforced()
        migration.metered.probe()
        mend(migration)
        promised = assess(migration)
        plan = make_plan(migration)
        assert_the_quota_is_full(migration)

        # A person's chart comes first: prepare.sh stops until its DaemonSet is there.
        migration.cluster.apply(hami_driver())
        migration.run("prepare.sh")
        follow(migration, plan["waves"])

        assert_counts(migration, promised)
        assert_the_quota_is_full(migration)
        migration.metered.assert_moved()
    assert_no_quota_was_passed(record)
    findings = check(history.events(), Allowance(dead_nodes=tuple(migration.lost)))
    assert not findings, f"{migration.folder / 'history.jsonl'}:\n{report(findings)}"


def follow(migration: Migration, waves: Sequence[Mapping[str, Any]]) -> None:
    """Run the waves of a plan, with the steps between, or a part of them and then those of a new plan."""
    # The first wave after which that can be done has its label taken back, as a repository would that does
    # not know it; the first but one is taken back as a whole, and done again.
    for number, wave in enumerate(waves, start=1):
        began = time.monotonic()
        move(migration, wave)
        if not migration.is_reverted and wave["namespaces"] and number < len(waves):
            revert(migration, wave)
        if not migration.is_taken_back and opted_in(wave) and number > 1:
            take_back(migration, wave)
            move(migration, wave)
        print(f"wave {number} of {len(waves)}: {time.monotonic() - began:.0f} s", flush=True)
        if number == LOSES_NODE and not migration.lost:
            lose_node(migration, waves[-1]["nodes"][0]["name"])
            return


def revert(migration: Migration, wave: Mapping[str, Any]) -> None:
    """Take back the label of a namespace, as a repository does that does not have it; it is noticed."""
    migration.is_reverted = True
    team = wave["namespaces"][0]
    label = ("label", "namespace", team, "--overwrite")
    migration.cluster.kubectl(*label, f"{TRANSLATE_LABEL}-")

    stopped = migration.attempt(f"wave-{wave['wave'] + 1}/preflight.sh")

    assert stopped.returncode == 1, stopped.stdout + stopped.stderr
    failed = [line for line in stopped.stdout.splitlines() if line.startswith("failed")]
    assert [f"Namespace/{team}" in line for line in failed] == [True], stopped.stdout
    migration.cluster.kubectl(*label, f"{TRANSLATE_LABEL}=true")


def lose_node(migration: Migration, name: str) -> None:
    """Have a node die for good, and follow a new plan with those that are left."""
    cluster = migration.cluster
    migration.lost.add(name)
    cluster.delete("nodes", name)
    cluster.wait_until(
        lambda: all(pod["spec"].get("nodeName") != name for pod in cluster.objects("pods")),
        f"the pods of {name} are gone",
        timeout_s=TIMEOUT_S,
    )
    migration.wait_whole(f"after {name} died")
    migration.plan = migration.folder / "second-plan"
    migration.snapshot("cluster.json.gz")
    plan = make_plan(migration)
    migration.run("prepare.sh")
    follow(migration, plan["waves"])


def wait_for_work(migration: Migration) -> None:
    """Wait until the Jobs run that end during the migration."""
    expected = {member.reference for member in migration.members if member.runs}
    migration.cluster.wait_until(
        lambda: expected <= set(migration.pods()), "the Jobs run", timeout_s=TIMEOUT_S
    )


def mend(migration: Migration) -> None:
    """Repair everything that the first assessment asks for, but for the quotas, the runbooks' task."""
    answer = migration.answer("assess", "--snapshot", migration.snapshot("first.json.gz"), status=1)
    blockers = {blocker["code"]: blocker["objects"] for blocker in answer["blockers"]}
    wrong = f"Deployment/{FLEET.team_names[-1]}/bytes"
    assert blockers == {"wrongUnit": [wrong]}
    assert answer["quotasToConvert"]
    assert {row["object"]: row["outcome"] for row in answer["workloads"]}[wrong] == "refused"

    limits = {"/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpumem": "4096"}
    patch = [{"op": "replace", "path": path, "value": value} for path, value in limits.items()]
    migration.cluster.kubectl(
        *("patch", "deployment", "bytes", "--namespace", FLEET.team_names[-1]),
        *("--type=json", "-p", json.dumps(patch)),
    )
    migration.cluster.kubectl(
        "rollout",
        "status",
        "deployment/bytes",
        "--namespace",
        FLEET.team_names[-1],
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
    assert sources == {name: legacy_source(name) for name in FLEET.node_names()}
    assert answer["capacity"]["unplaced"] == []
    return answer


def make_plan(migration: Migration) -> Mapping[str, Any]:
    """Return the plan; every node and every namespace has a wave."""
    taken = migration.folder / "cluster.json.gz"
    flags = (
        "--wave-nodes",
        str(WAVE_NODES),
        "--gpu-operator",
        OPERATOR,
        "--output",
        migration.plan,
    )
    result = command_line(migration.cluster, "plan", "--snapshot", taken, *flags)
    assert result.returncode == 0, result.stdout + result.stderr
    print(result.stdout, flush=True)
    plan: Mapping[str, Any] = yaml.load(
        (migration.plan / "plan.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    waves = plan["waves"]
    if migration.lost:
        return plan
    planned = [node["name"] for wave in waves for node in wave["nodes"]]
    assert sorted(planned) == sorted(FLEET.node_names())
    assert sorted(team for wave in waves for team in wave["namespaces"]) == list(FLEET.team_names)
    assert any(wave["partialNamespaces"] for wave in waves), "no namespace moves in parts"
    assert any(map(opted_in, waves[1:])), "a wave without a namespace shows less"
    return plan


def opted_in(wave: Mapping[str, Any]) -> list[str]:
    """Return the namespaces with a label that a wave sets."""
    return [*wave["namespaces"], *(entry["namespace"] for entry in wave["partialNamespaces"])]


def move(migration: Migration, wave: Mapping[str, Any]) -> None:
    """Run the runbooks of a wave, and look at the outcome for the pods that it does not concern."""
    folder = f"wave-{wave['wave']}"
    left_alone = untouched(migration, wave)

    migration.run(f"{folder}/preflight.sh")
    migration.run(f"{folder}/switch.sh", JOB_TIMEOUT)
    migration.run(f"{folder}/verify.sh")

    migration.wait_whole(f"after {folder}")
    migration.metered.probe()
    assert left_alone <= untouched(migration, wave)
    switched = {node["name"] for node in wave["nodes"]}
    assert published(migration, switched) == {
        node["name"]: sum(node["devices"].values()) for node in wave["nodes"]
    }
    assert offered(migration, switched) == {"0"}


def take_back(migration: Migration, wave: Mapping[str, Any]) -> None:
    """Run the rollback of a wave; it is as if the wave had never been."""
    migration.is_taken_back = True
    restarted = restarted_workloads(wave)
    left_alone = untouched(migration, wave)

    migration.run(f"wave-{wave['wave']}/rollback.sh", JOB_TIMEOUT)

    migration.wait_whole("after the rollback")
    migration.metered.probe()
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
            if reference in restarted
            for pod in pods
        )

    migration.cluster.wait_until(is_back, "no pod of the wave has claims", timeout_s=TIMEOUT_S)


def untouched(migration: Migration, wave: Mapping[str, Any]) -> set[str]:
    """Return the pods on other nodes that no wave restarts: those of other namespaces, and native ones."""
    switched = {node["name"] for node in wave["nodes"]}
    restarted = restarted_workloads(wave)
    return {
        pod["metadata"]["uid"]
        for reference, pods in migration.pods().items()
        if reference not in restarted
        for pod in pods
        if pod["spec"]["nodeName"] not in switched
    }


def restarted_workloads(wave: Mapping[str, Any]) -> set[str]:
    """Return the workloads with pods that get claims with a wave."""
    return {workload["object"] for workload in wave["workloads"] if workload["outcome"] != "native"}


def published(migration: Migration, names: Collection[str]) -> dict[str, int]:
    """Return the number of devices that are published for nodes."""
    counts = Counter[str]()
    for piece in migration.cluster.objects("resourceslices"):
        counts[piece["spec"]["nodeName"]] += len(piece["spec"]["devices"])
    return {name: count for name, count in counts.items() if name in names}


def offered(migration: Migration, names: Collection[str]) -> set[str]:
    """Return the amounts of devices that device plugins of nodes offer."""
    return {
        node["status"]["allocatable"][key]
        for node in migration.cluster.objects("nodes")
        if node["metadata"]["name"] in names
        for key in offered_amounts(kind_of_node(node["metadata"]["name"]))
    }


def is_translated(pod: Object) -> bool:
    return REQUEST_ANNOTATION in pod["metadata"].get("annotations", {})


def assert_counts(migration: Migration, promised: Mapping[str, Any]) -> None:
    """Every count of the assessment is that of the API server, and nothing legacy is left."""
    rows = {row["object"]: row for row in promised["workloads"]}
    # A suspended CronJob has no pod, and counts with none. A Job has ended, or a node died under it.
    idle = {member.reference for member in migration.members if not member.pods}
    pods = {key: running for key, running in migration.pods().items() if key not in idle}
    assert {key: len(running) for key, running in pods.items()} == {
        key: row["pods"] for key, row in rows.items() if key not in idle
    }
    running_pods = sum(map(len, pods.values()))
    idle_pods = sum(rows[reference]["pods"] for reference in idle)
    assert running_pods + idle_pods == promised["capacity"]["pods"]
    for reference, running in pods.items():
        is_native = rows[reference]["outcome"] == "native"
        for pod in running:
            limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
            assert is_translated(pod) is not is_native, reference
            assert (GPU in limits) is is_native, reference
            assert MEMORY not in limits, reference
            assert pod["spec"]["schedulerName"] == "default-scheduler", reference
    assert published(migration, FLEET.node_names()) == {
        node["name"]: node["devices"]
        for node in promised["nodes"]
        if node["name"] not in migration.lost
    }

    residue = migration.answer("assess", "--live", "--residue", status=0)
    # Jobs have ended, so they are no work any more.
    ended = Counter(member.outcome for member in migration.members if member.runs)
    assert migration.lost or residue["totals"] == {
        outcome: number - ended[outcome] for outcome, number in promised["totals"].items()
    }
    assert {node["source"] for node in residue["nodes"]} == {"dra"}


def assert_the_quota_is_full(migration: Migration) -> None:
    """One more pod of the team with a full quota gets no device."""
    target = ("deployment/serve-000", "--namespace", FLEET.full)
    cluster = migration.cluster
    running = len(migration.pods()[f"Deployment/{FLEET.full}/serve-000"])
    before = refusals(migration)
    cluster.kubectl("scale", *target, f"--replicas={running + 1}")
    try:
        cluster.wait_until(
            lambda: refusals(migration) > before,
            f"the quota of {FLEET.full} refuses one more",
            timeout_s=TIMEOUT_S,
        )
        assert len(migration.pods()[f"Deployment/{FLEET.full}/serve-000"]) == running
    finally:
        cluster.kubectl("scale", *target, f"--replicas={running}")
    migration.wait_whole("after a pod too many")


def refusals(migration: Migration) -> int:
    """Return the number of refusals by the quota of the full team."""
    return sum(
        event.get("series", {}).get("count", event.get("deprecatedCount", 1))
        for event in migration.cluster.objects("events.events.k8s.io", FLEET.full)
        if "exceeded quota" in event.get("note", "")
    )


def assert_no_quota_was_passed(record: QuotaRecord) -> None:
    """Nothing was stored that admission had not counted."""
    versions = record.versions()
    assert set(FLEET.team_names) <= {
        entry.namespace for entry in versions if isinstance(entry, Status)
    }
    found = excesses(versions)
    print("taken back by the quota controller:", *found.recounted, sep="\n")
    assert found.uncounted == []
