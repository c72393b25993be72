"""Plans for nodes with devices of a legacy system, beside published devices of a driver that serves none of these."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object, namespace, resource_slice
from testing.migration import (
    GPU,
    SHARE,
    hami_node,
    origin,
    plugin_node,
    workload,
)
from testing.plan import held_objects, planned, waves

HAMI: Final = "hami-core-gpu.project-hami.io"
NVIDIA: Final = "gpu.nvidia.com"
NICS: Final = "dra.net"


def published(node: str, driver: str = NICS, number: int = 8) -> dict[str, Any]:
    devices = [{"name": f"device-{index}"} for index in range(number)]
    return resource_slice(*devices, driver=driver, node=node, name=f"{driver}-{node}")


def nodes(tmp_path: Path, objects: list[dict[str, Any]]) -> dict[str, tuple[str, int, bool]]:
    """Return node to its source, the number of its devices, and True if they are assumed."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    return {
        entry["name"]: (entry["source"], entry["devices"], entry["assumed"])
        for entry in answer["nodes"]
    }


@pytest.mark.parametrize(
    ("expected", "objects"),
    [
        (("devicePlugin", 4, True), [plugin_node("a"), published("a")]),
        (("hami", 2, True), [hami_node("a"), published("a")]),
        (("mixed", 8, False), [plugin_node("a"), published("a", NVIDIA)]),
        (("mixed", 8, False), [plugin_node("a"), published("a"), published("a", NVIDIA)]),
        # The driver is none of these settings, and has the GPUs of the node all the same.
        (("mixed", 8, False), [plugin_node("a"), published("a", HAMI)]),
        (("mixed", 8, False), [hami_node("a"), published("a", HAMI)]),
        (("dra", 8, False), [plugin_node("a", 0), published("a", NVIDIA)]),
        (("dra", 8, False), [plugin_node("a", 0), published("a")]),
    ],
)
def test_a_node_has_the_source_of_its_own_devices(
    tmp_path: Path, expected: tuple[str, int, bool], objects: list[dict[str, Any]]
) -> None:
    assert {"a": expected} == nodes(tmp_path, objects)


@pytest.mark.parametrize(
    ("expected", "driver"),
    [(("hami", 2, True), NICS), (("dra", 8, False), HAMI), (("dra", 8, False), NVIDIA)],
)
def test_hami_has_left_a_node_to_a_driver_for_gpus_only(
    tmp_path: Path, expected: tuple[str, int, bool], driver: str
) -> None:
    node = hami_node("a")
    node["status"]["allocatable"] = {GPU: "0"}

    assert {"a": expected} == nodes(tmp_path, [node, published("a", driver)])


