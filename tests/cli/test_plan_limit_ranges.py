"""LimitRanges that let pods of a wave have no successors: notes of `plan`, of `assess` and of `verify --before`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kube.api.core import LimitRange, Pod
from kube.api.meta import convert
from kube.manifests.dump import dump_yaml
from migration.cluster.limit_ranges import limit_faults
from testing.command import drawbridge
from testing.documents import api_object, namespace, node
from testing.migration import SHARE, hami_node, plugin_node, workload
from testing.plan import Objects, checks_before, planned

ANNOTATION: Final = "kubernetes.io/limit-ranger"
GPU: Final = "nvidia.com/gpu"
MAXIMUM: Final = {"type": "Container", "max": {"memory": "8Gi"}}
FAULT: Final = "LimitRange/team/main (maximum memory usage per Container is 8Gi, but limit is 16Gi) would reject new pods"


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


def limit_notes(plan: Mapping[str, Any]) -> dict[int, list[str]]:
    """Return the waves with notes on LimitRanges, with these."""
    return {
        wave["wave"]: own
        for wave in plan["waves"]
        if (own := [note for note in wave["notes"] if note.startswith("LimitRange/")])
    }


def assessed(tmp_path: Path, objects: Objects) -> list[dict[str, Any]]:
    """Return the notes of an assessment on LimitRanges."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    return [note for note in answer["notes"] if note["code"] == "rejectedByLimitRange"]


def test_pods_above_a_maximum_of_today_are_named_before_they_go(tmp_path: Path) -> None:
    """They ran on from before the LimitRange; the wave evicted them, and no new ones came."""
    objects = cluster(limit_range(MAXIMUM))

    plan = planned(tmp_path, objects)
    (note,) = (note for notes in limit_notes(plan).values() for note in notes)
    (own,) = assessed(tmp_path, objects)
    checks = [check for check in checks_before(tmp_path, objects) if FAULT[:40] in check["message"]]

    assert note.startswith(f"{FAULT} of Deployment/team/web, so those that this wave evicts or")
    assert "change that bound, or the amounts in their pod template" in note
    assert note in " ".join((tmp_path / "plan" / "README.md").read_text().split())
    assert f"{FAULT}, so what a drain evicts does not come again" == own["message"]
    assert ["Deployment/team/web"] == own["objects"]
    assert [("Deployment/team/web", "note")] == [
        (entry["object"], entry["state"]) for entry in checks
    ]


def test_the_template_decides_where_there_is_one(tmp_path: Path) -> None:
    """The pods may be older than the template, and have amounts that a LimitRange gave them."""
    objects = cluster(limit_range(MAXIMUM))
    with_memory([own for own in objects if own["kind"] == "Deployment"], "4Gi")

    assert {} == limit_notes(planned(tmp_path, objects))
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


def test_pods_without_devices_are_named_too(tmp_path: Path) -> None:
    idle = with_memory(workload("idle", {"cpu": "1"}, ["hami-0"]), "16Gi")
    objects = [hami_node("hami-0"), hami_node("hami-1"), node("cpu"), namespace("team"), *idle]
    devices = workload("web", SHARE, ["hami-1"])

    notes = limit_notes(planned(tmp_path, [*objects, *devices, limit_range(MAXIMUM)]))

    assert notes
    assert all("Deployment/team/idle" in note for own in notes.values() for note in own)


@pytest.mark.parametrize(("maximum", "is_named"), [("1", True), ("2", False)])
def test_native_pods_above_a_bound_of_their_key(
    tmp_path: Path, maximum: str, *, is_named: bool
) -> None:
    """They keep their key, and the LimitRange goes on to bound it."""
    pods = workload("web", {GPU: "2"}, ["gpu-0"])
    bound = limit_range({"type": "Container", "max": {GPU: maximum}})
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]

    plan = planned(tmp_path, [*nodes, namespace("team"), *pods, bound])

    text = f"maximum {GPU} usage per Container is 1, but limit is 2"
    assert is_named == any(text in note for own in limit_notes(plan).values() for note in own)


def test_what_runs_to_its_end_is_not_named(tmp_path: Path) -> None:
    objects = cluster(limit_range(MAXIMUM), kind="Job")
    for own in objects:
        if own["kind"] == "Pod":
            own["spec"]["restartPolicy"] = "Never"

    assert {} == limit_notes(planned(tmp_path, objects))
