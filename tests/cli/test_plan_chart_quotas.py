"""Lines of ResourceQuotas for a resource name that HAMi's chart has its class map."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import device_class, namespace, node, resource_quota
from testing.migration import (
    GPU,
    SHARE,
    WHOLE,
    daemon_set,
    hami_node,
    plugin_node,
    resource_slice,
    workload,
)
from testing.plan import Objects, failed_before, held_objects, planned, waves

HAMI: Final = "hami-core-gpu.project-hami.io"
NVIDIA: Final = "gpu.nvidia.com"
KEY: Final = f"requests.{GPU}"
SHARES: Final = f"{HAMI}.deviceclass.resource.k8s.io/devices"
QUOTA: Final = "ResourceQuota/team/gpus"
CLASS: Final = device_class(f"device.driver == '{HAMI}'", name=HAMI)
CHART: Final = device_class(f"device.driver == '{HAMI}'", name=HAMI, extendedResourceName=GPU)
MAPPED: Final = device_class(f"device.driver == '{NVIDIA}'", name=NVIDIA, extendedResourceName=GPU)
OTHERS: Final = [namespace("lab"), *workload("llm", WHOLE, ["gpu-0"], namespace="lab")]


def stateful(name: str, limits: Mapping[str, str], place: str, **spec: Any) -> Objects:
    return workload(name, limits, [place], kind="StatefulSet", **spec)


def shares(*more: Mapping[str, Any], hard: Mapping[str, str] = {KEY: "2"}) -> Objects:
    """Nodes of NVIDIA's plugin and of HAMi, and a namespace with a share and a quota."""
    nodes = [*map(plugin_node, ("gpu-0", "gpu-1")), *map(hami_node, ("hami-0", "hami-1"))]
    team = [namespace("team"), *stateful("share", SHARE, "hami-0"), resource_quota(dict(hard))]
    return [*nodes, *team, *more]


def whole_card(place: str) -> Objects:
    """A node of HAMi that has been switched, and a pod with a whole card of it."""
    switched = node("old-0")
    switched["metadata"]["labels"] = {"pool": "old"}
    published = resource_slice("old-0", HAMI, ["old-0-0", "old-0-1"])
    pod = stateful("train", WHOLE, "old-0", namespace=place, nodeSelector={"pool": "old"})
    return [switched, published, *([] if place == "team" else [namespace(place)]), *pod]


CASES: Final = pytest.mark.parametrize(
    "objects",
    [
        shares(),
        shares(*stateful("web", WHOLE, "gpu-0")),
        shares(*OTHERS),
        shares(hard={KEY: "2", SHARES: "1"}),
        shares(hard={KEY: "1"}),
        shares(*stateful("web", WHOLE, "gpu-0"), hard={KEY: "2", SHARES: "1"}),
    ],
    ids=["shares", "beside GPUs", "GPUs elsewhere", "with a line", "low", "with a line, GPUs"],
)


def answer(tmp_path: Path, objects: Objects, *command: str) -> tuple[int, str, str]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge(*command, "--snapshot", file)
    return result.exit_code, result.stdout, result.stderr


def assessed(tmp_path: Path, objects: Objects) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(answer(tmp_path, objects, "assess", "-o", "json")[1])
    return document


@CASES
def test_a_namespace_of_shares_moves_as_without_the_name_of_the_chart(
    tmp_path: Path, objects: Objects
) -> None:
    """It was held (quotaNotCounted), and so were the nodes of its pods."""
    without = planned(tmp_path, [CLASS, *objects])
    shutil.rmtree(tmp_path / "plan")

    plan = planned(tmp_path, [CHART, *objects])

    assert waves(without) == waves(plan)
    for field in ("held", "quotas", "quotaLines", "mappedClasses"):
        assert without[field] == plan[field]
    assert ["team"] == [name for _, names in waves(plan) for name in names]


@CASES
def test_an_assessment_is_as_without_the_name_of_the_chart(
    tmp_path: Path, objects: Objects
) -> None:
    """Its pods were to be rejected, or a line was to be raised."""
    without = assessed(tmp_path, [CLASS, *objects])

    assessment = assessed(tmp_path, [CHART, *objects])

    for field in ("blockers", "quotasToConvert", "totals"):
        assert without[field] == assessment[field]
    assert "refused" not in {entry["outcome"] for entry in assessment["workloads"]}


@CASES
def test_quotas_are_converted_as_without_the_name_of_the_chart(
    tmp_path: Path, objects: Objects
) -> None:
    """The class of shares got no line, and that of GPUs got one of its own."""
    without = answer(tmp_path, [CLASS, *objects], "quota", "convert")

    assert without == answer(tmp_path, [CHART, *objects], "quota", "convert")


