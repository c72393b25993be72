"""`drawbridge plan` and `verify` with workloads of other projects to be started again after the last wave."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from testing.command import drawbridge
from testing.documents import api_object, namespace
from testing.fake_api_server import FakeApiServer
from testing.kubeconfig import kubeconfig_of
from testing.migration import SHARE, WHOLE, hami_node, plugin_node, running_job, workload
from testing.plan import Objects, call, checks_after, document, held_objects, planned

KEYS: Final = ", ".join(sorted(SHARE))
LATER: Final = "RayCluster/ml/later"
START: Final = "resume it, or scale it up, after wave 2"
EARLIER: Final = (
    "; after wave 1 already where devices that its pods may have are free for claims, and no later wave needs them for pods that "
    "it evicts"
)
BY_ITSELF: Final = "it starts by itself, with its next request: before wave 2 is done it waits where no device is free"


def readme(tmp_path: Path) -> list[str]:
    return (tmp_path / "plan" / "README.md").read_text().splitlines()


def ray_cluster(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "a", "resources": {"limits": dict(SHARE)}}
    worker = {
        "groupName": "gpu",
        "replicas": 1,
        "template": {"spec": {"containers": [container]}},
    }
    fields = {"workerGroupSpecs": [worker], **spec}
    return api_object("RayCluster", "later", "ml", api_version="ray.io/v1", spec=fields)


def below(kind: str, api_version: str, owner: str, child: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with a controller of another project."""
    reference = {"apiVersion": api_version, "kind": kind, "name": owner, "controller": True}
    return {**child, "metadata": {**child["metadata"], "ownerReferences": [reference]}}


def predictor() -> dict[str, Any]:
    """A Deployment without replicas that its InferenceService scales."""
    (own,) = workload("later", SHARE, [], namespace="ml")
    return below("InferenceService", "serving.kserve.io/v1beta1", "model", own)


def idle_service() -> dict[str, Any]:
    """A Service of Knative that has no pods until the next request."""
    container = {"name": "c", "image": "a", "resources": {"limits": dict(SHARE)}}
    spec = {"template": {"spec": {"containers": [container]}}}
    return api_object("Service", "later", "ml", api_version="serving.knative.dev/v1", spec=spec)


def idle_revision() -> dict[str, Any]:
    (own,) = workload("later", SHARE, [], namespace="ml")
    return below("Revision", "serving.knative.dev/v1", "later-1", own)


def cluster(*later: Mapping[str, Any]) -> Objects:
    """Two nodes of HAMi, one of them with a pod of another namespace."""
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    return [*nodes, namespace("team"), namespace("ml"), *workload("web", SHARE, ["hami-0"]), *later]


def planned_in_two(tmp_path: Path) -> dict[str, Any]:
    options = ("--wave-nodes", 1, "--keep-free", 0, "--spare-nodes", 0)
    return planned(tmp_path, cluster(ray_cluster(suspend=True)), *options)


@pytest.mark.parametrize(
    ("later", "reason", "fix"),
    [
        pytest.param(ray_cluster(suspend=True), "it is suspended", START, id="suspended"),
        pytest.param(
            predictor(),
            "no pod of it requests devices now",
            "resume it, or scale it up by its InferenceService model, after wave 2",
            id="a Deployment that another object scales",
        ),
        pytest.param(
            idle_service(),
            "no pod of it requests devices now",
            BY_ITSELF,
            id="a Service of Knative that is idle",
        ),
        pytest.param(
            idle_revision(),
            "no pod of it requests devices now",
            BY_ITSELF,
            id="the Deployment of a Revision of Knative",
        ),
    ],
)
def test_a_plan_names_what_to_start_again(
    tmp_path: Path, later: Mapping[str, Any], reason: str, fix: str
) -> None:
    """The fix was to stop it, to plan again and to start it after the last wave, and the new plan did not have it."""
    options = ("--wave-nodes", 1, "--keep-free", 0, "--spare-nodes", 0)
    result = call(tmp_path, cluster(later), *options)
    plan = document(tmp_path)

    (entry,) = plan["stoppedWorkloads"]
    name = f"{later['kind']}/ml/later"
    reason = f"{reason}, and its next pods request {KEYS}"
    assert 2 == len(plan["waves"])
    earliest = {"earliestWave": 1} if fix != BY_ITSELF else {}
    want = {"object": name, "reason": reason, "fix": fix, "outcome": "translated", **earliest}
    assert want == entry
    text = f"{name}: {reason}: {fix}{EARLIER if earliest else ''}"
    assert text in " ".join(result.stdout.split())
    assert f"- {text}" in (tmp_path / "plan" / "README.md").read_text().splitlines()
    assert f"{text}." in (tmp_path / "plan" / "plan.html").read_text()


