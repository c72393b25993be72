"""Enforced DeviceQuotas in `drawbridge plan` and `verify --before`: a full one holds nothing by itself."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.names import QUOTA_GATE
from testing.budgets import OWNERSHIP
from testing.command import drawbridge
from testing.documents import api_object, namespace
from testing.migration import (
    GPU,
    SHARE,
    WHOLE,
    device_quota,
    hami_node,
    plugin_node,
    running_job,
    workload,
)
from testing.plan import failed_before, held_objects, planned, waves

HAMI: Final = "hami-core-gpu.project-hami.io"
NVIDIA: Final = "gpu.nvidia.com"
TEAM: Final = "Namespace//team"
MEMORY_KEY: Final = {
    "name": "nvidia.com/gpumem",
    "perUnit": "1Mi",
    "multipliedBy": "nvidia.com/gpu",
}
Objects = list[dict[str, Any]]


def limit(most: str, driver: str = HAMI, **fields: Any) -> dict[str, Any]:
    """A limit of devices that counts pods with keys, too."""
    keys = [{"name": GPU}]
    common = {"name": "devices", "driver": driver, "devices": {}, "max": most, "legacyKeys": keys}
    return {**common, **fields}


def memory(most: str) -> dict[str, Any]:
    """A limit of memory; pods with a percentage count nothing of it while they have keys."""
    common = {"name": "memory", "driver": HAMI, "deviceClassNames": [HAMI]}
    return {**common, "capacity": "memory", "max": most, "legacyKeys": [MEMORY_KEY]}


def percent(number: int) -> dict[str, str]:
    return {GPU: "1", "nvidia.com/gpumem-percentage": str(number)}


def team(*objects: Mapping[str, Any], name: str = "team") -> Objects:
    labels = {"kubernetes.io/metadata.name": name, "tenant": "team"}
    return [namespace(name, labels), *map(dict, objects)]


def hami_nodes() -> Objects:
    return [hami_node(f"hami-{number}") for number in range(3)]


def waiting(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod that waits behind the gate of quotas."""
    del pod["spec"]["nodeName"]
    gated = {**pod["spec"], "schedulingGates": [{"name": QUOTA_GATE}]}
    return {**pod, "spec": gated, "status": {"phase": "Pending"}}


def deleted(pod: dict[str, Any]) -> dict[str, Any]:
    metadata = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return {**pod, "metadata": metadata}


def web(limits: Mapping[str, str] = SHARE, nodes: Sequence[str] = ("hami-0", "hami-1")) -> Objects:
    return workload("web", limits, nodes)


def web_with_third(change: Any, limits: Mapping[str, str] = SHARE, node: str = "hami") -> Objects:
    *objects, last = web(limits, [f"{node}-0", f"{node}-1", f"{node}-1"])
    return [*objects, change(last)]


