"""A pod that is deleted by force: its device is not given away while its container runs."""

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from e2e.access import Access
from e2e.node.claims import allocate_by_hand, claim, named, pod_with, request, template
from e2e.node.driver import DRIVER, NodeDriver
from e2e.node.pods import (
    TIMEOUT_S,
    apply,
    containers,
    delete_pods,
    environment,
    sync,
    wait_refused,
)

IN_USE = "drawbridge.internal/in-use"


@pytest.fixture
def stopped_processes() -> Iterator[list[int]]:
    """Processes that a story stopped; those that are there at its end go on."""
    stopped: list[int] = []
    yield stopped
    for process in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def test_a_device_is_given_again_when_its_container_has_ended(
    cluster: Access, namespace: str, driver: NodeDriver, stopped_processes: list[int]
) -> None:
    node = driver.node.name
    only = request("gpu", f"nic.{DRIVER}", where=named("uuid-of-eth0"))
    device_pod = pod_with(node, "deleted", ["nic"])
    device_pod["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": "nic"}]
    apply(cluster, namespace, template("nic", only), claim("early", only), claim("late", only))
    apply(cluster, namespace, device_pod)
    environment(cluster, namespace, "deleted")
    (checkpoint,) = driver.checkpoint()

    # Once a minute from its start the kubelet gives up claims of pods that it does not know any more, ended or not.
    driver.node.restart_kubelet()
    # The shim of the container hangs, so that the container of the deleted pod goes on.
    ((container, _),) = containers(cluster, namespace, "deleted")
    shim = driver.node.shim_of(container)
    os.kill(shim, signal.SIGSTOP)
    stopped_processes.append(shim)
    cluster.kubectl("delete", "pod", "-n", namespace, "deleted", "--force", "--grace-period=0")

    # A scheduler that does not see the taint yet hands the device out; the node refuses.
    allocate_by_hand(cluster, namespace, "early", node, "eth0", pool="nics")
    apply(cluster, namespace, pod_with(node, "early", ["early"]))
    wait_refused(cluster, namespace, "early", "eth0: in use (used by claim deleted-nic-")
    assert [checkpoint] == list(driver.checkpoint()), "the device was prepared twice"

    # A scheduler that sees the taint does not hand it out.
    cluster.wait_until(lambda: driver.taints() == {"eth0": [IN_USE]}, "the device is tainted")
    apply(cluster, namespace, pod_with(node, "late", ["late"]))

    # When the container has ended, the device is free for whoever has it allocated.
    os.kill(shim, signal.SIGCONT)
    cluster.wait_until(
        lambda: checkpoint not in driver.checkpoint(),
        "the kubelet releases it",
        timeout_s=TIMEOUT_S,
    )
    sync(cluster, namespace, "early")
    assert "uuid-of-eth0" == environment(cluster, namespace, "early")["DRAWBRIDGE_DEVICE_ETH0"]
    cluster.wait_until(lambda: not driver.taints(), "the taint is gone")
    late = cluster.get("pods", "late", namespace)
    assert ("Pending", None) == (late["status"]["phase"], late["spec"].get("nodeName"))

    cluster.kubectl("delete", "pod", "-n", namespace, "late")
    delete_pods(cluster, namespace, driver, "early")
