"""Workloads of other projects: their pods in files, and when they are applied."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pytest

from admission.review import decode_workloads
from admission.webhook_configuration import WORKLOADS_WEBHOOK, webhook_rules
from kube.api.admission import AdmissionRequest, GroupVersionKind
from kube.manifests.dump import dump_yaml
from kube.names import REQUEST_ANNOTATION
from testing.builders import container, gpus, pod
from testing.command import answer, drawbridge, translate
from testing.custom_workloads import workload_of
from testing.documents import api_object
from translation.reading.custom_workloads import MAX_TEMPLATES, embedded_pods, workload_kind
from translation.reading.workload_kinds import WORKLOAD_KINDS, Shape, WorkloadKind

SHARE: Final = pod(gpus(1, mem=3000))["spec"]
BYTES: Final = pod(gpus(1, mem="8Gi"))["spec"]
"""A mistake that the API server lets pass."""


@pytest.mark.parametrize("kind", WORKLOAD_KINDS, ids=lambda kind: kind.kind)
def test_each_kind_in_a_file(kind: WorkloadKind) -> None:
    document = workload_of(kind, SHARE)

    answered = answer(document)

    *templates, after = answered["objects"]
    codes = {finding["code"] for finding in answered["findings"]}
    if not kind.has_claims:
        assert (document, []) == (after, templates)
        assert "podTemplateNotRead" in codes
        return
    count = len(list(embedded_pods(kind, document)))
    text = msgspec.json.encode(after).decode()
    assert (count, count) == (text.count('"resourceClaims"'), text.count(f'"{REQUEST_ANNOTATION}"'))
    assert ["ResourceClaimTemplate"] == [template["kind"] for template in templates]
    assert bool(kind.caution) == ("controllerReadsKeys" in codes)


def test_only_a_translated_template_loses_what_its_controller_reads() -> None:
    kind = workload_kind("ray.io/v1", "RayCluster")
    assert kind is not None
    manifest = dump_yaml([workload_of(kind, SHARE)])

    results = {
        verb: drawbridge(verb, "-f", "-", "-o", "json", stdin=manifest).stdout
        for verb in ("translate", "check", "simulate")
    }

    assert ["translate"] == [verb for verb in results if "controllerReadsKeys" in results[verb]]


def number_of(api_version: str, kind: str, spec: Mapping[str, Any]) -> list[int]:
    """The numbers of pods at a time of an object, in the order of its templates."""
    entry = workload_kind(api_version, kind)
    assert entry is not None
    return [pod_.number for pod_ in embedded_pods(entry, {"spec": spec})]


def test_the_number_of_pods_at_a_time() -> None:
    template = {"spec": SHARE}
    group = {"workerTemplate": template, "size": 4}
    job = {"parallelism": 5, "template": template}
    numbers = {
        "PyTorchJob": number_of(
            "kubeflow.org/v1",
            "PyTorchJob",
            {
                "pytorchReplicaSpecs": {
                    "Master": {"template": template},
                    "Worker": {"template": template, "replicas": 3},
                }
            },
        ),
        "RayCluster": number_of(
            "ray.io/v1",
            "RayCluster",
            {
                "headGroupSpec": {"template": template},
                "workerGroupSpecs": [{"template": template, "replicas": 2, "numOfHosts": 4}],
            },
        ),
        "a group without a leader": number_of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": group},
        ),
        "a group with a leader": number_of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": {**group, "leaderTemplate": template}},
        ),
        "JobSet": number_of(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"replicatedJobs": [{"replicas": 2, "template": {"spec": job}}]},
        ),
        "JobSet of Jobs with fewer completions": number_of(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"replicatedJobs": [{"replicas": 2, "template": {"spec": job | {"completions": 1}}}]},
        ),
        "Volcano": number_of(
            "batch.volcano.sh/v1alpha1",
            "Job",
            {"tasks": [{"template": template}, {"template": template, "replicas": "many"}]},
        ),
        "CloneSet": number_of(
            "apps.kruise.io/v1alpha1", "CloneSet", {"replicas": 0, "template": template}
        ),
        "TrainJob": number_of(
            "trainer.kubeflow.org/v1alpha1",
            "TrainJob",
            {"trainer": {"numNodes": 6, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}}},
        ),
    }

    assert {
        "PyTorchJob": [1, 3],
        "RayCluster": [1, 8],
        "a group without a leader": [8],
        "a group with a leader": [2, 6],
        "JobSet": [10],
        "JobSet of Jobs with fewer completions": [2],
        "Volcano": [1, 1],
        "CloneSet": [0],
        "TrainJob": [6],
    } == numbers


def test_a_training_runtime_makes_no_pods_itself() -> None:
    kind = workload_kind("trainer.kubeflow.org/v1alpha1", "TrainingRuntime")
    assert kind is not None

    assert {0} == {pod_.number for pod_ in embedded_pods(kind, workload_of(kind, SHARE))}


@pytest.mark.parametrize(
    "kind", [kind for kind in WORKLOAD_KINDS if kind.has_claims], ids=lambda kind: kind.kind
)
def test_a_second_translation_changes_nothing(kind: WorkloadKind) -> None:
    once = answer(workload_of(kind, SHARE))["objects"]

    again = answer(*once)

    assert once == again["objects"]


@pytest.mark.parametrize("kind", WORKLOAD_KINDS, ids=lambda kind: kind.kind)
def test_a_mistake_in_each_kind_is_rejected_at_its_place(kind: WorkloadKind) -> None:
    document = workload_of(kind, BYTES)

    result = drawbridge("check", "-f", "-", "-o", "json", stdin=dump_yaml([document]))

    findings = msgspec.json.decode(result.stdout)["findings"]
    errors = [finding for finding in findings if finding["severity"] == "error"]
    assert {"wrongUnit"} == {finding["code"] for finding in errors}
    for finding in errors:
        assert finding["path"].endswith("limits[nvidia.com/gpumem]")
        assert resolves(document, finding["path"]), finding["path"]


def resolves(document: Any, path: str) -> bool:
    """Return True if a path leads to a value of the document."""
    place, bracket, key = path.rpartition("[")
    for step in place.replace("[", ".").replace("]", "").split("."):
        document = document[int(step)] if step.isdigit() else document[step]
    return bool(bracket) and key.removesuffix("]") in document


STEP: Final = api_object(
    "Workflow",
    "flow",
    api_version="argoproj.io/v1alpha1",
    spec={
        "templates": [
            {"name": "dag", "dag": {"tasks": []}},
            {"name": "a", "script": gpus(1, mem="8Gi"), "sidecars": [gpus(1, mem="8Gi", name="s")]},
            {
                "name": "b",
                "initContainers": [gpus(1, mem="8Gi", name="i")],
                "container": container(),
            },
        ]
    },
)


def test_steps_of_a_workflow_are_named_by_their_fields() -> None:
    findings = answer(STEP)["findings"]

    errors = [finding["path"] for finding in findings if finding["severity"] == "error"]
    key = "resources.limits[nvidia.com/gpumem]"
    assert [
        f"spec.templates[1].script.{key}",
        f"spec.templates[1].sidecars[0].{key}",
        f"spec.templates[2].initContainers[0].{key}",
    ] == errors


def test_one_bad_template_of_several_rejects_the_object() -> None:
    kind = workload_kind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    assert kind is not None
    document = workload_of(kind, SHARE)
    document["spec"]["leaderWorkerTemplate"]["workerTemplate"] = {"spec": BYTES}

    result = translate(document)

    assert (1, "") == (result.exit_code, result.stdout)


@pytest.mark.parametrize(
    "spec",
    [
        None,
        3,
        [],
        {"tasks": None},
        {"tasks": 7},
        {"tasks": [None, 1, {"template": None}, {"template": {"spec": {"containers": None}}}]},
    ],
)
def test_values_of_wrong_types_are_no_crash(spec: Any) -> None:
    document = api_object("Job", "a", api_version="batch.volcano.sh/v1alpha1")

    assert answer({**document, "spec": spec})["findings"] == []


def test_an_object_has_a_bounded_number_of_templates() -> None:
    kind = workload_kind("batch.volcano.sh/v1alpha1", "Job")
    assert kind is not None
    tasks = [{"template": {"spec": SHARE}}] * (MAX_TEMPLATES + 1)

    assert MAX_TEMPLATES == len(list(embedded_pods(kind, {"spec": {"tasks": tasks}})))


def test_a_review_has_each_template() -> None:
    document = workload_of(WORKLOAD_KINDS[0], SHARE)
    kind = GroupVersionKind(group="kubeflow.org", version="v1", kind="PyTorchJob")
    request = AdmissionRequest(uid="u", kind=kind)

    workloads = decode_workloads(request, msgspec.Raw(msgspec.json.encode(document)))

    replicas = ("Master", "Worker")
    assert [("spec", "pytorchReplicaSpecs", name, "template") for name in replicas] == [
        workload.path for workload in workloads
    ]


def test_the_rules_name_every_kind() -> None:
    rules = webhook_rules(routes=False)[WORKLOADS_WEBHOOK]

    named = {
        (rule["apiGroups"][0], rule["apiVersions"][0], resource)
        for rule in rules
        for resource in rule["resources"]
    }
    for kind in WORKLOAD_KINDS:
        for api_version in kind.api_versions:
            group, _, version = api_version.partition("/")
            assert (group, version, kind.resource) in named


def test_an_amount_of_an_inference_service_is_read_in_the_field_of_its_runtime() -> None:
    resources = BYTES["containers"][0]["resources"]
    document = api_object(
        "InferenceService",
        "serve",
        api_version="serving.kserve.io/v1beta1",
        spec={
            "predictor": {"model": {"modelFormat": {"name": "huggingface"}, "resources": resources}}
        },
    )

    findings = {finding["code"]: finding["path"] for finding in answer(document)["findings"]}

    assert {
        "wrongUnit": "spec.predictor.model.resources.limits[nvidia.com/gpumem]",
        "podTemplateNotRead": "spec.predictor.model.resources",
    } == findings


def test_a_kind_that_keeps_its_keys_loses_no_toleration() -> None:
    document = api_object(
        "NIMService",
        "serve",
        api_version="apps.nvidia.com/v1alpha1",
        spec={"resources": SHARE["containers"][0]["resources"]},
    )

    assert ["podTemplateNotRead"] == [finding["code"] for finding in answer(document)["findings"]]


def unknown_fields(document: Mapping[str, Any]) -> list[str]:
    """The places of fields that check takes for unknown to Kubernetes."""
    result = drawbridge("check", "-f", "-", "-o", "json", stdin=dump_yaml([document]))
    return [
        finding["path"]
        for finding in msgspec.json.decode(result.stdout)["findings"]
        if finding["code"] == "unknownField"
    ]


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in WORKLOAD_KINDS
        if kind.shape is not Shape.TEMPLATE or not kind.has_pod_fields
    ],
    ids=lambda kind: kind.kind,
)
def test_fields_of_a_kind_that_are_none_of_a_pod_are_not_unknown(kind: WorkloadKind) -> None:
    document = workload_of(kind, {**SHARE, "containerConcurrency": 1})

    assert [] == unknown_fields(document)


def test_a_field_that_a_pod_template_of_a_kind_does_not_have_is_unknown() -> None:
    kind = WORKLOAD_KINDS[0]

    places = unknown_fields(workload_of(kind, {**SHARE, "containerConcurrency": 1}))

    assert all(place.endswith(".template.spec.containerConcurrency") for place in places)
    assert 2 == len(places)


def test_a_patch_of_a_step_is_named_beside_its_container() -> None:
    patch = '{"containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"{{n}}"}}}]}'
    step = {"name": "a", "podSpecPatch": patch, "container": container("main")}
    document = api_object(
        "Workflow", "train", api_version="argoproj.io/v1alpha1", spec={"templates": [step]}
    )

    output = translate(document)

    assert "spec.templates[0].podSpecPatch" in output.stderr


def test_resources_at_the_root_of_a_workload_are_no_crash() -> None:
    document = api_object(
        "Rollout",
        "train",
        api_version="argoproj.io/v1alpha1",
        spec={"template": {"spec": SHARE}},
        limits={"nvidia.com/gpu": 1},
    )

    codes = [finding["code"] for finding in answer(document)["findings"]]

    assert "podTemplateNotRead" in codes
