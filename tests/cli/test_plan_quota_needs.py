"""`drawbridge plan` and `verify --before`: lines of ResourceQuotas for devices, and the needs of workloads."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from migration.plan.planning.prepared import prepare_cluster
from quotas.resource_quotas.usage import PodCharge
from testing.builders import HAMI
from testing.command import drawbridge
from testing.counting import counted_calls
from testing.documents import (
    api_object,
    claim,
    device_class,
    namespace,
    resource_quota,
)
from testing.migration import (
    GPU,
    SHARE,
    WHOLE,
    device_quota,
    early_namespace,
    hami_node,
    origin,
    plugin_node,
    resource_slice,
    workload,
)
from testing.plan import failed_before, held_objects, planned, question_of, waves

LABEL: Final = "drawbridge.internal/translate"
KEY: Final = f"requests.{GPU}"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
SHARES: Final = "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"
REFERENCE: Final = "ResourceQuota/team/gpus"
Objects = list[dict[str, Any]]


def nodes() -> Objects:
    return [
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        *(hami_node(f"hami-{number}") for number in range(2)),
    ]


def quota(hard: Mapping[str, str], name: str = "gpus", **spec: Any) -> dict[str, Any]:
    return resource_quota(hard, name=name, **spec)


def pod_template(limits: Mapping[str, str]) -> dict[str, Any]:
    container = {"name": "c", "image": "a", "resources": {"limits": dict(limits)}}
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


def stateful_set(
    name: str, limits: Mapping[str, str], own_nodes: Sequence[str], **spec: Any
) -> Objects:
    """A workload with rollouts of no more pods at a time than it has."""
    return workload(name, limits, own_nodes, kind="StatefulSet", **spec)


def cron_job(limits: Mapping[str, str], name: str = "night", parallelism: int = 1) -> Objects:
    job = {"template": pod_template(limits), "parallelism": parallelism}
    spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}}
    return [api_object("CronJob", name, "team", spec=spec) | {"apiVersion": "batch/v1"}]


def suspended_job(limits: Mapping[str, str], name: str = "later") -> Objects:
    spec = {"suspend": True, "template": pod_template(limits)}
    return [api_object("Job", name, "team", spec=spec) | {"apiVersion": "batch/v1"}]


def idle(kind: str, limits: Mapping[str, str]) -> Objects:
    """A workload without pods."""
    if kind == "CronJob":
        return cron_job(limits)
    return suspended_job(limits) if kind == "Job" else workload("none", limits, [])


def added(plan: Mapping[str, Any], name: str = "gpus") -> dict[str, str]:
    lines: dict[str, str] = plan["quotaLines"][f"team.{name}.yaml"]["added"]
    return lines


def moved(plan: Mapping[str, Any]) -> list[str]:
    return [name for _, namespaces in waves(plan) for name in namespaces]


# --- amounts of new lines -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["CronJob", "Job", "Deployment"])
def test_a_class_that_only_pods_to_come_need_gets_a_part(tmp_path: Path, kind: str) -> None:
    """Its line was 0: the pods of the next run waited for claims for ever."""
    running = workload("run", {GPU: "2"}, ["gpu-0"])
    objects = [*nodes(), namespace("team"), quota({KEY: "3"}), *running, *idle(kind, SHARE)]

    plan = planned(tmp_path, objects)

    assert {SHARES: "1"} == added(plan)
    assert "Namespace//team" not in held_objects(plan)
    assert ["team"] == moved(plan)


def test_a_run_of_a_cron_job_has_as_many_pods_as_its_job(tmp_path: Path) -> None:
    running, job = workload("run", WHOLE, ["gpu-0"]), cron_job(SHARE, parallelism=3)

    plan = planned(tmp_path, [*nodes(), namespace("team"), quota({KEY: "4"}), *running, *job])

    assert {SHARES: "3"} == added(plan)


def test_a_suspended_training_of_another_project_has_the_pods_of_its_templates(
    tmp_path: Path,
) -> None:
    running = workload("run", WHOLE, ["gpu-0"])
    replicas = {
        "Master": {"template": pod_template(SHARE)},
        "Worker": {"replicas": 2, "template": pod_template(SHARE)},
    }
    spec = {"pytorchReplicaSpecs": replicas, "runPolicy": {"suspend": True}}
    training = api_object("PyTorchJob", "later", "team", api_version="kubeflow.org/v1", spec=spec)

    plan = planned(tmp_path, [*nodes(), namespace("team"), quota({KEY: "4"}), *running, training])

    assert {SHARES: "3"} == added(plan)


@pytest.mark.parametrize(("hard", "line"), [("4", "2"), ("3", "1")])
def test_pods_to_come_need_no_more_at_once_than_a_quota_allows_today(
    tmp_path: Path, hard: str, line: str
) -> None:
    """Two runs that never fit beside each other hold nothing."""
    jobs = [*cron_job(SHARE), *cron_job(SHARE, "noon")]
    running = workload("run", {GPU: "2"}, ["gpu-0"])

    plan = planned(tmp_path, [*nodes(), namespace("team"), quota({KEY: hard}), *running, *jobs])

    assert {SHARES: line} == added(plan)
    assert ["team"] == moved(plan)


def test_classes_whose_pods_to_come_do_not_fit_together_hold_their_namespace(
    tmp_path: Path,
) -> None:
    """One amount lets them run in turns, and parts of it do not."""
    jobs = [*cron_job({GPU: "2"}, "whole"), *cron_job(SHARE, parallelism=2)]
    settings = tmp_path / "settings.yaml"
    settings.write_text("validation: {featureGates: {DRAExtendedResource: false}}\n")
    objects = [
        *nodes(),
        namespace("team"),
        quota({KEY: "3"}),
        *stateful_set("web", SHARE, ["hami-0"]),
    ]

    plan = planned(tmp_path, [*objects, *jobs], "--settings", settings)

    assert {} == plan["quotaLines"]
    held = held_objects(plan)
    assert "Namespace//team" in held
    assert f"{SHARES} of {REFERENCE} (needed 3, " in held["Namespace//team"]
    (fix,) = (entry["fix"] for entry in plan["held"] if entry["object"] == "Namespace//team")
    assert fix.endswith(f"add {SHARES} with 3 to {REFERENCE}")
    raised = quota({KEY: "3", SHARES: "3"})
    enough = [entry if entry["kind"] != "ResourceQuota" else raised for entry in objects]
    plan = planned(tmp_path, [*enough, *jobs], "--settings", settings)
    assert "Namespace//team" not in held_objects(plan)
    # Where a class maps the key of whole GPUs, its claims need none of the amount.
    plan = planned(tmp_path, [*objects, *jobs])
    assert {SHARES: "3"} == added(plan)
    assert "Namespace//team" not in held_objects(plan)


def test_a_class_that_needs_no_line_leaves_its_part_to_the_others(tmp_path: Path) -> None:
    """The new line was 0, and held the namespace."""
    llm = stateful_set("llm", WHOLE, ["gpu-0"])
    jobs = [*cron_job(WHOLE, "whole"), *cron_job(SHARE)]

    plan = planned(tmp_path, [*nodes(), namespace("team"), quota({KEY: "2"}), *llm, *jobs])

    assert {SHARES: "1"} == added(plan)
    assert ["team"] == moved(plan)


def test_claims_that_the_old_line_counts_itself_use_up_nothing_of_a_new_one(tmp_path: Path) -> None:
    """A claim of a pod that was opted in before took the part of the pod to come."""
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    own = early_namespace({KEY: "2", NVIDIA: "2"})
    for entry in own:
        if entry["kind"] == "Namespace":
            entry["metadata"]["labels"] = {LABEL: "selected"}
        elif entry["kind"] == "StatefulSet":
            labels = entry["spec"]["template"]["metadata"]["labels"]
            entry["spec"]["template"]["metadata"]["labels"] = {**labels, LABEL: "true"}
        elif entry["kind"] == "ResourceQuota":
            entry["spec"]["hard"] = {KEY: "2"}
    whole = stateful_set("whole", WHOLE, ["gpu-0"])

    plan = planned(tmp_path, [*nodes(), *others, *own, *whole, *cron_job(SHARE)])

    assert int(added(plan)[SHARES]) >= 1
    assert SHARES not in str(held_objects(plan))


def test_a_run_needs_no_more_pods_than_its_quota_allows_today(tmp_path: Path) -> None:
    job = cron_job(SHARE, parallelism=3)
    objects = [*nodes(), namespace("team"), *job]

    assert {SHARES: "1", NVIDIA: "0"} == added(planned(tmp_path, [*objects, quota({KEY: "1"})]))
    plan = planned(tmp_path, [*objects, quota({KEY: "1", SHARES: "0"})])
    assert f"{SHARES} of {REFERENCE} (needed 1, " in held_objects(plan)["Namespace//team"]


def test_claims_on_a_line_of_their_own_use_up_nothing_of_the_old_line(tmp_path: Path) -> None:
    """The new line was 0."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
    others = claim(request, name="others", namespace="team")
    web = stateful_set("web", SHARE, ["hami-0"])
    objects = [*nodes(), namespace("team"), others, *web, quota({KEY: "1", NVIDIA: "2"})]

    plan = planned(tmp_path, objects)

    assert {SHARES: "1"} == added(plan)
    assert ["team"] == moved(plan)


