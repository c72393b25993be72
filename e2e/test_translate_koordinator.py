"""Koordinator's joint allocation: GPUs and NICs of two drivers under the same PCIe roots.

The nodes have a NIC under the root of every two GPUs, but for one, whose NIC is under another root.
Other nodes publish whole GPUs, which `nvidia.com/gpu` would be translated to.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.access import Access, Object, stream
from e2e.fleet import EXAMPLES, nodes_of_koordinator
from e2e.inventory import DRANET, HAMI
from e2e.objects import pod
from e2e.older_kubernetes import needs
from e2e.translated import Allocated, devices
from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge", "joint_nodes")

FOLDER = EXAMPLES / "koordinator"
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
TOGETHER = {"deviceTypes": ["gpu", "rdma"]}
SAME_PCIE = TOGETHER | {"requiredScope": "SamePCIe"}
ROOT = "resource.kubernetes.io/pcieRoot"
APART = {"kubernetes.io/hostname": "apart-0"}


def joint(name: str, gpus: int, policy: object, **spec: Any) -> Object:
    return pod(
        name,
        limits={"koordinator.sh/gpu": 100 * gpus, "koordinator.sh/rdma": 100},
        annotations={JOINT: json.dumps(policy)},
        **spec,
    )


@pytest.fixture(scope="module")
def joint_nodes(cluster: Access, stage: str) -> Iterator[None]:
    classes, nodes, slices = nodes_of_koordinator()
    cluster.apply(classes)
    nodes_added = cluster.add_nodes(nodes, lambda node: slices.get(node, ()))
    asking = stream(joint("asking", 4, SAME_PCIE))
    command = ("create", "-n", stage, "--dry-run=server", "-o", "json", "-f", "-")

    def known() -> bool:
        document = json.loads(cluster.kubectl(*command, input=asking).stdout)
        return '"perRoot":[2]' in document["metadata"]["annotations"][REQUEST_ANNOTATION]

    cluster.wait_until(known, "the webhook knows how many GPUs share a root")
    yield
    cluster.remove_nodes(nodes_added)
    for class_ in classes:
        if class_["metadata"]["name"] != HAMI:  # The fleet has that one, too.
            cluster.kubectl("delete", "deviceclass", class_["metadata"]["name"])


def roots_of(cluster: Access, namespace: str, running: Object) -> dict[str, list[str]]:
    """Driver to the PCIe root of each device that the pod's first container got."""
    roots = {
        (spec["driver"], spec["pool"]["name"], device["name"]): device["attributes"][ROOT]["string"]
        for spec in (object_["spec"] for object_ in cluster.objects("resourceslices"))
        for device in spec["devices"]
        if ROOT in device["attributes"]
    }
    allocated: list[Allocated] = next(
        iter(devices(running, cluster.objects("resourceclaims", namespace)).values())
    )
    return {
        driver: sorted(
            roots[driver, device_.pool, device_.device]
            for device_ in allocated
            if device_.driver == driver
        )
        for driver in (HAMI, DRANET)
    }


@needs(35, "an allocator that looks at the capacity of the device that it allocates")
def test_every_group_of_gpus_has_a_nic_under_its_root(cluster: Access, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(joint("four", 4, SAME_PCIE)))

    roots = roots_of(cluster, namespace, cluster.wait_running("four", namespace))

    first, second = roots[DRANET]
    assert first != second
    assert roots[HAMI] == [first, first, second, second]


def test_where_no_nic_is_under_the_root_the_pod_waits(cluster: Access, namespace: str) -> None:
    strict = joint("strict", 2, SAME_PCIE, nodeSelector=APART)
    lenient = joint("lenient", 2, TOGETHER, nodeSelector=APART)
    for document in (strict, lenient):
        cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(document))

    # The later one runs on what the earlier one could not take.
    roots = roots_of(cluster, namespace, cluster.wait_running("lenient", namespace))

    assert not set(roots[HAMI]) & set(roots[DRANET])
    assert cluster.get("pods", "strict", namespace)["status"]["phase"] == "Pending"


def test_a_preference_is_kept_where_there_is_room(cluster: Access, namespace: str) -> None:
    document = joint("near", 2, TOGETHER, nodeSelector={"kubernetes.io/hostname": "hami-rdma-0"})
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(document))

    roots = roots_of(cluster, namespace, cluster.wait_running("near", namespace))

    assert roots[HAMI] == roots[DRANET] * 2


def test_more_than_a_claim_can_hold_is_refused(cluster: Access, namespace: str) -> None:
    asking = stream(joint("many", 40, SAME_PCIE))

    output = cluster.kubectl("create", "-n", namespace, "-f", "-", input=asking, check=False)

    assert output.returncode != 0
    assert "constraints cannot span claims" in output.stderr


def test_shares_are_divided_and_seen_by_every_container(cluster: Access, namespace: str) -> None:
    manifest: Path = FOLDER / "share.yaml"
    cluster.kubectl("apply", "-n", namespace, "-f", manifest)

    running = cluster.wait_running("shares", namespace)

    devices_ = devices(running, cluster.objects("resourceclaims", namespace))
    assert devices_["train"] == devices_["watch"]
    assert len({(device.pool, device.device) for device in devices_["train"]}) == 2
    half = {"cores": Quantity(50), "memory": Quantity("2Gi")}
    assert [half, half] == [device.amounts for device in devices_["train"]]
