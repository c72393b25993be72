"""Lines of quotas for resource names with several classes, some of them without a trace in the cluster."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing.command import drawbridge
from testing.documents import device_class, namespace, node, resource_quota
from testing.migration import (
    GPU,
    SHARE,
    WHOLE,
    hami_node,
    origin,
    plugin_node,
    resource_slice,
    workload,
)
from testing.plan import Objects, planned, script

HAMI: Final = "hami-core-gpu.project-hami.io"
KEY: Final = f"requests.{GPU}"
SHARES: Final = f"{HAMI}.deviceclass.resource.k8s.io/devices"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"


def cluster(*more: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Nodes of NVIDIA's plugin, and a namespace with a quota and a pod with a GPU."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    web = workload("web", WHOLE, ["gpu-0"], kind="StatefulSet")
    return [*nodes, namespace("team"), resource_quota({KEY: "3"}), *web, *more]


PRESENT: Final = pytest.mark.parametrize(
    "more",
    [
        [device_class(f"device.driver == '{HAMI}'", name=HAMI)],
        [hami_node("hami-0")],
        [node("old-0"), resource_slice("old-0", HAMI, ["old-0-0"])],
        [namespace("lab"), *workload("share", SHARE, [""], namespace="lab")],
    ],
    ids=["class", "node of a legacy system", "driver", "workload"],
)


def translating(tmp_path: Path) -> tuple[object, ...]:
    file = tmp_path / "settings.yaml"
    file.write_text("translation: {native: translate}\n")
    return ("--settings", file)


def converted(tmp_path: Path, objects: Objects, *options: object) -> tuple[list[Any], str]:
    """Return the documents of `quota convert`, and its notes."""
    file, answer = tmp_path / "now.yaml", tmp_path / "answer.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge("quota", "convert", "--snapshot", file, *translating(tmp_path), *options)
    answer.write_text(result.stdout)
    return [source.document for source in read_paths([str(answer)])], result.stderr


def added_lines(tmp_path: Path, objects: Objects, *options: object) -> dict[str, str]:
    (quota,), _ = converted(tmp_path, objects, *options)
    hard: dict[str, str] = quota["spec"]["hard"]
    return {line: amount for line, amount in hard.items() if line != KEY}


def test_a_class_that_is_nowhere_gets_no_part_of_a_plan(tmp_path: Path) -> None:
    """A pod with all of the GPUs that the old line allowed waited for its claim for ever."""
    plan = planned(tmp_path, cluster(), *translating(tmp_path))

    assert {NVIDIA: "3"} == plan["quotaLines"]["team.gpus.yaml"]["added"]
    texts = [path.read_text() for path in (tmp_path / "plan").rglob("*") if path.is_file()]
    assert not any(HAMI in text for text in texts)


@pytest.mark.parametrize("options", [(), ("--split", "whole"), ("--to", "core")])
def test_a_class_that_is_nowhere_gets_no_line_of_a_conversion(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    (quota,), notes = converted(tmp_path, cluster(), *options)

    assert {KEY: "3", NVIDIA: "3"} == quota["spec"]["hard"]
    assert HAMI not in notes


def test_a_line_for_a_class_that_is_nowhere_is_none_to_convert(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(cluster()))

    assessment = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    assert [] == assessment["quotasToConvert"], "the class that maps the name needs none"


@PRESENT
def test_a_class_that_is_somewhere_gets_its_part(tmp_path: Path, more: Objects) -> None:
    assert {NVIDIA: "2", SHARES: "1"} == added_lines(tmp_path, cluster(*more))

    plan = planned(tmp_path, cluster(*more), *translating(tmp_path))

    assert {NVIDIA: "2", SHARES: "1"} == plan["quotaLines"]["team.gpus.yaml"]["added"]


@pytest.mark.parametrize(
    "objects",
    [cluster()[2:], [origin("deviceclasses"), *cluster()], cluster()[2:4]],
    ids=["no nodes", "unreadable", "no pods"],
)
def test_no_class_is_missing_where_the_cluster_is_not_known(
    tmp_path: Path, objects: Objects
) -> None:
    assert {NVIDIA, SHARES} == added_lines(tmp_path, objects).keys()


def test_a_class_keeps_its_line_where_all_of_a_key_are_nowhere(tmp_path: Path) -> None:
    """Its nodes may be there only while they are needed."""
    objects = [node("cpu-0"), namespace("team"), resource_quota({KEY: "3"})]
    other = workload("web", {"cpu": "1"}, ["cpu-0"])

    assert {NVIDIA, SHARES} == added_lines(tmp_path, [*objects, *other]).keys()


def test_a_device_quota_counts_every_pod_and_gives_a_class_that_is_nowhere_nothing(
    tmp_path: Path,
) -> None:
    (quota,), _ = converted(tmp_path, cluster(), "--to", "device")

    limits = {limit["driver"]: limit["max"] for limit in quota["spec"]["limits"]}
    assert {"gpu.nvidia.com": "3", HAMI: "0"} == limits


@pytest.mark.parametrize("target", ["volcano", "kueue"])
def test_a_queue_has_no_class_that_is_nowhere(tmp_path: Path, target: str) -> None:
    documents, notes = converted(tmp_path, cluster(), "--to", target)

    assert HAMI not in json.dumps(documents) + notes


def test_a_line_that_counts_claims_is_lowered_to_what_native_pods_need(tmp_path: Path) -> None:
    """A team had 5 GPUs instead of 3 for ever, and nobody was told; a line of 0 would take GPUs from it."""
    share = workload("share", SHARE, ["hami-0"], kind="StatefulSet")
    plan = planned(tmp_path, cluster(hami_node("hami-0"), hami_node("hami-1"), *share))

    assert {GPU: "gpu.nvidia.com"} == plan["mappedClasses"]
    lines = plan["quotaLines"]["team.gpus.yaml"]
    assert ({SHARES: "2"}, [KEY]) == (lines["added"], lines["doubled"])
    (wave,) = (wave for wave in plan["waves"] if "team" in wave["namespaces"])
    sums = "together 5, and 3 before"
    (note,) = (note for note in wave["notes"] if "gets lines for claims" in note)
    assert sums in note
    readme = (tmp_path / "plan" / "README.md").read_text()
    for text in (readme, script(tmp_path, "verify", wave["wave"])):
        assert f"{sums}. The added lines count these claims, so lower {KEY} to what" in text
        assert "(native pods, and those that no wave moves, go on to need it)" in text
