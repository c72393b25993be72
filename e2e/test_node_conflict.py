"""An allocation that nobody should have written: the node refuses it, and the present pod stays."""

from collections.abc import Iterator

import pytest

from e2e.access import Access
from e2e.node.claims import (
    allocate_by_hand,
    claim,
    held_deployment,
    named,
    pod_with,
    request,
    template,
)
from e2e.node.driver import DRIVER, INVENTORY, MANIFESTS, NodeDriver
from e2e.node.node import Node
from e2e.node.pods import (
    TIMEOUT_S,
    apply,
    containers,
    delete_pods,
    environment,
    held_pod,
    let_go,
    wait_refused,
)

NIC = f"nic.{DRIVER}"
IN_USE = "drawbridge.internal/in-use"


def test_a_forged_allocation_is_refused_and_the_tenant_stays(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    tenant = request("nic", NIC, where=named("uuid-of-eth0"))
    apply(
        cluster, namespace,
        claim("tenant", tenant),
        pod_with(real_node.name, "tenant", ["tenant"]),
        template("nic", request("gpu", NIC)),
        held_deployment(real_node.name, "nic"),
    )  # fmt: skip
    environment(cluster, namespace, "tenant")
    before = containers(cluster, namespace, "tenant"), driver.specs(), driver.checkpoint()
    first = held_pod(cluster, namespace)
    name = first["metadata"]["name"]

    resource_claim_name = first["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    allocate_by_hand(cluster, namespace, resource_claim_name, real_node.name, "eth0", pool="nics")
    let_go(cluster, namespace, name)

    wait_refused(cluster, namespace, name, "eth0: in use (used by claim tenant)")
    after = containers(cluster, namespace, "tenant"), driver.specs(), driver.checkpoint()
    assert before == after, "the tenant was disturbed"

    # The next pod of the deployment has a claim of its own. The scheduler takes eth0 for free, since
    # the forged claim goes; the taint tells it otherwise.
    cluster.wait_until(lambda: driver.taints() == {"eth0": [IN_USE]}, "the device is tainted")
    cluster.kubectl("delete", "pod", "-n", namespace, name)
    second = held_pod(cluster, namespace)["metadata"]["name"]
    let_go(cluster, namespace, second)
    assert "uuid-of-eth1" == environment(cluster, namespace, second)["DRAWBRIDGE_DEVICE_ETH1"]

    cluster.kubectl("delete", "deployment", "-n", namespace, "app")
    delete_pods(cluster, namespace, driver, "tenant")
    cluster.wait_until(lambda: not driver.taints(), "the device is free again")


def test_allocations_that_name_nothing_of_this_node_are_refused(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    """The pod is told the reason, with any allocation, and the driver goes on."""
    words = {
        "gpu-9": "gpu-9 is not on this node",
        "eth0": f"{real_node.name}/eth0 is not on this node",
    }
    for device in words:
        apply(cluster, namespace, claim(device, request("gpu", NIC)))
        allocate_by_hand(cluster, namespace, device, real_node.name, device)
        apply(cluster, namespace, pod_with(real_node.name, device, [device]))

    for device, message in words.items():
        wait_refused(cluster, namespace, device, message)
    assert driver.is_clean()
    cluster.kubectl("delete", "pod", "-n", namespace, *words)
    for device in words:
        cluster.wait_gone("pods", device, namespace, timeout_s=TIMEOUT_S)


# --- the policy that comes with the driver --------------------------------------------------------


@pytest.fixture
def policy(cluster: Access, driver: NodeDriver) -> Iterator[None]:
    """The policy of manifests/driver/policy, known to the driver; its kind comes with Drawbridge."""
    folder = str(MANIFESTS / "policy")
    cluster.kubectl("apply", "-k", folder)
    driver.stop()  # It may have started before there was such a kind.
    driver.start()
    driver.wait_ready()
    yield
    cluster.kubectl("delete", "-k", folder)


@pytest.mark.usefixtures("drawbridge", "policy")
def test_a_gpu_and_its_part_are_kept_apart_without_counters(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    part_of_gpu = {
        "name": "part-of-gpu-0",
        "attributes": {"type": "mig", "uuid": "part", "parentUUID": "uuid-of-gpu-0"},
    }
    (gpus, *others) = INVENTORY
    driver.declare([{**gpus, "devices": [*gpus["devices"], part_of_gpu]}, *others])
    cluster.wait_until(lambda: "part-of-gpu-0" in driver.published(), "the part is published")
    share = request("gpu", where=named("uuid-of-gpu-0"), capacity={"memory": "1Gi"})
    part = claim("part", request("gpu", f"mig.{DRIVER}"))
    apply(cluster, namespace, claim("share", share), part)
    apply(cluster, namespace, pod_with(real_node.name, "share", ["share"]))
    environment(cluster, namespace, "share")

    allocate_by_hand(cluster, namespace, "part", real_node.name, "part-of-gpu-0")
    apply(cluster, namespace, pod_with(real_node.name, "part", ["part"]))

    wait_refused(cluster, namespace, "part", "part-of-gpu-0: does not accept device gpu-0")
    cluster.kubectl("delete", "pod", "-n", namespace, "part")
    delete_pods(cluster, namespace, driver, "share")
