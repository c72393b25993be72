"""`drawbridge plan` with pods that have device keys in spite of the opt-in of their namespace or workload."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.builders import HAMI, hami_gpu
from testing.command import drawbridge
from testing.documents import api_object, class_of_driver, namespace, node, resource_slice
from testing.migration import (
    GPU,
    SHARE,
    daemon_set,
    hami_node,
    origin,
    plugin_node,
    running_job,
    workload,
)
from testing.plan import checks_after, failed_before, held_objects, planned, waves

LABEL: Final = "drawbridge.internal/translate"
MIG: Final = {"nvidia.com/mig-1g.5gb": "1"}
FULL: Final = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "40960"}
DRIVER: Final = daemon_set(
    "hami-dra",
    nodeSelector={"drawbridge.internal/dra-driver": HAMI},
    volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
)
NODES: Final = (hami_node("hami-0"), hami_node("hami-1"))
WEB: Final = "Deployment/team/web"
LATE: Final = "device keys still, though opted in already"
REMOVE: Final = "take the label off (kubectl label namespace team drawbridge.internal/translate-)"


def web(
    *nodes: str, value: str = "true", limits: Mapping[str, str] = SHARE
) -> list[dict[str, Any]]:
    """An opted-in Deployment with pods that have device keys."""
    owner, *pods = workload("web", limits, nodes)
    if value == "selected":
        owner["spec"]["template"]["metadata"]["labels"] |= {LABEL: "true"}
    return [namespace("team", {LABEL: value}), owner, *pods]


def with_claims(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod as the webhook stores it."""
    pod = deepcopy(pod)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return pod


def came_again(objects: Sequence[dict[str, Any]], waiting: int = 0) -> list[dict[str, Any]]:
    """A workload of `web` after the drain of its nodes: its pods have claims, and some of them no node."""
    space, owner, *pods = objects
    last = len(pods) - waiting
    pods = [with_claims(pod) for pod in pods]
    for number, pod in enumerate(pods):
        pod["spec"]["nodeName"] = "hami-0" if number < last else ""
        pod["status"] = {"phase": "Running" if number < last else "Pending"}
    return [space, owner, *pods]


def notes(plan: Mapping[str, Any]) -> list[str]:
    return [note for wave in plan["waves"] for note in wave["notes"] if LATE in note]


@pytest.mark.parametrize("value", ["true", "selected"])
def test_pods_that_nobody_has_restarted_keep_their_devices_until_their_node_is_drained(
    tmp_path: Path, value: str
) -> None:
    """Their devices were free in the plan, and their node had no pod that leaves."""
    plan = planned(tmp_path, [*NODES, *web("hami-1", value=value)], "--wave-nodes", 1)

    first, second = plan["waves"]
    assert [["hami-0"], ["hami-1"]] == [nodes for nodes, _ in waves(plan)]
    assert {"before": 3, "after": 1} == first["freeForKeys"]
    assert {"before": 0, "after": 2} == first["freeForClaims"]
    assert [0, 1] == [wave["movedPods"] for wave in plan["waves"]]
    assert [0, 1] == [wave["evictedPods"] for wave in plan["waves"]]
    assert ["Deployment/team/web"] == second["emptiedWorkloads"]
    (note,) = notes(plan)
    assert note.startswith(f"1 pod has {LATE}: 1 of Deployment/team/web;")
    assert "new pods get claims, also after a rollback.sh" in note
    assert note in first["notes"]


def test_pods_that_no_rollout_replaces_are_to_be_deleted(tmp_path: Path) -> None:
    """`kubectl rollout restart` refuses a paused Deployment."""
    space, owner, *pods = web("hami-1")
    paused = {**owner, "spec": {**owner["spec"], "paused": True}}
    deletion = "no rollout replaces pods of Deployment/team/web"

    (rolled,) = notes(planned(tmp_path, [*NODES, space, owner, *pods]))
    (kept,) = notes(planned(tmp_path, [*NODES, space, paused, *pods]))

    assert deletion not in rolled
    assert deletion in kept


