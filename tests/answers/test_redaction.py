"""Annotations and fields of pods in a snapshot."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from answers.model.redaction import redact
from answers.model.snapshot_kinds import KINDS
from kube.api.foreign_quotas import NAMESPACES
from kube.api.network_attachments import RESOURCE_NAME
from kube.names import (
    EXPORTER_CLAIMS,
    REQUEST_ANNOTATION,
    SIGNATURE_ANNOTATION,
    STRATEGY_ANNOTATION,
)
from migration.assessment.assumed import ASSUMED
from migration.plan.facts.given_cards import HAMI_CARDS
from migration.plan.facts.work import SAFE_TO_EVICT
from migration.plan.neighbours.node_autoscalers import DO_NOT_DISRUPT, SCALE_DOWN_DISABLED
from testing.custom_workloads import workload_of
from translation.reading.custom_workloads import embedded_pods, value_at
from translation.reading.legacy_pod import READ_ANNOTATIONS
from translation.reading.workload_kinds import WORKLOAD_KIND, WORKLOAD_KINDS, Shape, WorkloadKind
from translation.vocabularies.hami.keys import NODE_REGISTER
from translation.vocabularies.koordinator.keys import ALLOCATED

SECRET: Final = "hunter2"
MANIFEST: Final = json.dumps({"kind": "Deployment", "spec": {"env": SECRET}})
WITH_SECRETS: Final = {
    "kubectl.kubernetes.io/last-applied-configuration": MANIFEST,
    "kapp.k14s.io/original": MANIFEST,
    "workflows.argoproj.io/template": MANIFEST,
    "kopf.zalando.org/last-handled-configuration": MANIFEST,
    "objectset.rio.cattle.io/applied": SECRET,
    "example.com/note": SECRET,
    "note": SECRET,
}
CHOICE: Final = {"hami.io/gpu-scheduler-policy": "binpack"}
ANNOTATIONS: Final = {**WITH_SECRETS, **CHOICE, "nvidia.com/use-gputype": [SECRET]}
POD: Final = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}


METADATA: Final = {"name": "a", "annotations": ANNOTATIONS}
TEMPLATE: Final = {"metadata": METADATA, "spec": POD}
SPECS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{
        kind: {"template": TEMPLATE}
        for kind in ("Deployment", "ReplicaSet", "DaemonSet", "Job", "ReplicationController")
    },
    "StatefulSet": {"template": TEMPLATE, "volumeClaimTemplates": [{"metadata": METADATA}]},
    "CronJob": {"jobTemplate": {"metadata": METADATA, "spec": {"template": TEMPLATE}}},
    "ResourceClaimTemplate": {"metadata": METADATA, "spec": {}},
    "Pod": POD,
}


def annotations_in(value: Any) -> list[Any]:
    """Return all annotations in a document."""
    if isinstance(value, list):
        return [found for child in value for found in annotations_in(child)]
    if not isinstance(value, Mapping):
        return []
    below = [found for child in value.values() for found in annotations_in(child)]
    return [value["annotations"], *below] if "annotations" in value else below


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_keeps_only_annotations_that_are_read(kind: str) -> None:
    resource, name = KINDS[kind], kind.partition(".")[0]
    api_version = f"{resource.group}/{resource.version}".lstrip("/")
    head = {"apiVersion": api_version, "kind": name, "metadata": METADATA}
    document = {**head, "spec": SPECS.get(name, {})}

    kept = redact(document)

    assert [CHOICE] * len(annotations_in(document)) == annotations_in(kept)


@pytest.mark.parametrize("kind", WORKLOAD_KINDS, ids=lambda kind: kind.kind)
def test_an_object_of_another_project_keeps_only_annotations_that_are_read(
    kind: WorkloadKind,
) -> None:
    document = {**workload_of(kind, POD), "metadata": METADATA}
    for embedded in embedded_pods(kind, document):
        pod = value_at(document, embedded.path)
        if kind.shape in {Shape.TEMPLATE, Shape.STEP}:
            pod["metadata"] = METADATA
        elif kind.shape is Shape.POD_SPEC:
            pod["annotations"] = ANNOTATIONS

    kept = redact(document)

    assert [CHOICE] * len(annotations_in(document)) == annotations_in(kept)


def test_annotations_that_commands_read_are_kept() -> None:
    """The commands know these names in places that the redaction does not see."""
    read = {
        *READ_ANNOTATIONS,
        *(REQUEST_ANNOTATION, SIGNATURE_ANNOTATION, STRATEGY_ANNOTATION, ASSUMED),
        *(HAMI_CARDS, ALLOCATED, NODE_REGISTER, RESOURCE_NAME, NAMESPACES),
        *(SAFE_TO_EVICT, DO_NOT_DISRUPT, SCALE_DOWN_DISABLED),
        *("argocd.argoproj.io/tracking-id", "rollout.argoproj.io/revision"),
        *("meta.helm.sh/release-name", "meta.helm.sh/release-namespace"),
        *("kueue.x-k8s.io/pod-group-total-count", "v1.multus-cni.io/default-network"),
        # Of a device system, but of no key that is read: a finding names it.
        *("nvidia.com/use-gputyp", "cdi.k8s.io/vfio"),
    }
    notes = dict.fromkeys(read, "x")

    kept = redact({"apiVersion": "v1", "kind": "Node", "metadata": {"annotations": notes}})

    assert notes == kept["metadata"]["annotations"]


def test_fields_of_the_next_pods_keep_what_their_types_have() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "later"}}}
    required, preferred = (
        f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred")
    )
    requirement = {"key": "gpu", "operator": "In", "values": ["a"]}
    typed = {
        "affinity": {
            "nodeAffinity": {
                required: {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
            },
            "podAffinity": {required: [term]},
            "podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": term}]},
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "overhead": {"cpu": "1"},
        "schedulingGroup": {"podGroupName": "later"},
        "volumes": [
            {"name": "a", "emptyDir": {"medium": "Memory"}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "later"}},
        ],
    }
    plain = {"nodeSelector": {"disk": "fast"}, "schedulerName": "other", "priority": 7}
    wrong = {"nodeSelector": {"disk": [SECRET]}, "schedulerName": [SECRET], "priority": SECRET}

    def kept(own: Mapping[str, Any]) -> Mapping[str, Any]:
        document = workload_of(WORKLOAD_KIND["kubeflow.org/v1", "PyTorchJob"], {**POD, **own})
        spec = redact(document)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
        return {field: value for field, value in spec.items() if field != "containers"}

    assert {**typed, **plain} == kept({**typed, **plain})
    assert typed == kept({**with_more(typed), **wrong})


def test_containers_and_volumes_of_every_pod_keep_the_same() -> None:
    """Those of Kubernetes kept all of a security context, and those of other projects no variable of an exporter."""
    own = {
        "containers": [
            {
                "name": "c",
                "securityContext": {"privileged": True, "seLinuxOptions": {"user": SECRET}},
                "env": [{"name": EXPORTER_CLAIMS, "value": "true"}, {"name": "a", "value": SECRET}],
                "args": [SECRET],
            }
        ],
        "volumes": [
            {"name": "a", "emptyDir": {"medium": "Memory"}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
            {"name": "c", "hostPath": {"path": "/var/lib/kubelet/plugins_registry", "type": ""}},
            {"name": "d", "hostPath": {"path": f"/{SECRET}"}},
        ],
    }
    want = {
        "containers": [
            {
                "name": "c",
                "securityContext": {"privileged": True},
                "env": [{"name": EXPORTER_CLAIMS, "value": "true"}],
            }
        ],
        "volumes": [
            {"name": "a", "emptyDir": {"medium": "Memory"}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "c", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}},
            {"name": "d"},
        ],
    }
    other = workload_of(WORKLOAD_KIND["kubeflow.org/v1", "PyTorchJob"], own)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": own}

    kept = redact(other)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]

    assert want == kept == redact(pod)["spec"]


def test_the_directory_of_device_plugins_stays() -> None:
    """By it a plan takes a DaemonSet for a device plugin."""
    path = "/var/lib/kubelet/device-plugins"
    spec = {"containers": [], "volumes": [{"name": "a", "hostPath": {"path": path, "type": ""}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}

    assert [{"name": "a", "hostPath": {"path": path}}] == redact(pod)["spec"]["volumes"]


def with_more(value: Any) -> Any:
    """Return a document with a secret in each object but those of labels and amounts."""
    if isinstance(value, list):
        return [*map(with_more, value)]
    if not isinstance(value, Mapping):
        return value
    free = {"matchLabels", "overhead"}
    inner = {key: child if key in free else with_more(child) for key, child in value.items()}
    return {**inner, "token": SECRET, "more": {"token": SECRET}}