def test_beside_nics_a_register_may_be_unreadable_too(tmp_path: Path) -> None:
    node = hami_node("a")
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": "{"}

    assert {"a": ("hami", 0, True)} == nodes(tmp_path, [node, published("a")])


def test_pods_of_nodes_with_nics_are_counted(tmp_path: Path) -> None:
    names = [f"gpu-{number}" for number in range(3)]
    plan = planned(
        tmp_path,
        [
            origin(version="1.36.0"),
            *(plugin_node(name, 2) for name in names),
            *map(published, names),
            namespace("team"),
            *workload("web", {GPU: "1"}, ["gpu-0", "gpu-0", "gpu-1", "gpu-1", "gpu-2"]),
        ],
        *("--wave-nodes", 3),
    )

    # The only free GPU is on gpu-2: the pod there has no other node, and two pods of another find one GPU.
    assert [] == waves(plan)
    assert {f"Node//{name}" for name in names} <= held_objects(plan).keys()


def test_a_node_with_nics_has_the_labels_of_its_own_system(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        [
            *(hami_node("hami-0"), hami_node("hami-1"), plugin_node("gpu-0"), plugin_node("gpu-1")),
            *map(published, ("hami-0", "hami-1", "gpu-0", "gpu-1")),
            namespace("team"),
            *workload("web", SHARE, ["hami-0"]),
            *workload("whole", {GPU: "1"}, ["gpu-0"]),
        ],
        *("--wave-nodes", 1, "--plugin-label", "plugin=off"),
    )

    labels = {node["name"]: node["labels"] for wave in plan["waves"] for node in wave["nodes"]}
    devices = {node["name"]: node["devices"] for wave in plan["waves"] for node in wave["nodes"]}
    of_hami, of_plugin = {HAMI: 2}, {NVIDIA: 4}
    expected = {"hami-0": of_hami, "hami-1": of_hami, "gpu-0": of_plugin, "gpu-1": of_plugin}
    assert expected == devices
    assert {"drawbridge.internal/dra-driver": HAMI, "gpu": "off"} == labels["hami-1"]
    assert "off" == labels["gpu-0"]["plugin"]


def test_pods_that_nobody_could_count_hold_their_nodes(tmp_path: Path) -> None:
    # Another driver publishes GPUs beside the device plugin, so none of NVIDIA's driver are assumed.
    cluster = [
        *(origin(version="1.36.0"), plugin_node("gpu-0"), plugin_node("gpu-1")),
        *(published("gpu-0", HAMI), published("gpu-1", HAMI)),
        *(namespace("team"), *workload("web", {GPU: "1"}, ["gpu-0"])),
    ]

    held = held_objects(planned(tmp_path, cluster))

    assert {"Deployment/team/web", "Node//gpu-0"} <= held.keys()
    assert "devices of gpu.nvidia.com" in held["Deployment/team/web"]
    assert "both hand out the devices" in held["Node//gpu-0"]


def test_a_nic_stays_with_its_plugin_and_holds_no_node(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {native: mapped}\n")
    cluster = [
        *(origin(version="1.36.0"), plugin_node("gpu-0"), plugin_node("gpu-1")),
        *(namespace("team"), *workload("web", {GPU: "1"}, ["gpu-0"])),
        *workload("nic", {"rdma/hca": "1"}, ["gpu-0"]),
    ]

    plan = planned(tmp_path, cluster, "--wave-nodes", 1, "--settings", settings)

    assert {} == held_objects(plan)
    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(plan) for name in names)


@pytest.mark.parametrize("driver", [NICS, "compute-domain.nvidia.com"])
def test_free_nics_are_no_free_gpus(tmp_path: Path, driver: str) -> None:
    names = [f"gpu-{number}" for number in range(4)]
    cluster = [
        *(origin(version="1.36.0"), namespace("team")),
        *(plugin_node(name, 2) for name in names),
        *(published(name, driver) for name in names),
        *workload("web", {GPU: "1"}, ["gpu-0", "gpu-0", "gpu-1", "gpu-1"]),
    ]

    plan = planned(tmp_path, cluster, "--wave-nodes", 1, "--keep-free", 20)

    assert names == sorted(name for nodes, _ in waves(plan) for name in nodes)
    assert {4} == {wave["freeBefore"] for wave in plan["waves"]}
    kept = planned(tmp_path, cluster, "--wave-nodes", 1, "--keep-free", 60)
    assert [] == waves(kept)


@pytest.mark.parametrize("sign", ["label", "taint", "pod"])
def test_nodes_that_tensor_fusion_shares_are_held(tmp_path: Path, sign: str) -> None:
    """They have the device plugin, too, and were switched under its hypervisor."""
    shared = plugin_node("shared")
    hypervisor = api_object(
        "Pod",
        "hypervisor",
        "tensor-fusion-sys",
        labels={"tensor-fusion.ai/component": "hypervisor"},
        spec={"nodeName": "shared", "containers": [{"name": "c", "image": "a"}]},
    )
    if sign == "label":
        shared["metadata"]["labels"]["tensor-fusion.ai/pool-a"] = "true"
    elif sign == "taint":
        taint = {"key": "tensor-fusion.ai/used-by", "effect": "NoSchedule"}
        shared["spec"] = {"taints": [taint]}

    others = [plugin_node("gpu-0"), plugin_node("gpu-1"), *workload("web", {GPU: "1"}, ["gpu-0"])]
    plan = planned(tmp_path, [shared, *others, *([hypervisor] if sign == "pod" else [])])

    assert {"gpu-0", "gpu-1"} == {name for names, _ in waves(plan) for name in names}
    assert held_objects(plan)["Node//shared"].startswith("tensor-fusion shares its GPUs (")
