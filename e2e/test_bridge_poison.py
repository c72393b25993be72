"""A pod with a decision that never ends: it costs the leader its Lease once, and no honest pod is lost."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from e2e import inventory
from e2e.access import Object
from e2e.bridge import LEASE, SIDECAR, bridged, doubly_held
from e2e.hanging import POISON
from e2e.inventory import EXAMPLE
from e2e.owned import AUDITED, TEAM, TIMEOUT_S, Owned, taker
from kube.names import NAMESPACE
from sidecar.plan.undecided import UNDECIDED, read_undecided

BESIDE: Final = tuple(f"beside-{number}" for number in range(4))
AFTERWARDS: Final = tuple(f"after-{number}" for number in range(12))
REPLICAS: Final = ("a", "b", "c")

pytestmark = pytest.mark.parametrize("cluster", [AUDITED], indirect=True)


@pytest.fixture
def stage(owned_bridge: Owned) -> Iterator[Owned]:
    """Three replicas that hang with poison, and two nodes with a device for each pod."""
    cluster, bridge = owned_bridge.cluster, owned_bridge.bridge
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(2, prefix="poison"),
        lambda node: inventory.example_gpus(node, gpus=10),
    )
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    bridge.stop("a")
    bridge.sidecar = "e2e.hanging"
    bridge.wait_working(*REPLICAS)
    yield owned_bridge
    bridge.sidecar = SIDECAR
    bridge.stop("a")
    bridge.ensure()
    owned_bridge.clear()
    cluster.remove_nodes(nodes)


def lease(stage: Owned) -> Object:
    return stage.cluster.get("lease", LEASE, NAMESPACE)


def test_a_decision_that_never_ends_costs_one_failover(stage: Owned) -> None:
    """The next leader comes to the poison when no other pod waits, and is not there yet."""
    before = lease(stage)["spec"]["leaseTransitions"]
    poison = taker(POISON)
    stage.apply(bridged(taker("before")))
    stage.running("before")
    stage.apply(bridged(poison), *(bridged(taker(name)) for name in BESIDE))
    uid = stage.uids()[POISON]

    def is_noted() -> bool:
        stage.bridge.tend(*REPLICAS)
        return uid in read_undecided(
            lease(stage)["metadata"].get("annotations", {}).get(UNDECIDED, "")
        )

    stage.cluster.wait_until(is_noted, "the Lease names the pod", timeout_s=TIMEOUT_S)

    for name in AFTERWARDS:
        stage.apply(bridged(taker(name)))
    for name in (*BESIDE, *AFTERWARDS):
        stage.cluster.wait_until(
            partial(is_running, stage, name), f"{name} runs", timeout_s=TIMEOUT_S
        )

    assert lease(stage)["spec"]["leaseTransitions"] <= before + 1
    assert not is_running(stage, POISON)
    assert [] == doubly_held(stage.cluster)


def is_running(stage: Owned, name: str) -> bool:
    """Return True if a pod runs, and start replicas that have ended."""
    stage.bridge.tend(*REPLICAS)
    return bool(stage.cluster.get("pod", name, TEAM)["status"].get("phase") == "Running")