def test_a_node_whose_pods_would_find_no_devices_is_held(tmp_path: Path) -> None:
    plan = planned(tmp_path, [*NODES, *web("hami-0", "hami-1", limits=FULL)])

    assert [] == plan["waves"]
    held = held_objects(plan)
    assert {"Node//hami-0", "Node//hami-1", WEB} == held.keys()
    assert "1 pod has no devices: 1 of Deployment/team/web" in held["Node//hami-0"]
    assert held[WEB].startswith("it is opted in already: 2 pods of it have device keys still, and")
    assert REMOVE in {entry["object"]: entry["fix"] for entry in plan["held"]}[WEB]


def test_a_node_is_held_whose_pods_would_get_claims_of_a_driver_without_devices(
    tmp_path: Path,
) -> None:
    """No search places such pods, so its drain left them without devices."""
    whole = workload("train", {GPU: "1"}, ["gpu-0"], namespace="other")
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]

    held = held_objects(planned(tmp_path, [*nodes, *web("gpu-0"), namespace("other"), *whole]))

    assert {"Deployment/team/web", "Node//gpu-0"} == held.keys()
    assert "Deployment/team/web" in held["Node//gpu-0"]


def test_a_wave_does_not_begin_whose_pods_would_find_no_devices(tmp_path: Path) -> None:
    """As after a switch that ended between the label of the namespace and the restart."""
    planned(tmp_path, [*NODES, *web("hami-1"), DRIVER], "--wave-nodes", 1)

    assert {} == failed_before(tmp_path, [*NODES, *web("hami-1", limits=FULL), DRIVER])
    now = [*NODES, *web("hami-0", "hami-1", limits=FULL), DRIVER]
    assert "1 of Deployment/team/web" in failed_before(tmp_path, now)["Wave//1"]


def test_a_wave_begins_beside_pods_that_end_after_their_restart(tmp_path: Path) -> None:
    """Their grace period may outlast the rollout, and nothing takes their place."""
    planned(tmp_path, [*NODES, *web("hami-1"), DRIVER], "--wave-nodes", 1)
    space, owner, *pods = web("hami-0", "hami-1", limits=FULL)
    for pod in pods:
        pod["metadata"]["deletionTimestamp"] = "2026-11-28T06:00:00Z"

    assert {} == failed_before(tmp_path, [*NODES, space, owner, *pods, DRIVER])


@pytest.mark.parametrize("is_done", [False, True])
def test_only_pods_without_claims_of_a_rollout_have_keys(tmp_path: Path, *, is_done: bool) -> None:
    switched, *pods = _half(is_done=is_done)

    plan = planned(tmp_path, [*switched, *pods])

    assert [(["hami-1"], [])] == waves(plan)
    assert [0 if is_done else 1] == [wave["movedPods"] for wave in plan["waves"]]
    assert (1 - is_done) == len(notes(plan))