def test_one_whose_namespace_moves_before_the_last_wave_may_start_earlier(tmp_path: Path) -> None:
    """It was to wait for the last wave alone, while devices for its claims were idle."""
    later = ray_cluster(suspend=True)
    later["metadata"]["namespace"] = "team"

    plan = planned(
        tmp_path, cluster(later), "--wave-nodes", 1, "--keep-free", 0, "--spare-nodes", 0
    )

    (entry,) = plan["stoppedWorkloads"]
    (first,) = (wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    assert 1 == first < len(plan["waves"])
    assert (START, 1) == (entry["fix"], entry["earliestWave"])
    text = f"{entry['reason']}: {START}{EARLIER}"
    assert f"- RayCluster/team/later: {text}" in readme(tmp_path)


def test_a_job_of_volcano_is_started_by_the_command_of_volcano(tmp_path: Path) -> None:
    container = {"name": "c", "image": "a", "resources": {"limits": dict(SHARE)}}
    task = {"name": "t", "replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"schedulerName": "volcano", "tasks": [task]}
    later = api_object("Job", "later", "ml", api_version="batch.volcano.sh/v1alpha1", spec=spec)

    plan = planned(tmp_path, cluster(later))

    (entry,) = plan["stoppedWorkloads"]
    assert entry["fix"].startswith(
        "start it again (vcctl job resume --name JOB --namespace NAMESPACE) after wave"
    )


def test_many_of_one_state_are_one_row_and_all_in_the_readme(tmp_path: Path) -> None:
    clusters = [ray_cluster(suspend=True) for _ in range(5)]
    for number, own in enumerate(clusters):
        own["metadata"]["name"] = f"later-{number}"

    result = call(tmp_path, cluster(*clusters))
    lines = (tmp_path / "plan" / "README.md").read_text().splitlines()

    text = " ".join(result.stdout.split())
    assert (
        "stopped RayCluster/ml/later-0, RayCluster/ml/later-1, RayCluster/ml/later-2 and 2 more: it is"
        in text
    )
    assert 1 == text.count(" it is suspended, and its next pods")
    assert 5 == sum(line.startswith("- RayCluster/ml/later-") for line in lines)


def test_a_plan_without_stopped_workloads_says_nothing_of_them(tmp_path: Path) -> None:
    plan = planned(tmp_path, cluster())

    assert [] == plan["stoppedWorkloads"]
    assert "after the last wave" not in (tmp_path / "plan" / "README.md").read_text()


def test_one_in_a_namespace_without_a_wave_waits_for_another_plan(tmp_path: Path) -> None:
    """Its pods would have device keys, and no node would offer these."""
    half = workload("half", {**SHARE, "nvidia.com/gpu": "500m"}, ["hami-0"], namespace="ml")

    plan = planned(tmp_path, cluster(ray_cluster(suspend=True), *half))

    (entry,) = plan["stoppedWorkloads"]
    assert "Namespace//ml" in held_objects(plan)
    assert entry["fix"].startswith("solve first what keeps its namespace out of all waves")


def with_pod(*, claims: bool) -> Objects:
    """A RayCluster with a pod, with claims or with device keys."""
    _, pod = workload("later", {} if claims else SHARE, ["hami-0"], namespace="ml")
    if claims:
        pod["spec"]["resourceClaims"] = [{"name": "a", "resourceClaimName": "a"}]
    return [ray_cluster(), below("RayCluster", "ray.io/v1", "later", pod)]


def with_head(*more: Mapping[str, Any]) -> Objects:
    """A RayCluster with a head that requests no devices, and other pods."""
    _, head = workload("head", {"cpu": "1"}, ["hami-0"], namespace="ml")
    return [ray_cluster(), below("RayCluster", "ray.io/v1", "later", head), *more]


def of_an_ended_job() -> list[dict[str, Any]]:
    spec = {"rayClusterSpec": ray_cluster()["spec"]}
    job = api_object("RayJob", "maker", "ml", api_version="ray.io/v1", spec=spec)
    job["status"] = {"jobDeploymentStatus": "Complete"}
    return [job, below("RayJob", "ray.io/v1", "maker", ray_cluster())]


def of_a_running_job() -> Objects:
    """A RayJob with its RayCluster, a worker of this, and the Job that submits it."""
    maker, cluster_ = of_an_ended_job()
    maker["status"] = {"jobDeploymentStatus": "Running"}
    job, submitter = running_job("maker", {"cpu": "1"}, ["hami-0"], namespace="ml")
    _, worker = workload("worker", SHARE, ["hami-0"], namespace="ml")
    workers = [below("RayCluster", "ray.io/v1", "later", worker)]
    return [maker, cluster_, below("RayJob", "ray.io/v1", "maker", job), submitter, *workers]


def test_a_ray_job_that_runs_is_not_started_again(tmp_path: Path) -> None:
    """Its only pod was that of the Job that submits it, and its workers those of its RayCluster alone."""
    plan = planned(tmp_path, cluster(*of_a_running_job()))

    assert [] == plan["stoppedWorkloads"]
    assert "RayCluster/ml/later" in str(plan)


def test_a_ray_job_has_started_with_its_ray_cluster(tmp_path: Path) -> None:
    (maker, *_) = of_an_ended_job()
    maker["status"] = {}
    maker["spec"]["suspend"] = True
    options = ("--wave-nodes", 1, "--keep-free", 0, "--spare-nodes", 0)
    plan = planned(tmp_path, cluster(maker), *options)

    checks = checks_after(tmp_path, cluster(*of_a_running_job()), 2)

    assert ["RayJob/ml/maker"] == [entry["object"] for entry in plan["stoppedWorkloads"]]
    assert ("ok", "it has started, or has ended") == checks["RayJob/ml/maker"]


@pytest.mark.parametrize(
    ("now", "want"),
    [
        pytest.param(
            [ray_cluster(suspend=True)],
            ("note", f"it has no pods: {START}"),
            id="it has no pods",
        ),
        pytest.param(with_pod(claims=True), ("ok", "it has 1 pod, with claims"), id="it runs"),
        pytest.param(
            with_pod(claims=False),
            ("note", f"it has 1 pod, none with claims: stop it, and then {START}"),
            id="it was started before its namespace was opted in",
        ),
        pytest.param(
            with_head(),
            ("note", f"no pod of it requests devices: {START}"),
            id="it has a head alone, with state",
        ),
        pytest.param(
            with_head(*with_pod(claims=True)[1:]),
            ("ok", "it has 1 pod, with claims"),
            id="its worker runs beside its head",
        ),
        pytest.param([], ("note", "it is gone"), id="it is gone"),
        pytest.param(
            of_an_ended_job(), ("ok", "it has started, or has ended"), id="its owner has ended"
        ),
        pytest.param(
            [api_object("Snapshot", "cluster", unreadable=["rayclusters.ray.io"])],
            ("note", f"rayclusters.ray.io cannot be read: {START}"),
            id="its kind cannot be read",
        ),
    ],
)
def test_the_last_wave_looks_at_what_to_start_again(
    tmp_path: Path, now: Objects, want: tuple[str, str]
) -> None:
    planned_in_two(tmp_path)

    assert want == checks_after(tmp_path, cluster(*now), 2)[LATER]
    assert LATER not in checks_after(tmp_path, cluster(*now), 1)


@pytest.mark.parametrize(
    ("limits", "state", "text"),
    [
        ({"cpu": "1"}, "note", "no pod of it requests devices: "),
        (WHOLE, "ok", "it has 1 pod"),
    ],
)
def test_a_native_one_has_started_when_a_pod_requests_devices(
    tmp_path: Path, limits: Mapping[str, str], state: str, text: str
) -> None:
    own = ray_cluster(suspend=True)
    own["spec"]["workerGroupSpecs"][0]["template"] = {
        "spec": {"containers": [{"name": "c", "image": "a", "resources": {"limits": WHOLE}}]}
    }
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team"), namespace("ml")]
    nodes += workload("web", WHOLE, ["gpu-0"])
    plan = planned(tmp_path, [*nodes, own])
    _, pod = workload("later", limits, ["gpu-0"], namespace="ml")

    now = [*nodes, own, below("RayCluster", "ray.io/v1", "later", pod)]
    checks = checks_after(tmp_path, now, len(plan["waves"]))

    assert ["native"] == [entry["outcome"] for entry in plan["stoppedWorkloads"]]
    assert state == checks[LATER][0]
    assert checks[LATER][1].startswith(text)


@pytest.mark.parametrize(("wave", "is_read"), [(1, False), (2, True)])
async def test_only_the_check_of_the_last_wave_lists_kinds_of_other_projects(
    tmp_path: Path, *, wave: int, is_read: bool
) -> None:
    planned_in_two(tmp_path)
    async with FakeApiServer() as server:
        call_ = (
            "verify",
            "--live",
            "--context",
            "here",
            "--wave",
            tmp_path / "plan" / f"wave-{wave}",
        )
        await asyncio.to_thread(drawbridge, *call_, "--kubeconfig", kubeconfig_of(server, tmp_path))
        groups = {
            call.path.split("/")[2] for call in server.calls if call.path.startswith("/apis/")
        }

    assert is_read == ("ray.io" in groups)
    assert "apps" in groups


def test_one_that_leaves_its_scheduler_is_among_all_that_do(tmp_path: Path) -> None:
    """A note of its wave named it, and the list of all in README.md lacked it."""
    container = {"name": "c", "image": "a", "resources": {"limits": dict(WHOLE)}}
    own = ray_cluster(suspend=True)
    own["spec"]["workerGroupSpecs"][0]["template"] = {
        "spec": {"schedulerName": "kai-scheduler", "containers": [container]}
    }
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team"), namespace("ml")]
    plan = planned(tmp_path, [*nodes, *workload("web", WHOLE, ["gpu-0"]), own])
    (number,) = (wave["wave"] for wave in plan["waves"] if "ml" in wave["namespaces"])
    lines = (tmp_path / "plan" / "README.md").read_text().splitlines()

    (entry,) = plan["stoppedWorkloads"]
    assert entry["claimLosses"][0].startswith('leaves scheduler "kai-scheduler"')
    start = f'- from wave {number} on: {LATER}: leaves scheduler "kai-scheduler"'
    assert 1 == sum(line.startswith(start) for line in lines)
