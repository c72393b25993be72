"""LimitRanges that let pods of a node have no successors: `plan` holds it, and `assess` and `verify --before` name them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kube.api.core import LimitRange, Pod
from kube.api.meta import convert
from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from migration.cluster.limit_ranges import find_rejected_workloads, limit_faults
from migration.cluster.workloads import group_workloads
from testing.command import drawbridge
from testing.documents import api_object, namespace, node
from testing.migration import SHARE, hami_node, plugin_node, workload
from testing.plan import Objects, failed_before, planned

ANNOTATION: Final = "kubernetes.io/limit-ranger"
GPU: Final = "nvidia.com/gpu"
MAXIMUM: Final = {"type": "Container", "max": {"memory": "8Gi"}}
FAULT: Final = "LimitRange/team/main (maximum memory usage per Container is 8Gi, but limit is 16Gi)"


def limit_range(*items: Mapping[str, Any], name: str = "main") -> dict[str, Any]:
    return api_object("LimitRange", name, "team", spec={"limits": list(items)})


def container(
    requests: Mapping[str, str] = {}, limits: Mapping[str, str] = {}, **fields: Any
) -> dict[str, Any]:
    resources = {"requests": dict(requests), "limits": dict(limits)}
    return {"name": "c", "resources": resources, **fields}


def pod(*containers: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


# --- as Kubernetes decides ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "items", "want"),
    [
        pytest.param(
            pod(container(limits={"memory": "16Gi"})),
            [MAXIMUM],
            ["maximum memory usage per Container is 8Gi, but limit is 16Gi"],
            id="a limit above the maximum",
        ),
        pytest.param(
            pod(container(limits={"memory": "8Gi"})), [MAXIMUM], [], id="a limit at the maximum"
        ),
        pytest.param(
            pod(container()), [MAXIMUM], [], id="the maximum is the default of a container"
        ),
        pytest.param(
            pod(container({"memory": "9Gi"})),
            [MAXIMUM],
            ["maximum memory usage per Container is 8Gi, but request is 9Gi"],
            id="a request above the default limit",
        ),
        pytest.param(
            pod(container()),
            [{"type": "Pod", "max": {"memory": "8Gi"}}],
            ["maximum memory usage per Pod is 8Gi, and no limit is specified"],
            id="pods have no default",
        ),
        pytest.param(
            pod(container(limits={"memory": "5Gi"}), container(limits={"memory": "5Gi"})),
            [{"type": "Pod", "max": {"memory": "8Gi"}}],
            ["maximum memory usage per Pod is 8Gi, but limit is 10Gi"],
            id="containers count together",
        ),
        pytest.param(
            pod(
                container(limits={"memory": "2Gi"}),
                initContainers=[container(limits={"memory": "9Gi"})],
            ),
            [{"type": "Pod", "max": {"memory": "8Gi"}}],
            ["maximum memory usage per Pod is 8Gi, but limit is 9Gi"],
            id="the largest init container counts",
        ),
        pytest.param(
            pod(container({"cpu": "500m"})),
            [{"type": "Container", "min": {"cpu": "1"}}],
            ["minimum cpu usage per Container is 1, but request is 500m"],
            id="a request below the minimum",
        ),
        pytest.param(
            pod(container({"cpu": "1"}, {"cpu": "2"})),
            [{"type": "Pod", "min": {GPU: "1"}}],
            [f"minimum {GPU} usage per Pod is 1, and no request is specified"],
            id="no amount",
        ),
        pytest.param(
            pod(container()),
            [{"type": "Container", "min": {"cpu": "1"}}],
            [],
            id="the minimum is the default request",
        ),
        pytest.param(
            pod(container({"cpu": "1"}, {"cpu": "4"})),
            [{"type": "Container", "maxLimitRequestRatio": {"cpu": "3"}}],
            ["cpu max limit to request ratio per Container is 3, but limit is 4 and request is 1"],
            id="a ratio above the bound",
        ),
        pytest.param(
            pod(container({"cpu": "1"}, {"cpu": "3"})),
            [{"type": "Container", "maxLimitRequestRatio": {"cpu": "3"}}],
            [],
            id="a ratio at the bound",
        ),
        pytest.param(
            pod(container({"cpu": "1"})),
            [{"type": "Container", "maxLimitRequestRatio": {"cpu": "3"}}],
            [
                "cpu max limit to request ratio per Container is 3, but no limit is specified, or it is 0"
            ],
            id="no limit for a ratio",
        ),
        pytest.param(
            pod(container(limits={"cpu": "4"})),
            [{"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "4"}}],
            [],
            id="a request is the limit of its container, and not the default",
        ),
        pytest.param(
            pod(container(limits={"storage": "4"})),
            [{"type": "PersistentVolumeClaim", "max": {"storage": "1"}}],
            [],
            id="of claims of volumes",
        ),
        pytest.param(
            pod(container(limits={"memory": "16Gi"}), resources={"limits": {"memory": "1Gi"}}),
            [MAXIMUM],
            [],
            id="with resources of the pod it is not known",
        ),
    ],
)
def test_the_limits_of_a_new_pod(
    new: Mapping[str, Any], items: list[Mapping[str, Any]], want: list[str]
) -> None:
    view = convert(limit_range(*items), LimitRange)

    faults = limit_faults(convert(new, Pod), [view], "team")

    assert [("LimitRange/team/main", text) for text in want] == list(faults)


# --- in a plan ------------------------------------------------------------------------------------


def with_memory(objects: Objects, memory: str) -> Objects:
    """A workload with an amount of memory in its template, and in its pods."""
    for own in objects:
        spec = own["spec"].get("template", own)["spec"]
        spec["containers"][0]["resources"]["limits"]["memory"] = memory
    return objects


def cluster(*more: Mapping[str, Any], kind: str = "Deployment") -> Objects:
    """Two nodes of HAMi, one of them with a pod of 16 GiB."""
    pods = with_memory(workload("web", SHARE, ["hami-0"], kind=kind), "16Gi")
    return [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), *pods, *more]


def held_by_limits(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the objects that are held because of a LimitRange, with the reason."""
    return {
        entry["object"]: entry["reason"]
        for entry in plan["held"]
        if "LimitRange" in entry["reason"]
    }


