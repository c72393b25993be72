"""Statements about autoscalers, queues, schedulers, cost monitors and GPU Operator with claims, in one table.

Warnings of the webhook, `assess`, `plan` and the page docs/neighbours.md take their facts from here. A
statement is about released versions only. `evidence` says how it is known: read in the source, from a thread
or a document of the project, or tried by a story of ours.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

READ: Final = "2026-11"
"""The date on which the sources were read last."""
_VERSIONS: Final = re.compile(r"\d\.(\d{1,3})( and later| and earlier| to \d\.(\d{1,3}))?")


class Component(StrEnum):
    """A component that decides about pods or nodes beside kube-scheduler."""

    CLUSTER_AUTOSCALER = "Cluster Autoscaler"
    KARPENTER = "Karpenter"
    KUEUE = "Kueue"
    KAI = "KAI Scheduler"
    VOLCANO = "Volcano"
    OPENCOST = "OpenCost"
    GPU_OPERATOR = "NVIDIA GPU Operator"
    NVIDIA_DRIVER = "NVIDIA DRA driver"
    KUBERNETES = "Kubernetes"


class Evidence(StrEnum):
    """The evidence for a statement."""

    SOURCE = "read in its source, not tried"
    DOCUMENT = "from its documents, not tried"
    THREAD = "from a thread of its project, not tried"
    STORY = "tried by a story of this repository"


class Topic(StrEnum):
    """The topic of a statement; commands look statements up by it."""

    SEES_CLAIMS = "sees claims"
    SCALE_FROM_ZERO = "scale from zero"
    PREEMPTION = "preemption"
    UTILISATION = "utilisation"
    GPU_LABEL = "GPU label"
    FEATURES = "features"
    EXTENDED_RESOURCES = "extended resources"
    COUNTS_TEMPLATE = "counts the template"
    COUNTS_POD = "counts the pod"
    UNCOUNTED_CLAIMS = "claims not counted"
    UNKNOWN_CLAIMS = "claims not known"
    UNMAPPED_CLASS = "unmapped class"
    NOT_ADMITTED = "not admitted"
    SHARES = "shares"
    COST = "cost"
    TWO_SYSTEMS = "plugin and DRA"
    NATIVE = "native requests"
    EXPIRY = "expiry"


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One fact about a component.

    Attributes:
        versions: Released versions that it holds for.
        provider: Cloud or integration that it holds for; empty for all.
        source: Repository, file and version, or a thread.
        date: Year and month when the source was read.
    """

    component: Component
    topic: Topic
    text: str
    versions: str
    source: str
    provider: str = ""
    evidence: Evidence = Evidence.SOURCE
    date: str = READ

    @property
    def sentence(self) -> str:
        """The statement with the versions, and the provider, that it holds for."""
        provider = f", {self.provider}" if self.provider else ""
        return f"{self.component} ({self.versions}{provider}) {self.text}"

    def holds_for(self, minor: int) -> bool:
        """Return False for a minor release of the component's major one that the versions do not have."""
        match = _VERSIONS.fullmatch(self.versions)
        if match is None or int(match[1]) == minor:
            return True
        if match[3] is not None:
            return int(match[1]) < minor <= int(match[3])
        return match[2] == (" and later" if int(match[1]) < minor else " and earlier")


class _Row(msgspec.Struct, frozen=True):
    topic: Topic
    versions: str
    text: str
    source: str
    provider: str = ""
    evidence: Evidence = Evidence.SOURCE


