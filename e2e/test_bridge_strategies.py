"""Six strategies choose six different devices for equal pods, through scheduler, plugin and sidecar.

A pod asks for 10Gi of a GPU's memory and for a NIC. Each node has two GPUs and a NIC; what is in use:

======  =================  =================  ===================  =============
node    gpu-0              gpu-1              NIC                  CPUs
======  =================  =================  ===================  =============
idle    none of 800Gi      none of 800Gi      at a root of its own 100 of 128
packed  400Gi of 800Gi     700Gi of 800Gi     at a root of its own 100 of 128
small   20Gi of 80Gi       none of 16Gi       at a root of its own 100 of 128
near    400Gi of 800Gi     100Gi of 800Gi     at the root of gpu-1 100 of 128
spare   400Gi of 800Gi     100Gi of 800Gi     at a root of its own none of 128
======  =================  =================  ===================  =============

Kubernetes' own score prefers `spare`, so only FirstFit, which has no preference, goes there. Scores of
the chosen node and of the next best one, as the docstrings of `allocator/strategies` count them:
CompactFirst 79 and 54, LowLoadFirst 66 and 45, NodeCompactDeviceLowLoad 79 and 62, TopologyPacked 95 and
37, BestFit 85 and 78.
"""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.bridge import bridged
from e2e.inventory import DRANET, EXAMPLE
from e2e.objects import pod
from e2e.translated import devices
from kube.names import STRATEGY_ANNOTATION
from testing import documents
from testing.documents import api_object

TIMEOUT_S: Final = 90.0
PREFIX: Final = "strategies"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
SHARE: Final = "10Gi"

pytestmark = pytest.mark.usefixtures("impartial_bridge")


class Gpu(NamedTuple):
    """A GPU of a node: its memory, and the part of it in use, in Gi."""

    memory: int
    in_use: int


class Node(NamedTuple):
    """A node of the table.

    Attributes:
        gpus: gpu-0 and gpu-1, each at a PCIe root of its own.
        nic_root: Number of the NIC's root; GPUs are at 0 and 1.
        cpus: The number of CPUs in use.
    """

    gpus: tuple[Gpu, Gpu]
    nic_root: int = 2
    cpus: int = 100


NODES: Final[Mapping[str, Node]] = {
    "idle": Node((Gpu(800, 0), Gpu(800, 0))),
    "packed": Node((Gpu(800, 400), Gpu(800, 700))),
    "small": Node((Gpu(80, 20), Gpu(16, 0))),
    "near": Node((Gpu(800, 400), Gpu(800, 100)), nic_root=1),
    "spare": Node((Gpu(800, 400), Gpu(800, 100)), cpus=0),
}
CHOICES: Final[Mapping[str, tuple[str, str]]] = {
    "FirstFit": ("spare", "gpu-0"),
    "CompactFirst": ("packed", "gpu-1"),
    "LowLoadFirst": ("idle", "gpu-0"),
    "NodeCompactDeviceLowLoad": ("packed", "gpu-0"),
    "TopologyPacked": ("near", "gpu-1"),
    "BestFit": ("small", "gpu-1"),
}
"""Strategy to the node and the GPU that it chooses."""


@pytest.fixture(scope="module")
def nodes_in_use(cluster: Access, stage: str) -> Iterator[list[str]]:
    """The nodes of the table, and a template of the request of a pod."""
    cluster.apply([*inventory.device_classes(), *inventory.nic_classes()])
    names = cluster.add_nodes(
        [inventory.kwok_node(f"{PREFIX}-{name}") for name in NODES],
        lambda node: slices(node, NODES[node.removeprefix(f"{PREFIX}-")]),
    )
    fillers = [
        pod(f"filler-{name}", requests={"cpu": node.cpus}, nodeName=f"{PREFIX}-{name}")
        for name, node in NODES.items()
        if node.cpus
    ]
    requests = [share_of(SHARE), {"name": "nic", "exactly": {"deviceClassName": "dranet"}}]
    template = api_object(
        "ResourceClaimTemplate", "both", spec={"spec": {"devices": {"requests": requests}}}
    )
    cluster.kubectl("apply", "-n", stage, "-f", "-", input=stream([template, *fillers]))
    for name, node in NODES.items():
        for number, gpu in enumerate(node.gpus):
            if gpu.in_use:
                use(cluster, stage, f"{PREFIX}-{name}", number, f"{gpu.in_use}Gi")
    for filler in fillers:
        cluster.wait_running(filler["metadata"]["name"], stage, timeout_s=TIMEOUT_S)
    yield names
    cluster.remove_nodes(names)


