"""`drawbridge snapshot` and `--live`: workloads of other projects, and the fields of each in the file."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import Result

from answers.model.redaction import redact
from answers.model.snapshot_kinds import ALL_KINDS, CUSTOM_KINDS, KINDS
from cli.reading.live_snapshot import LiveSnapshot, read_snapshot
from cli.verbs.snapshot.command import encode_snapshot
from kube.api.urls import Resource
from kube.client.client import Client
from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from migration.cluster.stopped import has_ended, next_pods
from testing.builders import gpus, pod
from testing.command import drawbridge
from testing.custom_workloads import workload_of
from testing.documents import api_object, namespace
from testing.example_objects import store
from testing.fake_api_server import FakeApiServer
from testing.kubeconfig import kubeconfig_of
from testing.migration import plugin_node, workload
from testing.plan import planned, waves
from translation.reading.custom_workloads import embedded_pods
from translation.reading.workload_kinds import WORKLOAD_KIND, WORKLOAD_KINDS, WorkloadKind

SECRET: Final = "hunter2"
LIMITS: Final = {"nvidia.com/gpu": "1"}
RAY: Final = Resource(group="ray.io", version="v1", plural="rayclusters")
OLD_RAY: Final = Resource(group="ray.io", version="v1alpha1", plural="rayclusters")
TRAINING: Final = Resource(group="kubeflow.org", version="v1", plural="pytorchjobs")
MPI: Final = Resource(group="kubeflow.org", version="v2beta1", plural="mpijobs")
NAMES: Final = {"metadata": {"name": "later", "namespace": "ml"}}


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


async def read(server: FakeApiServer, *kinds: str) -> LiveSnapshot:
    async with server.client() as client:
        return await read_snapshot(client, lambda _count: None, kinds or ALL_KINDS)


def listed(server: FakeApiServer, start: str) -> list[str]:
    return [call.path for call in server.calls if call.path.startswith(start)]


def template() -> dict[str, Any]:
    container = {"name": "c", "image": "a", "resources": {"limits": LIMITS}}
    return {"metadata": {"labels": {"app": "later"}}, "spec": {"containers": [container]}}


def ray_cluster(**spec: Any) -> dict[str, Any]:
    worker = {"groupName": "gpu", "replicas": 1, "template": template()}
    head = {"template": {"spec": {"containers": [{"name": "head", "image": "a"}]}}}
    own = {"headGroupSpec": head, "workerGroupSpecs": [worker], **spec}
    return api_object("RayCluster", "later", "ml", api_version="ray.io/v1", spec=own)


def stopped() -> dict[str, Any]:
    """A suspended RayCluster with a key that is translated."""
    document = ray_cluster(suspend=True)
    (worker,) = document["spec"]["workerGroupSpecs"]
    (container,) = worker["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"nvidia.com/mig-2g.10gb": "1"}}
    return document


# --- what is listed -------------------------------------------------------------------------------


async def test_a_workload_of_another_project_is_listed(server: FakeApiServer) -> None:
    server.put(RAY, ray_cluster(suspend=True))

    state = await read(server)

    (item,) = state.items
    assert ("ray.io/v1", "RayCluster") == (item["apiVersion"], item["kind"])
    assert item["spec"]["suspend"] is True
    assert () == state.unreadable


async def test_of_groups_that_the_cluster_lacks_no_kind_is_listed(server: FakeApiServer) -> None:
    server.put(RAY, ray_cluster())

    await read(server)

    assert ["/apis/kubeflow.org"] == listed(server, "/apis/kubeflow.org")
    assert 1 == listed(server, "/apis/ray.io").count("/apis/ray.io")
    assert "/apis/ray.io/v1/rayjobs" in listed(server, "/apis/ray.io")


async def test_an_older_version_is_listed_where_it_is_the_only_one(server: FakeApiServer) -> None:
    server.put(OLD_RAY, {**ray_cluster(), "apiVersion": "ray.io/v1alpha1"})

    (item,) = (await read(server)).items

    assert ("ray.io/v1alpha1", "RayCluster") == (item["apiVersion"], item["kind"])
    assert [] == listed(server, "/apis/ray.io/v1/")


async def test_a_kind_may_lack_a_version_of_its_group(server: FakeApiServer) -> None:
    """The MPI operator serves v2beta1 beside v1 of the training operator."""
    server.put(TRAINING, {**NAMES, "spec": {}})
    server.put(MPI, {**NAMES, "spec": {}})
    server.fail(404, matches=lambda call: call.path == "/apis/kubeflow.org/v1/mpijobs")

    state = await read(server)

    kinds = [(item["apiVersion"], item["kind"]) for item in state.items]
    assert [("kubeflow.org/v1", "PyTorchJob"), ("kubeflow.org/v2beta1", "MPIJob")] == kinds


async def test_of_a_group_that_is_not_found_there_are_none(server: FakeApiServer) -> None:
    server.put(RAY, ray_cluster())
    server.fail(404, matches=lambda call: call.path == "/apis/ray.io")

    state = await read(server)

    assert ((), ()) == (state.items, state.unreadable)


async def test_a_question_about_a_few_kinds_asks_for_no_group(server: FakeApiServer) -> None:
    server.put(RAY, ray_cluster())

    await read(server, *KINDS)

    assert [] == listed(server, "/apis/ray.io")


def test_kinds_that_make_no_pods_are_not_listed() -> None:
    kinds = {name.partition(".")[0] for name in CUSTOM_KINDS}

    assert {"RayCluster", "CronWorkflow", "Job"} <= kinds
    assert kinds.isdisjoint({"WorkflowTemplate", "TrainingRuntime", "ClusterTrainingRuntime"})


# --- commands -------------------------------------------------------------------------------------


def cluster(*more: dict[str, Any]) -> list[dict[str, Any]]:
    web = workload("web", LIMITS, ["node"], namespace="team")
    return [plugin_node("node"), namespace("team"), namespace("ml"), *web, *more]


async def snapshot_of(server: FakeApiServer, folder: Path, *more: dict[str, Any]) -> Path:
    store(server, cluster(*more))
    file = folder / "cluster.json"
    file.write_bytes(encode_snapshot(await read(server), "2026-11-20T08:00:00Z"))
    return file


async def test_a_suspended_workload_is_assessed_and_left(
    server: FakeApiServer, tmp_path: Path
) -> None:
    file = await snapshot_of(server, tmp_path, stopped())

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    left = json.loads(drawbridge("assess", "--residue", "--snapshot", file, "-o", "json").stdout)[
        "residue"
    ]

    rows = {row["object"]: row["pods"] for row in answer["workloads"]}
    assert {"Deployment/team/web": 1, "RayCluster/ml/later": 0} == rows
    assert any("Namespace//ml" in entry["objects"] for entry in left)


@pytest.mark.parametrize("with_object", [True, False])
@pytest.mark.parametrize("owner", ["RayService", "AppWrapper"])
def test_a_workload_that_runs_is_the_same_one_beside_its_object(
    tmp_path: Path, owner: str, *, with_object: bool
) -> None:
    """Nobody restarts an AppWrapper, so its nodes would have been held; a RayCluster creates its pods again."""
    (_, own) = workload("later", LIMITS, ["node"], namespace="ml")
    below = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "later", "controller": True}
    own["metadata"]["ownerReferences"] = [below]
    running = ray_cluster()
    above = {"apiVersion": "a/v1", "kind": owner, "name": "above", "controller": True}
    running["metadata"]["ownerReferences"] = [above]
    service = {**ray_cluster(), "kind": owner}
    service["spec"] = {"rayClusterConfig": service["spec"]}
    service["metadata"] = {"name": "above", "namespace": "ml"}
    file = tmp_path / "cluster.yaml"
    objects = [redact(running), redact(service)] if with_object else []
    file.write_text(dump_yaml(cluster(own, *map(dict, objects))))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    rows = [
        (row["object"], row["pods"], row["outcome"])
        for row in answer["workloads"]
        if "/ml/" in row["object"]
    ]
    assert [("RayCluster/ml/later", 1, "native")] == rows


async def test_a_plan_opts_the_namespace_of_a_suspended_workload_in(
    server: FakeApiServer, tmp_path: Path
) -> None:
    store(server, cluster(stopped()))

    plan = planned(tmp_path, list((await read(server)).items))

    assert "ml" in {name for _, names in waves(plan) for name in names}


async def test_a_kind_that_may_not_be_listed_is_a_note(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """Volcano's Jobs are not those of Kubernetes."""
    volcano = CUSTOM_KINDS["Job.batch.volcano.sh"][0]
    server.put(volcano, {**NAMES, "spec": {}})
    server.fail(403, matches=lambda call: call.path == volcano.path())
    file = await snapshot_of(server, tmp_path)

    result = drawbridge("assess", "--snapshot", file, "-o", "json")
    with_file = tmp_path / "more.json"
    with_file.write_text(
        json.dumps({**NAMES, "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"})
    )
    both = drawbridge("assess", "--snapshot", file, "--snapshot", with_file, "-o", "json")

    answer = json.loads(result.stdout)
    assert ["jobs.batch.volcano.sh"] == answer["unreadable"]
    assert "notReadable" not in {blocker["code"] for blocker in answer["blockers"]}
    assert "note: jobs.batch.volcano.sh cannot be read" in result.stderr
    assert "cannot be read" not in both.stderr


