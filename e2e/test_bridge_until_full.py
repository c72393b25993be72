"""Two replicas give out all devices of a cluster, while the leader is killed and the API server restarts.

What happened is read in the API server's audit log, by code that has nothing of ours.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e import inventory
from e2e.bridge import bridged, doubly_held
from e2e.inventory import EXAMPLE
from e2e.owned import AUDITED, TEAM, Owned, taker

TIMEOUT_S: Final = 300.0
NODES: Final = 20
PER_NODE: Final = 8
PODS: Final = 200

pytestmark = pytest.mark.parametrize("cluster", [AUDITED], indirect=True)


@pytest.fixture
def stage(owned_bridge: Owned) -> Iterator[Owned]:
    cluster = owned_bridge.cluster
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(NODES, prefix="full"),
        lambda node: inventory.example_gpus(node, gpus=PER_NODE),
    )
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    owned_bridge.bridge.ensure()
    owned_bridge.bridge.start("b")
    yield owned_bridge
    owned_bridge.bridge.ensure()
    owned_bridge.clear()
    cluster.remove_nodes(nodes)


def test_until_full_with_two_replicas_and_a_restart_of_the_api_server(stage: Owned) -> None:
    cluster, bridge = stage.cluster, stage.bridge
    began = _length(cluster.audit_log)
    stage.apply(*(bridged(taker(f"pod-{number}")) for number in range(PODS)))

    _wait_running(stage, PODS // 4)
    for part in ("scheduler", "sidecar"):
        bridge.child(part, "a").signal(signal.SIGKILL)
    bridge.wait_working("b")
    _wait_running(stage, NODES * PER_NODE)
    assert [] == doubly_held(cluster)

    cluster.restart("kube-apiserver")
    cluster.wait_until(lambda: _answers(stage), "the API server answers", timeout_s=TIMEOUT_S)
    gone = sorted(_running(stage))[: PODS - NODES * PER_NODE]
    cluster.kubectl("delete", "pods", *gone, "-n", TEAM, "--wait=false")
    _wait_running(stage, NODES * PER_NODE, PODS - len(gone))

    assert [] == doubly_held(cluster)
    writes = _writes(cluster.audit_log, began)
    assert len(writes) > PODS
    assert [] == _conflicts(writes)
    assert [("full", "c")] == _conflicts(_planted())


def _running(stage: Owned) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in stage.cluster.objects("pods", TEAM)
        if pod["status"].get("phase") == "Running"
    ]


def _wait_running(stage: Owned, count: int, total: int = PODS) -> None:
    """Wait until so many pods run, while somebody restarts what has ended."""

    def running() -> bool:
        stage.bridge.tend()
        pods = stage.cluster.objects("pods", TEAM)
        phases = [pod["status"].get("phase") for pod in pods]
        return len(pods) == total and phases.count("Running") >= count

    stage.cluster.wait_until(running, f"{count} pods run", timeout_s=TIMEOUT_S)


def _answers(stage: Owned) -> bool:
    return stage.cluster.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok"


# --- the audit log --------------------------------------------------------------------------------


def _length(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _writes(log: Path, offset: int) -> list[dict[str, Any]]:
    """Return the claims as they were stored, in order of their versions."""
    with log.open("rb") as file:
        file.seek(offset)
        events = [json.loads(line) for line in file]
    stored = [
        event["responseObject"]
        for event in events
        if event.get("responseStatus", {}).get("code") in {200, 201}
        and event.get("responseObject", {}).get("kind") == "ResourceClaim"
    ]
    return sorted(stored, key=lambda claim: int(claim["metadata"]["resourceVersion"]))


def _conflicts(writes: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Replay writes of claims; return device and claim of each that was allocated while in use."""
    users: dict[tuple[str, str, str], str] = {}
    devices_of: dict[str, list[tuple[str, str, str]]] = {}
    conflicts = []
    for claim in writes:
        uid = claim["metadata"]["uid"]
        for device in devices_of.pop(uid, []):
            users.pop(device, None)
        allocation = claim.get("status", {}).get("allocation") or {}
        devices = [
            (result["driver"], result["pool"], result["device"])
            for result in allocation.get("devices", {}).get("results", [])
        ]
        for device in devices:
            if users.setdefault(device, uid) != uid:
                conflicts.append((device[1], uid))
        devices_of[uid] = devices
    return conflicts


def _planted() -> list[dict[str, Any]]:
    """Return three claims for one device, of which the second gave it back in time."""
    result = {"driver": "d", "pool": "full", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    return [
        {"metadata": {"uid": uid}, "status": status if has_device else {}}
        for uid, has_device in (("a", True), ("a", False), ("b", True), ("c", True))
    ]