def test_evicted_pods_that_come_again_with_claims_get_no_node_by_device_keys(
    tmp_path: Path,
) -> None:
    """A note had them kept from nodes of HAMi, with shares under the name of GPUs."""
    objects = [
        *(plugin_node(f"gpu-{number}", gpus=1) for number in range(3)),
        *(hami_node("hami-0"), *workload("share", SHARE, ["hami-0"], namespace="shares")),
        *(namespace("team", {LABEL: "true"}), origin(version="v1.34.4")),
        *workload("train", {GPU: "1"}, ["gpu-0", "gpu-1"]),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    moved = [wave for wave in plan["waves"] if wave["movedPods"]]
    assert moved
    assert [] == [name for wave in moved for name in wave["strayWorkloads"]]


@pytest.mark.parametrize("count", [1, 2])
def test_a_wave_is_not_done_before_its_evicted_pods_run_again(tmp_path: Path, count: int) -> None:
    """They wait for claims, and all was as expected, since no label of the wave gave them these."""
    pods = web("hami-1", *["hami-2"] * (count - 1))
    nodes = [*NODES, hami_node("hami-2")]
    plan = planned(tmp_path, [*nodes, *pods], "--wave-nodes", 1)
    number = next(wave["wave"] for wave in plan["waves"] if wave["evictedPods"])

    assert [WEB] == [entry["object"] for entry in plan["waves"][number - 1]["evictedWorkloads"]]
    now = [*nodes, *came_again(pods)]
    assert ("ok", f"{count} of {count} pods run, with claims") == checks_after(
        tmp_path, now, number
    )[WEB]
    now = [*nodes, *came_again(pods, waiting=1)]
    state, text = checks_after(tmp_path, now, number)[WEB]
    assert "waiting" == state
    assert text.startswith(
        f"{count - 1} of {count} pods run, and {count} did when the plan was made; "
    )
    assert text.endswith(f"waits for a node with devices, though {count} had one then")


def test_a_wave_is_not_done_before_pods_that_keep_their_keys_run_again(tmp_path: Path) -> None:
    """They get claims with a later wave, so the wave that evicts them does not restart them."""
    limits = {GPU: "1", "nvidia.com/gpumem": "40960"}
    nodes = [hami_node(f"hami-{number}") for number in range(4)]
    names = [node["metadata"]["name"] for node in nodes]
    pods = workload("web", limits, names, kind="ReplicaSet")
    plan = planned(tmp_path, [*nodes, namespace("team"), *pods], "--wave-nodes", 1)
    first = plan["waves"][0]

    assert [] == first["workloads"]
    assert ["ReplicaSet/team/web"] == [entry["object"] for entry in first["evictedWorkloads"]]
    owner, waiting, *others = pods
    waiting["status"] = {"phase": "Pending"}
    running = [{**pod, "status": {"phase": "Running"}} for pod in others]
    now = [*nodes, namespace("team"), owner, waiting, *running]
    text = "3 of 4 pods run, and 4 did when the plan was made"
    assert ("waiting", text) == checks_after(tmp_path, now, 1)["ReplicaSet/team/web"]
    waiting["status"] = {"phase": "Running"}
    assert "ok" == checks_after(tmp_path, now, 1)["ReplicaSet/team/web"][0]


def test_a_wave_does_not_wait_for_pods_of_jobs(tmp_path: Path) -> None:
    job = running_job("train", SHARE, ["hami-1"])

    plan = planned(tmp_path, [*NODES, namespace("team", {LABEL: "true"}), *job])

    assert [] == [entry for wave in plan["waves"] for entry in wave["evictedWorkloads"]]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "RayCluster"])
def test_a_wave_does_not_wait_for_pods_without_devices(tmp_path: Path, kind: str) -> None:
    """A plan with such pods that ask not to be evicted ended in an error."""
    owner, pod = workload("dash", {"cpu": "1"}, ["hami-1"], kind=kind, namespace="other")
    pod["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    objects = [*NODES, namespace("team"), namespace("other"), owner, pod]

    plan = planned(tmp_path, [*objects, *workload("web", SHARE, ["hami-0"])])

    assert [pod["metadata"]["name"]] == [
        work["pod"].rpartition("/")[2] for wave in plan["waves"] for work in wave["work"]
    ]
    assert [] == [entry for wave in plan["waves"] for entry in wave["evictedWorkloads"]]


@pytest.mark.parametrize(("is_half", "is_early"), [(False, True), (True, False)])
def test_a_label_that_is_of_no_use_yet_may_be_taken_off(
    tmp_path: Path, *, is_half: bool, is_early: bool
) -> None:
    """Pods that have claims would come again with device keys."""
    switched, *pods = _half(is_done=False)
    objects = [*switched, *pods] if is_half else [*NODES, *web("hami-1")]

    plan = planned(tmp_path, objects)

    assert is_early is any(REMOVE in note for wave in plan["waves"] for note in wave["notes"])


@pytest.mark.parametrize(("is_half", "is_early"), [(False, True), (True, False)])
def test_assess_says_that_a_label_is_of_no_use_yet(
    tmp_path: Path, *, is_half: bool, is_early: bool
) -> None:
    """Of new pods that would wait it said nothing."""
    switched, *pods = _half(is_done=False)
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([*switched, *pods] if is_half else [*NODES, *web("hami-1")]))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    found = [entry for entry in answer["blockers"] if entry["code"] == "optedInEarly"]
    assert ([["Namespace//team"]] if is_early else []) == [entry["objects"] for entry in found]
    assert all(entry["fix"].startswith(REMOVE) for entry in found)
    assert all(entry["message"].endswith(": new pods would wait") for entry in found)


