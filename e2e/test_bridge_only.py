"""The bridge as the only scheduler of a cluster: the stock kube-scheduler is stopped."""

from collections.abc import Iterator
from typing import Final

import pytest

from e2e import inventory
from e2e.access import Object
from e2e.bridge import MANIFESTS, ROOT, Bridge, doubly_held
from e2e.cluster import Cluster
from e2e.inventory import EXAMPLE
from e2e.objects import pod
from e2e.owned import AUDITED, TEAM, TIMEOUT_S, Owned, taker
from kube.names import NAMESPACE, SCHEDULER_NAME

OVERLAY: Final = ROOT / "manifests" / "overlays" / "bridge-only"
REPLICA: Final = "only"
DEPLOYMENT: Final = "drawbridge-bridge"

pytestmark = pytest.mark.parametrize("cluster", [AUDITED], indirect=True)


@pytest.fixture
def node(owned_bridge: Owned) -> Iterator[str]:
    """A node with four devices of an owned driver."""
    cluster = owned_bridge.cluster
    (name,) = cluster.add_nodes(
        inventory.kwok_nodes(1, prefix="only"),
        lambda node: inventory.example_gpus(node, gpus=4),
    )
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    owned_bridge.bridge.ensure()
    yield name
    cluster.remove_nodes([name])


@pytest.fixture
def stage(owned_bridge: Owned, node: str) -> Iterator[Owned]:
    """That node, and no scheduler but that of the overlay."""
    cluster = owned_bridge.cluster
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


@pytest.fixture
def applied(owned_bridge: Owned, node: str) -> Iterator[Cluster]:
    """The Deployment of the manifests, with pods placed by the stock scheduler; nobody runs them."""
    cluster = owned_bridge.cluster
    cluster.kubectl("apply", "-k", MANIFESTS)
    wait_placed(cluster, "default-scheduler", node, 2)
    yield cluster
    cluster.start_scheduler()
    for kind in ("deployment", "configmap"):
        cluster.kubectl("delete", kind, DEPLOYMENT, "-n", NAMESPACE)
    cluster.wait_until(lambda: not bridge_pods(cluster), "the pods of the Deployment are gone")


def test_in_the_documented_order_the_bridge_places_its_own_pods(
    applied: Cluster, node: str
) -> None:
    applied.children["kube-scheduler"].stop()

    applied.kubectl("apply", "-k", OVERLAY)

    # Nobody makes it ready here, so the Deployment waits with the second one.
    wait_placed(applied, SCHEDULER_NAME, node, 1)


def test_pods_of_the_default_scheduler_are_served(stage: Owned) -> None:
    """The scheduler serves pods with and without devices, and a release wakes waiting ones."""
    takers = [f"taker-{number}" for number in range(4)]
    own = pod("own", schedulerName=SCHEDULER_NAME)  # As the pods of the overlay are.
    stage.apply(pod("plain"), own, *(taker(name) for name in takers))
    stage.running("plain", "own", *takers)
    stage.apply(taker("late"))
    stage.waiting("late")

    stage.cluster.kubectl("delete", "pod", takers[0], "-n", TEAM, "--wait=false")

    stage.running("late")
    assert [] == doubly_held(stage.cluster)


def wait_placed(cluster: Cluster, scheduler: str, node: str, count: int) -> None:
    """Wait until so many pods of the bridge that name a scheduler are on a node."""

    def are_placed() -> bool:
        pods = [pod["spec"] for pod in bridge_pods(cluster)]
        placed = [(spec["schedulerName"], spec.get("nodeName")) for spec in pods]
        return placed.count((scheduler, node)) == count

    cluster.wait_until(are_placed, f"{scheduler} has placed {count} pods", timeout_s=TIMEOUT_S)


def bridge_pods(cluster: Cluster) -> list[Object]:
    return cluster.objects("pods", NAMESPACE, selector="app.kubernetes.io/component=bridge")
