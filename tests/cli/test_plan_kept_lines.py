"""`drawbridge plan`: lines of quotas in namespaces with native pods that keep their keys, since no class maps these."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import namespace, node, resource_quota
from testing.migration import GPU, SHARE, WHOLE, hami_node, plugin_node, workload
from testing.plan import failed_before, planned

LABEL: Final = "drawbridge.internal/translate"
KEY: Final = f"requests.{GPU}"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
SHARES: Final = "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"
HAMI_NODES: Final = (hami_node("hami-0"), hami_node("hami-1"))
Objects = list[dict[str, Any]]


def estate(hard: str, *, natives: int = 1, shares: int = 2, is_cordoned: bool = True) -> Objects:
    """A namespace with shares, and with whole GPUs of a node that is held if it is cordoned."""
    node = plugin_node("gpu-0")
    node["spec"] = {"unschedulable": is_cordoned}
    return [
        *(node, *HAMI_NODES, namespace("team"), resource_quota({KEY: hard}, name="gpus")),
        *workload("whole", WHOLE, ["gpu-0"] * natives, kind="StatefulSet"),
        *workload("web", SHARE, ["hami-0"] * shares, kind="StatefulSet"),
    ]


@pytest.mark.parametrize("hard", ["3", "5"])
def test_native_pods_that_keep_their_keys_take_no_part_of_a_line(tmp_path: Path, hard: str) -> None:
    """They took one from the shares, for a line that counted nothing."""
    plan = planned(tmp_path, estate(hard))

    assert {} == plan["mappedClasses"]
    assert {"team.gpus.yaml": {SHARES: hard}} == {
        file: lines["added"] for file, lines in plan["quotaLines"].items()
    }


@pytest.mark.parametrize("is_cordoned", [True, False])
def test_a_wave_has_no_line_below_what_its_workloads_hold(
    tmp_path: Path, *, is_cordoned: bool
) -> None:
    """The line was 0, since the native pods used all of the old one: the wave could not begin, or there was none."""
    objects = estate("2", natives=2, shares=1, is_cordoned=is_cordoned)

    plan = planned(tmp_path, objects)

    (part,) = plan["waves"][0]["partialNamespaces"]
    assert ["StatefulSet/team/web"] == part["workloads"]
    assert {SHARES: "2"} == plan["quotaLines"]["team.gpus.yaml"]["added"]
    assert "ResourceQuota/team/gpus" not in failed_before(tmp_path, objects)


def test_native_pods_of_a_namespace_that_is_opted_in_have_their_line(tmp_path: Path) -> None:
    """No class maps their key, so the next ones get claims."""
    objects = [
        entry if entry["kind"] != "Namespace" else namespace("team", {LABEL: "true"})
        for entry in estate("3")
    ]

    plan = planned(tmp_path, objects)

    assert {NVIDIA, SHARES} == plan["quotaLines"]["team.gpus.yaml"]["added"].keys()


def test_native_pods_of_a_vendor_whose_class_is_not_there_have_their_line(tmp_path: Path) -> None:
    """Their namespace is opted in as a whole, so they get claims once the class is there."""
    amd = "amd.com/gpu"
    objects = [
        *(node("amd-0", {amd: "4"}), *HAMI_NODES, namespace("team")),
        resource_quota({KEY: "5", f"requests.{amd}": "4"}, name="gpus"),
        *workload("whole", {amd: "1"}, ["amd-0"], kind="StatefulSet"),
        *workload("web", SHARE, ["hami-0"] * 2, kind="StatefulSet"),
    ]

    plan = planned(tmp_path, objects)

    assert ["team"] == plan["waves"][0]["namespaces"]
    added = plan["quotaLines"]["team.gpus.yaml"]["added"]
    assert {SHARES: "5", "gpu.amd.com.deviceclass.resource.k8s.io/devices": "4"} == added
