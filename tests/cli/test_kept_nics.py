"""NICs under names of NVIDIA's domain that no vocabulary has: they are taken for no parts of GPUs."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from kube.errors import ConfigError
from kube.manifests.dump import dump_yaml
from process.profiles.translation import TranslationSettings
from testing.builders import admit, container, profiles, translation_snapshot
from testing.command import drawbridge
from testing.documents import api_object, namespace, node
from testing.migration import GPU, SHARE, WHOLE, daemon_set, hami_node, plugin_node, workload
from testing.plan import held_objects, planned, waves

RAIL: Final = "nvidia.com/rail_0"
MIG_DEVICE: Final = "nvidia.com/mig-1g.5gb"
COUNT: Final = "nvidia.com/gpu.count"
NAMES: Final = (RAIL, "nvidia.com/cx7_gdr", "nvidia.com/bf3_vf", "nvidia.com/mlnx_net")
"""Names of the SR-IOV or RDMA device plugin, as an administrator may choose them."""


def keep(folder: Path, *names: str, **more: Any) -> tuple[str, Path]:
    path = folder / "settings.yaml"
    path.write_text(dump_yaml([{"translation": {"keep": list(names), **more}}]))
    return "--settings", path


def with_nics(name: str, *nodes: dict[str, Any]) -> list[dict[str, Any]]:
    for entry in nodes:
        entry["status"]["allocatable"] |= {name: "4"}
    return [*nodes, namespace("team"), daemon_set("nvidia-device-plugin")]


def kept_nodes(folder: Path, objects: list[dict[str, Any]], name: str = RAIL) -> list[str]:
    """Return the nodes that are held for a kept name, in the plan of a cluster."""
    held = held_objects(planned(folder, objects, *keep(folder, name)))
    return [
        place for place, reason in held.items() if f"have {name}, which translation.keep" in reason
    ]


@pytest.mark.parametrize("name", NAMES)
def test_nodes_move_with_pods_that_have_a_nic_beside_a_gpu(tmp_path: Path, name: str) -> None:
    """All of them were held, and the fix said that the NICs were parts of their GPUs."""
    objects = with_nics(name, plugin_node("gpu-0"), plugin_node("gpu-1"))
    objects += workload("train", {GPU: "1", name: "1"}, ["gpu-0"])
    objects += workload("launcher", {name: "1"}, ["gpu-1"])

    plan = planned(tmp_path, objects, *keep(tmp_path, name))

    assert {} == held_objects(plan)
    assert ["gpu-0", "gpu-1"] == sorted(entry for names, _ in waves(plan) for entry in names)


@pytest.mark.parametrize(
    ("gpus", "is_nic"),
    [
        pytest.param({GPU: "1"}, True, id="a GPU"),
        pytest.param({MIG_DEVICE: "1"}, True, id="a MIG device"),
        pytest.param(SHARE, True, id="a share of HAMi"),
        pytest.param({f"{MIG_DEVICE}.shared": "1"}, False, id="a replica of a MIG device"),
        pytest.param({GPU: "0"}, False, id="no GPU"),
    ],
)
def test_a_name_beside_a_whole_gpu_is_one_of_a_nic(
    tmp_path: Path, gpus: dict[str, str], *, is_nic: bool
) -> None:
    objects = with_nics(RAIL, plugin_node("gpu-0"), plugin_node("gpu-1"), hami_node("hami-0"))
    objects += workload("launcher", {RAIL: "1"}, ["gpu-1"])
    objects += workload("train", {**gpus, RAIL: "1"}, [])

    assert ([] if is_nic else ["Node//gpu-1"]) == kept_nodes(tmp_path, objects)


@pytest.mark.parametrize(
    ("labels", "is_nic"),
    [
        pytest.param({COUNT: "4"}, True, id="all GPUs are offered whole"),
        pytest.param({COUNT: "5"}, False, id="one is not"),
        pytest.param({COUNT: "4", f"{MIG_DEVICE}.count": "7"}, False, id="MIG devices are not"),
        pytest.param({}, False, id="the number is not known"),
    ],
)
def test_no_part_of_a_gpu_is_left_where_all_are_offered_whole(
    tmp_path: Path, labels: dict[str, str], *, is_nic: bool
) -> None:
    objects = with_nics(RAIL, plugin_node("gpu-0", 4, **labels), plugin_node("gpu-1"))
    objects += workload("train", WHOLE, ["gpu-0"])
    objects += workload("launcher", {RAIL: "1"}, ["gpu-0", "gpu-1"])

    assert ([] if is_nic else ["Node//gpu-0", "Node//gpu-1"]) == kept_nodes(tmp_path, objects)


def test_a_name_that_no_node_offers_is_none_of_a_nic(tmp_path: Path) -> None:
    """HAMi's scheduler counts memory under a name of its own, and the next pods would wait for a node with it."""
    name = "nvidia.com/vram"
    objects = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]
    objects += workload("share", {GPU: "1", name: "1"}, ["hami-0"])

    assert ["Node//hami-0"] == kept_nodes(tmp_path, objects, name)


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({}, id="no sign of GPUs"),
        pytest.param({"nvidia.com/gpu.present": "true"}, id="a label of GPUs"),
    ],
)
def test_a_node_of_such_names_alone_stays_by_the_name(
    tmp_path: Path, labels: dict[str, str]
) -> None:
    """Its fix gave them the meaning of parts of GPUs, and no release of NVIDIA's plugin gives those such names."""
    objects = [*with_nics(RAIL, plugin_node("gpu-0")), node("store", {RAIL: "8"}, labels)]
    objects += [*workload("train", WHOLE, ["gpu-0"]), *workload("store", {RAIL: "1"}, ["store"])]

    (fix,) = (
        entry["fix"]
        for entry in planned(tmp_path, objects)["held"]
        if entry["object"] == "Node//store"
    )

    assert fix.endswith(f"translation.keep: [{RAIL}] of the settings)")
    assert "renamedKeys" not in fix