_CA: Final = (
    _Row(Topic.SEES_CLAIMS, "1.35 and later", "sees claims always; the process ends if "
         "--enable-dynamic-resource-allocation is false",
         "kubernetes/autoscaler cluster-autoscaler-release-1.35, config/flags/flags.go:231,302"),
    _Row(Topic.SEES_CLAIMS, "1.34", "sees claims only with --enable-dynamic-resource-allocation",
         "kubernetes/autoscaler cluster-autoscaler-release-1.34, config/flags/flags.go:227"),
    _Row(Topic.SCALE_FROM_ZERO, "1.35 and later", "predicts devices from a healthy node of the group, and scales "
         "no group without nodes up for claims", "cluster-autoscaler/docs/dra_support.md",
         "without slices in its node template", Evidence.DOCUMENT),
    _Row(Topic.SCALE_FROM_ZERO, "1.35 and later", "predicts devices of a group without nodes from the annotations "
         "capacity.cluster-autoscaler.kubernetes.io/dra-driver and gpu-count; they have no attributes, so selectors "
         "on model or memory match none", "kubernetes/autoscaler issue 10199, pull request 10200", "Cluster API",
         Evidence.THREAD),
    _Row(Topic.SCALE_FROM_ZERO, "1.35 and later", "scales no group without nodes up for claims",
         "kubernetes/autoscaler issue 10277 (open in 2026-09)", "externalgrpc", Evidence.THREAD),
    _Row(Topic.EXTENDED_RESOURCES, "1.35 and later", "takes a pod with an extended resource that a DeviceClass maps for one "
         "with a claim, so it adds nodes for it as it does for claims, where the feature gate DRAExtendedResource is on",
         "kubernetes/autoscaler cluster-autoscaler-1.36.1, simulator/dynamicresources/snapshot/snapshot_class_resolver.go:32-44"),
    _Row(Topic.EXTENDED_RESOURCES, "1.34", "does not know that a DeviceClass maps an extended resource, so it adds no node "
         "for it that has the devices by DRA alone",
         "kubernetes/autoscaler cluster-autoscaler-1.34.0, simulator/dynamicresources/snapshot (without a class resolver)"),
    _Row(Topic.PREEMPTION, "1.35 and later", "does not support a pod with claims and a PriorityClass of "
         "PreemptLowerPriority, the default", "kubernetes/autoscaler issue 7683", "", Evidence.THREAD),
    _Row(Topic.UTILISATION, "1.35 and later", "takes the share of devices that are allocated for utilisation, so eight "
         "small shares on eight cards are 100 %; not on a node that it takes for unready by its GPU label",
         "cluster-autoscaler/docs/dra_support.md", "", Evidence.DOCUMENT),
    _Row(Topic.GPU_LABEL, "1.34 and later", "takes a node with the GPU label of its provider and without GPUs of a device plugin "
         "for unready, except on GCE, from 1.34.3 on, one with cloud.google.com/gke-gpu-dra-driver=true; with more than 3 unready nodes "
         "(--ok-total-unready-count) and more than 45 % of all (--max-total-unready-percentage) it adds and removes no node of "
         "the cluster",
         "kubernetes/autoscaler cluster-autoscaler-1.36.1, processors/customresources/gpu_processor.go:53, "
         "cloudprovider/gce/dynamicresources.go:29, clusterstate/clusterstate.go:493"),
    _Row(Topic.GPU_LABEL, "1.34 and later", "counts 0 as the utilisation of a node that it takes for unready by its GPU label, "
         "whatever runs there, so 20 minutes later (--scale-down-unready-time) it drains it if its pods fit on other nodes, unless "
         "the node has the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled",
         "kubernetes/autoscaler cluster-autoscaler-1.36.1, simulator/utilization/info.go:51, "
         "core/scaledown/eligibility/eligibility.go:117"),
    _Row(Topic.GPU_LABEL, "1.35 and later", "predicts no devices from a node that it takes for unready by its GPU label, so it "
         "scales no group whose nodes are all so up for claims, unless its provider's node template has slices",
         "kubernetes/autoscaler cluster-autoscaler-1.36.1, processors/nodeinfosprovider/mixed_nodeinfos_processor.go:74"),
    _Row(Topic.GPU_LABEL, "1.35 and later", "ends every scale-up, of any group, with an error while a node that it takes for "
         "unready by its GPU label belongs to no group that it scales",
         "kubernetes/autoscaler issue 10301 (open in 2026-09), cluster-autoscaler-1.36.1, "
         "processors/customresources/gpu_processor.go:109, resourcequotas/cache.go:74"),
    _Row(Topic.FEATURES, "1.35 and later", "takes all nodes of a group, and all devices of a pool, for identical",
         "cluster-autoscaler/docs/dra_support.md", "", Evidence.DOCUMENT),
    _Row(Topic.FEATURES, "1.35 and later", "never finds the capacity of a ProvisioningRequest whose PodTemplate names a "
         "ResourceClaimTemplate, since its pods in memory get no ResourceClaim: keep the device keys in such a PodTemplate",
         "kubernetes/autoscaler issue 10065 (open in 2026-08)", "", Evidence.THREAD),
)  # fmt: skip
_KARPENTER: Final = (
    _Row(Topic.SEES_CLAIMS, "1.14", "adds no node for a pod with claims, since IGNORE_DRA_REQUESTS is true by default",
         "kubernetes-sigs/karpenter 1.14.1, its setting IGNORE_DRA_REQUESTS"),
    _Row(Topic.SCALE_FROM_ZERO, "1.14", "with IGNORE_DRA_REQUESTS=false it brings nodes only where the provider's "
         "instance types have ResourceSlice templates", "kubernetes-sigs/karpenter designs/dra-scheduling.md",
         "", Evidence.DOCUMENT),
    _Row(Topic.SCALE_FROM_ZERO, "1.14", "has no ResourceSlice templates, so it brings no node for claims",
         "aws/karpenter-provider-aws issue 9519 (open in 2026-09)", "AWS", Evidence.THREAD),
    _Row(Topic.FEATURES, "1.14", "knows Exactly, All, firstAvailable, matchAttribute, counters and consumable "
         "capacity; not distinctAttribute, admin access and taints",
         "kubernetes-sigs/karpenter issue 3230, pull request 3266", "", Evidence.THREAD),
    _Row(Topic.EXTENDED_RESOURCES, "1.14", "does not support extended resources that a DeviceClass maps",
         "kubernetes-sigs/karpenter issue 3231", "", Evidence.THREAD),
    _Row(Topic.EXPIRY, "1.14", "removes a node once its expireAfter is over, 720h by default, also one with the annotation "
         "karpenter.sh/do-not-disrupt",
         "karpenter.sh/preview/reference/annotations; kubernetes-sigs/karpenter pkg/apis/v1 (the default)",
         "", Evidence.DOCUMENT),
    _Row(Topic.NATIVE, "1.14", "never initializes a node that it started for a key which only DRA serves, so it does "
         "not consolidate it, even empty",
         "kubernetes-sigs/karpenter 1.14.1, pkg/controllers/nodeclaim/lifecycle/initialization.go"),
)  # fmt: skip
_KUEUE: Final = (
    _Row(Topic.COUNTS_TEMPLATE, "0.9 and later", "builds its Workload from the template, which keeps the device keys: it goes "
         "on counting them, and does not ask deviceClassMappings",
         "kubernetes-sigs/kueue 0.19, pkg/controller/jobs/job/job_controller.go:355; 0.9.0 and 0.17.0, the same file:253",
         "Job, JobSet, Ray and other jobs"),
    _Row(Topic.COUNTS_POD, "0.18 and later", "builds its Workload from the translated pod, so it counts the claims",
         "kubernetes-sigs/kueue 0.19, its integration of pods, pkg/features/kube_features.go:634",
         "Pod, Deployment, StatefulSet, LeaderWorkerSet"),
    _Row(Topic.UNCOUNTED_CLAIMS, "0.14 to 0.17", "builds its Workload from the translated pod, and counts no claim of it "
         "unless its feature gate DynamicResourceAllocation is on (alpha, off)",
         "kubernetes-sigs/kueue 0.17.0, pkg/workload/workload.go:595, pkg/features/kube_features.go:457",
         "Pod, Deployment, StatefulSet, LeaderWorkerSet"),
    _Row(Topic.UNKNOWN_CLAIMS, "0.13 and earlier", "builds its Workload from the translated pod, and counts no claim of it",
         "kubernetes-sigs/kueue 0.9.0, pkg/controller/jobs/pod/pod_controller.go:369; 0.14.0, pkg/features/kube_features.go:306 "
         "(the gate of claims, from 0.14 on)",
         "Pod, Deployment, StatefulSet, LeaderWorkerSet"),
    _Row(Topic.UNMAPPED_CLASS, "0.18 and later", "never admits claims of a class that deviceClassMappings lacks",
         "kubernetes-sigs/kueue 0.18, pkg/dra/claims.go", "Pod, Deployment, StatefulSet, LeaderWorkerSet"),
    _Row(Topic.NOT_ADMITTED, "0.18 and later", "never admits claims with firstAvailable, with allocationMode All, or "
         "that a pod names (resourceClaimName)", "kubernetes-sigs/kueue 0.19, pkg/dra/claims.go"),
    _Row(Topic.SHARES, "0.19", "counts a share of a device as one whole device, unless the mapping has sources with "
         "capacity; these need the feature gate KueueDRAIntegrationConsumableCapacity (alpha, off)",
         "kubernetes-sigs/kueue 0.19, apis/config/v1beta2, pkg/dra/capacity.go"),
    _Row(Topic.EXTENDED_RESOURCES, "0.19 and later", "never admits pods that request the extended resource of a class with "
         "sources", "kubernetes-sigs/kueue 0.19, pkg/dra/extended_resources.go:128, pkg/features/kube_features.go:637 (on from "
         "0.19)"),
    _Row(Topic.FEATURES, "0.19", "knows no topology-aware scheduling for claims",
         "kubernetes-sigs/kueue issue 10548", "", Evidence.THREAD),
)  # fmt: skip
_KAI: Final = (
    _Row(Topic.SEES_CLAIMS, "0.13 and later", "allocates claims, and counts those for GPUs in its queues; no shared ones, and none with "
         "firstAvailable",
         "kai-scheduler/KAI-Scheduler CHANGELOG.md, v0.13.0 (2026-03-02), pull request 900", "", Evidence.DOCUMENT),
    _Row(Topic.FEATURES, "0.14 to 0.17", "allocates claims without any optional feature of the allocator: none with firstAvailable, and no share "
         "of a device",
         "kai-scheduler/KAI-Scheduler v0.14.0, v0.16.8 and v0.17.0, pkg/scheduler/plugins/dynamicresources/dynamicresources.go "
         "(structured.Features{})"),
    _Row(Topic.EXTENDED_RESOURCES, "0.16 and earlier", "gives a pod with an extended resource that a DeviceClass maps no device of a DRA "
         "driver, so it needs a node with a device plugin",
         "kai-scheduler/KAI-Scheduler v0.13.0 and v0.16.8, pkg/scheduler/api/node_info/node_info.go:304,314; CHANGELOG.md, v0.17.0 "
         "(2026-08-03)"),
    _Row(Topic.EXTENDED_RESOURCES, "0.17 and later", "makes the claim of an extended resource that a DeviceClass maps itself, for whole "
         "GPUs; not for shares and MIG devices",
         "kai-scheduler/KAI-Scheduler v0.17.0, design dra-extended-resources, pull request 1943",
         "", Evidence.DOCUMENT),
)  # fmt: skip
_VOLCANO: Final = (
    _Row(Topic.SEES_CLAIMS, "1.15 and later", "allocates claims, unless predicate.DynamicResourceAllocationEnable is false among the "
         "arguments of its plugin predicates", "volcano-sh/volcano release note of v1.15.0 (2026-06-01)", "", Evidence.DOCUMENT),
    _Row(Topic.SEES_CLAIMS, "1.14 and earlier", "allocates no claim by default; a release with the argument "
         "predicate.DynamicResourceAllocationEnable of its plugin predicates does once that is true",
         "volcano-sh/volcano pkg/scheduler/plugins/predicates/predicates.go, enablePredicate (commit 03972517); release note of "
         "v1.15.0 (2026-06-01), which turned it on"),
    _Row(Topic.EXTENDED_RESOURCES, "1.15", "gives a pod with an extended resource only a node that offers it, whatever a DeviceClass maps, so "
         "it needs a node with a device plugin",
         "volcano-sh/volcano v1.15.1, pkg/scheduler/actions/allocate/allocate.go, predicate"),
)  # fmt: skip
_OTHERS: Final = (
    (Component.OPENCOST, _Row(Topic.COST, "released until 2026-09", "reads the series of requested nvidia.com/gpu, which "
     "translated pods do not have: GPU cost reads zero",
     "opencost/opencost pkg/costmodel/allocation.go:30 (2024-10), issue 3828")),
    (Component.GPU_OPERATOR, _Row(Topic.TWO_SYSTEMS, "26.7", "ClusterPolicy and GPUCluster exclude each other: while both are "
     "there, no node gets its labels; a migration in place is not supported",
     "NVIDIA/gpu-operator documents 26.7, v26.7.0 controllers/nodelabeling_controller.go")),
    (Component.GPU_OPERATOR, _Row(Topic.NATIVE, "26.7", "the DeviceClass of GPUCluster does not map nvidia.com/gpu",
     "NVIDIA/gpu-operator issue 2859", "", Evidence.THREAD)),
    (Component.NVIDIA_DRIVER, _Row(Topic.TWO_SYSTEMS, "released until 2026-08", "device plugin and DRA driver may run in "
     "one cluster on different nodes; on one node they give a GPU twice",
     "NVIDIA/aicr issue 2403, docs/migrate/gpu-operator.md", "", Evidence.THREAD)),
    (Component.NVIDIA_DRIVER, _Row(Topic.NATIVE, "released until 2026-08", "its chart sets extendedResourceName by "
     "default", "kubernetes-sigs/dra-driver-nvidia-gpu issues 737, 1086", "", Evidence.THREAD)),
    (Component.KUBERNETES, _Row(Topic.NATIVE, "1.37", "does not evict pods whose claim was made for an extended resource "
     "when a device has a NoExecute taint", "kubernetes/kubernetes issue 141290, e2e/test_adopt_native_taint.py", "", Evidence.STORY)),
)  # fmt: skip


