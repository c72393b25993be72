"""`drawbridge plan`: README.md has one list of the steps before the first wave, with the places of their details."""

import re
from pathlib import Path
from typing import Any, Final

from testing.documents import api_object, namespace, resource_quota
from testing.migration import (
    GPU,
    SHARE,
    daemon_set,
    device_quota,
    hami_node,
    plugin_node,
    workload,
)
from testing.plan import call, planned

HEADING: Final = "## Before the first wave\n"


def steps(tmp_path: Path) -> list[str]:
    """Return the steps of the only list, without their numbers."""
    page = (tmp_path / "plan" / "README.md").read_text()
    assert 1 == page.count(HEADING)
    lines = page.partition(HEADING)[2].strip().partition("\n\n")[0].splitlines()
    numbers, texts = zip(*(line.split(". ", 1) for line in lines), strict=True)
    assert numbers == tuple(str(number) for number in range(1, len(lines) + 1))
    return list(texts)


def cluster() -> list[dict[str, Any]]:
    """Nodes of HAMi, and of a plugin without the Operator; one of them is cordoned, one of a pool."""
    pool = {"cloud.google.com/gke-nodepool": "a100"}
    cordoned = plugin_node("gpu-9")
    cordoned["spec"] = {"unschedulable": True}
    train = workload("train", SHARE, ["hami-1"], kind="Job", restartPolicy="Never")
    train[0]["apiVersion"] = train[1]["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    return [
        *(hami_node("hami-0"), hami_node("hami-1"), cordoned),
        *(plugin_node("gpu-0", 4, **pool), plugin_node("gpu-1", 4, **pool)),
        daemon_set("nvidia-device-plugin"),
        *(namespace("team"), resource_quota({f"requests.{GPU}": "8"}, name="gpus")),
        *workload("web", SHARE, ["hami-0"]),
        *train,
        *workload("serve", {GPU: "1"}, ["gpu-0"], namespace="lab"),
        namespace("lab"),
    ]


def test_the_list_names_each_step_with_the_place_of_its_details(tmp_path: Path) -> None:
    """They stood in the head, in notes of several waves, in comments of a script, and at the end of the page."""
    plan = planned(tmp_path, cluster(), "--wave-nodes", 2)

    texts = steps(tmp_path)
    first = plan["waves"][0]
    of_notes = (
        f"Do what the notes of wave 1 ask for ({len(first['notes'])} notes, the first below). Those of later waves are for "
        "the time before these."
    )
    assert [
        "Decide about what has no wave (Not part of any wave): 1 node. What you solve gets one by a new plan, from a new snapshot.",
        of_notes,
        "Tell those whose work it is what 1 pod would lose (below, wave by wave).",
        "Read what becomes of the quotas of team (`quotas/`, and the notes of their waves).",
    ] == texts[:4]
    number = next(
        wave["wave"] for wave in plan["waves"] if any(node["pool"] for node in wave["nodes"])
    )
    assert [
        f"See to node pools that grow by themselves: cloud.google.com/gke-nodepool=a100 (notes of wave {number}).",
        "Install Drawbridge in mode `OptIn`: `prepare.sh` stops until its webhook is called.",
    ] == texts[4:6]
    assert texts[6].startswith("Install the chart of hami-core-gpu.project-hami.io with the flags")
    (last,) = texts[7:]
    assert last == (
        "Run `prepare.sh`, which installs drivers that wait for their node label. It changes "
        "DeviceClass/gpu.nvidia.com, DeviceClass/hami-core-gpu.project-hami.io, DaemonSet/kube-system/nvidia-device-plugin."
    )
    page = (tmp_path / "plan" / "README.md").read_text()
    assert "\nNot part of any wave:\n" in page
    assert page.index(f"\n- wave 1: {first['notes'][0][:40]}") < page.index("\n- wave 2")


def test_quotas_of_no_wave_are_not_to_be_read(tmp_path: Path) -> None:
    """The folder of quotas was empty, and the namespace is held."""
    quotas = [resource_quota({f"requests.{GPU}": "8"}), device_quota({"name": GPU})]
    held = workload("old", {GPU: "1.5"}, ["hami-0"])
    moving = workload("web", SHARE, ["hami-1"], namespace="lab")
    nodes = [hami_node(f"hami-{number}") for number in range(3)]

    plan = planned(
        tmp_path,
        [*nodes, namespace("team"), namespace("lab"), *quotas, *held, *moving],
        "--spare-nodes",
        0,
    )

    assert (["team"], {}) == (
        [entry["namespace"] for entry in plan["replacedLines"]],
        plan["quotas"],
    )
    assert not [text for text in steps(tmp_path) if "becomes of the quotas" in text]


def test_each_place_is_there(tmp_path: Path) -> None:
    planned(tmp_path, cluster(), "--wave-nodes", 2)

    page = (tmp_path / "plan" / "README.md").read_text()

    for place in ("Not part of any wave:", "Notes:", "Pods that an eviction takes something from"):
        assert re.search(rf"^{place}", page, re.MULTILINE), place
    assert [*(tmp_path / "plan" / "quotas").iterdir()]


def test_a_small_plan_has_a_small_list(tmp_path: Path) -> None:
    plan = planned(tmp_path, [plugin_node("gpu-0"), plugin_node("gpu-1")])

    assert [] == plan["held"]
    *others, last = steps(tmp_path)
    assert last.startswith("Run `prepare.sh`, which installs drivers")
    assert all("notes of wave 1" in text for text in others)


def test_what_nobody_has_confirmed_comes_first(tmp_path: Path) -> None:
    operator = api_object(
        "Deployment",
        "gpu-operator",
        "gpu-operator",
        labels={"app.kubernetes.io/version": "v26.7.0"},
        spec={"replicas": 0, "template": {"spec": {"containers": []}}},
    )
    call(tmp_path, [plugin_node("gpu-0"), daemon_set("nvidia-device-plugin"), operator])

    assert steps(tmp_path)[0] == (
        "Plan again with --gpu-operator: until somebody confirms what the snapshot shows, no script does anything "
        "(Not part of any wave)."
    )


def test_a_repository_is_named_before_the_script_that_asks_for_it(tmp_path: Path) -> None:
    planned(tmp_path, cluster(), "--wave-nodes", 2, "--format", "kustomize")

    *_, commit, last = steps(tmp_path)

    assert commit.startswith("Commit `kustomize/prepare` to the repository when `prepare.sh` asks")
    assert "DaemonSet/" not in last


def test_a_plan_without_waves_has_no_list(tmp_path: Path) -> None:
    cordoned = plugin_node("gpu-9")
    cordoned["spec"] = {"unschedulable": True}

    planned(tmp_path, [cordoned])

    assert HEADING not in (tmp_path / "plan" / "README.md").read_text()