def slices(name: str, node: Node) -> list[Object]:
    """Return the slices that the drivers of GPUs and NICs publish for a node."""
    gpus = [
        {
            "name": f"gpu-{number}",
            "allowMultipleAllocations": True,
            "attributes": {PCIE_ROOT: {"string": root(number)}},
            "capacity": {"memory": {"value": f"{gpu.memory}Gi"}},
        }
        for number, gpu in enumerate(node.gpus)
    ]
    nic = {"name": "nic-0", "attributes": {PCIE_ROOT: {"string": root(node.nic_root)}}}
    return [
        *inventory.resource_slices(EXAMPLE, name, gpus),
        *inventory.resource_slices(DRANET, name, [nic]),
    ]


def root(number: int) -> str:
    return f"pci0000:{number:02x}"


def share_of(memory: str) -> Object:
    """Return a request for a share of a GPU."""
    capacity = {"requests": {"memory": memory}}
    return {"name": "gpu", "exactly": {"deviceClassName": EXAMPLE, "capacity": capacity}}


def use(cluster: Access, namespace: str, node: str, gpu: int, memory: str) -> None:
    """Have a share of a GPU be in use, as if another pod had it."""
    name = f"in-use-{node}-{gpu}"
    claim = documents.claim(share_of(memory), name=name, namespace=namespace)
    cluster.apply(claim)
    result = {
        "request": "gpu",
        "driver": EXAMPLE,
        "pool": node,
        "device": f"gpu-{gpu}",
        "shareID": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        "consumedCapacity": {"memory": memory},
    }
    status: dict[str, Any] = {"status": {"allocation": {"devices": {"results": [result]}}}}
    path = cluster.kind("resourceclaims").path(namespace, name)
    code, body = cluster.request(
        "PATCH", f"{path}/status", status, content_type="application/merge-patch+json"
    )
    assert code == 200, body


@pytest.fixture
def asking_pod(cluster: Access, stage: str, strategy: str) -> Iterator[str]:
    """A name for a pod that is deleted afterwards; its devices are free for the next one."""
    name = f"asking-{strategy.lower()}"  # kwok deletes by name, so no two have the same.
    yield name
    cluster.kubectl("delete", "pod", name, "-n", stage, "--wait=false")
    cluster.wait_gone("pods", name, stage, timeout_s=TIMEOUT_S)
    cluster.wait_until(
        lambda: all(
            claim["metadata"]["name"].startswith("in-use-")
            for claim in cluster.objects("resourceclaims", stage)
        ),
        "its claim is gone",
        timeout_s=TIMEOUT_S,
    )


@pytest.mark.parametrize("strategy", CHOICES)
def test_a_strategy_chooses_its_node_and_its_device(
    cluster: Access, stage: str, nodes_in_use: list[str], asking_pod: str, strategy: str
) -> None:
    asking = pod(
        asking_pod,
        claims={"both": "both"},
        requests={"cpu": 1},
        annotations={STRATEGY_ANNOTATION: strategy},
    )
    asking = bridged(asking, nodes_in_use)
    cluster.kubectl("apply", "-n", stage, "-f", "-", input=stream([asking]))

    running = cluster.wait_running(asking_pod, stage, timeout_s=TIMEOUT_S)

    allocated = devices(running, cluster.objects("resourceclaims", stage))["main"]
    (gpu,) = (device for device in allocated if device.driver == EXAMPLE)
    assert running["spec"]["nodeName"] == gpu.pool
    assert (gpu.pool.removeprefix(f"{PREFIX}-"), gpu.device) == CHOICES[strategy]