def test_a_cron_job_may_be_opted_in_by_the_label_of_its_template(tmp_path: Path) -> None:
    """It was said to get claims with the first wave."""
    later = nightly(SHARE)
    later["spec"]["jobTemplate"]["spec"]["template"]["metadata"] = {"labels": {LABEL: "true"}}

    plan = planned(tmp_path, [*NODES, namespace("team", {LABEL: "selected"}), later])

    (wave,) = plan["waves"]
    assert [] == wave["workloads"]
    assert any(note.startswith("the next pods of CronJob/team/nightly") for note in wave["notes"])


@pytest.mark.parametrize("kind", ["Pod", "ModelServer"])
def test_a_label_that_pods_without_a_template_have_claims_by_is_not_taken_off(
    tmp_path: Path, kind: str
) -> None:
    """Their device keys were not seen, and their next pods would have had these on nodes of a DRA driver."""
    pod = with_claims(workload("solo", SHARE, ["hami-0"])[1])
    pod["metadata"]["annotations"] = {"drawbridge.internal/request": "{}"}
    owner = {"apiVersion": "example.com/v1", "kind": kind, "name": "solo", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner] if kind != "Pod" else []
    objects = [*_half(is_done=True)[0][:2], namespace("team", {LABEL: "true"}), nightly(MIG)]
    mig_node = plugin_node("mig-0")
    mig_node["status"]["allocatable"] = {**MIG}

    def advises(*own: Mapping[str, Any]) -> bool:
        plan = planned(tmp_path, [*objects, mig_node, *own])
        return any(REMOVE in note for wave in plan["waves"] for note in wave["notes"])

    assert advises()
    assert not advises(pod)


@pytest.mark.parametrize(
    ("limits", "end"),
    [(SHARE, "they wait until a wave brings some"), (MIG, "no wave brings any, so they wait")],
)
def test_next_pods_that_get_claims_too_early_are_named(
    tmp_path: Path, limits: Mapping[str, str], end: str
) -> None:
    """Only pods that run had a note, and the next runs waited without a word."""
    # NVIDIA's driver there is too old for a wave.
    old = plugin_node("mig-0", 4, **{"nvidia.com/cuda.driver.major": "570"})
    old["status"]["allocatable"] = {**MIG}

    plan = planned(tmp_path, [*NODES, old, namespace("team", {LABEL: "true"}), nightly(limits)])

    first_notes = plan["waves"][0]["notes"]
    (note,) = [
        note for note in first_notes if note.startswith("the next pods of CronJob/team/nightly")
    ]
    assert note.endswith(f"no node with a DRA driver has devices for them yet: {end}")
    assert any(REMOVE in note for note in first_notes)


@pytest.mark.parametrize("is_whole", [False, True])
def test_next_pods_that_no_node_serves_today_wait_for_no_wave(
    tmp_path: Path, *, is_whole: bool
) -> None:
    """They waited with their device keys, too, so the label has nothing to do with it."""
    switched, *pods = _half(is_done=True)
    objects = [*switched[: 2 if is_whole else 3], *pods, class_of_driver(HAMI, HAMI)]

    plan = planned(tmp_path, [*objects, nightly(MIG)])

    assert [] == plan["held"]
    next_pods = "the next pods of CronJob/team/nightly"
    assert not any(next_pods in note for wave in plan["waves"] for note in wave["notes"])


@pytest.mark.parametrize("origins", [[origin(version="v1.30.0")], [origin("nodes")]])
def test_where_nothing_is_certain_no_opt_in_is_said_to_be_early(
    tmp_path: Path, origins: list[Any]
) -> None:
    """No node was looked at, and all workloads with pods to come were held with a command that hurts."""
    switched, *pods = _half(is_done=True)

    plan = planned(tmp_path, [*origins, *switched, *pods, nightly(SHARE)])

    assert ["Cluster//"] == [*held_objects(plan)]


@pytest.mark.parametrize("value", ["true", "selected"])
def test_a_daemon_set_that_is_opted_in_already_has_the_notes_of_others(
    tmp_path: Path, value: str
) -> None:
    """Its pods get no devices if they end, and the plan had no word on them."""
    nodes = [*NODES, hami_node("hami-2"), hami_node("hami-3")]
    plan = planned(tmp_path, [*nodes, *monitor(value), *held_by("hami-3")], "--wave-nodes", 1)

    name = "DaemonSet/team/monitor"
    first, *others = [[note for note in wave["notes"] if name in note] for wave in plan["waves"]]
    starts = [
        f"no place to pause after it: a pod of {name} that ends on hami-1, hami-2 gets no devices",
        f"{name} is not restarted: on hami-1, hami-2 its pods keep the devices of the plugin",
        f"no wave switches hami-3: pods of {name} keep the devices of the plugin there",
    ]
    assert all(note.startswith(start) for note, start in zip(first, starts, strict=True))
    assert [3, 3, 0] == [wave["coupledUntil"] for wave in plan["waves"]]
    assert [1, 0] == [len(names) for names in others]


