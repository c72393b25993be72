"""`drawbridge plan` and `assess` with workloads of other projects that have no pods, but a template."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from migration.cluster.device_pods import next_device_pods
from migration.cluster.owners import OwnerKey
from migration.cluster.workloads import Workload
from testing.command import drawbridge
from testing.documents import api_object, namespace, node
from testing.migration import plugin_node, workload
from testing.plan import Objects, held_objects, planned, script, waves

KEY: Final = "nvidia.com/mig-2g.10gb"
LARGE: Final = {KEY: "1"}
GROUPS: Final = {
    "RayCluster": "ray.io/v1",
    "RayJob": "ray.io/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "Rollout": "argoproj.io/v1alpha1",
    "InferenceService": "serving.kserve.io/v1beta1",
    "Revision": "serving.knative.dev/v1",
    "Service": "serving.knative.dev/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Widget": "example.com/v1",
    "Deployment": "apps/v1",
}
REVISION: Final = "serving.knative.dev/configuration"
IDLE_NAMES: Final = {
    "RayCluster": "RayCluster/ml/later",
    "PyTorchJob": "PyTorchJob/ml/later",
    "Rollout": "Rollout/ml/later",
    "ReplicaSet": "ReplicaSet/ml/later-2",
    "InferenceService": "Deployment/ml/later-predictor",
    "model": "InferenceService/ml/later",
    "JobSet": "Job/ml/later-1",
}


def template(limits: Mapping[str, str] = LARGE) -> dict[str, Any]:
    container = {"name": "c", "image": "a", "resources": {"limits": dict(limits)}}
    return {"metadata": {"labels": {"app": "later"}}, "spec": {"containers": [container]}}


def custom(kind: str, name: str = "later", **fields: Any) -> dict[str, Any]:
    return api_object(kind, name, "ml", api_version=GROUPS[kind], **fields)


def below(kind: str, owner: str, child: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return an object with a controller of another project."""
    reference = {"apiVersion": GROUPS[kind], "kind": kind, "name": owner, "controller": True}
    own = {**child["metadata"], "ownerReferences": [reference], **metadata}
    return {**child, "metadata": own}


def built_in(kind: str, name: str, limits: Mapping[str, str] = LARGE) -> dict[str, Any]:
    (owner,) = workload(name, limits, [], kind=kind, namespace="ml")
    return owner


def ray_cluster(**spec: Any) -> dict[str, Any]:
    worker = {"groupName": "gpu", "replicas": 1, "template": template()}
    head = {"template": template({"cpu": "1"})}
    return custom("RayCluster", spec={"headGroupSpec": head, "workerGroupSpecs": [worker], **spec})


def training(**fields: Any) -> dict[str, Any]:
    worker = {"replicas": 2, "template": template()}
    spec = {"pytorchReplicaSpecs": {"Worker": worker}, "runPolicy": {"suspend": True}}
    return custom("PyTorchJob", spec=spec, **fields)


def replica_sets(*replicas: int) -> Objects:
    """ReplicaSets of a Rollout that is not in the snapshot, the newest at the end."""
    return [
        below(
            "Rollout",
            "later",
            {**own, "spec": {**own["spec"], "replicas": number}},
            creationTimestamp=f"2026-11-0{day}T00:00:00Z",
        )
        for day, number in enumerate(replicas, start=1)
        for own in [built_in("ReplicaSet", f"later-{day}", LARGE if day > 1 else {KEY: "2"})]
    ]


def suspended_jobs(*names: str) -> Objects:
    """Jobs of a JobSet that is not in the snapshot."""
    jobs = []
    for name in names:
        job = built_in("Job", name)
        job["apiVersion"] = "batch/v1"
        job["spec"] = {"suspend": True, "template": job["spec"]["template"]}
        job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        jobs.append(below("JobSet", "later", job))
    return jobs