@pytest.mark.parametrize("kind", ["CronJob", "Job", "Deployment"])
def test_a_workload_that_its_quota_rejects_today_holds_nothing(tmp_path: Path, kind: str) -> None:
    web = stateful_set("web", SHARE, ["hami-0"] * 2)
    objects = [*nodes(), namespace("team"), quota({KEY: "2"}), *web, *idle(kind, SHARE)]

    plan = planned(tmp_path, objects)

    assert ["team"] == moved(plan)
    assert {} == {name: text for name, text in held_objects(plan).items() if "team" in name}
    (note,) = (note for note in plan["waves"][0]["notes"] if "starts no pods today" in note)
    assert f"since {KEY} of {REFERENCE} is 2; no line for its claims has room for them" in note


# --- lines that there are already -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "node", "line", "reference"),
    [(WHOLE, "gpu-0", NVIDIA, "Node//gpu-0"), (SHARE, "hami-0", SHARES, "Namespace//team")],
)
def test_a_line_of_a_class_that_is_too_low_holds_what_moves_to_it(
    tmp_path: Path, limits: Mapping[str, str], node: str, line: str, reference: str
) -> None:
    """Nobody compared it: evicted pods waited for their claims."""
    web = stateful_set("web", limits, [node] * 2)
    objects = [*nodes(), namespace("team"), *web]

    plan = planned(tmp_path, [*objects, quota({KEY: "8", line: "1"})])

    held = held_objects(plan)
    assert reference in held
    text = f"{line} of {REFERENCE} (needed 2, used by others 0, hard 1) for StatefulSet/team/web"
    assert text in held["StatefulSet/team/web"]
    (fix,) = (entry["fix"] for entry in plan["held"] if entry["object"] == "StatefulSet/team/web")
    assert fix.startswith(f"raise {line} of {REFERENCE} to 2; ")
    assert "StatefulSet/team/web" not in held_objects(
        planned(tmp_path, [*objects, quota({KEY: "8", line: "2"})])
    )


