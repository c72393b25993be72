"""Lines of quotas for the DeviceClasses that workloads of a namespace request, and for no others."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from testing.command import drawbridge
from testing.documents import api_object, namespace, resource_quota
from testing.migration import GPU, SHARE, WHOLE, hami_node, plugin_node, workload
from testing.plan import planned

KEY: Final = f"requests.{GPU}"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
SHARES: Final = "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"
Objects = list[dict[str, Any]]


def cluster(*more: dict[str, Any]) -> Objects:
    """Two shares in a namespace with a quota, beside another namespace with whole GPUs."""
    return [
        *(plugin_node("gpu-0"), hami_node("hami-0"), hami_node("hami-1")),
        *(namespace("team"), resource_quota({KEY: "8"}), namespace("lab")),
        *workload("web", SHARE, ["hami-0", "hami-0"]),
        *workload("whole", WHOLE, ["gpu-0"], namespace="lab"),
        *more,
    ]


def template() -> dict[str, Any]:
    container = {"name": "c", "image": "a", "resources": {"limits": WHOLE}}
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


def idle(kind: str) -> Objects:
    """A workload with whole GPUs, and without pods."""
    versions = {"CronJob": "batch/v1", "Job": "batch/v1", "Rollout": "argoproj.io/v1alpha1"}
    specs: dict[str, dict[str, Any]] = {
        "CronJob": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template()}}},
        "Job": {"suspend": True, "template": template()},
        "Rollout": {"replicas": 0, "template": template()},
    }
    if kind in specs:
        return [api_object(kind, "idle", "team", api_version=versions[kind], spec=specs[kind])]
    return workload("idle", WHOLE, [], kind=kind)


def convert(tmp_path: Path, objects: Objects, *arguments: object) -> Any:
    """Return the answer, with pods of whole GPUs translated."""
    file, settings = tmp_path / "cluster.json", tmp_path / "settings.yaml"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    settings.write_text("translation: {native: translate}\n")
    options = ("--settings", settings, "-o", "json", *arguments)
    return json.loads(drawbridge("quota", "convert", "--snapshot", file, *options).stdout)


def added(tmp_path: Path, objects: Objects) -> dict[str, str]:
    (quota,) = convert(tmp_path, objects)["quotas"]
    lines: dict[str, str] = quota["added"]
    return lines


def test_a_class_that_nobody_in_the_namespace_requests_gets_no_part(tmp_path: Path) -> None:
    """Three of the eight were for whole GPUs, and no autoscaled share could use them."""
    assert added(tmp_path, cluster()) == {SHARES: "8"}

    plan = planned(tmp_path, cluster())

    assert [lines["added"] for lines in plan["quotaLines"].values()] == [{SHARES: "8"}]


@pytest.mark.parametrize("kind", ["CronJob", "Job", "Deployment", "StatefulSet", "Rollout"])
def test_a_workload_without_pods_requests_its_class(tmp_path: Path, kind: str) -> None:
    assert added(tmp_path, cluster(*idle(kind))) == {NVIDIA: "3", SHARES: "5"}


def test_a_namespace_without_workloads_keeps_every_choice(tmp_path: Path) -> None:
    objects = [entry for entry in cluster() if entry["metadata"].get("namespace") != "team"]

    assert added(tmp_path, [*objects, resource_quota({KEY: "8"})]) == {NVIDIA: "4", SHARES: "4"}


def test_a_device_quota_gives_its_limit_to_the_same_classes(tmp_path: Path) -> None:
    (entry,) = convert(tmp_path, cluster(), "--to", "device")["conversions"]

    (document,) = entry["documents"]
    limits = {limit["driver"]: limit["max"] for limit in document["spec"]["limits"]}
    assert limits == {"gpu.nvidia.com": "0", "hami-core-gpu.project-hami.io": "8"}
