"""The kinds of other projects that have pod templates, as a table.

A kind is listed for the versions that its project serves. Its controller makes pods of its templates,
so a template with claims gives pods with claims; where the kind's schema or its own webhook accepts no
claims, only its pods are translated, when they are created.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

ANY: Final = "*"
"""Every element of a list, or every value of a map, in a path."""


class Shape(StrEnum):
    """The form of a pod in a kind; the value is its name in the documentation."""

    TEMPLATE = "pod template"
    """`metadata` and `spec`."""
    POD_SPEC = "pod spec"
    """The fields of `spec`, among others."""
    STEP = "step of a workflow"
    """One container or script, with init containers and sidecars."""
    RESOURCES = "resources of a pod"
    """The resources of one container, which a controller puts into a pod of its own."""


class WorkloadKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind with pod templates.

    Attributes:
        resource: Its name in URLs.
        namespaced: Its objects are in namespaces.
        paths: The paths of its pods; `ANY` stands for all elements or values.
        numbers: The fields, for each path, whose product is the number of pods at a time, with
            `ANY` for the element or value of the path; a field that is not set counts as 1. None
            for a kind whose objects make no pods. Fewer than paths: the others have one.
        has_claims: Its templates may have claims, so that they are translated in files.
        container_paths: The paths of single containers; its controller makes a pod of each.
        has_pod_fields: Its pods have the fields of Kubernetes' pods, and no others.
        scheduler_path: The field with the scheduler of its pods that name none; empty for a kind without one.
        scheduler: The scheduler of pods where that field is empty, too; empty for the cluster's default.
        caution: The other uses of the keys by its controller, and advice; for a kind without claims
            the reason. Empty if there is nothing to say.
    """

    api_versions: tuple[str, ...]
    kind: str
    resource: str
    paths: tuple[tuple[str, ...], ...]
    numbers: tuple[tuple[tuple[str, ...], ...], ...] | None = ()
    shape: Shape = Shape.TEMPLATE
    namespaced: bool = True
    has_claims: bool = True
    container_paths: tuple[tuple[str, ...], ...] = ()
    has_pod_fields: bool = True
    scheduler_path: tuple[str, ...] = ()
    scheduler: str = ""
    caution: str = ""


def _replicas(kind: str, resource: str, field: str, *more_versions: str) -> WorkloadKind:
    return WorkloadKind(
        api_versions=("kubeflow.org/v1", *more_versions),
        kind=kind,
        resource=resource,
        paths=(("spec", field, ANY, "template"),),
        numbers=((("spec", field, ANY, "replicas"),),),
    )


GROUP_SIZE: Final = ("spec", "leaderWorkerTemplate", "size")
LEADER: Final = ("spec", "leaderWorkerTemplate", "leaderTemplate")
_RAY_VERSIONS: Final = ("ray.io/v1", "ray.io/v1alpha1")
_RAY_CAUTION: Final = (
    "KubeRay sets --num-gpus of a Ray node from its key: set num-gpus in rayStartParams"
)


def _ray(
    kind: str, resource: str, *cluster: str, more: tuple[tuple[str, ...], ...] = ()
) -> WorkloadKind:
    return WorkloadKind(
        api_versions=_RAY_VERSIONS,
        kind=kind,
        resource=resource,
        paths=(
            (*cluster, "headGroupSpec", "template"),
            (*cluster, "workerGroupSpecs", ANY, "template"),
            *more,
        ),
        numbers=(
            (),
            (
                (*cluster, "workerGroupSpecs", ANY, "replicas"),
                (*cluster, "workerGroupSpecs", ANY, "numOfHosts"),
            ),
        ),
        caution=_RAY_CAUTION,
    )


def _training_runtime(kind: str, resource: str, *, has_claims: bool, caution: str) -> WorkloadKind:
    return WorkloadKind(
        api_versions=("trainer.kubeflow.org/v1alpha1",),
        kind=kind,
        resource=resource,
        namespaced=kind == "TrainingRuntime",
        paths=(
            ("spec", "template", "spec", "replicatedJobs", ANY, "template", "spec", "template"),
        ),
        numbers=None,
        has_claims=has_claims,
        caution=caution,
    )


def _steps(kind: str, resource: str, *spec: str) -> WorkloadKind:
    return WorkloadKind(
        api_versions=("argoproj.io/v1alpha1",),
        kind=kind,
        resource=resource,
        paths=((*spec, "templates", ANY),),
        shape=Shape.STEP,
        has_claims=False,
        # Source: argoproj/argo-workflows, workflow/controller/workflowpod.go, addSchedulingConstraints.
        scheduler_path=(*spec, "schedulerName"),
    )


