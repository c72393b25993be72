"""A pod in the host's network keeps its NIC keys, and gets claims for everything else."""

import pytest

from e2e.access import Access, stream
from e2e.objects import pod

pytestmark = pytest.mark.usefixtures("drawbridge", "fleet")

NIC = "rdma/ib"


def test_the_nics_of_a_pod_in_the_host_network_stay_with_the_device_plugin(
    cluster: Access, namespace: str
) -> None:
    pod_ = pod("nccl", limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", NIC: "1"})
    pod_["spec"]["hostNetwork"] = True

    stderr = cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(pod_)).stderr
    value = cluster.get("pods", "nccl", namespace)

    assert "drawbridge[hostNetworkNic]: " in stderr
    assert {NIC: "1"} == value["spec"]["containers"][0]["resources"]["limits"]
    assert 1 == len(value["spec"]["resourceClaims"])
