"""`drawbridge plan` with nodes that are not ready: their devices are nobody's for now."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.builders import HAMI, hami_gpu
from testing.command import drawbridge
from testing.documents import api_object, namespace, node, resource_slice
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import failed_before, held_objects, planned, waves

NODES: Final = (plugin_node("gpu-0"), plugin_node("gpu-1"))
WEB: Final = (namespace("team"), *workload("web", {GPU: "4"}, ["gpu-0"]))


def unready(entry: dict[str, Any], **spec: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "Unknown"}
    status = {**entry["status"], "conditions": [condition]}
    return {**entry, "spec": {**entry.get("spec", {}), **spec}, "status": status}


def told(tmp_path: Path) -> list[str]:
    """The lines of README.md on devices that do or do not count."""
    text = (tmp_path / "plan" / "README.md").read_text()
    return [line for line in text.splitlines() if " count, too: " in line or "not count: " in line]


def test_devices_of_a_node_that_is_not_ready_are_not_kept_free(tmp_path: Path) -> None:
    """No pod could be placed there, and they satisfied --keep-free."""
    other = plugin_node("gpu-2", gpus=8)
    options = ("--wave-nodes", 1, "--keep-free", 50)
    assert waves(planned(tmp_path, [*NODES, other, *WEB], *options))

    plan = planned(tmp_path, [*NODES, unready(other), *WEB], *options)

    assert [] == plan["waves"]
    assert "0 of 4 devices are free" in held_objects(plan)["Node//gpu-0"]


@pytest.mark.parametrize("is_cordoned", [False, True])
def test_devices_of_a_node_out_of_service_are_not_part_of_those_to_keep_free(
    tmp_path: Path, is_cordoned: bool
) -> None:
    """One broken node held every wave: its devices counted, and none of them could be free."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(4)]
    options = ("--wave-nodes", 1, "--keep-free", 50)
    without = waves(planned(tmp_path, [*nodes, *WEB], *options))
    assert 4 == len(without)

    broken = plugin_node("gpu-9", gpus=16)
    broken = {**broken, "spec": {"unschedulable": True}} if is_cordoned else unready(broken)

    assert without == waves(planned(tmp_path, [*nodes, broken, *WEB], *options))


def test_readme_names_the_nodes_that_are_not_ready_and_those_that_are_cordoned(
    tmp_path: Path,
) -> None:
    """It named three of each."""
    broken = [unready(plugin_node(f"bad-{number:02}")) for number in range(32)]
    cordoned = [plugin_node(f"old-{number}") for number in range(5)]
    for entry in cordoned:
        entry["spec"] = {"unschedulable": True}

    plan = planned(tmp_path, [*NODES, *broken, *cordoned, *WEB])

    first, second = told(tmp_path)
    names = "old-0, old-1, old-2, old-3, old-4"
    assert f"Those of {names} count, too: no pod gets them while the nodes are cordoned." == first
    assert ", bad-29 and 2 more do not count: the nodes are not ready." in second
    assert 32 == len(plan["unreadyNodes"])


def test_devices_of_a_cordoned_node_are_not_kept_free(tmp_path: Path) -> None:
    """No pod gets them while the node is cordoned, and they satisfied --keep-free."""
    other = {**plugin_node("gpu-2", gpus=8), "spec": {"unschedulable": True}}

    plan = planned(tmp_path, [*NODES, other, *WEB], "--wave-nodes", 1, "--keep-free", 50)

    assert [] == plan["waves"]
    assert "0 of 4 devices are free" in held_objects(plan)["Node//gpu-0"]


def test_free_devices_are_those_of_nodes_that_are_ready(tmp_path: Path) -> None:
    broken = unready(plugin_node("gpu-2", gpus=8))

    plan = planned(tmp_path, [*NODES, broken, *WEB], "--wave-nodes", 1)

    first, last = plan["waves"]
    assert {"before": 4, "after": 0} == first["freeForKeys"]
    assert {"before": 4, "after": 4} == last["freeForClaims"]
    assert ["gpu-2"] == plan["unreadyNodes"]
    assert ["Those of gpu-2 do not count: the node is not ready."] == told(tmp_path)


def test_a_wave_drains_no_pods_to_a_node_that_is_no_longer_ready(tmp_path: Path) -> None:
    other = plugin_node("gpu-2")
    options = ("--wave-nodes", 1, "--plugin-label", "no-plugin=true")
    plan = planned(tmp_path, [NODES[0], other, *WEB], *options)
    first, last = plan["waves"]
    assert ["gpu-2", "gpu-0"] == [wave["nodes"][0]["name"] for wave in (first, last)]
    gpus = [
        {"name": f"gpu-{index}", "attributes": {"type": {"string": "gpu"}}} for index in range(4)
    ]
    switched = {
        **other,
        "metadata": {**other["metadata"], "labels": first["nodes"][0]["labels"]},
        "status": {**other["status"], "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "9"}},
    }
    spec = {
        "extendedResourceName": GPU,
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}],
    }
    others = [
        NODES[0],
        resource_slice(*gpus, driver="gpu.nvidia.com", node="gpu-2", name="slice-2"),
        api_object("DeviceClass", "gpu.nvidia.com", spec=spec),
        *WEB,
    ]
    assert {} == failed_before(tmp_path, [switched, *others], 2)

    failed = failed_before(tmp_path, [unready(switched), *others], 2)

    reason = "while draining gpu-0, 1 pod has no devices: 1 of Deployment/team/web"
    assert {"Wave//2": f"{reason}: plan again from a new snapshot"} == failed