_FRAMEWORKS: Final = (
    *("model", "huggingface", "lightgbm", "onnx", "paddle"),
    *("pmml", "pytorch", "sklearn", "tensorflow", "triton", "xgboost"),
)
"""The fields of a predictor that extend a container, one for each runtime."""


_KSERVE_CAUTION: Final = "KServe has a field for claims in recent versions only"
"""Source: kserve/kserve, pkg/apis/serving/v1beta1/podspec.go."""


def _llm_inference(
    kind: str, resource: str, *, numbers: tuple[tuple[tuple[str, ...], ...], ...] | None
) -> WorkloadKind:
    """Return a kind of KServe with pod specs outside of templates, so that they have no annotations.

    Source: kserve/kserve, pkg/apis/serving/v1alpha1/llm_inference_service_types.go, WorkloadSpec.
    """
    return WorkloadKind(
        api_versions=("serving.kserve.io/v1alpha1", "serving.kserve.io/v1alpha2"),
        kind=kind,
        resource=resource,
        paths=(
            ("spec", "template"),
            ("spec", "worker"),
            ("spec", "prefill", "template"),
            ("spec", "prefill", "worker"),
        ),
        numbers=numbers,
        shape=Shape.POD_SPEC,
        has_claims=False,
        caution=_KSERVE_CAUTION,
    )


