"""The bridge as the only scheduler of a cluster: the stock kube-scheduler is stopped."""

from collections.abc import Iterator
from typing import Final

import pytest

from e2e import inventory
from e2e.bridge import ROOT, Bridge, doubly_held
from e2e.inventory import EXAMPLE
from e2e.objects import pod
from e2e.owned import AUDITED, TEAM, Owned, taker

OVERLAY: Final = ROOT / "manifests" / "overlays" / "bridge-only"
REPLICA: Final = "only"

pytestmark = pytest.mark.parametrize("cluster", [AUDITED], indirect=True)


@pytest.fixture
def stage(owned_bridge: Owned) -> Iterator[Owned]:
    """A node with four devices of an owned driver, and no scheduler but that of the overlay."""
    cluster = owned_bridge.cluster
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(1, prefix="only"),
        lambda node: inventory.example_gpus(node, gpus=4),
    )
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    owned_bridge.bridge.stop("a")
    cluster.children["kube-scheduler"].stop()
    bridge = Bridge(cluster, drivers=(), manifests=OVERLAY)
    bridge.start(REPLICA)
    bridge.wait_working(REPLICA)
    yield owned_bridge
    owned_bridge.clear()
    bridge.stop(REPLICA)
    cluster.start_scheduler()
    owned_bridge.bridge.ensure()
    cluster.remove_nodes(nodes)


def test_pods_of_the_default_scheduler_are_served(stage: Owned) -> None:
    """With devices and without, and what waits is woken by a release."""
    takers = [f"taker-{number}" for number in range(4)]
    own = pod("own", schedulerName="drawbridge-scheduler")  # As the pods of the overlay are.
    stage.apply(pod("plain"), own, *(taker(name) for name in takers))
    stage.running("plain", "own", *takers)
    stage.apply(taker("late"))
    stage.waiting("late")

    stage.cluster.kubectl("delete", "pod", takers[0], "-n", TEAM, "--wait=false")

    stage.running("late")
    assert [] == doubly_held(stage.cluster)
