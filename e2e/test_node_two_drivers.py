"""Two drivers on one node, and a claim with a device of each: both prepare it, or nothing is left."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.access import Access, Object
from e2e.node.claims import claim, named, pod_with
from e2e.node.claims import request as request_for
from e2e.node.driver import NodeDriver, nic
from e2e.node.node import Node
from e2e.node.pods import TIMEOUT_S, apply, device_nodes, environment, sync, wait_refused
from testing.long_runs import beginning_with

NET = "net.drawbridge.internal"
LOCK_TIMEOUT = "500ms"
"""The kubelet asks one driver after the other; one that hangs is not to hold it up for long."""


@pytest.fixture(scope="module")
def installed_net(cluster: Access, real_node: Node) -> Iterator[NodeDriver]:
    """A second driver: the same program under another name, with an account of its own."""
    settings = {"bootIdFile": str(real_node.boot_id), "lockTimeout": LOCK_TIMEOUT}
    net = NodeDriver(cluster, real_node, settings=settings, name=NET)
    net.install()
    yield net
    net.stop()
    net.uninstall()
    cluster.wait_until(lambda: not net.slices(), "its slices are gone", timeout_s=TIMEOUT_S)


@pytest.fixture
def net(installed_net: NodeDriver) -> NodeDriver:
    """The second driver with one NIC, ready."""
    eth9 = {**nic("eth9", 9), "deviceNodes": [{"path": "/dev/eth9", "hostPath": "/dev/null"}]}
    installed_net.ensure([{"devices": [eth9]}])
    return installed_net


@pytest.fixture
def impatient(driver: NodeDriver) -> Iterator[NodeDriver]:
    """The first driver, with a short wait for its lock."""
    driver.stop()
    driver.start(lockTimeout=LOCK_TIMEOUT)
    driver.wait_ready()
    yield driver
    driver.stop()


@pytest.fixture(params=beginning_with(1, ["gpu", "nic"]))
def sick_and_well(
    request: pytest.FixtureRequest, impatient: NodeDriver, net: NodeDriver
) -> tuple[NodeDriver, NodeDriver]:
    """The driver that is to fail, and the other one."""
    return (impatient, net) if request.param == "gpu" else (net, impatient)


@contextmanager
def stuck(driver: NodeDriver) -> Iterator[None]:
    """Hold the lock of a driver, as another instance that hangs would, so that it fails."""
    with driver.node.path(f"{driver.state}/lock").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pair() -> Object:
    """A claim for a device of each driver."""
    gpu = request_for("gpu", where=named("uuid-of-gpu-0"), capacity={"memory": "1Gi"})
    return claim("pair", gpu, request_for("nic", f"nic.{NET}"))


def wait_half_prepared(cluster: Access, namespace: str, well: NodeDriver) -> None:
    """Wait until the healthy driver has prepared the claim, and the pod was told of the other."""
    wait_refused(cluster, namespace, "pod", "has been locked for")

    def is_prepared() -> bool:
        # The kubelet asks the drivers in any order, and no further after the first failure.
        sync(cluster, namespace, "pod")
        return ["Completed"] == [record.get("state") for record in well.checkpoint().values()]

    cluster.wait_until(is_prepared, f"{well.name} has prepared its part", timeout_s=TIMEOUT_S)


def test_one_of_two_drivers_fails_for_a_while(
    cluster: Access,
    namespace: str,
    real_node: Node,
    sick_and_well: tuple[NodeDriver, NodeDriver],
) -> None:
    sick, well = sick_and_well
    with stuck(sick):
        apply(cluster, namespace, pair(), pod_with(real_node.name, "pod", ["pair"]))
        wait_half_prepared(cluster, namespace, well)
        before = well.checkpoint(), well.specs()
        assert not sick.specs()
        assert "Pending" == cluster.get("pods", "pod", namespace)["status"]["phase"]

    sync(cluster, namespace, "pod")

    variables = environment(cluster, namespace, "pod")
    assert "uuid-of-gpu-0" == variables["DRAWBRIDGE_DEVICE_GPU_0"]
    assert "uuid-of-eth9" == variables["DRAWBRIDGE_DEVICE_ETH9"]
    assert {"gpu-0", "eth9"} == device_nodes(cluster, namespace, "pod")
    # What was there was prepared once, and each driver has one part of the claim.
    assert before == (well.checkpoint(), well.specs())
    assert [1, 1] == [len(either.specs()) for either in (sick, well)]
    (uid,) = sick.checkpoint()
    assert [uid] == list(well.checkpoint())

    cluster.kubectl("delete", "pod", "-n", namespace, "pod")
    for either in (sick, well):
        cluster.wait_until(either.is_clean, f"{either.name} has released it", timeout_s=TIMEOUT_S)


def test_a_pod_that_never_started_leaves_nothing_with_either_driver(
    cluster: Access,
    namespace: str,
    real_node: Node,
    sick_and_well: tuple[NodeDriver, NodeDriver],
) -> None:
    sick, well = sick_and_well
    with stuck(sick):
        apply(cluster, namespace, pair(), pod_with(real_node.name, "pod", ["pair"]))
        wait_half_prepared(cluster, namespace, well)
        cluster.kubectl("delete", "pod", "-n", namespace, "pod", "--wait=false")

    # The kubelet asks both, also the one that has never prepared anything.
    cluster.wait_gone("pods", "pod", namespace, timeout_s=TIMEOUT_S)
    for either in (sick, well):
        cluster.wait_until(either.is_clean, f"{either.name} has nothing", timeout_s=TIMEOUT_S)
    cluster.wait_for(
        "resourceclaims",
        "pair",
        namespace,
        until=lambda stored: "allocation" not in stored.get("status", {}),
    )