def idle(kind: str) -> Objects:
    """A workload without pods, as `drawbridge snapshot` or a file of the kind has it."""
    match kind:
        case "RayCluster":
            return [ray_cluster(suspend=True)]
        case "PyTorchJob":
            return [training()]
        case "Rollout":
            return [
                custom("Rollout", spec={"replicas": 0, "template": template()}),
                *replica_sets(0, 0),
            ]
        case "ReplicaSet":
            return replica_sets(0, 0)
        case "InferenceService":
            return [below(kind, "later", built_in("Deployment", "later-predictor"))]
        case "model":
            model = {"resources": {"limits": dict(LARGE)}}
            return [custom("InferenceService", spec={"predictor": {"model": model}})]
        case _:
            return suspended_jobs("later-0", "later-1")


def mig_node(name: str) -> dict[str, Any]:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.memory": "40960",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/mig-2g.10gb.count": "3",
        "nvidia.com/mig-2g.10gb.memory": "9856",
    }
    return node(name, {KEY: "3"}, labels, {})


def cluster(*later: Mapping[str, Any]) -> Objects:
    """A node with devices that are all in use, after one with free ones."""
    web = workload("web", LARGE, ["used"] * 3)
    return [
        *(mig_node(name) for name in ("free", "used")),
        *(namespace("team"), namespace("ml"), *web, *later),
    ]


def assessed(tmp_path: Path, objects: Objects, *options: str) -> dict[str, Any]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge("assess", "--snapshot", file, "-o", "json", *options)
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def names(tmp_path: Path, objects: Objects) -> list[str]:
    """Return the workloads of the namespace `ml` that are assessed."""
    rows = assessed(tmp_path, objects)["workloads"]
    return [row["object"] for row in rows if "/ml/" in row["object"]]


@pytest.mark.parametrize("kind", IDLE_NAMES)
def test_a_workload_without_pods_is_assessed_by_its_template(tmp_path: Path, kind: str) -> None:
    """Nothing named it, and nothing was left of legacy systems."""
    objects = cluster(*idle(kind))

    (row,) = (row for row in assessed(tmp_path, objects)["workloads"] if "/ml/" in row["object"])
    assert (IDLE_NAMES[kind], 0, "translated") == (row["object"], row["pods"], row["outcome"])
    residue = assessed(tmp_path, objects, "--residue")["residue"]
    assert any("Namespace//ml" in entry["objects"] for entry in residue)


@pytest.mark.parametrize("kind", IDLE_NAMES)
def test_a_plan_names_its_next_pods_without_devices(tmp_path: Path, kind: str) -> None:
    """Its nodes were switched without a word."""
    plan = planned(tmp_path, cluster(*idle(kind)), "--wave-nodes", 1, "--spare-nodes", 0)

    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    assert any(
        IDLE_NAMES[kind] in note for note in notes if note.startswith("no device for one more pod")
    ), notes
    assert not any("Namespace//ml" in name for name in held_objects(plan))
    # Its controller makes the pods, and no script changes it.
    opted_in = [number for number, (_, own) in enumerate(waves(plan), 1) if "ml" in own]
    assert opted_in
    assert not any(
        "/ml/" in entry["object"] for wave in plan["waves"] for entry in wave["workloads"]
    )
    commands = [
        line
        for number in opted_in
        for phase in ("switch", "rollback")
        for line in script(tmp_path, phase, number).splitlines()
        if not line.startswith("#")
    ]
    assert not any("later" in line for line in commands)


@pytest.mark.parametrize("path", ["spec.suspend", "spec.runPolicy.suspend"])
def test_a_suspended_one_is_named_as_one(tmp_path: Path, path: str) -> None:
    name, own = ("RayCluster", ray_cluster(suspend=True))
    if path != "spec.suspend":
        name, own = "PyTorchJob", training()
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(cluster(own)))

    text = drawbridge("assess", "--snapshot", file).stdout

    assert f"{name}/ml/later is suspended, and counted with no pods" in " ".join(text.split())


def test_of_several_templates_one_that_needs_an_opt_in_decides(tmp_path: Path) -> None:
    """The first one has whole GPUs, so its namespace was never opted in."""
    cluster_of_ray = ray_cluster(suspend=True)
    whole = {"groupName": "whole", "replicas": 1, "template": template({"nvidia.com/gpu": "1"})}
    cluster_of_ray["spec"]["workerGroupSpecs"].insert(0, whole)

    plan = planned(tmp_path, cluster(plugin_node("whole"), cluster_of_ray))

    assert "ml" in {name for _, names in waves(plan) for name in names}