@pytest.mark.parametrize("switched_nodes", [0, 1])
def test_a_daemon_set_that_is_opted_in_already_is_held_without_any_wave(
    tmp_path: Path, switched_nodes: int
) -> None:
    """It was named in notes of waves alone."""
    space, owner, *pods = monitor("true")
    pods = [with_claims(pod) if number < switched_nodes else pod for number, pod in enumerate(pods)]
    switched = [
        node("hami-0", {}, {}, {}),
        resource_slice(hami_gpu(), driver=HAMI, node="hami-0", name="slice-0"),
    ]
    nodes = [hami_node(f"hami-{number}") for number in range(switched_nodes, 4)]
    names = [node["metadata"]["name"] for node in nodes]
    objects = [*switched * switched_nodes, *nodes, *held_by(*names), space, owner, *pods]

    (entry,) = [
        entry
        for entry in planned(tmp_path, objects)["held"]
        if entry["object"] == "DaemonSet/team/monitor"
    ]

    assert entry["reason"] == (
        f"it is opted in already: {4 - switched_nodes} pods of it have device keys still, and one that ends gets no "
        "devices before its node is switched"
    )
    assert entry["fix"].startswith("solve what holds nodes" if switched_nodes else REMOVE)


@pytest.mark.parametrize(
    ("spec", "start"), [({}, "restart its pods (kubectl "), ({"paused": True}, "delete its pods ")]
)
def test_pods_of_a_plan_without_waves_are_restarted_where_there_are_devices(
    tmp_path: Path, spec: Mapping[str, Any], start: str
) -> None:
    """The switched nodes may have devices for fewer pods."""
    switched, space, owner, *pods = _half(is_done=False)
    owner["spec"] |= spec
    objects = [*switched, space, owner, *pods, *held_by("hami-1")]

    fixes = {entry["object"]: entry["fix"] for entry in planned(tmp_path, objects)["held"]}

    assert fixes[WEB].startswith(start)
    assert "when nodes with a DRA driver have devices for them" in fixes[WEB]


def nightly(limits: Mapping[str, str]) -> dict[str, Any]:
    """A CronJob without a run."""
    container = {"name": "c", "image": "a", "resources": {"limits": limits}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"schedule": "0 2 * * *", "jobTemplate": {"spec": {"template": template}}}
    return {**api_object("CronJob", "nightly", "team", spec=spec), "apiVersion": "batch/v1"}


def monitor(value: str) -> list[dict[str, Any]]:
    """An opted-in DaemonSet with a pod with device keys on each of four nodes."""
    owner, *pods = workload(
        "monitor", SHARE, [f"hami-{number}" for number in range(4)], kind="DaemonSet"
    )
    owner["spec"]["selector"] = {"matchLabels": {"app": "monitor"}}
    owner["status"] = {"desiredNumberScheduled": 4}
    if value == "selected":
        owner["spec"]["template"]["metadata"]["labels"] |= {LABEL: "true"}
    return [namespace("team", {LABEL: value}), owner, *pods]


def held_by(*names: str) -> list[dict[str, Any]]:
    """Pods that would be rejected with claims, so that no wave switches their nodes."""
    return [namespace("other"), *workload("bad", {GPU: "1.5"}, names, namespace="other")]


def _half(*, is_done: bool) -> list[Any]:
    """A switched node with a pod of a rollout, and a node of HAMi with another; a finished one has claims everywhere."""
    space, owner, first, second = web("hami-0", "hami-1")
    switched = [
        node("hami-0", {}, {}, {}),
        resource_slice(hami_gpu(), driver=HAMI, node="hami-0", name="slice-0"),
        hami_node("hami-1"),
    ]
    last = with_claims(second) if is_done else second
    return [switched, space, owner, with_claims(first), last]
