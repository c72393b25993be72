"""Devices of further vendors, as their users request them, and the cost of knowing so many names."""

from collections.abc import Iterator
from typing import Final

import pytest

from e2e.accelerators import AMD, ASCEND, GAUDI, HYGON, INTEL, NEURON, REBELLIONS, TPU
from e2e.access import Access, Object, stream
from e2e.custom_kinds import served_kind
from e2e.fleet import EXAMPLES, accelerator_nodes
from e2e.inventory import HAMI
from e2e.objects import pod
from e2e.translated import devices
from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity
from testing.documents import api_object

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge", "accelerators")

CONTAINERS: Final = 60
"""The number of containers with amounts of ten resources each: more than any pod has."""


@pytest.fixture(scope="module")
def accelerators(cluster: Access) -> Iterator[list[str]]:
    """The nodes of examples/accelerators/cluster.yaml."""
    classes, nodes, slices = accelerator_nodes()
    cluster.apply(classes)
    nodes_added = cluster.add_nodes(nodes, lambda node: slices.get(node, ()))
    yield nodes_added
    cluster.remove_nodes(nodes_added)
    for device_class in classes:
        cluster.kubectl("delete", "deviceclass", device_class["metadata"]["name"])


def started(cluster: Access, namespace: str, name: str) -> dict[str, list[str]]:
    """Container of a pod that was applied to the drivers of its devices, once it runs."""
    running = cluster.wait_running(name, namespace)
    assert REQUEST_ANNOTATION in running["metadata"]["annotations"]
    devices_ = devices(running, cluster.objects("resourceclaims", namespace))
    return {
        container: [device.driver for device in allocated]
        for container, allocated in devices_.items()
    }


def test_whole_devices_of_other_vendors_are_allocated(cluster: Access, namespace: str) -> None:
    names = ("intel", "neuron", "tpu", "hygon")
    examples = [EXAMPLES / "accelerators" / f"{name}.yaml" for name in names]
    files = [argument for path in examples for argument in ("-f", str(path))]

    cluster.kubectl("apply", "-n", namespace, *files)

    assert {INTEL, GAUDI} == set(started(cluster, namespace, "intel")["render"])
    assert [TPU] * 4 == started(cluster, namespace, "tpu")["train"]
    assert [HYGON] * 2 == started(cluster, namespace, "hygon")["train"]
    assert [NEURON] * 8 == started(cluster, namespace, "neuron")["train"]


def test_shares_of_other_systems_are_of_their_amounts(cluster: Access, namespace: str) -> None:
    examples = [
        EXAMPLES / "accelerators" / "ascend.yaml",
        *(EXAMPLES / "shares" / f"{name}.yaml" for name in ("aliyun", "volcano")),
    ]
    files = [argument for path in examples for argument in ("-f", str(path))]

    cluster.kubectl("apply", "-n", namespace, *files)

    names = ("ascend", "aliyun", "volcano")
    pods = {name: cluster.wait_running(name, namespace) for name in names}
    claims = cluster.objects("resourceclaims", namespace)
    (npu,) = devices(pods["ascend"], claims)["serve"]
    both = devices(pods["aliyun"], claims)
    shares = devices(pods["volcano"], claims)["train"]
    assert (ASCEND, Quantity(20), Quantity("3Gi")) == (
        npu.driver,
        npu.amounts["cores"],
        npu.amounts["memory"],
    )
    assert both["serve"] == both["embed"]
    assert Quantity("6Gi") == both["serve"][0].amounts["memory"]
    assert len({(share.pool, share.device) for share in shares}) == 2
    assert [Quantity(50)] * 2 == [share.amounts["cores"] for share in shares]