def _statements() -> Iterator[Statement]:
    rows = (
        *((Component.CLUSTER_AUTOSCALER, row) for row in _CA),
        *((Component.KARPENTER, row) for row in _KARPENTER),
        *((Component.KUEUE, row) for row in _KUEUE),
        *((Component.KAI, row) for row in _KAI),
        *((Component.VOLCANO, row) for row in _VOLCANO),
        *_OTHERS,
    )
    for component, row in rows:
        yield Statement(component=component, **msgspec.structs.asdict(row))


STATEMENTS: Final[tuple[Statement, ...]] = tuple(_statements())
"""All of them, by component."""


NATIVE_COSTS: Final = tuple(
    statement
    for component, topic in (
        (Component.KUBERNETES, Topic.NATIVE),
        (Component.CLUSTER_AUTOSCALER, Topic.EXTENDED_RESOURCES),
        (Component.KARPENTER, Topic.EXTENDED_RESOURCES),
        (Component.KARPENTER, Topic.NATIVE),
        (Component.KUEUE, Topic.EXTENDED_RESOURCES),
    )
    for statement in STATEMENTS
    if (statement.component, statement.topic) == (component, topic)
)
"""The losses of pods that Kubernetes serves by a mapped resource name, beside pods with claims of
their own."""


def statements_about(component: Component, *topics: Topic) -> tuple[Statement, ...]:
    """Return the statements about a component; of these topics, or of all without one."""
    return tuple(
        statement
        for statement in STATEMENTS
        if statement.component is component and (not topics or statement.topic in topics)
    )


JOBS_OF_KUEUE: Final = frozenset(
    {
        "CronJob",
        "Job",
        "JobSet",
        "MPIJob",
        "PyTorchJob",
        "RayCluster",
        "RayJob",
        "TFJob",
        "XGBoostJob",
    }
)
"""Kinds of whose templates Kueue makes its Workload; of all others it reads pods."""


def counts_template(kind: str) -> bool:
    """Return True if Kueue counts the keys of the template of a kind, and not the claims of its pods."""
    return kind in JOBS_OF_KUEUE