def test_a_native_cron_job_without_room_is_named(tmp_path: Path) -> None:
    """The nodes stay for its next pods, with device keys: nobody else would use them."""
    objects = [*nodes(), namespace("team"), *cron_job(WHOLE)]

    plan = planned(tmp_path, [*objects, quota({KEY: "8", NVIDIA: "0"})])

    held = held_objects(plan)
    assert f"{NVIDIA} of {REFERENCE}" in held["CronJob/team/night"]
    assert held["Node//gpu-0"].startswith("the next pods of CronJob/team/night may be placed on it")
    assert "Node//hami-0" not in held


@pytest.mark.parametrize("limits", [WHOLE, SHARE], ids=["native", "claims"])
def test_a_line_that_was_lowered_since_the_plan_stops_the_wave(
    tmp_path: Path, limits: Mapping[str, str]
) -> None:
    node, line = ("gpu-0", NVIDIA) if limits == WHOLE else ("hami-0", SHARES)
    objects = [*nodes(), namespace("team"), *stateful_set("web", limits, [node] * 2)]
    plan = planned(tmp_path, [*objects, quota({KEY: "8", NVIDIA: "2", SHARES: "2"})])
    (number,) = (
        wave["wave"]
        for wave in plan["waves"]
        if (limits == SHARE and "team" in wave["namespaces"])
        or (limits == WHOLE and "gpu-0" in [entry["name"] for entry in wave["nodes"]])
    )
    hard = {KEY: "8", NVIDIA: "2", SHARES: "2"}
    assert REFERENCE not in failed_before(tmp_path, [*objects, quota(hard)], number)

    failed = failed_before(tmp_path, [*objects, quota({**hard, line: "1"})], number)

    text = f"{line} of {REFERENCE} (needed 2, used by others 0, hard 1) for StatefulSet/team/web"
    assert f"pods would wait for claims that are not created: {text}" in failed[REFERENCE]


