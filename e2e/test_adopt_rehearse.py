"""`drawbridge rehearse` tries the plan of the examples' fleet, and asks no other cluster.

Stories that rehearse a plan from beginning to end are in `make rehearsal` and `make long`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from cli.functions.scheduler_functions import KOORDINATOR_DEVICES
from e2e.cluster import Cluster
from e2e.credentials import kubeconfig
from e2e.drawbridge import ROOT
from e2e.hami_scheduler import HANDSHAKE, REGISTER
from e2e.rehearsal_load import create
from kube.manifests.reader import read_paths
from migration.rehearsal.koordinator import device_objects
from testing.documents import api_object, namespace, node, resource_quota
from testing.migration import SHARE, daemon_set, hami_node, plugin_node, workload

FLEET: Final = ROOT / "examples" / "migration" / "fleet.yaml"
KOORDINATOR: Final = ROOT / "examples" / "migration" / "koordinator" / "before.yaml"
WHOLE: Final = ("serving", "batch")
"""Workloads of whole GPUs, which kube-scheduler would also give nodes of HAMi: these offer the same key."""
MIG: Final = "nvidia.com/mig-1g.5gb"
LINE: Final = "requests.nvidia.com/gpumem"
ROOM_MIB: Final = 8000
"""The memory that the limit of a team leaves free: that of one pod, for a rollout."""
FLAGS: Final = ("--wave-nodes", "2", "--gpu-operator", "v26.7.0", "--driver-release", "none")


@pytest.fixture
def other_cluster(tmp_path: Path) -> Iterator[tuple[Path, list[object]]]:
    """A kubeconfig of somebody's cluster, and the connections to it."""
    connections: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                connections.append(address)
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        path = tmp_path / "caller" / ".kube" / "config"
        path.parent.mkdir(parents=True)
        path.write_text(kubeconfig({"server": f"http://127.0.0.1:{port}"}, {"token": "theirs"}))
        yield path, connections
        server.shutdown(socket.SHUT_RDWR)