# --- those that are no workload -------------------------------------------------------------------


def knative(revision: int, replicas: int, **metadata: Any) -> Objects:
    """A Deployment of a Revision that is not in the snapshot, and its pods."""
    name = f"later-0000{revision}-deployment"
    owner, *pods = workload(name, LARGE, ["used"] * replicas, namespace="ml")
    own = {
        "labels": {REVISION: "later", "serving.knative.dev/service": "later"},
        "creationTimestamp": f"2026-11-0{revision}T00:00:00Z",
        **metadata,
    }
    return [below("Revision", f"later-0000{revision}", owner, **own), *pods]


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            [*knative(1, 0), *knative(2, 0), *knative(3, 0)],
            ["Deployment/ml/later-00003-deployment"],
            id="of idle revisions the newest is one",
        ),
        pytest.param(
            [*knative(1, 0), *knative(2, 0), *knative(3, 1)],
            ["Revision/ml/later-00003"],
            id="an old revision of a live one is none",
        ),
        pytest.param(
            [
                custom("Service", spec={"template": template()}),
                *knative(1, 0),
                *knative(3, 0),
            ],
            ["Service/ml/later"],
            id="a service of Knative has the newest template itself",
        ),
        pytest.param(
            [
                below("InferenceService", "later", entry)
                for entry in (
                    built_in("Deployment", "later-predictor"),
                    *workload("later-transformer", {}, ["used"], namespace="ml")[1:],
                )
            ],
            ["Deployment/ml/later-predictor"],
            id="an idle predictor beside a transformer that runs is one",
        ),
        pytest.param(
            [
                custom(
                    "InferenceService",
                    spec={"predictor": {"model": template()["spec"]["containers"][0]}},
                ),
                below(
                    "InferenceService", "later", custom("Service", spec={"template": template()})
                ),
                below("Service", "later", built_in("Deployment", "later-00001-deployment")),
            ],
            ["Service/ml/later"],
            id="the owner of one with a whole template is none",
        ),
        pytest.param(
            [
                custom(
                    "RayJob",
                    spec={"rayClusterSpec": ray_cluster()["spec"]},
                    status={"jobDeploymentStatus": "Complete"},
                ),
                below("RayJob", "later", workload("later", {}, ["used"], namespace="ml")[1]),
            ],
            [],
            id="one that has ended, and left a head, is none",
        ),
        pytest.param(
            replica_sets(0, 0, 0), ["ReplicaSet/ml/later-3"], id="the newest ReplicaSet is one"
        ),
        pytest.param(
            [training(status={"conditions": [{"type": "Succeeded", "status": "True"}]})],
            [],
            id="a training that has ended is none",
        ),
        pytest.param(
            [
                api_object(
                    "Workflow",
                    "a",
                    "ml",
                    api_version=GROUPS["Rollout"],
                    spec={"templates": [{"container": {"resources": {"limits": LARGE}}}]},
                    status={"phase": "Failed"},
                )
            ],
            [],
            id="a workflow that has ended is none",
        ),
        pytest.param(
            [
                below("RayCluster", "later", workload("later", LARGE, ["used"], namespace="ml")[1]),
                ray_cluster(),
            ],
            ["RayCluster/ml/later"],
            id="one that runs is one",
        ),
        pytest.param(
            [
                below("RayCluster", "later", workload("later", {}, ["used"], namespace="ml")[1]),
                ray_cluster(),
            ],
            ["RayCluster/ml/later"],
            id="one whose pods have no devices yet is one",
        ),
        pytest.param(
            [
                custom("Widget", spec={"replicas": 0}),
                below("Widget", "later", built_in("Deployment", "w")),
            ],
            ["Deployment/ml/w"],
            id="an operator that nobody knows",
        ),
        pytest.param(
            [below("Deployment", "web", built_in("ReplicaSet", "old"))],
            [],
            id="an old ReplicaSet of a Deployment is none",
        ),
        pytest.param(
            suspended_jobs("later-0", "later-1", "later-2"),
            ["Job/ml/later-2"],
            id="equal Jobs of one owner are one",
        ),
    ],
)
def test_the_workloads_of_other_projects(
    tmp_path: Path, objects: Objects, want: Sequence[str]
) -> None:
    assert want == names(tmp_path, cluster(*objects))