def test_lines_of_the_plan_count_before_its_wave(tmp_path: Path) -> None:
    """The quota has them once the wave has begun, and a new workload may need more."""
    web = stateful_set("web", SHARE, ["hami-0"] * 2)
    objects = [*nodes(), namespace("team"), quota({KEY: "2"}), *web]
    plan = planned(tmp_path, objects)
    (number,) = (wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    assert {SHARES: "2", NVIDIA: "0"} == added(plan)
    assert REFERENCE not in failed_before(tmp_path, objects, number)
    more = stateful_set("more", SHARE, ["hami-0"])

    now = [*(entry for entry in objects if entry["kind"] != "ResourceQuota"), *more]
    failed = failed_before(tmp_path, [*now, quota({KEY: "2"})], number)

    assert f"{SHARES} of {REFERENCE} (needed 3, used by others 0, hard 2)" in failed[REFERENCE]


@pytest.mark.parametrize(
    ("hard", "is_held"),
    [({NVIDIA: "1", SHARES: "0"}, False), ({NVIDIA: "0", SHARES: "8"}, True)],
)
def test_native_pods_count_on_the_class_that_the_plan_has_map_their_key(
    tmp_path: Path, hard: Mapping[str, str], *, is_held: bool
) -> None:
    """They counted on the class of HAMi's chart, and the plan takes that mapping back."""
    chart = device_class(f"device.driver == '{HAMI}'", name=HAMI, extendedResourceName=GPU)
    others = [namespace("other"), *workload("share", SHARE, ["hami-0"], namespace="other")]
    whole = stateful_set("llm", WHOLE, ["gpu-0"])
    objects = [chart, *nodes(), namespace("team"), *others, *whole]

    plan = planned(tmp_path, [*objects, quota({KEY: "8", **hard})])

    text = f"{NVIDIA} of {REFERENCE} (needed 1, used by others 0, hard 0) for StatefulSet/team/llm"
    assert is_held is held_objects(plan).get("StatefulSet/team/llm", "").endswith(text)
    assert is_held is ("Node//gpu-0" in held_objects(plan))
    if not is_held:
        assert {GPU: "gpu.nvidia.com"} == plan["mappedClasses"]
        numbers = [wave["wave"] for wave in plan["waves"] if "gpu-0" in str(wave["nodes"])]
        now = [*objects, quota({KEY: "8", NVIDIA: "0", SHARES: "8"})]
        assert text in failed_before(tmp_path, now, *numbers)[REFERENCE]
        now = [*objects, quota({KEY: "8", **hard})]
        assert REFERENCE not in failed_before(tmp_path, now, *numbers)


def test_a_workload_needs_as_many_pods_as_it_has_replicas(tmp_path: Path) -> None:
    """Its pods of now were counted, such as three amid a rollout of two."""
    hard = quota({KEY: "3", SHARES: "2"})
    amid, lacking = (stateful_set("web", SHARE, ["hami-0"] * pods) for pods in (3, 1))
    for owner, replicas in ((amid[0], 2), (lacking[0], 3)):
        owner["spec"]["replicas"] = replicas

    assert ["team"] == moved(planned(tmp_path, [*nodes(), namespace("team"), *amid, hard]))
    plan = planned(tmp_path, [*nodes(), namespace("team"), *lacking, hard])

    text = f"{SHARES} of {REFERENCE} (needed 3, used by others 0, hard 2) for StatefulSet/team/web"
    assert held_objects(plan)["Namespace//team"].endswith(text)


def test_replicas_that_a_quota_rejects_today_hold_nothing(tmp_path: Path) -> None:
    web = stateful_set("web", SHARE, ["hami-0"])
    web[0]["spec"]["replicas"] = 2

    plan = planned(tmp_path, [*nodes(), namespace("team"), *web, quota({KEY: "1"})])

    assert {SHARES: "1", NVIDIA: "0"} == added(plan)
    assert ["team"] == moved(plan)
    text = f"StatefulSet/team/web starts no more pods today, since {KEY} of {REFERENCE} is 1; "
    assert any(note.startswith(text) for note in plan["waves"][0]["notes"])


def test_a_pod_that_is_being_deleted_needs_nothing(tmp_path: Path) -> None:
    owner, stays, leaves = copy.deepcopy(stateful_set("web", SHARE, ["hami-0"] * 2))
    owner["spec"]["replicas"] = 1
    leaves["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    own = quota({KEY: "3", SHARES: "1"})

    plan = planned(tmp_path, [*nodes(), namespace("team"), owner, stays, leaves, own])

    assert ["team"] == moved(plan)


def test_a_claim_of_a_pod_that_is_being_deleted_takes_nothing(tmp_path: Path) -> None:
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    objects = [*nodes(), *others, *early_namespace({KEY: "1", NVIDIA: "2"})]
    (pod,) = (
        entry
        for entry in objects
        if entry["kind"] == "Pod" and "early" in entry["metadata"]["name"]
    )
    leaving = copy.deepcopy(pod)
    leaving["metadata"] |= {"name": "gone", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    owned = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "controller": True}
    (own,) = (entry for entry in objects if entry["kind"] == "ResourceClaim")
    other = copy.deepcopy(own)
    other["metadata"] |= {"name": "other", "ownerReferences": [owned]}

    assert "Namespace//team" not in held_objects(planned(tmp_path, [*objects, leaving, other]))


@pytest.mark.parametrize(("desired", "is_held"), [(0, False), (1, True)])
def test_a_daemon_set_needs_the_pods_that_it_wants(
    tmp_path: Path, desired: int, *, is_held: bool
) -> None:
    daemon_set = api_object(
        *("DaemonSet", "agent", "team"),
        spec={"template": pod_template(SHARE)},
        status={"desiredNumberScheduled": desired},
    ) | {"apiVersion": "apps/v1"}
    objects = [*nodes(), namespace("team"), *stateful_set("web", SHARE, ["hami-0"]), daemon_set]

    plan = planned(tmp_path, [*objects, quota({KEY: "8", SHARES: "1"})])

    assert is_held is (f"{SHARES} of {REFERENCE} (needed 2, " in str(held_objects(plan)))


def test_a_workload_without_replicas_holds_nothing(tmp_path: Path) -> None:
    """Nobody may ever give it some again."""
    objects = [*nodes(), namespace("team"), *stateful_set("web", SHARE, ["hami-0"])]

    plan = planned(
        tmp_path, [*objects, *workload("none", SHARE, []), quota({KEY: "8", SHARES: "1"})]
    )

    assert ["team"] == moved(plan)
    text = "Deployment/team/none starts no pods today, since it has no replicas; no line for its claims"
    assert any(note.startswith(text) for note in plan["waves"][0]["notes"])


@pytest.mark.parametrize("is_idle", [False, True])
def test_a_native_workload_without_room_holds_no_label(tmp_path: Path, *, is_idle: bool) -> None:
    """It held all shares of its namespace, and then its nodes were switched for nobody, and its key mapped."""
    share = stateful_set("web", SHARE, ["hami-0"])
    native = cron_job(WHOLE) if is_idle else stateful_set("llm", WHOLE, ["gpu-0"])
    name = "CronJob/team/night" if is_idle else "StatefulSet/team/llm"
    objects = [*nodes(), namespace("team"), *share, *native]
    low = quota({KEY: "8", NVIDIA: "0", SHARES: "8"})

    plan = planned(tmp_path, [*objects, low])

    held = held_objects(plan)
    assert f"{NVIDIA} of {REFERENCE} (needed 1, " in held[name]
    assert {"Node//gpu-0", "Node//gpu-1"} <= held.keys()
    assert {} == plan["mappedClasses"]
    assert f"{name} keep {GPU}, which no DeviceClass maps in this plan" in held["Namespace//team"]
    (number,) = (wave["wave"] for wave in plan["waves"] if "team/web" in str(wave["workloads"]))
    assert REFERENCE not in failed_before(tmp_path, [*objects, low], number)
    lower = quota({KEY: "8", NVIDIA: "0", SHARES: "0"})
    assert SHARES in failed_before(tmp_path, [*objects, lower], number)[REFERENCE]


@pytest.mark.parametrize("kind", ["CronJob", "Job"])
@pytest.mark.parametrize("others", [[], ["hami-0"]], ids=["alone", "shares"])
def test_a_native_workload_without_pods_keeps_its_nodes(
    tmp_path: Path, kind: str, others: Sequence[str]
) -> None:
    """Its nodes were switched for nobody, and its key was mapped for it alone: its pods would have waited for ever."""
    web = stateful_set("web", SHARE, others, namespace="other")
    objects = [*nodes(), namespace("team"), namespace("other"), *web, *idle(kind, WHOLE)]

    plan = planned(tmp_path, [*objects, quota({KEY: "8", NVIDIA: "0"})])

    assert {"Node//gpu-0", "Node//gpu-1"} <= held_objects(plan).keys()
    assert {} == plan["mappedClasses"]


@pytest.mark.parametrize("kind", ["CronJob", "Job"])
def test_a_switched_node_lets_no_further_one_go(tmp_path: Path, kind: str) -> None:
    """The next plan switched them, though the first one refused it."""
    switched = plugin_node("dra-0", 0)
    devices = resource_slice("dra-0", "gpu.nvidia.com", ["GPU-a", "GPU-b"])
    selector = "device.driver == 'gpu.nvidia.com'"
    mapped = device_class(selector, name="gpu.nvidia.com", extendedResourceName=GPU)
    others = [namespace("other"), *workload("api", WHOLE, ["gpu-1"], namespace="other")]
    objects = [*nodes(), switched, devices, mapped, namespace("team"), *others, *idle(kind, WHOLE)]

    plan = planned(tmp_path, [*objects, quota({KEY: "4", NVIDIA: "0"})])

    assert {"Node//gpu-0", "Node//gpu-1"} <= held_objects(plan).keys()


@pytest.mark.parametrize("hard", ["0", "1"])
def test_a_run_that_the_webhook_rejects_today_is_noted(tmp_path: Path, hard: str) -> None:
    """It stopped prepare.sh and the first wave of the whole cluster."""
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    team = [namespace("team", {LABEL: "true"}), *cron_job(SHARE), quota({KEY: hard})]
    objects = [*nodes(), *others, *team]

    plan = planned(tmp_path, objects)

    assert "Namespace//team" not in held_objects(plan)
    assert REFERENCE not in failed_before(tmp_path, objects)
    assert "Prepare all the same" not in (tmp_path / "plan" / "prepare.sh").read_text()
    text = "CronJob/team/night starts no pods today, since no line counts its claims (quotaNotCounted); "
    notes = [note for note in plan["waves"][0]["notes"] if note.startswith(text)]
    assert (hard == "0") is bool(notes)


# --- rollouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limits", "node"), [(WHOLE, "gpu-0"), (SHARE, "hami-0")])
@pytest.mark.parametrize(("key", "hard", "is_noted"), [("8", "2", True), ("8", "3", False)])
def test_a_rollout_that_a_line_has_no_room_for_is_noted(
    tmp_path: Path,
    limits: Mapping[str, str],
    node: str,
    *,
    key: str,
    hard: str,
    is_noted: bool,
) -> None:
    """The first rollout after the wave would never have ended."""
    line = NVIDIA if limits == WHOLE else SHARES
    web = workload("web", limits, [node] * 2)

    plan = planned(tmp_path, [*nodes(), namespace("team"), *web, quota({KEY: key, line: hard})])

    assert "Deployment/team/web" not in held_objects(plan)
    notes = [note for wave in plan["waves"] for note in wave["notes"] if "rollouts of" in note]
    assert is_noted is bool(notes)
    for note in notes:
        assert f"{line} of {REFERENCE} (needed 2 and 1 more for rollouts, " in note
        assert f"raise {line} of {REFERENCE} to 3, or set maxUnavailable: 1" in note


@pytest.mark.parametrize(("hard", "is_noted"), [("4", True), ("5", False)])
def test_rollouts_come_one_after_the_other(tmp_path: Path, hard: str, *, is_noted: bool) -> None:
    own = [*workload("web", SHARE, ["hami-0"] * 2), *workload("chat", SHARE, ["hami-1"] * 2)]

    plan = planned(tmp_path, [*nodes(), namespace("team"), *own, quota({KEY: "8", SHARES: hard})])

    notes = [note for wave in plan["waves"] for note in wave["notes"] if "rollouts of" in note]
    assert is_noted is any(SHARES in note for note in notes)


def test_a_rollout_that_has_no_room_today_either_is_not_noted(tmp_path: Path) -> None:
    web = workload("web", SHARE, ["hami-0"] * 2)

    plan = planned(tmp_path, [*nodes(), namespace("team"), *web, quota({KEY: "2"})])

    assert {SHARES: "2", NVIDIA: "0"} == added(plan)
    assert not [note for wave in plan["waves"] for note in wave["notes"] if "rollouts of" in note]


@pytest.mark.parametrize(("limits", "node"), [(WHOLE, "gpu-0"), (SHARE, "hami-0")])
def test_a_rollout_that_has_no_room_today_beside_pods_to_come_is_not_noted(
    tmp_path: Path, limits: Mapping[str, str], node: str
) -> None:
    """Today rollouts were tried alone, and later beside a suspended Job: the plan asked for one device more."""
    own = [*workload("web", limits, [node] * 2), *suspended_job(limits)]

    plan = planned(tmp_path, [*nodes(), namespace("team"), *own, quota({KEY: "3"})])

    assert not [note for wave in plan["waves"] for note in wave["notes"] if "rollouts of" in note]


def test_rollouts_are_compared_with_the_sum_of_the_pods_to_come(tmp_path: Path) -> None:
    """Each was compared with all pods to come, one after the other."""
    number = 30
    own = [
        entry
        for index in range(number)
        for entry in (
            *workload(f"web-{index}", SHARE, ["hami-0"]),
            *suspended_job(SHARE, f"later-{index}"),
        )
    ]
    question = question_of(tmp_path, [*nodes(), namespace("team"), *own, quota({KEY: "99"})])

    with counted_calls() as calls:
        prepare_cluster(question)

    assert calls[PodCharge.on.__code__] < 40 * number


def test_a_new_line_has_room_for_a_rollout_where_the_amount_is_enough(tmp_path: Path) -> None:
    """The rest went to the class that was used most."""
    running = stateful_set("run", {GPU: "4"}, ["gpu-0"])
    web = workload("web", SHARE, ["hami-0"] * 2)

    plan = planned(tmp_path, [*nodes(), namespace("team"), *running, *web, quota({KEY: "7"})])

    assert {SHARES: "3"} == added(plan)


# --- lines of keys, once a class maps these -------------------------------------------------------


def test_a_mapping_that_has_early_pods_count_on_a_full_line_is_told(tmp_path: Path) -> None:
    """`prepare.sh` changed nothing for pods, it said: the next ones were rejected."""
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    objects = [*nodes(), *others, *early_namespace({KEY: "0", NVIDIA: "2"})]

    plan = planned(tmp_path, objects)

    assert {GPU: "gpu.nvidia.com"} == plan["mappedClasses"]
    reason = held_objects(plan)["Namespace//team"]
    assert "StatefulSet/team/early" not in held_objects(plan)
    text = f"{KEY} of {REFERENCE} (needed 1, used by others 0, hard 0) for StatefulSet/team/early"
    assert reason.startswith("pods are opted in already, and once prepare.sh ")
    assert reason.endswith(f"pods would be rejected: {text}")
    assert text in failed_before(tmp_path, objects)[REFERENCE]
    enough = [
        entry if entry["kind"] != "ResourceQuota" else quota({KEY: "1", NVIDIA: "2"})
        for entry in objects
    ]
    assert REFERENCE not in failed_before(tmp_path, enough)
    assert "Namespace//team" not in held_objects(planned(tmp_path, enough))


def test_a_preparation_that_rejects_early_pods_stops_before_its_first_change(
    tmp_path: Path,
) -> None:
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    too_low, enough = (
        [*nodes(), *others, *early_namespace({KEY: amount, NVIDIA: "2"})] for amount in ("0", "1")
    )

    planned(tmp_path, too_low)
    script = (tmp_path / "plan" / "prepare.sh").read_text()
    stop = "ask 'Prepare all the same, or abort (p/a)?'\ncase \"$answer\" in p*) ;; *) exit 1 ;; esac\n"
    assert "held: Namespace/team: pods are opted in already" in script
    assert script.index(stop) < script.index("helm upgrade")

    planned(tmp_path, enough)
    assert stop not in (tmp_path / "plan" / "prepare.sh").read_text()


def test_early_pods_of_a_workload_with_others_to_evict_stop_the_preparation(
    tmp_path: Path,
) -> None:
    """Those on a node with a device plugin kept the script from stopping."""
    llm = workload("llm", WHOLE, ["gpu-0", "gpu-0"], namespace="serving")
    # It leaves no device of the held node for llm, and the switched one has a single one, so gpu-0 stays.
    full = workload("full", {"nvidia.com/gpu": "3"}, ["gpu-1"], namespace="serving")
    others = [namespace("serving"), *llm, *full]
    objects = [*nodes(), *others, *early_namespace({KEY: "1", NVIDIA: "2"})]
    _, pod = copy.deepcopy(stateful_set("early", WHOLE, ["gpu-1"]))
    pod["metadata"]["name"] = "early-1"
    (owner,) = (entry for entry in objects if entry["kind"] == "StatefulSet")
    owner["spec"]["replicas"] = 2

    plan = planned(tmp_path, [*objects, pod])

    text = f"{KEY} of {REFERENCE} (needed 2, used by others 0, hard 1) for StatefulSet/team/early"
    held = held_objects(plan)
    assert f"pods would be rejected: {text}" in held["StatefulSet/team/early"]
    assert "; pods are opted in already, and once prepare.sh " in held["Namespace//team"]
    assert held["Namespace//team"].endswith(text)
    assert "ask 'Prepare all the same" in (tmp_path / "plan" / "prepare.sh").read_text()
    assert "pods are opted in already" in failed_before(tmp_path, [*objects, pod])[REFERENCE]


def test_pods_that_have_moved_are_not_held_by_a_line_that_the_plan_leaves(tmp_path: Path) -> None:
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    objects = [*nodes(), *others, *early_namespace({KEY: "8", NVIDIA: "0"})]

    plan = planned(tmp_path, objects)

    assert "Namespace//team" not in held_objects(plan)
    assert REFERENCE not in failed_before(tmp_path, objects)


@pytest.mark.parametrize(("hard", "is_held"), [("0", True), ("1", False)])
def test_a_new_line_that_early_pods_use_up_is_told(
    tmp_path: Path, hard: str, *, is_held: bool
) -> None:
    """Claims of before the plan count on no line yet, and the first wave adds one."""
    others = [namespace("serving"), *workload("llm", SHARE, ["hami-0"], namespace="serving")]
    objects = [*nodes(), *others, *early_namespace({KEY: hard}, SHARE)]

    plan = planned(tmp_path, objects)

    assert ["team"] == plan["earlyQuotas"]
    text = (
        f"{SHARES} of {REFERENCE} (needed 1, used by others 0, hard 0) for StatefulSet/team/early"
    )
    assert is_held is held_objects(plan).get("Namespace//team", "").endswith(text)
    assert is_held is (text in failed_before(tmp_path, objects).get(REFERENCE, ""))


def test_early_pods_and_those_that_keep_keys_count_together(tmp_path: Path) -> None:
    """Until the others have moved, too."""
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    own = early_namespace({KEY: "1", NVIDIA: "2", SHARES: "1"})
    for entry in own:
        if entry["kind"] == "Namespace":
            entry["metadata"]["labels"] = {LABEL: "selected"}
        elif entry["kind"] == "StatefulSet":
            labels = entry["spec"]["template"]["metadata"]["labels"]
            entry["spec"]["template"]["metadata"]["labels"] = {**labels, LABEL: "true"}

    plan = planned(tmp_path, [*nodes(), *others, *own, *stateful_set("web", SHARE, ["hami-0"])])

    text = f"{KEY} of {REFERENCE} (needed 2, used by others 0, hard 1) for StatefulSet/team/early"
    assert held_objects(plan)["Namespace//team"].endswith(text)
    assert "ask 'Prepare all the same" in (tmp_path / "plan" / "prepare.sh").read_text()


def test_a_run_of_early_pods_is_compared_after_the_preparation_as_before(tmp_path: Path) -> None:
    """By then the quota rejects it already."""
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    objects = [*nodes(), *others, *early_namespace({KEY: "1", NVIDIA: "2"}), *cron_job(WHOLE)]
    planned(tmp_path, objects)

    for entry in objects:
        if entry["kind"] == "DeviceClass":
            entry["spec"] = {**entry["spec"], "extendedResourceName": GPU}

    text = f"{KEY} of {REFERENCE} (needed 2, used by others 0, hard 1)"
    assert text in failed_before(tmp_path, objects)[REFERENCE]


def test_lines_that_no_wave_adds_for_early_pods_hold_nothing(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation:\n  quota: warn\n")
    others = [namespace("serving"), *workload("llm", SHARE, ["hami-0"], namespace="serving")]
    objects = [*nodes(), *others, *early_namespace({KEY: "0"}, SHARE)]

    plan = planned(tmp_path, objects, "--settings", settings)

    assert "Namespace//team" not in held_objects(plan)


def test_native_pods_with_claims_count_once_on_the_line_of_their_key(tmp_path: Path) -> None:
    """The pod has paid for the claim that kube-scheduler creates."""
    own = early_namespace({KEY: "2"})
    for entry in own:
        if entry["kind"] == "DeviceClass":
            entry["spec"] = {**entry["spec"], "extendedResourceName": GPU}
        elif entry["kind"] == "ResourceClaim":
            annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
            entry["metadata"]["annotations"] = annotations
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    pods = [entry for entry in own if entry["kind"] == "Pod"]
    for pod in pods:
        pod["spec"] = {**stateful_set("early", WHOLE, ["done"])[1]["spec"]}

    plan = planned(tmp_path, [*nodes(), *others, *own, *cron_job(WHOLE)])

    assert "Namespace//team" not in held_objects(plan)
    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    assert not [note for note in notes if "starts no pods today" in note]


# --- several quotas, scopes, and other quotas -----------------------------------------------------


def test_each_quota_has_to_have_room(tmp_path: Path) -> None:
    web = stateful_set("web", SHARE, ["hami-0"] * 2)
    objects = [*nodes(), namespace("team"), *web, quota({KEY: "8"}), quota({SHARES: "1"}, "low")]

    held = held_objects(planned(tmp_path, objects))

    text = f"{SHARES} of ResourceQuota/team/low (needed 2, used by others 0, hard 1)"
    assert text in held["Namespace//team"]
    assert REFERENCE not in held["Namespace//team"]


@pytest.mark.parametrize(
    "spec",
    [
        {"scopes": ["NotTerminating"]},
        {"scopes": ["BestEffort"]},
        {
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
                ]
            }
        },
    ],
)
def test_a_line_of_a_quota_with_scopes_counts_no_claims(
    tmp_path: Path, spec: Mapping[str, Any]
) -> None:
    web = stateful_set("web", WHOLE, ["gpu-0"] * 2)
    objects = [*nodes(), namespace("team"), *web, quota({NVIDIA: "0"}, **spec)]

    assert "StatefulSet/team/web" not in held_objects(planned(tmp_path, objects))


@pytest.mark.parametrize(("name", "is_held"), [("high", True), ("low", False)])
def test_scopes_say_which_pods_count_on_a_line_of_keys(
    tmp_path: Path, name: str, *, is_held: bool
) -> None:
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    web = stateful_set("web", WHOLE, ["gpu-0"] * 2, priorityClassName=name)
    own = quota({KEY: "1"}, scopeSelector={"matchExpressions": [expression]})

    plan = planned(tmp_path, [*nodes(), namespace("team"), *web, own])

    # It is below the present use, so an evicted pod does not come again.
    held = held_objects(plan).get("StatefulSet/team/web", "")
    assert is_held is (f"pods would be rejected: {KEY} of {REFERENCE} (needed 2, " in held)


def test_lines_that_device_quotas_replace_are_not_compared(tmp_path: Path) -> None:
    web, cron = stateful_set("web", SHARE, ["hami-0"] * 2), cron_job(SHARE)
    own = quota({KEY: "3", SHARES: "8"})
    objects = [*nodes(), namespace("team"), *web, *stateful_set("llm", WHOLE, ["gpu-0"]), own]
    objects += [*cron, device_quota({"name": GPU})]
    low = [entry if entry != own else quota({KEY: "0", SHARES: "8"}) for entry in objects]
    assert KEY in str(held_objects(planned(tmp_path, low[:-1])))
    assert KEY not in str(held_objects(planned(tmp_path, low)))

    plan = planned(tmp_path, objects)

    assert "Namespace//team" not in held_objects(plan)
    (number,) = (wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    assert REFERENCE not in failed_before(tmp_path, objects, number)


def test_pods_that_have_ended_count_on_no_line(tmp_path: Path) -> None:
    llm, ended = stateful_set("llm", WHOLE, ["gpu-0"]), stateful_set("done", WHOLE, ["gpu-0"])[1]
    del ended["metadata"]["ownerReferences"]
    ended["status"] = {"phase": "Succeeded"}

    plan = planned(tmp_path, [*nodes(), namespace("team"), *llm, ended, quota({KEY: "1"})])

    assert "StatefulSet/team/llm" not in held_objects(plan)


def test_claims_of_no_pod_use_a_line_today(tmp_path: Path) -> None:
    """A run that they leave no room for is rejected today, so it holds nothing."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    team = [namespace("team", {LABEL: "true"}), claim(request, name="kept", namespace="team")]
    objects = [*nodes(), *others, *team, *cron_job(WHOLE), quota({KEY: "8", NVIDIA: "1"})]

    plan = planned(tmp_path, objects)

    assert "CronJob/team/night" not in str(held_objects(plan))
    text = f"CronJob/team/night starts no pods today, since {NVIDIA} of {REFERENCE} is 1; "
    assert any(note.startswith(text) for note in plan["waves"][0]["notes"])


@pytest.mark.parametrize(("minor", "is_held"), [(34, False), (35, True)])
def test_claims_count_on_lines_of_keys_from_a_version_on(
    tmp_path: Path, minor: int, *, is_held: bool
) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}
    # A class that maps a name shows that the gate is on.
    shown = device_class("true", name="other", extendedResourceName="example.com/other")
    cluster = [origin(version=f"v1.{minor}.0"), shown, *nodes(), namespace("team")]
    kept = claim(request, name="kept", namespace="team")

    plan = planned(
        tmp_path, [*cluster, kept, *stateful_set("llm", WHOLE, ["gpu-0"]), quota({KEY: "1"})]
    )

    text = f"{KEY} of {REFERENCE} (needed 1, used by others 1, hard 1)"
    assert is_held is (text in held_objects(plan).get("StatefulSet/team/llm", ""))


def test_a_line_of_claims_is_told_once(tmp_path: Path) -> None:
    count = "count/resourceclaims.resource.k8s.io"
    web = stateful_set("web", SHARE, ["hami-0"] * 2)
    own = quota({KEY: "8", SHARES: "1", count: "1"})

    reason = held_objects(planned(tmp_path, [*nodes(), namespace("team"), *web, own]))[
        "Namespace//team"
    ]

    assert 1 == reason.count(f"{count} of {REFERENCE}")
    assert 1 == reason.count(f"{SHARES} of {REFERENCE}")


def test_native_and_translated_pods_of_a_namespace_have_lines_of_their_own(tmp_path: Path) -> None:
    whole, share = workload("llm", WHOLE, ["gpu-0"]), stateful_set("web", SHARE, ["hami-0"])
    objects = [*nodes(), namespace("team"), *whole, *share]

    held = held_objects(planned(tmp_path, [*objects, quota({KEY: "4", SHARES: "0"})]))

    assert "StatefulSet/team/web" in held
    assert "Deployment/team/llm" not in held


def test_assess_names_a_line_of_a_class_that_is_too_low(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    web = stateful_set("web", SHARE, ["hami-0"] * 2)
    objects = [*nodes(), namespace("team"), *web, quota({KEY: "8", SHARES: "1"})]
    planned(tmp_path, objects)

    output = drawbridge("assess", "--snapshot", file).stdout

    assert "exceedsQuota" in output
    assert "(needed 2, used by" in " ".join(output.split())


def test_a_quota_is_converted_with_room_for_pods_to_come(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    objects = [*nodes(), namespace("team"), quota({KEY: "1"}), *cron_job(SHARE)]
    planned(tmp_path, objects)

    result = drawbridge("quota", "convert", "--snapshot", file, "--split", "used")

    assert f'{SHARES}: "1"' in result.stdout
    assert f'{NVIDIA}: "0"' in result.stdout