WORKLOAD_KINDS: Final[tuple[WorkloadKind, ...]] = (
    _replicas("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs"),
    _replicas("TFJob", "tfjobs", "tfReplicaSpecs"),
    _replicas("XGBoostJob", "xgboostjobs", "xgbReplicaSpecs"),
    _replicas("MPIJob", "mpijobs", "mpiReplicaSpecs", "kubeflow.org/v2beta1"),
    _replicas("PaddleJob", "paddlejobs", "paddleReplicaSpecs"),
    _replicas("JAXJob", "jaxjobs", "jaxReplicaSpecs"),
    _training_runtime(
        "TrainingRuntime",
        "trainingruntimes",
        has_claims=True,
        caution="spec.trainer.resourcesPerNode of a TrainJob replaces the resources: keys that it has "
        "are translated in the pods",
    ),
    _training_runtime(
        "ClusterTrainingRuntime",
        "clustertrainingruntimes",
        has_claims=False,
        caution="its pods are in namespaces that it does not name, where their claims have templates",
    ),
    # Its runtime has the pod template; the resources here replace those of the container `node`.
    # Source: kubeflow/trainer, pkg/apis/trainer/v1alpha1/trainjob_types.go, Trainer.
    WorkloadKind(
        api_versions=("trainer.kubeflow.org/v1alpha1",),
        kind="TrainJob",
        resource="trainjobs",
        paths=(("spec", "trainer", "resourcesPerNode"),),
        numbers=((("spec", "trainer", "numNodes"),),),
        shape=Shape.RESOURCES,
        has_claims=False,
        caution="its runtime has the pod template, and a TrainJob has no field for claims",
    ),
    # A NotebookTemplateSpec has no metadata, so no place for the annotation.
    WorkloadKind(
        api_versions=("kubeflow.org/v1", "kubeflow.org/v1beta1"),
        kind="Notebook",
        resource="notebooks",
        paths=(("spec", "template"),),
        has_claims=False,
    ),
    _ray("RayCluster", "rayclusters", "spec"),
    _ray(
        "RayJob",
        "rayjobs",
        "spec",
        "rayClusterSpec",
        more=(("spec", "submitterPodTemplate"),),
    ),
    _ray("RayService", "rayservices", "spec", "rayClusterConfig"),
    WorkloadKind(
        api_versions=("leaderworkerset.x-k8s.io/v1",),
        kind="LeaderWorkerSet",
        resource="leaderworkersets",
        paths=(
            ("spec", "leaderWorkerTemplate", "leaderTemplate"),
            ("spec", "leaderWorkerTemplate", "workerTemplate"),
        ),
        # The size counts the leader, which is a worker where it has no template.
        numbers=(
            (("spec", "replicas"),),
            (("spec", "replicas"), GROUP_SIZE),
        ),
    ),
    WorkloadKind(
        api_versions=("jobset.x-k8s.io/v1alpha2",),
        kind="JobSet",
        resource="jobsets",
        paths=(("spec", "replicatedJobs", ANY, "template", "spec", "template"),),
        numbers=(
            (
                ("spec", "replicatedJobs", ANY, "replicas"),
                ("spec", "replicatedJobs", ANY, "template", "spec", "parallelism"),
            ),
        ),
    ),
    # Source: volcano-sh/volcano, pkg/controllers/job/job_controller_util.go, createJobPod;
    # pkg/webhooks/admission/jobs/mutate, the default of schedulerName.
    WorkloadKind(
        api_versions=("batch.volcano.sh/v1alpha1",),
        kind="Job",
        resource="jobs",
        paths=(("spec", "tasks", ANY, "template"),),
        numbers=((("spec", "tasks", ANY, "replicas"),),),
        scheduler_path=("spec", "schedulerName"),
        scheduler="volcano",
        caution="Volcano's queues and gangs count the key: give the queue no limit of it",
    ),
    WorkloadKind(
        api_versions=("argoproj.io/v1alpha1",),
        kind="Rollout",
        resource="rollouts",
        paths=(("spec", "template"),),
        numbers=((("spec", "replicas"),),),
    ),
    WorkloadKind(
        api_versions=("apps.kruise.io/v1alpha1",),
        kind="CloneSet",
        resource="clonesets",
        paths=(("spec", "template"),),
        numbers=((("spec", "replicas"),),),
    ),
    _steps("Workflow", "workflows", "spec"),
    _steps("WorkflowTemplate", "workflowtemplates", "spec"),
    _steps("CronWorkflow", "cronworkflows", "spec", "workflowSpec"),
    # Knative copies the fields of a pod spec that it knows, and claims are not among them.
    # Source: knative/serving, pkg/apis/serving/fieldmask.go, PodSpecMask.
    WorkloadKind(
        api_versions=("serving.knative.dev/v1",),
        kind="Service",
        resource="services",
        paths=(("spec", "template"),),
        has_claims=False,
        has_pod_fields=False,
    ),
    WorkloadKind(
        api_versions=("serving.knative.dev/v1",),
        kind="Configuration",
        resource="configurations",
        paths=(("spec", "template"),),
        has_claims=False,
        has_pod_fields=False,
    ),
    WorkloadKind(
        api_versions=("serving.kserve.io/v1beta1",),
        kind="InferenceService",
        resource="inferenceservices",
        paths=(
            ("spec", "predictor"),
            ("spec", "predictor", "workerSpec"),
            ("spec", "transformer"),
            ("spec", "explainer"),
        ),
        shape=Shape.POD_SPEC,
        has_claims=False,
        container_paths=tuple(("spec", "predictor", framework) for framework in _FRAMEWORKS),
        caution=_KSERVE_CAUTION,
    ),
    _llm_inference("LLMInferenceService", "llminferenceservices", numbers=()),
    _llm_inference("LLMInferenceServiceConfig", "llminferenceserviceconfigs", numbers=None),
    # Source: NVIDIA/k8s-nim-operator, api/apps/v1alpha1/nimservice_types.go, NIMServiceSpec.
    WorkloadKind(
        api_versions=("apps.nvidia.com/v1alpha1",),
        kind="NIMService",
        resource="nimservices",
        paths=(("spec", "resources"),),
        numbers=((("spec", "replicas"),),),
        shape=Shape.RESOURCES,
        has_claims=False,
        scheduler_path=("spec", "schedulerName"),
        caution="its operator makes a pod of the resources",
    ),
)

WORKLOAD_KIND: Final[Mapping[tuple[str, str], WorkloadKind]] = {
    (version, entry.kind): entry for entry in WORKLOAD_KINDS for version in entry.api_versions
}
"""apiVersion and kind to the row."""
CUSTOM_RESOURCES: Final[Mapping[tuple[str, str], str]] = {
    kind: entry.resource for kind, entry in WORKLOAD_KIND.items()
}
"""apiVersion and kind to the name in URLs."""


CLUSTER_SCOPED: Final = frozenset(
    (version, entry.resource)
    for entry in WORKLOAD_KINDS
    if not entry.namespaced
    for version in entry.api_versions
)
"""apiVersion and name in URLs of the kinds whose objects are in no namespace."""

BLUEPRINTS: Final = frozenset({"WorkflowTemplate"})
"""Kinds whose objects make no pods until somebody submits one."""