@pytest.mark.parametrize("place", ["team", "lab"])
def test_a_second_plan_counts_shares_by_a_name_that_pods_on_switched_nodes_use(
    tmp_path: Path, place: str
) -> None:
    """HAMi's class keeps the name for them, so its claims count on the line of the name, and need no other."""
    objects = [CHART, *shares(*whole_card(place))]

    plan = planned(tmp_path, objects)

    assert {GPU: HAMI} == plan["mappedClasses"]
    assert ["team"] == [name for _, names in waves(plan) for name in names]
    assert {"Node//gpu-0", "Node//gpu-1"} == set(held_objects(plan)), "they wait for the name"
    assert SHARES not in json.dumps(plan["quotaLines"])
    assert QUOTA not in failed_before(tmp_path, objects)
    codes = {entry["code"] for entry in assessed(tmp_path, objects)["blockers"]}
    assert codes <= {"notPlaced"}, "of the whole card alone"
    assert SHARES not in answer(tmp_path, objects, "quota", "convert")[1]


@pytest.mark.parametrize("chart", [CLASS, CHART], ids=["taken back", "back by an upgrade"])
def test_a_second_plan_after_a_class_has_the_name_goes_on(
    tmp_path: Path, chart: dict[str, Any]
) -> None:
    """The name is in force for either class, and the namespace of shares moves."""
    moved = [node("gpu-9"), resource_slice("gpu-9", NVIDIA, ["gpu-9-0"])]
    web = stateful("web", WHOLE, "gpu-9", namespace="lab")
    objects = [chart, MAPPED, *shares(*moved, namespace("lab"), *web)]

    plan = planned(tmp_path, objects)

    assert {} == held_objects(plan)
    assert ["team"] == [name for _, names in waves(plan) for name in names]
    assert {"team.gpus.yaml": {SHARES: "2"}} == {
        file: lines["added"] for file, lines in plan["quotaLines"].items()
    }


def test_whole_cards_of_hami_keep_the_name_for_its_class(tmp_path: Path) -> None:
    """The plan leaves it the name, so the line of the name counts its claims."""
    nodes = [hami_node(f"hami-{number}") for number in range(3)]
    pods = [*stateful("share", SHARE, "hami-0"), *stateful("train", WHOLE, "hami-1")]
    objects = [*nodes, namespace("team"), *pods, resource_quota({KEY: "4"})]

    without = planned(tmp_path, [CLASS, *objects])
    shutil.rmtree(tmp_path / "plan")

    plan = planned(tmp_path, [CHART, *objects])

    assert {} == held_objects(plan)
    assert {GPU: HAMI} == plan["mappedClasses"]
    assert without["quotaLines"] == plan["quotaLines"]
    assert SHARES not in json.dumps(plan["quotaLines"])
    assert [] == assessed(tmp_path, [CHART, *objects])["blockers"]
    assert SHARES not in answer(tmp_path, [CHART, *objects], "quota", "convert")[1]


def test_claims_count_by_the_name_where_no_legacy_node_is_left(tmp_path: Path) -> None:
    """Nothing takes it from the class: a further line would count these claims twice."""
    published = [node("hami-0"), resource_slice("hami-0", HAMI, ["hami-0-0"])]
    quota = [namespace("team"), resource_quota({KEY: "4"})]
    pods = workload("share", SHARE, [""])

    _, text, _ = answer(tmp_path, [CHART, *published, *quota, *pods], "quota", "convert")

    assert SHARES not in text


def test_a_quota_that_came_after_the_plan_counts_no_shares_by_the_name(tmp_path: Path) -> None:
    """prepare.sh takes the name from the class, and the pods of the wave are rejected then."""
    registry = {"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}
    selector = {"drawbridge.internal/dra-driver": HAMI}
    driver = daemon_set("hami-dra", nodeSelector=selector, volumes=[registry])
    nodes = [hami_node("hami-0"), hami_node("hami-1"), driver]
    team = [*nodes, namespace("team"), *stateful("share", SHARE, "hami-0")]
    plan = planned(tmp_path, [*team, CHART])
    assert ["team"] == plan["waves"][0]["namespaces"]
    assert {f"DeviceClass//{HAMI}"} == failed_before(tmp_path, [*team, CHART]).keys()
    prepared = [*team, CLASS]
    assert {} == failed_before(tmp_path, prepared)

    failed = failed_before(tmp_path, [*prepared, resource_quota({KEY: "2"})])

    assert "(quotaNotCounted): apply what drawbridge quota convert prints" in failed[QUOTA]
