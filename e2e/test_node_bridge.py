"""The last mile below the bridge: it allocates the devices of the node driver, and waits for their release."""

import os
import signal
from collections.abc import Iterator

import pytest

from e2e.access import Access
from e2e.bridge import Bridge, bridged, is_waiting
from e2e.drawbridge import Drawbridge
from e2e.node.claims import claim, named, pod_with, request, template
from e2e.node.driver import DRIVER, NodeDriver
from e2e.node.node import pod_on
from e2e.node.pods import TIMEOUT_S, apply, containers, delete_pods, device_nodes, environment
from kube.names import SCHEDULER_NAME

IN_USE = "drawbridge.internal/in-use"

# Stories of the bridge have one for other drivers, so these share no cluster with them.
pytestmark = pytest.mark.parametrize("cluster", [{"client_qps": 400}], indirect=True)


@pytest.fixture(scope="module")
def installed_node_bridge(cluster: Access, installed_driver: NodeDriver) -> Iterator[Bridge]:
    """The bridge, installed for the devices of the node driver."""
    bridge = Bridge(cluster, drivers=[installed_driver.name])
    bridge.install()
    yield bridge
    bridge.uninstall()


@pytest.fixture
def node_bridge(installed_node_bridge: Bridge) -> Bridge:
    """That bridge, at work."""
    installed_node_bridge.ensure()
    return installed_node_bridge


def test_a_legacy_pod_gets_its_fraction_from_the_bridge(
    cluster: Access,
    namespace: str,
    node_bridge: Bridge,
    driver: NodeDriver,
    drawbridge: Drawbridge,
) -> None:
    pod = bridged(pod_on(driver.node.name, "legacy", "env"))
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}

    with drawbridge.configured({"translation": {"profiles": {"hami": DRIVER}}}):
        apply(cluster, namespace, pod)
        variables = environment(cluster, namespace, "legacy")

    (device,) = device_nodes(cluster, namespace, "legacy")
    (claim_,) = cluster.objects("resourceclaims", namespace)
    (result,) = claim_["status"]["allocation"]["devices"]["results"]
    assert (DRIVER, device) == (result["driver"], result["device"])
    name = f"DRAWBRIDGE_DEVICE_{device.upper().replace('-', '_')}"
    assert f"uuid-of-{device}" == variables[name]
    assert str(3000 * 2**20) == variables[f"{name}_MEMORY"]
    assert result["shareID"] == variables[f"{name}_SHARE"]
    assert SCHEDULER_NAME == cluster.get("pods", "legacy", namespace)["spec"]["schedulerName"]
    assert node_bridge.calls("prebind", "ok") > 0

    delete_pods(cluster, namespace, driver, "legacy")
    cluster.wait_until(
        lambda: not cluster.objects("resourceclaims", namespace), "its claim is gone"
    )


@pytest.mark.usefixtures("node_bridge")
def test_the_bridge_waits_until_a_container_that_outlived_its_pod_has_ended(
    cluster: Access,
    namespace: str,
    driver: NodeDriver,
) -> None:
    node = driver.node
    only = request("gpu", f"nic.{DRIVER}", where=named("uuid-of-eth0"))
    first = bridged(pod_with(node.name, "deleted", ["nic"]))
    first["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": "nic"}]
    apply(cluster, namespace, template("nic", only), claim("late", only), first)
    environment(cluster, namespace, "deleted")
    (uid,) = driver.checkpoint()

    # Once a minute from its start the kubelet gives up claims of pods that it does not know any more, ended or not.
    node.restart_kubelet()
    # The shim of the container hangs, so that the container of the deleted pod goes on.
    ((container, _),) = containers(cluster, namespace, "deleted")
    shim = node.shim_of(container)
    os.kill(shim, signal.SIGSTOP)
    cluster.kubectl("delete", "pod", "-n", namespace, "deleted", "--force", "--grace-period=0")
    cluster.wait_until(lambda: driver.taints() == {"eth0": [IN_USE]}, "the device is tainted")

    apply(cluster, namespace, bridged(pod_with(node.name, "late", ["late"])))
    late = cluster.wait_for("pods", "late", namespace, until=is_waiting, timeout_s=TIMEOUT_S)
    assert "nodeName" not in late["spec"]
    assert [uid] == list(driver.checkpoint())

    os.kill(shim, signal.SIGCONT)

    assert "uuid-of-eth0" == environment(cluster, namespace, "late")["DRAWBRIDGE_DEVICE_ETH0"]
    assert uid not in driver.checkpoint()
    delete_pods(cluster, namespace, driver, "late")
    cluster.wait_until(lambda: not driver.taints(), "the device is free", timeout_s=TIMEOUT_S)
