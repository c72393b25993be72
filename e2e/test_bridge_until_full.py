"""Two replicas give out all devices of a cluster, while the leader is killed and the API server restarts.

What happened is read in the API server's audit log, by code that has nothing of ours.
`DRAWBRIDGE_E2E_FULL="100 3"` does it with 100 nodes, so 1,000 pods, and three times.
"""

import os
import signal
from collections.abc import Iterator
from typing import Final

import pytest

from e2e import inventory
from e2e.audit import conflicts, double_allocation, log_length, stored_claims
from e2e.bridge import bridged, doubly_held
from e2e.inventory import EXAMPLE
from e2e.owned import AUDITED, TEAM, Owned, taker

NODES, ROUNDS = map(int, os.environ.get("DRAWBRIDGE_E2E_FULL", "20 1").split())
PER_NODE: Final = 8
DEVICES: Final = NODES * PER_NODE
PODS: Final = DEVICES * 5 // 4
TIMEOUT_S: Final = 300.0 + PODS
REPLICAS: Final = ("a", "b")

pytestmark = [
    pytest.mark.long,
    pytest.mark.parametrize("cluster", [AUDITED], indirect=True),
]


@pytest.fixture(scope="module")
def full_nodes(owned_bridge: Owned) -> Iterator[None]:
    cluster = owned_bridge.cluster
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(NODES, prefix="full"),
        lambda node: inventory.example_gpus(node, gpus=PER_NODE),
    )
    yield
    cluster.remove_nodes(nodes)


@pytest.fixture
def stage(owned_bridge: Owned, full_nodes: None) -> Iterator[Owned]:
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    owned_bridge.bridge.ensure()
    owned_bridge.bridge.start("b")
    yield owned_bridge
    owned_bridge.bridge.ensure()
    owned_bridge.clear()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_until_full_with_two_replicas_and_a_restart_of_the_api_server(
    stage: Owned, number: int
) -> None:
    cluster, bridge = stage.cluster, stage.bridge
    began = log_length(cluster)
    stage.apply(*(bridged(taker(f"pod-{number}-{index}")) for index in range(PODS)))

    _wait_running(stage, PODS // 4)
    cluster.wait_until(lambda: len(bridge.working()) == 1, "one leads", timeout_s=TIMEOUT_S)
    (leader,) = bridge.working()
    (other,) = set(REPLICAS) - {leader}
    for part in ("scheduler", "sidecar"):
        bridge.child(part, leader).signal(signal.SIGKILL)
    bridge.wait_working(other)
    _wait_running(stage, DEVICES)
    assert [] == doubly_held(cluster)

    cluster.restart("kube-apiserver")
    cluster.wait_until(lambda: _answers(stage), "the API server answers", timeout_s=TIMEOUT_S)
    gone = sorted(_running(stage))[: PODS - DEVICES]
    cluster.kubectl("delete", "pods", *gone, "-n", TEAM, "--wait=false")
    _wait_running(stage, DEVICES, PODS - len(gone))

    assert [] == doubly_held(cluster)
    claims = stored_claims(cluster, began)
    assert len(claims) > PODS
    assert [] == conflicts(claims)
    assert [("full", "c")] == conflicts(double_allocation())


def _running(stage: Owned) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in stage.cluster.objects("pods", TEAM)
        if pod["status"].get("phase") == "Running"
    ]


def _wait_running(stage: Owned, count: int, total: int = PODS) -> None:
    """Wait until so many pods run, and restart processes that have ended meanwhile."""

    def running() -> bool:
        stage.bridge.tend(*REPLICAS)
        pods = stage.cluster.objects("pods", TEAM)
        phases = [pod["status"].get("phase") for pod in pods]
        return len(pods) == total and phases.count("Running") >= count

    stage.cluster.wait_until(running, f"{count} pods run", timeout_s=TIMEOUT_S)


def _answers(stage: Owned) -> bool:
    return stage.cluster.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok"