@pytest.mark.parametrize("levels", [250, 500, 5000])
async def test_a_deep_object_is_read_from_a_cluster_as_from_a_file(
    levels: int, server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One nested object of any user ended each command with a traceback."""
    job = workload_of(WORKLOAD_KIND["kubeflow.org/v1", "PyTorchJob"], POD)
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["schedulingGroup"] = {"x": "@"}
    opaque = {"driver": "gpu.nvidia.com", "parameters": {"x": "@"}}
    claim = api_object(
        "ResourceClaim",
        *("deep", "ml"),
        api_version="resource.k8s.io/v1",
        spec={
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
                "config": [{"opaque": opaque}],
            }
        },
    )
    store(server, cluster(job, claim))
    request = Client._request

    async def with_depth(self: Client, *args: Any, **options: Any) -> bytes:
        text = await request(self, *args, **options)
        return text.replace(b'"@"', b"[" * levels + b"]" * levels)

    monkeypatch.setattr(Client, "_request", with_depth)
    live = ("--live", "--kubeconfig", kubeconfig_of(server, tmp_path), "--context", "here")
    file = tmp_path / "cluster.json"

    async def run(*words: object) -> Result:
        result = await asyncio.to_thread(drawbridge, *map(str, words))
        assert result.exit_code in {0, 1}, result.stderr or result.exception
        return result

    await run("snapshot", "-o", file, *live[1:])
    assessed = [
        json.loads((await run("assess", *where, "-o", "json")).stdout)["workloads"]
        for where in (live, ("--snapshot", file))
    ]

    assert assessed[0] == assessed[1]
    assert "PyTorchJob/team/train" in {row["object"] for row in assessed[0]}
    await run("assess", "--residue", *live)
    await run("plan", *live, "-o", tmp_path / "plan")


# --- what is kept ---------------------------------------------------------------------------------


POD: Final = {
    **pod(gpus(1, mem=3000))["spec"],
    "schedulerName": "other",
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
}


def rich(kind: WorkloadKind) -> dict[str, Any]:
    """An object with all that is read of one, and a secret in every place that has none of these."""
    document: dict[str, Any] = with_secrets(workload_of(kind, POD))
    for embedded in embedded_pods(kind, document):
        for path in embedded.number_paths:
            place: Any = document
            for step in path[:-1]:
                place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
            place[path[-1]] = 3
    document["spec"] |= {"suspend": True, "runPolicy": {"suspend": True, "token": SECRET}}
    document["status"] = {
        "phase": "Running",
        "state": {"phase": "Running", "message": SECRET},
        "jobDeploymentStatus": "Running",
        "conditions": [{"type": "Failed", "status": "False", "message": SECRET}, SECRET],
        "nodes": {"a": {"inputs": {"parameters": [{"name": "token", "value": SECRET}]}}},
        "outputs": SECRET,
    }
    return document


def with_secrets(value: Any) -> Any:
    """Return a document with a secret in each object, except labels, amounts and other names."""
    if isinstance(value, list):
        return [*map(with_secrets, value)]
    if not isinstance(value, Mapping):
        return value
    kept = {
        "metadata",
        "labels",
        "annotations",
        "nodeSelector",
        "limits",
        "requests",
        "tolerations",
    }
    known = {
        key: copy.deepcopy(inner) if key in kept else with_secrets(inner)
        for key, inner in value.items()
    }
    return {
        **known,
        "password": SECRET,
        "args": ["--token", SECRET],
        "command": [SECRET],
        "source": f"login {SECRET}",
        "env": [{"name": "TOKEN", "value": SECRET}, {"name": [], "value": SECRET}, SECRET],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "arguments": {"parameters": [{"name": "token", "value": SECRET}]},
        "livenessProbe": {"exec": {"command": [SECRET]}},
        "volumes": [
            {"name": "v", "csi": {"volumeAttributes": {"token": SECRET}}, "hostPath": SECRET}
        ],
        "imagePullSecrets": [{"name": SECRET}],
        "ephemeralContainers": [{"name": SECRET}],
    }


def pods_of(document: Mapping[str, Any]) -> list[Any]:
    """Return the number, the resources and the places of all next pods of an object."""
    source = SourceObject(document=dict(document), source="", line=0)
    pods = []
    for entry in next_pods(source, "team"):
        spec = entry.pod.document["spec"]
        resources = [container.get("resources") for container in spec["containers"]]
        limits = [
            {field: amounts for field, amounts in own.items() if field in {"limits", "requests"}}
            for own in resources
        ]
        places = [spec.get(field) for field in ("schedulerName", "nodeSelector", "tolerations")]
        pods.append((entry.number, limits, places))
    return pods


@pytest.mark.parametrize("kind", WORKLOAD_KINDS, ids=lambda kind: kind.kind)
def test_the_next_pods_are_kept_without_secrets(kind: WorkloadKind) -> None:
    document = rich(kind)

    kept = json.loads(json.dumps(redact(document)))

    assert SECRET not in json.dumps(kept)
    assert pods_of(document)
    want, got = pods_of(document), pods_of(kept)
    assert want == got
    assert (True, True) == (kept["spec"]["suspend"], kept["spec"]["runPolicy"]["suspend"])
    assert {
        "phase": "Running",
        "state": {"phase": "Running"},
        "jobDeploymentStatus": "Running",
        "conditions": [{"type": "Failed", "status": "False"}],
    } == kept["status"]


def test_a_container_of_a_runtime_of_kserve_keeps_its_resources() -> None:
    model = {
        "resources": {"limits": LIMITS},
        "storageUri": f"s3://user:{SECRET}@bucket",
        "env": [{"name": "TOKEN", "value": SECRET}],
    }
    document = api_object(
        "InferenceService",
        *("later", "ml"),
        api_version="serving.kserve.io/v1beta1",
        spec={"predictor": {"model": model, "serviceAccountName": SECRET}},
    )

    assert {"predictor": {"model": {"resources": {"limits": LIMITS}}}} == redact(document)["spec"]


def test_variables_that_choose_devices_are_kept() -> None:
    document = ray_cluster()
    (worker,) = document["spec"]["workerGroupSpecs"]
    (container,) = worker["template"]["spec"]["containers"]
    chosen = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    container |= {
        "env": [chosen, {"name": "TOKEN", "value": SECRET}],
        "securityContext": {"privileged": True, "token": SECRET},
    }

    kept = redact(document)

    (worker,) = kept["spec"]["workerGroupSpecs"]
    (container,) = worker["template"]["spec"]["containers"]
    assert ([chosen], {"privileged": True}) == (container["env"], container["securityContext"])


def test_a_leader_counts_among_its_workers() -> None:
    document = api_object(
        "LeaderWorkerSet",
        *("later", "ml"),
        api_version="leaderworkerset.x-k8s.io/v1",
        spec={
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": 4,
                "leaderTemplate": template(),
                "workerTemplate": template(),
            },
        },
    )

    assert [2, 6] == [number for number, *_ in pods_of(redact(document))]


def test_a_job_of_a_set_with_few_completions_has_no_more_pods() -> None:
    job = {"parallelism": 8, "completions": 2, "template": template(), "token": SECRET}
    document = api_object(
        "JobSet",
        *("later", "ml"),
        api_version="jobset.x-k8s.io/v1alpha2",
        spec={"replicatedJobs": [{"name": SECRET}, {"replicas": 3, "template": {"spec": job}}]},
    )

    kept = redact(document)

    assert [6] == [number for number, *_ in pods_of(kept)]
    assert SECRET not in json.dumps(kept)


def test_one_that_has_ended_has_ended_in_the_snapshot() -> None:
    document = {**ray_cluster(), "kind": "RayJob", "status": {"jobDeploymentStatus": "Complete"}}

    assert has_ended(SourceObject(document=dict(redact(document)), source="", line=0))


def test_the_course_of_a_ray_cluster_after_its_job_is_in_the_snapshot() -> None:
    document = {**ray_cluster(), "kind": "RayJob"}
    document["spec"] = {**document["spec"], "shutdownAfterJobFinishes": True}

    assert redact(document)["spec"]["shutdownAfterJobFinishes"] is True


def test_the_schedule_of_a_cron_workflow_is_in_the_snapshot() -> None:
    times = {"schedule": "0 3 * * *", "schedules": ["30 3 * * *"], "timezone": "Europe/Berlin"}
    flow = {"activeDeadlineSeconds": 600, "arguments": SECRET}
    spec = {**times, "concurrencyPolicy": "Forbid", "workflowMetadata": SECRET}
    document = api_object(
        "CronWorkflow",
        *("later", "ml"),
        api_version="argoproj.io/v1alpha1",
        spec={**spec, "workflowSpec": flow},
    )

    kept = redact(document)

    limit = {"activeDeadlineSeconds": 600}
    assert {**times, "concurrencyPolicy": "Forbid", "workflowSpec": limit} == kept["spec"]


def test_broken_objects_are_kept_without_their_content() -> None:
    for kind in WORKLOAD_KINDS:
        head = {"apiVersion": kind.api_versions[0], "kind": kind.kind}
        assert {**head, "metadata": {}, "spec": {}} == redact({**head, "spec": SECRET})
        document = rich(kind)
        document["status"] = SECRET
        assert SECRET not in json.dumps(redact(document))