@pytest.mark.parametrize(
    "broken",
    [
        [unready(plugin_node("gpu-2", 4, **{"nvidia.com/cuda.driver-version.major": "470"}))],
        [
            unready(node("gpu-2", {}, {}, {})),
            resource_slice(hami_gpu(), driver=HAMI, node="gpu-2", name="slice-2"),
        ],
        [unready(plugin_node("gpu-2"), unschedulable=True)],
    ],
    ids=["an old driver", "switched", "cordoned, too"],
)
def test_each_node_with_devices_that_is_not_ready_is_named_once(
    tmp_path: Path, broken: list[dict[str, Any]]
) -> None:
    planned(tmp_path, [*NODES, *broken, *WEB])

    assert ["Those of gpu-2 do not count: the node is not ready."] == told(tmp_path)


def test_a_node_whose_devices_nothing_tells_has_none_that_do_not_count(tmp_path: Path) -> None:
    """HAMi has registered them as nobody can read."""
    broken = unready(hami_node("hami-0"))
    broken["metadata"]["annotations"] = {"hami.io/node-nvidia-register": "[unreadable"}

    plan = planned(tmp_path, [*NODES, broken, *WEB])

    assert [] == plan["unreadyNodes"]


def test_a_node_that_is_cordoned_and_not_ready_has_both_reasons(tmp_path: Path) -> None:
    broken = unready(plugin_node("gpu-2"), unschedulable=True)

    plan = planned(tmp_path, [*NODES, broken, *WEB])

    reasons = [entry["reason"] for entry in plan["held"] if entry["object"] == "Node//gpu-2"]
    assert ["it is cordoned, and the end", "it is not ready, so its drain"] == [
        reason.partition(" of its")[0].partition(" and its driver")[0] for reason in reasons
    ]


def test_cordoned_nodes_count_as_others(tmp_path: Path) -> None:
    cordoned = plugin_node("gpu-2")
    cordoned["spec"] = {"unschedulable": True}
    plan = planned(tmp_path, [*NODES, cordoned, *WEB])

    assert [] == plan["unreadyNodes"]
    assert ["Those of gpu-2 count, too: no pod gets them while the node is cordoned."] == told(
        tmp_path
    )


def test_pods_with_claims_have_no_free_device_of_a_node_that_is_not_ready(tmp_path: Path) -> None:
    served = [
        unready(node("hami-0", {}, {}, {})),
        resource_slice(hami_gpu(), driver=HAMI, node="hami-0", name="slice-0"),
    ]
    objects = [*served, hami_node("hami-1"), namespace("team"), *workload("web", SHARE, ["hami-1"])]

    plan = planned(tmp_path, objects)

    assert [] == plan["waves"]


# --- nodes whose plugin offers none of their devices ----------------------------------------------


def offering_none(name: str, capacity: str = "0", **labels: str) -> dict[str, Any]:
    entry = plugin_node(name, 0, **labels)
    return {**entry, "status": {**entry["status"], "capacity": {GPU: capacity}}}


@pytest.mark.parametrize(
    ("entry", "is_held"),
    [
        pytest.param(offering_none("gpu-9", "8"), True, id="all are unhealthy"),
        pytest.param(
            offering_none("gpu-9", **{"nvidia.com/gpu.count": "8"}), True, id="no plugin runs"
        ),
        pytest.param(offering_none("gpu-9"), False, id="nothing says that it has some"),
        pytest.param(
            node(
                "gpu-9", {GPU: "0", "nvidia.com/mig-1g.5gb": "7"}, {"nvidia.com/gpu.count": "1"}, {}
            ),
            False,
            id="it offers others",
        ),
    ],
)
def test_a_node_that_offers_none_of_its_devices_is_held(
    tmp_path: Path, entry: dict[str, Any], *, is_held: bool
) -> None:
    """It was in no line of `plan` and of `assess`."""
    objects = [*NODES, entry, *WEB]

    reason = held_objects(planned(tmp_path, objects)).get("Node//gpu-9", "")
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    assert is_held == reason.startswith("its device plugin offers none of its devices")
    assert ({"gpu-9": "offering no devices"} if is_held else {}) == answer["outOfService"]


def test_a_pod_on_a_node_that_offers_none_of_its_devices_counts_on_no_other(tmp_path: Path) -> None:
    """The only other node with devices for it was held."""
    big = workload("big", {GPU: "4"}, ["gpu-9"])
    objects = [*NODES, offering_none("gpu-9", "4"), *WEB, *big]

    plan = planned(tmp_path, objects)

    assert ["Node//gpu-9"] == list(held_objects(plan))
    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(plan) for name in names)