def of_a_pod(kind: str) -> dict[str, Any]:
    """A workload without pods, with a pod as its controller."""
    own = suspended_jobs("later")[0] if kind == "Job" else built_in(kind, "later")
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "maker", "controller": True}
    return {**own, "metadata": {**own["metadata"], "ownerReferences": [reference]}}


@pytest.mark.parametrize("is_gone", [False, True], ids=["there", "gone"])
@pytest.mark.parametrize("kind", ["Job", "Deployment", "StatefulSet", "ReplicaSet"])
def test_a_workload_of_a_pod_without_a_controller(
    tmp_path: Path, kind: str, *, is_gone: bool
) -> None:
    """A pod is left out of the chain of owners, and all commands ended with a traceback."""
    maker = workload("maker", {}, ["free"], namespace="ml")[1]
    maker["metadata"] = {"name": "maker", "namespace": "ml"}
    objects = cluster(of_a_pod(kind), *([] if is_gone else [maker]))

    assert f"{kind}/ml/later" in names(tmp_path, objects)
    plan = planned(tmp_path, objects, "--wave-nodes", 1, "--spare-nodes", 0)
    assert "ml" in {name for _, own in waves(plan) for name in own}


@pytest.mark.parametrize("value", [[], {}, 1, None], ids=str)
@pytest.mark.parametrize("part", ["pod", "job", "training", "workflow"])
def test_a_phase_that_is_no_text_ends_nothing(tmp_path: Path, part: str, value: object) -> None:
    """Files may say anything: a list had all commands end with a traceback."""
    odd: dict[str, Any] = {"phase": value, "conditions": [{"type": value, "status": "True"}]}
    own: Mapping[str, Any]
    match part:
        case "pod":
            (_, own) = workload("later", LARGE, ["free"], namespace="ml")
        case "job":
            (own,) = suspended_jobs("later")
        case "training":
            own = training()
        case _:
            steps = [{"container": {"resources": {"limits": LARGE}}}]
            own = api_object(
                "Workflow", "later", "ml", api_version=GROUPS["Rollout"], spec={"templates": steps}
            )
    objects = cluster({**own, "status": odd})

    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge("assess", "--snapshot", file, "-o", "json")
    assert result.exit_code in (0, 1), result.output
    if part != "pod":
        assert len(names(tmp_path, objects)) == 1


@pytest.mark.parametrize("revision", ["9" * 5000, "9" * 11, "-1", "a"], ids=len)
def test_a_revision_that_is_no_number_is_the_oldest(tmp_path: Path, revision: str) -> None:
    sets = replica_sets(0, 0)
    for own, number in zip(sets, (revision, "1"), strict=True):
        own["metadata"]["annotations"] = {"rollout.argoproj.io/revision": number}

    assert ["ReplicaSet/ml/later-2"] == names(tmp_path, cluster(*sets))


def test_equal_templates_are_assessed_once() -> None:
    """Each of up to 64 was translated: 300 objects with 8 equal ones took 6 seconds."""
    groups: dict[str, Any] = {
        f"w{number}": {"replicas": 2, "template": template()} for number in range(8)
    }
    groups["other"] = {"replicas": 1, "template": template({KEY: "2"})}
    own = SourceObject(
        document=custom("PyTorchJob", spec={"pytorchReplicaSpecs": groups}), source="a", line=1
    )
    key = OwnerKey(kind="PyTorchJob", namespace="ml", name="later")

    entries = next_device_pods(Workload(key=key, owner=None, pods=(), custom=own), {})

    assert [16, 1] == [entry.number for entry in entries]