@pytest.mark.parametrize(
    ("name", "own", "pods", "later"),
    [
        pytest.param(RAIL, RAIL, RAIL, [], id="a name that the leaving plugin may offer"),
        pytest.param("amd.com/gpu", "amd.com/gpu_part", "amd.com/gpu_part", [], id="one of AMD"),
        pytest.param(
            *(RAIL, "aliyun", "aliyun.com/gpu-mem", ["Node//gpu-2"]), id="shares of another system"
        ),
    ],
)
def test_assess_says_what_plan_holds_for_a_kept_name(
    tmp_path: Path, name: str, own: str, pods: str, later: list[str]
) -> None:
    """It had no blocker, and the next command held the nodes."""
    used = GPU if name == RAIL else name
    objects = [node(f"gpu-{index}", {used: "4", pods: "8"}) for index in range(3)]
    objects += [namespace("team"), *workload("launcher", {pods: "1"}, ["gpu-0", "gpu-1"])]
    flags = keep(tmp_path, own)

    plan = planned(tmp_path, objects, *flags)
    answer = json.loads(
        drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml", *flags, "-o", "json").stdout
    )

    blockers = [entry for entry in answer["blockers"] if entry["code"] == "keptNameInUse"]
    nodes = [["Node//gpu-0", "Node//gpu-1"], *([later] if later else [])]
    assert nodes == [blocker["objects"] for blocker in blockers]
    held = [entry for entry in plan["held"] if "which translation.keep leaves" in entry["reason"]]
    assert [
        {"object": place, "reason": blocker["message"], "fix": blocker["fix"]}
        for blocker in blockers
        for place in blocker["objects"]
    ] == held


@pytest.mark.parametrize("offered", [{}, {RAIL: "0"}])
def test_a_name_that_the_node_does_not_offer_leaves_with_no_plugin(
    tmp_path: Path, offered: dict[str, str]
) -> None:
    """It was held for a plugin of NICs that had left it."""
    objects = [*with_nics(RAIL, plugin_node("gpu-0")), node("gpu-1", {GPU: "4", **offered})]
    objects += workload("launcher", {RAIL: "1"}, ["gpu-1"])

    assert [] == kept_nodes(tmp_path, objects)


@pytest.mark.parametrize("names", [[RAIL], ["rdma"], [RAIL, "rdma"]])
def test_a_setting_says_that_a_name_is_one_of_nics(tmp_path: Path, names: list[str]) -> None:
    """The name was rejected in `keep`; with `rdma` there its pods had a key that is not translated."""
    objects = with_nics(RAIL, plugin_node("gpu-0"), plugin_node("gpu-1"))
    objects += workload("train", WHOLE, ["gpu-0"])
    objects += workload("launcher", {RAIL: "1"}, ["gpu-0", "gpu-1"])
    meaning = {RAIL: "rdma/rail_0"}
    advice = f"if {RAIL} stands for NICs, set translation.renamedKeys: {{{RAIL}: rdma/rail_0}} "

    (fix,) = {entry["fix"] for entry in planned(tmp_path, objects, *keep(tmp_path, RAIL))["held"]}
    flags = keep(tmp_path, *names, renamedKeys=meaning)
    plan = planned(tmp_path, objects, *flags)
    answer = json.loads(
        drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml", *flags, "-o", "json").stdout
    )

    assert fix.startswith(f"{advice}beside translation.keep; ")
    assert {} == held_objects(plan)
    assert ["gpu-0", "gpu-1"] == sorted(entry for names, _ in waves(plan) for entry in names)
    assert ([], ["Deployment/team/train"]) == (
        answer["blockers"],
        [entry["object"] for entry in answer["workloads"]],
    )


@pytest.mark.parametrize("names", [(RAIL,), ("rdma",)])
def test_a_pod_keeps_a_name_that_stands_for_nics(names: tuple[str, ...]) -> None:
    settings = TranslationSettings(keep=names, renamed_keys={RAIL: "rdma/rail_0"})
    options = settings.checked_options(profiles())
    pod = api_object(
        "Pod", "train", spec={"containers": [container(amounts={GPU: "1", RAIL: "1"})]}
    )

    after, answer = admit(pod, translation_snapshot(), options)

    assert after["spec"]["containers"][0]["resources"]["limits"] == {RAIL: "1"}
    assert ["keptBesideClaims"] == [entry.code for entry in answer.findings]


def test_the_other_name_of_nics_that_stay_gets_no_claim_for_them() -> None:
    """The device plugin gives them to pods, and a claim would take one of them from its node."""
    settings = TranslationSettings(keep=(RAIL,), renamed_keys={RAIL: "rdma/rail_0"})
    options = settings.checked_options(profiles())
    amounts = {RAIL: "1", "rdma/rail_0": "1"}
    pod = api_object("Pod", "train", spec={"containers": [container(amounts=amounts)]})

    after, _ = admit(pod, translation_snapshot(), options)

    assert after == pod


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"keep": ("rdma/hca",)}, "rdma/hca is translated by the vocabulary rdma; name that"),
        (
            {"keep": (RAIL,), "renamed_keys": {RAIL: GPU}},
            f"{RAIL}, which stands for {GPU}, is translated by the vocabulary hami; name that",
        ),
        (
            {"renamed_keys": {"mellanox.com/cx7": "rdma/cx7"}},
            "mellanox.com/cx7 is a key of the vocabulary sriov already",
        ),
    ],
)
def test_a_name_of_a_vocabulary_is_none_of_the_settings(
    settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        TranslationSettings(**settings).checked_options(profiles())