def assessed(tmp_path: Path, objects: Objects) -> list[dict[str, Any]]:
    """Return the blockers of an assessment that are LimitRanges."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    return [entry for entry in answer["blockers"] if entry["code"] == "rejectedByLimitRange"]


def test_the_node_of_pods_above_a_maximum_of_today_is_held(tmp_path: Path) -> None:
    """They ran on from before the LimitRange; the wave evicted them, and verify.sh and rollback.sh waited in vain."""
    objects = cluster(limit_range(MAXIMUM))

    plan = planned(tmp_path, objects)
    (own,) = assessed(tmp_path, objects)

    assert {
        "Deployment/team/web": f"its next pods would be rejected by {FAULT}, so those that are evicted or restarted would "
        "not come again",
        "Node//hami-0": f"pods of Deployment/team/web run on it, and {FAULT} would reject their next ones",
    } == held_by_limits(plan)
    assert all(node["name"] != "hami-0" for wave in plan["waves"] for node in wave["nodes"])
    assert all("team" not in wave["namespaces"] for wave in plan["waves"])
    (fix,) = {entry["fix"] for entry in plan["held"] if entry["object"] in held_by_limits(plan)}
    assert fix.startswith(
        "change that bound, or the amounts in their pod template; then plan again"
    )
    assert own["message"].startswith(f"{FAULT} would reject new pods, so what a drain evicts does")
    assert ["Deployment/team/web"] == own["objects"]


def test_a_limit_range_from_after_the_plan_stops_its_wave(tmp_path: Path) -> None:
    objects = cluster()
    plan = planned(tmp_path, objects)
    (number,) = [
        wave["wave"]
        for wave in plan["waves"]
        if any(node["name"] == "hami-0" for node in wave["nodes"])
    ]

    failed = failed_before(tmp_path, [*objects, limit_range(MAXIMUM)], number)

    text = f"{FAULT} would reject its new pods, so what is evicted does not come again"
    assert failed["Deployment/team/web"].startswith(text)


def test_the_template_decides_where_there_is_one(tmp_path: Path) -> None:
    """The pods may be older than the template, and have amounts that a LimitRange gave them."""
    objects = cluster(limit_range(MAXIMUM))
    with_memory([own for own in objects if own["kind"] == "Deployment"], "4Gi")

    assert {} == held_by_limits(planned(tmp_path, objects))
    assert [] == assessed(tmp_path, objects)


@pytest.mark.parametrize("is_set", [False, True], ids=["its author's", "a LimitRange's"])
def test_amounts_of_a_limit_range_of_before_say_nothing(tmp_path: Path, *, is_set: bool) -> None:
    """Of a kind without a template that is read only pods are known."""
    objects = cluster(limit_range(MAXIMUM))
    web = [own for own in objects if own["kind"] != "Deployment"]
    for own in web:
        if own["kind"] == "Pod":
            own["metadata"].pop("ownerReferences")
            own["metadata"]["annotations"] = {ANNOTATION: "..."} if is_set else {}

    assert bool(assessed(tmp_path, web)) != is_set


@pytest.mark.parametrize(("kind", "is_held"), [("Deployment", True), ("DaemonSet", False)])
def test_pods_without_devices_hold_their_node_if_the_drain_evicts_them(
    tmp_path: Path, kind: str, *, is_held: bool
) -> None:
    idle = with_memory(workload("idle", {"cpu": "1"}, ["hami-0"], kind=kind), "16Gi")
    nodes = [hami_node("hami-0"), hami_node("hami-1"), node("cpu"), namespace("team")]
    objects = [*nodes, *idle, *workload("web", SHARE, ["hami-1"]), limit_range(MAXIMUM)]

    text = f"pods of {kind}/team/idle run on it, and {FAULT} would reject their next ones"
    assert ({"Node//hami-0": text} if is_held else {}) == held_by_limits(planned(tmp_path, objects))
    assert is_held == bool(assessed(tmp_path, objects))


@pytest.mark.parametrize(("maximum", "is_held"), [("1", True), ("2", False)])
def test_native_pods_above_a_bound_of_their_key(
    tmp_path: Path, maximum: str, *, is_held: bool
) -> None:
    """They keep their key, and the LimitRange goes on to bound it."""
    pods = workload("web", {GPU: "2"}, ["gpu-0"])
    bound = limit_range({"type": "Container", "max": {GPU: maximum}})
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]

    plan = planned(tmp_path, [*nodes, namespace("team"), *pods, bound])

    text = f"maximum {GPU} usage per Container is 1, but limit is 2"
    assert is_held == (text in held_by_limits(plan).get("Deployment/team/web", ""))


def test_what_runs_to_its_end_holds_nothing(tmp_path: Path) -> None:
    objects = cluster(limit_range(MAXIMUM), kind="Job")
    for own in objects:
        if own["kind"] == "Pod":
            own["spec"]["restartPolicy"] = "Never"

    assert {} == held_by_limits(planned(tmp_path, objects))
    assert [] == assessed(tmp_path, objects)


class _CountedDocument(dict[str, Any]):
    """An object that counts the looks at it."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        type(self).looks += 1
        return super().get(key, default)


def test_the_nodes_of_a_rejected_workload_are_read_once() -> None:
    """Each fault of each pod read those of all pods: 5,000 pods of an owner that is not read took a minute."""
    number = 100
    (_, *pods) = workload("web", {"memory": "16Gi"}, [f"n{index}" for index in range(number)])
    objects = [
        SourceObject(document=document, source="t", line=1)
        for document in (limit_range(MAXIMUM, MAXIMUM), *map(_CountedDocument, pods))
    ]
    (web,) = [group for group in group_workloads(objects, "team") if group.pods]
    _CountedDocument.looks = 0

    rejected = find_rejected_workloads(objects, [web], [], "team")

    assert {f"n{index}" for index in range(number)} == rejected[web.key.reference].nodes
    assert _CountedDocument.looks < 10 * number