def assessed(tmp_path: Path, objects: Objects) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the blockers of an assessment about quotas, code to objects, and object to message of its notes."""
    file = tmp_path / "assessed.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge("assess", "--snapshot", file, "-o", "json")
    answer = json.loads(result.stdout)
    assert result.exit_code == (1 if answer["blockers"] else 0)
    blockers = {entry["code"]: entry["objects"] for entry in answer["blockers"]}
    notes = {name: entry["message"] for entry in answer["notes"] for name in entry["objects"]}
    return {code: names for code, names in blockers.items() if "Quota" in code}, notes


def unenforced(quota: dict[str, Any], reason: str = "NoGates") -> dict[str, Any]:
    """Return a quota without anybody to enforce it, as the controllers say."""
    condition = {
        "type": "Enforced",
        "status": "False",
        "reason": reason,
        "message": "no gates",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {**quota, "status": {"conditions": [condition]}}


def notes_of(plan: Mapping[str, Any]) -> list[str]:
    return [note for wave in plan["waves"] for note in wave["notes"]]


def cron_job() -> dict[str, Any]:
    template = web()[0]["spec"]["template"]
    job = {
        "spec": {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}
    }
    spec = {"schedule": "0 0 * * *", "jobTemplate": job}
    return api_object("CronJob", "night", "team", apiVersion="batch/v1", spec=spec)


def job_that_waits() -> Objects:
    owner, pod = running_job("train", SHARE, ["hami-0"])
    return [owner, waiting(pod)]


# --- a DeviceQuota that is full anyway --------------------------------------------------------------

FULL: Final[dict[str, Objects]] = {
    "a third pod waits": web_with_third(waiting),
    "a Job waits": [*web(), *job_that_waits()],
    "a CronJob starts pods later": [*web(), cron_job()],
    "a third pod is being deleted": web_with_third(deleted),
}


@pytest.mark.parametrize("own", FULL.values(), ids=FULL)
def test_a_full_device_quota_holds_no_pods_that_fit_it_today(tmp_path: Path, own: Objects) -> None:
    """Pods that wait, or come later, were charged like those that run, and held these with all nodes."""
    objects = [*hami_nodes(), *team(*own), device_quota(limits=[limit("2")])]

    plan = planned(tmp_path, objects)

    assert TEAM not in held_objects(plan)
    assert ["team"] in [opted_in for _, opted_in in waves(plan)]
    assert ["hami-0", "hami-1", "hami-2"] == sorted(n for nodes, _ in waves(plan) for n in nodes)


@pytest.mark.parametrize("own", FULL.values(), ids=FULL)
def test_an_assessment_notes_a_full_device_quota_and_blocks_nothing(
    tmp_path: Path, own: Objects
) -> None:
    """It was a blocker, while a plan held nothing."""
    objects = [*hami_nodes(), *team(*own), device_quota(limits=[limit("2")])]

    blockers, notes = assessed(tmp_path, objects)

    text = "a DeviceQuota does not let 1 pod through yet: DeviceQuota team, limit devices: 1 device needed, 0 of 2 devices left"
    assert {} == blockers
    assert all(message.startswith(text) for message in notes.values())


def test_an_assessment_names_the_pods_that_wait_for_a_device_quota_anyway(tmp_path: Path) -> None:
    objects = [*hami_nodes(), *team(*web(), *job_that_waits()), device_quota(limits=[limit("2")])]

    assert {"Job/team/train"} == assessed(tmp_path, objects)[1].keys()


def test_a_pod_that_queues_after_the_plan_stops_no_wave(tmp_path: Path) -> None:
    """A tenant could stop the waves of an administrator by one pod."""
    others = [*hami_nodes(), device_quota(limits=[limit("2")])]
    plan = planned(tmp_path, [*others, *team(*web())])
    wave = next(wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])

    failed = failed_before(tmp_path, [*others, *team(*web_with_third(waiting))], wave)

    assert TEAM not in failed


def test_pods_above_a_lowered_device_quota_hold_nothing(tmp_path: Path) -> None:
    """Their keys do not fit today, so their claims are no change."""
    objects = [*hami_nodes(), *team(*web()), device_quota(limits=[limit("1")])]

    assert TEAM not in held_objects(planned(tmp_path, objects))


@pytest.mark.parametrize("name", ["a-percent", "z-percent"])
@pytest.mark.parametrize("running", [1, 3])
def test_pods_that_are_free_as_keys_are_held_by_an_exceeded_device_quota(
    tmp_path: Path, name: str, running: int
) -> None:
    """Nothing was held for them, as pods above the limit wait today, too; these do not."""
    nodes = [f"hami-{number}" for number in range(running)]
    free = workload(name, percent(10), nodes)
    objects = [*hami_nodes(), *team(*web(), *free), device_quota(limits=[memory("15000Mi")])]

    reason = held_objects(planned(tmp_path, objects))[TEAM]

    assert f"pods of Deployment/team/{name} would be stopped once it is opted in" in reason
    assert "Deployment/team/web" not in reason


# --- quotas that nobody enforces --------------------------------------------------------------------


def test_a_device_quota_that_nobody_enforces_holds_nothing_and_is_noted(tmp_path: Path) -> None:
    """No pod waits for it."""
    quota = unenforced(device_quota(limits=[memory("12000Mi")]))
    objects = [*hami_nodes(), *team(*web(percent(25))), quota]

    plan = planned(tmp_path, objects)

    assert {} == held_objects(plan)
    text = "DeviceQuota team, limit memory: Enforced=False, nobody holds pods back: "
    assert [True] == [note.startswith(text) for note in notes_of(plan) if "Enforced" in note]
    assert ({}, {}) == assessed(tmp_path, objects)
    number = next(wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    assert TEAM not in failed_before(tmp_path, objects, number)


@pytest.mark.parametrize(
    ("most", "fields", "others"),
    [
        ("12000Mi", {"whenFull": "Deny"}, ()),
        ("9000Mi", {}, ()),
        ("12000Mi", {}, (OWNERSHIP,)),
    ],
    ids=["the webhook denies", "above the whole limit", "the bridge owns the driver"],
)
def test_what_others_than_gates_stop_holds_a_namespace_without_gates(
    tmp_path: Path, most: str, fields: Mapping[str, Any], others: Sequence[dict[str, Any]]
) -> None:
    quota = unenforced(device_quota(limits=[memory(most)], **fields))
    objects = [*hami_nodes(), *team(*web(percent(25))), quota, *others]

    assert "DeviceQuota team" in held_objects(planned(tmp_path, objects))[TEAM]


# --- native pods ------------------------------------------------------------------------------------


def train() -> Objects:
    owner, *pods = workload("train", WHOLE, ["gpu-0", "gpu-1", "gpu-1"])
    return [owner, *pods[:-1], waiting(pods[-1])]


NATIVE: Final[dict[str, tuple[Objects, Mapping[str, Any]]]] = {
    "a third pod waits": (train(), limit("2", NVIDIA)),
    "a pod has more than one may request": (
        workload("train", {GPU: "2"}, ["gpu-0"]),
        limit("8", NVIDIA, perRequest="1"),
    ),
}


@pytest.mark.parametrize(("native", "own"), NATIVE.values(), ids=NATIVE)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a share"])
def test_native_pods_are_held_by_no_device_quota(
    tmp_path: Path, native: Objects, own: Mapping[str, Any], *, beside: bool
) -> None:
    """No label changes their count, as they keep their keys."""
    plugin_nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    share = [*hami_nodes(), *workload("share", SHARE, ["hami-0"])] if beside else []
    objects = [*plugin_nodes, *team(*native, *share), device_quota(limits=[own])]

    plan = planned(tmp_path, objects)

    assert {} == held_objects(plan)
    nodes = ["gpu-0", "gpu-1", *(f"hami-{number}" for number in range(3) if beside)]
    assert nodes == sorted(name for names, _ in waves(plan) for name in names)


# --- claims that count for more than keys ------------------------------------------------------------


def test_claims_above_what_keys_count_for_today_hold_their_namespace_alone(tmp_path: Path) -> None:
    """Both namespaces are of one tenant; the claims of pods with amounts count as their keys do."""
    others = workload("b", SHARE, ["hami-1"], namespace="other")
    quota = device_quota(limits=[memory("12000Mi")])
    quota["spec"]["namespaceSelector"] = {"matchLabels": {"tenant": "team"}}
    tenant = [*team(*web(percent(25), ["hami-0"])), *team(*others, name="other"), quota]

    objects = [*hami_nodes(), *tenant]
    plan = planned(tmp_path, objects)

    assert {"deviceQuotaFull": ["Deployment/team/web"]} == assessed(tmp_path, objects)[0]
    held = held_objects(plan)
    assert held[TEAM].startswith("pods of Deployment/team/web would be stopped once it is opted in")
    assert "Namespace//other" not in held
    (fix,) = (entry["fix"] for entry in plan["held"] if entry["object"] == TEAM)
    assert fix == "request less, or raise the DeviceQuota; then plan again from a new snapshot"


def test_pods_that_never_get_through_have_a_text_of_their_own(tmp_path: Path) -> None:
    """All had the text and the fix of the first workload."""
    a = workload("a", percent(25), ["hami-0", "hami-1", "hami-1"])
    c = workload("c", percent(90), ["hami-2"])
    objects = [*hami_nodes(), *team(*a, *c), device_quota(limits=[memory("21000Mi")])]

    plan = planned(tmp_path, objects)

    reason = held_objects(plan)[TEAM]
    assert (
        "pods of Deployment/team/a would be stopped once it is opted in: a DeviceQuota does not let"
        in reason
    )
    assert (
        "pods of Deployment/team/c would be stopped once it is opted in: a DeviceQuota never lets"
        in reason
    )
    (fix,) = (entry["fix"] for entry in plan["held"] if entry["object"] == TEAM)
    assert "request less, or raise the DeviceQuota" in fix


@pytest.mark.parametrize(
    ("limits", "is_held"),
    [(percent(90), True), ({GPU: "3", "nvidia.com/gpumem": "8000"}, False)],
    ids=["its keys get through", "its keys never get through either"],
)
def test_a_pod_to_come_that_claims_alone_would_stop_holds_its_namespace(
    tmp_path: Path, limits: Mapping[str, str], *, is_held: bool
) -> None:
    quota = device_quota(limits=[memory("21000Mi"), limit("2")])
    owner, pod = workload("next", limits, ["hami-0"])
    own = [*workload("web", SHARE, ["hami-0"]), owner, waiting(pod)]
    objects = [*hami_nodes(), *team(*own), quota]

    assert is_held == (TEAM in held_objects(planned(tmp_path, objects)))


# --- work that is started later, and rollouts --------------------------------------------------------


def started_later(kind: str, limits: Mapping[str, str]) -> Objects:
    """A workload without pods."""
    if kind == "Deployment":
        return workload("next", limits, [])
    (job,) = running_job("next", limits, [])
    return [{**job, "spec": {**job["spec"], "suspend": True}}]


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
@pytest.mark.parametrize(
    ("limits", "is_told"),
    [(percent(90), True), ({GPU: "3", "nvidia.com/gpumem": "8000"}, False), (SHARE, False)],
    ids=["its keys get through", "its keys do not, either", "it gets through"],
)
def test_work_that_claims_alone_stop_once_it_is_started_is_noted(
    tmp_path: Path, kind: str, limits: Mapping[str, str], *, is_told: bool
) -> None:
    """It waited for ever after the move, without a word before."""
    quota = device_quota(limits=[memory("30000Mi")])
    objects = [*hami_nodes(), *team(*web(), *started_later(kind, limits)), quota]

    plan = planned(tmp_path, objects)
    blockers, notes = assessed(tmp_path, objects)

    text = f"{kind}/team/next: once {'resumed' if kind == 'Job' else 'started'}, its pods would be stopped with claims, "
    assert {} == blockers
    assert TEAM not in held_objects(plan)
    assert [is_told] == [any(note.startswith(text) for note in notes_of(plan))]
    assert is_told == (f"{kind}/team/next" in notes)


@pytest.mark.parametrize("kind", ["Job", "Deployment", "CronJob"])
@pytest.mark.parametrize(
    ("limits", "most", "text"),
    [
        (percent(25), "40000Mi", ""),
        (percent(25), "30000Mi", "1 of its 3 pods would be stopped with claims, and not with"),
        (SHARE, "20000Mi", ""),
    ],
    ids=["all get through", "claims stop the last", "keys stop as many"],
)
def test_work_of_several_pods_is_noted_if_claims_stop_some(
    tmp_path: Path, kind: str, limits: Mapping[str, str], most: str, text: str
) -> None:
    """One pod alone was asked about, so the last ones waited behind the gate, and the others for them."""
    (owner,) = [cron_job()] if kind == "CronJob" else started_later(kind, limits)
    spec = owner["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else owner["spec"]
    spec["template"]["spec"]["containers"][0]["resources"]["limits"] = dict(limits)
    spec |= {"replicas": 3} if kind == "Deployment" else {"parallelism": 3}
    objects = [*hami_nodes(), *team(owner), device_quota(limits=[memory(most)])]

    plan = planned(tmp_path, objects)
    blockers, notes = assessed(tmp_path, objects)

    expected = f"once {'resumed' if kind == 'Job' else 'started'}, {text} their keys: "
    assert ({}, False) == (blockers, TEAM in held_objects(plan))
    told = [note for note in notes_of(plan) if "with claims, and not" in note]
    assert (1 if text else 0) == len(told)
    name = owner["metadata"]["name"]
    assert all(note.startswith(f"{kind}/team/{name}: {expected}") for note in told)
    own = notes.get(f"{kind}/team/{name}", "")
    assert own.startswith(expected) if text else "with claims" not in own


@pytest.mark.parametrize(
    ("running", "is_told"), [(percent(50), True), (percent(20), False), (SHARE, False)]
)
def test_work_that_starts_later_is_noted_beside_claims_of_pods_that_run(
    tmp_path: Path, running: Mapping[str, str], *, is_told: bool
) -> None:
    """These count for nothing with their keys, and the claims of both are above the quota."""
    pods = workload("web", running, ["hami-0"])
    objects = [*hami_nodes(), *team(*pods, *started_later("Job", percent(50)))]
    objects.append(device_quota(limits=[memory("30000Mi")]))

    plan = planned(tmp_path, objects)
    blockers, notes = assessed(tmp_path, objects)

    assert ({}, False) == (blockers, TEAM in held_objects(plan))
    text = "once resumed, its pods would be stopped with claims, and not with their keys: "
    assert is_told is any(note.startswith(f"Job/team/next: {text}") for note in notes_of(plan))
    assert is_told is notes.get("Job/team/next", "").startswith(text)


@pytest.mark.parametrize(
    ("most", "replicas", "is_told"), [("2", 2, True), ("3", 2, False), ("4", 4, False)]
)
def test_a_rollout_that_finds_its_device_quota_full_is_noted(
    tmp_path: Path, most: str, replicas: int, *, is_told: bool
) -> None:
    """Its new pod waited for the budget of the old ones, and switch.sh for the rollout; a note needed a ResourceQuota, too."""
    own = web(nodes=[f"hami-{number % 3}" for number in range(replicas)])
    objects = [*hami_nodes(), *team(*own), device_quota(limits=[limit(most)])]

    notes = [note for note in notes_of(planned(tmp_path, objects)) if "rollouts of" in note]

    text = "rollouts of Deployment/team/web start a pod before one ends (maxUnavailable is 0), and both count in DeviceQuota team: "
    assert [is_told] == [any(note.startswith(text) for note in notes)]


@pytest.mark.parametrize(("most", "is_told"), [("30000Mi", True), ("41000Mi", False)])
def test_a_rollout_after_the_move_that_finds_its_device_quota_full_is_noted(
    tmp_path: Path, most: str, *, is_told: bool
) -> None:
    """Its pods count for nothing with their keys, so only the rollout of the wave found room."""
    own = workload("web", percent(50), ["hami-0"])
    objects = [*hami_nodes(), *team(*own), device_quota(limits=[memory(most)])]

    notes = [note for note in notes_of(planned(tmp_path, objects)) if "rollouts of" in note]

    assert [is_told] == [bool(notes)]
