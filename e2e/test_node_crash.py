"""The driver is killed at every step of preparing and unpreparing; the next one goes on."""

import pytest

from driver.model.steps import Step
from e2e.access import Access
from e2e.node.claims import claim, named, pod_with, request
from e2e.node.driver import DRIVER, NodeDriver, python
from e2e.node.node import Node
from e2e.node.pods import TIMEOUT_S, apply, environment, sync
from testing.driver.steps import OF_PREPARE, OF_UNPREPARE
from testing.long_runs import every_second

NIC = request("gpu", f"nic.{DRIVER}", where=named("uuid-of-eth0"))
Moment = tuple[Step, int]


def name_of(moment: Moment) -> str:
    """Return the name of a moment in the names of tests."""
    step, times = moment
    return f"{step.value}{times}"


def replace_with_crashing(driver: NodeDriver, moment: Moment) -> None:
    """Have a driver that kills itself when a step is reached for the nth time."""
    step, times = moment
    driver.stop()
    driver.start(command=python("-m", "e2e.node.crashing", step.value, str(times)))
    driver.wait_ready()


def replace_dead(driver: NodeDriver) -> None:
    """Have an ordinary driver, once the crashing one has died."""
    driver.wait_crashed()
    driver.start()
    driver.wait_ready()


@pytest.mark.parametrize("moment", every_second(OF_PREPARE), ids=name_of)
def test_whoever_dies_while_preparing_is_replaced(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver, moment: Moment
) -> None:
    replace_with_crashing(driver, moment)
    apply(cluster, namespace, claim("nic", NIC), pod_with(real_node.name, "pod", ["nic"]))
    replace_dead(driver)

    sync(cluster, namespace, "pod")

    assert "uuid-of-eth0" == environment(cluster, namespace, "pod")["DRAWBRIDGE_DEVICE_ETH0"]
    assert ["Completed"] == [record["state"] for record in driver.checkpoint().values()]
    assert 1 == len(driver.specs())
    cluster.kubectl("delete", "pod", "-n", namespace, "pod")
    cluster.wait_until(driver.is_clean, "nothing stays behind", timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("moment", every_second(OF_UNPREPARE), ids=name_of)
def test_whoever_dies_while_unpreparing_is_replaced(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver, moment: Moment
) -> None:
    apply(cluster, namespace, claim("nic", NIC), pod_with(real_node.name, "pod", ["nic"]))
    cluster.wait_running("pod", namespace, timeout_s=TIMEOUT_S)
    replace_with_crashing(driver, moment)
    cluster.kubectl("delete", "pod", "-n", namespace, "pod", "--wait=false")
    replace_dead(driver)

    sync(cluster, namespace, "pod")

    cluster.wait_until(driver.is_clean, "the kubelet asks again", timeout_s=TIMEOUT_S)
    cluster.wait_gone("pods", "pod", namespace, timeout_s=TIMEOUT_S)