def rehearse(
    snapshot: Path, *options: str, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a rehearsal in waves of one node, with the answer as JSON."""
    command = [sys.executable, "-m", "cli", "rehearse", "--snapshot", str(snapshot)]
    command += ["--wave-nodes", "1", "--gpu-operator", "none", *FLAGS[4:], *options, "-o", "json"]
    return subprocess.run(
        command,
        cwd=snapshot.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def fleet(path: Path) -> Path:
    """Write the fleet of the examples, with whole GPUs kept from nodes of HAMi, and a metered team."""
    documents = list(yaml.load_all(FLEET.read_text(), Loader=yaml.CSafeLoader))
    for document in documents:
        template = document.get("spec", {}).get("template", {})
        for spec in (template.get("spec"), document["spec"] if document["kind"] == "Pod" else None):
            name = document["metadata"]["name"]
            if spec is not None and name.startswith(WHOLE):
                spec["nodeSelector"] = {"nvidia.com/gpu.count": "8"}
    path.write_text(yaml.safe_dump_all([*documents, *metered()]))
    return path


def metered() -> list[dict[str, object]]:
    """A quota of memory for the three shares of a team, and the DeviceQuota that it is converted to."""
    most = 3 * 8000 + ROOM_MIB
    key = {"name": "nvidia.com/gpumem", "perUnit": "1Mi", "multipliedBy": "nvidia.com/gpu"}
    driver = "hami-core-gpu.project-hami.io"
    limit = {"name": "memory", "driver": driver, "capacity": "memory", "max": f"{most}Mi"}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    return [
        resource_quota({LINE: str(most)}, name="memory", namespace="team-a"),
        api_object(
            "DeviceQuota",
            "team-a-memory",
            spec={
                "namespaceSelector": selector,
                "limits": [{**limit, "legacyKeys": [key]}],
            },
        ),
    ]


@pytest.mark.long
def test_a_plan_is_rehearsed_wave_by_wave_and_no_other_cluster_is_asked(
    other_cluster: tuple[Path, list[object]], tmp_path: Path
) -> None:
    theirs, connections = other_cluster
    keep, snapshot = tmp_path / "kept", fleet(tmp_path / "fleet.yaml")
    command = [sys.executable, "-m", "cli", "rehearse", "--snapshot", str(snapshot), *FLAGS]

    result = subprocess.run(
        [*command, "--keep", str(keep), "-o", "json"],
        cwd=tmp_path,
        env=environment_of(theirs),
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.stdout, result.stderr
    answer = json.loads(result.stdout)
    print(result.stdout)
    assert [] == answer["findings"]
    assert [] == [run for run in answer["scripts"] if run["status"]]
    assert (5, 5, 5) == (answer["waves"], answer["wavesDone"], answer["nodes"])
    assert any("helm upgrade" in text for text in answer["notRehearsed"])
    assert 0 == result.returncode
    assert [] == connections
    assert metered_history(keep / "history.jsonl") == ([True, False], {f"{ROOM_MIB}Mi"})


def environment_of(theirs: Path) -> dict[str, str]:
    """Return an environment with that file as KUBECONFIG, and with its home as HOME."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    home = str(theirs.parents[1])
    return {**os.environ, "KUBECONFIG": str(theirs), "HOME": home, "XDG_CACHE_HOME": cache}


def metered_history(path: Path) -> tuple[list[bool], set[str | None]]:
    """Return the presence of the line of memory, as it changed, and the amount left of the DeviceQuota at last."""
    lines: list[bool] = []
    left: set[str | None] = set()
    for event in map(json.loads, path.read_text().splitlines()):
        stored, kind = event["object"], event["kind"]
        if kind == "resourcequotas" and stored["metadata"]["name"] == "memory":
            has_line = event["type"] != "DELETED" and LINE in stored["spec"].get("hard", {})
            lines += [has_line] if lines[-1:] != [has_line] else []
        elif kind == "devicequotas":
            left = {limit.get("available") for limit in stored.get("status", {}).get("limits", ())}
    return lines, left


@pytest.mark.long
def test_pods_of_a_daemon_set_move_with_their_nodes(tmp_path: Path) -> None:
    """Each wave has one of its nodes; nothing waits on those of later waves."""
    names = ("mig-0", "mig-1", "mig-2")
    monitor = workload("monitor", {MIG: "1"}, names, kind="DaemonSet")
    monitor[0]["spec"]["selector"] = {"matchLabels": {"app": "monitor"}}
    for pod in monitor[1:]:
        pod["spec"]["affinity"] = pinned_to(pod["spec"]["nodeName"])
        pod["status"] = {"phase": "Running"}
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/cuda.driver-version.major": "580",
    }
    nodes = [node(name, {"cpu": "8", MIG: "7"}, labels, {}) for name in names]
    system = namespace("kube-system")
    system["metadata"]["uid"] = "6f3c9d6e-1111-4c57-9d8f-000000000001"
    plugin = daemon_set("nvidia-device-plugin")
    plugin["spec"]["template"]["spec"]["containers"][0]["image"] = "k8s-device-plugin:v0.17.0"
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(yaml.safe_dump_all([*nodes, system, namespace("team"), plugin, *monitor]))

    result = rehearse(snapshot)

    answer = json.loads(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert [run["script"] for run in answer["scripts"] if "switch" in run["script"]] == [
        f"wave-{number}/switch.sh" for number in (1, 2, 3)
    ]
    assert not answer["findings"]


@pytest.mark.long
def test_each_pod_with_a_volume_of_its_node_waits_for_it(tmp_path: Path) -> None:
    """It came back on another node, and the waves after that were those of another cluster."""
    owner, *own_pods = workload(
        "index", {"nvidia.com/gpu": "1"}, ["gpu-0", "gpu-1"], kind="StatefulSet"
    )
    owner["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {}}]
    volumes = []
    for number, pod in enumerate(own_pods):
        claim, disk = f"data-index-{number}", f"disk-{number}"
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        pod["spec"] = {**pod["spec"], "volumes": [volume]}
        pod["status"] = {"phase": "Running"}
        volumes += [
            api_object("PersistentVolumeClaim", claim, "team", spec={"volumeName": disk}),
            api_object("PersistentVolume", disk, spec={"local": {"path": "/disk"}}),
        ]
    system = namespace("kube-system")
    system["metadata"]["uid"] = "6f3c9d6e-1111-4c57-9d8f-000000000001"
    plugin = daemon_set("nvidia-device-plugin")
    plugin["spec"]["template"]["spec"]["containers"][0]["image"] = "k8s-device-plugin:v0.17.0"
    driver = {"nvidia.com/cuda.driver-version.major": "580"}
    nodes = [plugin_node(f"gpu-{number}", 4, **driver) for number in range(2)]
    snapshot = tmp_path / "cluster.yaml"
    team = [namespace("team"), *volumes, owner, *own_pods]
    snapshot.write_text(yaml.safe_dump_all([*nodes, system, plugin, *team]))
    keep = tmp_path / "kept"

    result = rehearse(snapshot, "--keep", str(keep))

    assert result.returncode == 0, result.stdout + result.stderr
    answer = json.loads(result.stdout)
    assert (2, 2, []) == (answer["waves"], answer["wavesDone"], answer["findings"])
    events = map(json.loads, (keep / "history.jsonl").read_text().splitlines())
    pods = [event["object"] for event in events if event["kind"] == "pods"]
    for number in range(2):
        own = [pod for pod in pods if pod["metadata"]["name"] == f"index-{number}"]
        assert 1 < len({pod["metadata"]["uid"] for pod in own})
        node = f"gpu-{number}"
        assert {node} == {pod["spec"].get("nodeName", node) for pod in own}


@pytest.mark.long
def test_what_the_plan_asks_a_person_for_is_done_and_work_is_evicted_on_demand(
    tmp_path: Path,
) -> None:
    """A drain stops at a bare pod, and a Deployment that asks not to be evicted never ends."""
    nodes = [hami_node(name) for name in ("hami-0", "hami-1", "hami-2")]
    for hami in nodes:
        hami["metadata"]["annotations"][HANDSHAKE] = "Requesting_2026-11-01 10:00:00"
    debug = workload("debug", SHARE, ["hami-0"])[1]
    del debug["metadata"]["ownerReferences"]
    quarter = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "25"}
    stays = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    web = workload("web", quarter, ["hami-1"])
    for template in (web[0]["spec"]["template"], web[1]):
        template["metadata"]["annotations"] = stays
    for pod in (debug, web[1]):
        pod["status"] = {"phase": "Running"}
    system = namespace("kube-system")
    system["metadata"]["uid"] = "6f3c9d6e-1111-4c57-9d8f-000000000001"
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(yaml.safe_dump_all([*nodes, system, namespace("team"), debug, *web]))

    result = rehearse(snapshot, "--evict-jobs", "--keep", str(tmp_path / "kept"), timeout_s=400)

    assert result.stdout, result.stderr
    answer = json.loads(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert any("Pod team/debug-0 is deleted" in text for text in answer["byHand"])
    assert answer["byHand"][-1].endswith("applied again")
    events = map(json.loads, (tmp_path / "kept" / "history.jsonl").read_text().splitlines())
    last = {
        event["object"]["metadata"]["name"]: event["object"]["metadata"]["annotations"]
        for event in events
        if event["kind"] == "nodes"
    }
    switched = [notes for notes in last.values() if notes[HANDSHAKE].startswith("Deleted_")]
    assert len(switched) == answer["wavesDone"]
    assert [] == [notes for notes in switched if REGISTER in notes]


@pytest.mark.long
def test_koordinator_and_a_repository_are_rehearsed_to_the_last_wave(
    tmp_path: Path,
) -> None:
    """Each of the two stopped a rehearsal: a kind that was unknown, and a namespace of Argo CD."""
    documents = list(yaml.load_all(KOORDINATOR.read_text(), Loader=yaml.CSafeLoader))
    system = namespace("kube-system")
    system["metadata"]["uid"] = "6f3c9d6e-1111-4c57-9d8f-000000000001"
    for document in documents:
        if (document["kind"], document["metadata"]["name"]) == ("Namespace", "team-a"):
            tracking = {"argocd.argoproj.io/tracking-id": "apps:/Namespace:team-a"}
            document["metadata"]["annotations"] = tracking
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(yaml.safe_dump_all([*documents, system]))

    result = rehearse(snapshot, "--format", "kustomize", timeout_s=400)

    assert result.returncode == 0, result.stdout + result.stderr
    answer = json.loads(result.stdout)
    assert answer["wavesDone"] == answer["waves"] > 1
    assert any("of the plan is committed" in text for text in answer["byHand"])


def test_devices_of_koordinator_are_created_and_deleted_as_the_scripts_do(cluster: Cluster) -> None:
    """A control plane does not serve their kind by itself."""
    objects = tuple(read_paths([str(KOORDINATOR)]))
    try:
        assert [] == [*create(cluster, device_objects(objects, {"koord-0", "koord-1"}))]

        names = [entry["metadata"]["name"] for entry in cluster.objects(KOORDINATOR_DEVICES)]
        assert ["koord-0", "koord-1"] == names
        cluster.kubectl("delete", KOORDINATOR_DEVICES, "koord-0", "--ignore-not-found")
        cluster.kubectl("delete", KOORDINATOR_DEVICES, "koord-0", "--ignore-not-found")
    finally:
        cluster.kubectl("delete", "customresourcedefinition", KOORDINATOR_DEVICES)


def test_a_rehearsal_that_is_ended_leaves_no_process(
    other_cluster: tuple[Path, list[object]], tmp_path: Path
) -> None:
    """SIGTERM ended the command alone: etcd and the API server ran on."""
    theirs, connections = other_cluster
    keep = tmp_path / "kept"
    snapshot = fleet(tmp_path / "fleet.yaml")
    command = [sys.executable, "-m", "cli", "rehearse", "--snapshot", str(snapshot), *FLAGS]
    process = subprocess.Popen(
        [*command, "--keep", str(keep)], cwd=tmp_path, env=environment_of(theirs)
    )
    records = keep / "cluster" / "processes.json"
    deadline = time.monotonic() + 600
    while not (records.exists() and len(json.loads(records.read_text() or "[]")) > 1):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    pids = [entry["pid"] for entry in json.loads(records.read_text())]

    process.send_signal(signal.SIGTERM)

    assert 128 + signal.SIGTERM == process.wait(180)
    assert [] == [pid for pid in pids if Path("/proc", str(pid)).exists()]
    assert [] == connections


def pinned_to(node: str) -> dict[str, object]:
    """Return the affinity that the controller of DaemonSets gives a pod."""
    expression = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [expression]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}
