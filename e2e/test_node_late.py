"""Failures after a pod is bound that are not the driver's to refuse: each is told, and ends."""

from e2e.access import Access
from e2e.node.claims import claim, named, pod_with, request
from e2e.node.driver import DRIVER, INVENTORY, NodeDriver, gpu
from e2e.node.node import Node
from e2e.node.pods import TIMEOUT_S, apply, delete_pods, environment, sync, wait_refused

NIC = request("nic", f"nic.{DRIVER}", where=named("uuid-of-eth0"))


def test_a_pod_that_comes_while_no_driver_runs_waits_for_it(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    """The kubelet deletes the slices half a minute after the driver; until then devices are allocated."""
    driver.crash()
    apply(cluster, namespace, claim("nic", NIC), pod_with(real_node.name, "pod", ["nic"]))

    wait_refused(cluster, namespace, "pod", DRIVER)
    assert "Pending" == cluster.get("pods", "pod", namespace)["status"]["phase"]

    driver.start()
    driver.wait_ready()
    sync(cluster, namespace, "pod")
    assert "uuid-of-eth0" == environment(cluster, namespace, "pod")["DRAWBRIDGE_DEVICE_ETH0"]
    delete_pods(cluster, namespace, driver, "pod")


def test_a_device_node_that_the_node_does_not_have_is_reported_by_the_container(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    """The driver sees /dev of its own pod only; the container runtime finds out."""
    nodes = [{"path": "/dev/no-such-gpu"}]
    (gpus, *others) = INVENTORY
    broken = gpu("gpu-9", 9, deviceNodes=nodes)
    driver.declare([{**gpus, "devices": [*gpus["devices"], broken]}, *others])
    cluster.wait_until(lambda: "gpu-9" in driver.published(), "the device is published")
    only = request(where=named("uuid-of-gpu-9"))
    apply(cluster, namespace, claim("gpu", only), pod_with(real_node.name, "pod", ["gpu"]))

    def has_event() -> bool:
        return any(
            event["involvedObject"]["name"] == "pod" and "/dev/no-such-gpu" in event["message"]
            for event in cluster.objects("events", namespace)
        )

    cluster.wait_until(has_event, "an event names the device node", timeout_s=TIMEOUT_S)
    assert "Pending" == cluster.get("pods", "pod", namespace)["status"]["phase"]
    delete_pods(cluster, namespace, driver, "pod")
