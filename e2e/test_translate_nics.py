"""NICs as their users ask for them end on devices of the right kind, pools and networks included."""

from collections.abc import Iterator
from typing import Final

import pytest

from e2e.access import Access, Object
from e2e.fleet import EXAMPLES, nic_nodes
from e2e.inventory import DRANET, NVIDIA, SRIOV
from e2e.translated import devices
from kube.names import REQUEST_ANNOTATION

pytestmark = pytest.mark.usefixtures("drawbridge", "nics")

NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"


@pytest.fixture(scope="module")
def nics(cluster: Access) -> Iterator[list[str]]:
    """The nodes of examples/nics/cluster.yaml."""
    classes, nodes, slices = nic_nodes()
    cluster.apply(classes)
    nodes_added = cluster.add_nodes(nodes, lambda node: slices.get(node, ()))
    yield nodes_added
    cluster.remove_nodes(nodes_added)


def applied(cluster: Access, namespace: str, example: str) -> Object:
    """The one pod of an example, once it runs or has run."""
    cluster.kubectl("apply", "-n", namespace, "-f", EXAMPLES / "nics" / f"{example}.yaml")

    def started() -> list[Object]:
        pods = cluster.objects("pods", namespace)
        return [pod for pod in pods if pod["status"]["phase"] in ("Running", "Succeeded")]

    cluster.wait_until(started, f"the pod of {example} runs")
    (pod_,) = started()
    assert REQUEST_ANNOTATION in pod_["metadata"]["annotations"]
    return pod_


def test_containers_with_shares_of_a_pool_use_one_nic(cluster: Access, namespace: str) -> None:
    pod = applied(cluster, namespace, "rdma-pool")

    devices_ = devices(pod, cluster.objects("resourceclaims", namespace))
    assert {DRANET, NVIDIA} == {device.driver for device in devices_["train"]}
    assert [device for device in devices_["train"] if device.driver == DRANET] == devices_["watch"]


def test_efa_devices_come_beside_gpus(cluster: Access, namespace: str) -> None:
    pod = applied(cluster, namespace, "efa")

    drivers = [
        device_.driver
        for device_ in devices(pod, cluster.objects("resourceclaims", namespace))["nccl"]
    ]
    assert (8, 4) == (drivers.count(NVIDIA), drivers.count(DRANET))


def test_virtual_functions_are_those_of_the_name(cluster: Access, namespace: str) -> None:
    pod = applied(cluster, namespace, "sriov")

    serve_devices = devices(pod, cluster.objects("resourceclaims", namespace))["serve"]
    assert [SRIOV] * 2 == [device.driver for device in serve_devices]
    assert pod["metadata"]["annotations"][NETWORKS] == "sriov-rdma, sriov-rdma"