SHARES: Final = {
    "tencent": ("serve", HAMI, 1, {"cores": "30", "memory": "5Gi"}),
    "volcengine": ("train", HAMI, 2, {"cores": "30", "memory": "4Gi"}),
    "tensor-fusion": ("train", HAMI, 1, {"cores": "0", "memory": "8Gi"}),
}
"""Example to its container, and driver, number and amounts of its devices."""
WHOLE: Final = {
    "amd": ("train", AMD, 2),
    "amd-partition": ("serve", AMD, 1),
    "rebellions": ("serve", REBELLIONS, 1),
}


def test_the_examples_of_further_systems_get_their_devices(cluster: Access, namespace: str) -> None:
    examples = [EXAMPLES / "shares" / f"{name}.yaml" for name in SHARES]
    examples += [EXAMPLES / "accelerators" / f"{name}.yaml" for name in WHOLE]
    files = [argument for path in examples for argument in ("-f", str(path))]

    cluster.kubectl("apply", "-n", namespace, *files)

    pods = {name: cluster.wait_running(name, namespace) for name in (*SHARES, *WHOLE)}
    claims = cluster.objects("resourceclaims", namespace)
    for name, (container, driver, count, amounts) in SHARES.items():
        shares = devices(pods[name], claims)[container]
        assert [driver] * count == [share.driver for share in shares], name
        expected = {capacity: Quantity(amount) for capacity, amount in amounts.items()}
        assert all(expected.items() <= share.amounts.items() for share in shares), name
    for name, (container, driver, count) in WHOLE.items():
        whole = devices(pods[name], claims)[container]
        assert [driver] * count == [device.driver for device in whole], name


@pytest.fixture
def workload_profiles(cluster: Access) -> Iterator[None]:
    """The kind as tensor-fusion serves it, for one story."""
    with served_kind(cluster, "WorkloadProfile", "workloadprofiles", "tensor-fusion.ai"):
        yield


def test_a_pod_gets_the_fields_of_the_profile_that_it_names(
    cluster: Access, namespace: str, workload_profiles: None
) -> None:
    document = pod(
        "profiled",
        annotations={"tensor-fusion.ai/workload-profile": "half"},
        labels={"tensor-fusion.ai/enabled": "true"},
    )
    rejected = cluster.kubectl(
        "create", "-n", namespace, "-f", "-", input=stream(document), check=False
    )
    assert "no WorkloadProfile of this name" in rejected.stderr, rejected.stderr
    profile = api_object(
        "WorkloadProfile",
        "half",
        api_version="tensor-fusion.ai/v1",
        spec={"gpuCount": 1, "resources": {"requests": {"vram": "6Gi", "compute": "20"}}},
    )

    def is_stored() -> bool:
        return not cluster.kubectl(
            "apply", "-n", namespace, "-f", "-", input=stream(profile), check=False
        ).returncode

    def is_created() -> bool:
        return not cluster.kubectl(
            "apply", "-n", namespace, "-f", "-", input=stream(document), check=False
        ).returncode

    # Discovery of a new kind takes a while in kubectl, and in the webhook, which tries every half minute.
    cluster.wait_until(is_stored, "kubectl knows the new kind", timeout_s=120)
    cluster.wait_until(is_created, "the webhook has the profile", timeout_s=180)

    running = cluster.wait_running("profiled", namespace)
    (share,) = devices(running, cluster.objects("resourceclaims", namespace))["main"]
    assert (Quantity("6Gi"), Quantity(20)) == (share.amounts["memory"], share.amounts["cores"])


def test_the_api_server_bears_the_conditions_for_a_large_pod(
    cluster: Access, namespace: str
) -> None:
    amounts = {f"example.com/resource-{number}": 1 for number in range(8)}
    large = pod("large", limits={**amounts, "cpu": "1m", "memory": "1Mi"})
    (container,) = large["spec"]["containers"]
    containers: list[Object] = [
        {**container, "name": f"part-{number}"} for number in range(CONTAINERS)
    ]
    large["spec"]["containers"] = containers

    output = cluster.kubectl(
        "create", "-n", namespace, "--dry-run=server", "-f", "-", input=stream(large), check=False
    )

    assert output.returncode == 0, output.stderr
