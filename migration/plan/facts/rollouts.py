"""The way to new pods of a workload: the rollout of its controller, or their deletion. Pure.

Sources: k8s.io/kubernetes v1.37.1, pkg/controller/statefulset (OnDelete; pods below a partition keep their
revision), pkg/controller/daemon (OnDelete), pkg/controller/deployment (a paused one has no rollout, and
`kubectl rollout restart` refuses it); ReplicaSets and ReplicationControllers have none.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from migration.cluster.evidence import list_at, mapping_at
from migration.cluster.owners import controller
from migration.cluster.workloads import Workload

_DIVISIBLE: Final = frozenset({"Deployment", "StatefulSet"})
_WITHOUT_ROLLOUT: Final = frozenset({"ReplicaSet", "ReplicationController"})
_COUNTS: Final = {
    "Deployment": ("spec.replicas", "status.updatedReplicas"),
    "StatefulSet": ("status.updateRevision", "status.currentRevision"),
    "DaemonSet": ("status.desiredNumberScheduled", "status.updatedNumberScheduled"),
}
"""Kind to two fields that are equal where no rollout is under way."""
_SETS: Final = {"In": "in", "NotIn": "notin"}


def replaces_pods(workload: Workload) -> bool:
    """Return True if the controller of a workload replaces its pods when their template changes."""
    if workload.key.kind in _WITHOUT_ROLLOUT:
        return False
    if workload.owner is None:
        return True
    strategy = mapping_at(workload.owner.document, "spec", "updateStrategy")
    return strategy.get("type") != "OnDelete" and not _keeps_template(workload.owner.document)


def divisible_workloads(workloads: Iterable[Workload]) -> frozenset[str]:
    """Return the workloads that get claims by a label of their pod template, as `Kind/namespace/name`.

    A Job's template cannot change, a DaemonSet has pods on all nodes at once, and new pods of a paused
    Deployment, or below a partition, keep the former template. That of a stopped Notebook is its controller's.
    """
    return frozenset(
        workload.key.reference
        for workload in workloads
        if workload.key.kind in _DIVISIBLE
        and not (workload.owner and _keeps_template(workload.owner.document))
        and not is_started_by_others(workload)
    )


def is_started_by_others(workload: Workload) -> bool:
    """Return True if a controller of another project starts its pods, as those of a stopped Notebook; no script changes it."""
    if workload.pods:
        return False
    owner = workload.owner
    return workload.custom is not None or (owner is not None and controller(owner) is not None)


def starts_on_schedule(workload: Workload) -> bool:
    """Return True if a workload of another project is Argo's CronWorkflow, has no run, and is not suspended."""
    return (
        workload.custom is not None
        and workload.key.kind == "CronWorkflow"
        and not workload.pods
        and not workload.is_suspended
    )


def starts_with_requests(workload: Workload) -> bool:
    """Return True if Knative has scaled a workload to no pods, and starts some with the next request.

    Source: knative/serving, pkg/apis/serving/register.go: the Deployment of a Revision, its Service, its Configuration.
    """
    if not is_started_by_others(workload):
        return False
    if workload.custom is not None:
        return workload.custom.api_version.startswith("serving.knative.dev/")
    owner = controller(workload.owner) if workload.owner is not None else None
    return owner is not None and owner[0] == "Revision"


def has_rolled_out(workload: Workload) -> bool:
    """Return True if no rollout of a workload is under way, as far as its controller has said.

    Source: `kubectl rollout status`, k8s.io/kubectl v0.37.1, pkg/polymorphichelpers.
    """
    document = workload.owner.document if workload.owner is not None else {}
    if workload.key.kind not in _COUNTS:
        return True
    expected_value, own_value = (
        mapping_at(document, part).get(field)
        for part, _, field in (path.partition(".") for path in _COUNTS[workload.key.kind])
    )
    return _is_observed(document) and expected_value is not None and expected_value == own_value


def has_given_up(workload: Workload) -> bool:
    """Return True if a Deployment says that its rollout gets no further, as after `progressDeadlineSeconds`.

    Source: k8s.io/kubernetes v1.37.1, pkg/controller/deployment/util (TimedOutReason).
    """
    document = workload.owner.document if workload.owner is not None else {}
    conditions = map(mapping_at, list_at(document, "status", "conditions"))
    return _is_observed(document) and any(
        (entry.get("type"), entry.get("status"), entry.get("reason"))
        == ("Progressing", "False", "ProgressDeadlineExceeded")
        for entry in conditions
    )


def _is_observed(document: Mapping[str, Any]) -> bool:
    """Return True if the status of an object is about its present template."""
    observed = mapping_at(document, "status").get("observedGeneration")
    return observed is not None and observed == mapping_at(document, "metadata").get("generation")


def _keeps_template(document: Mapping[str, Any]) -> bool:
    """Return True if new pods of a workload may have its former template."""
    spec = mapping_at(document, "spec")
    partition = mapping_at(spec, "updateStrategy", "rollingUpdate").get("partition")
    return bool(partition) or spec.get("paused") is True


def pod_selector(workload: Workload) -> str:
    """Return the selector of a workload's pods as kubectl takes it; empty without one that can be read."""
    document = workload.owner.document if workload.owner is not None else {}
    selector = mapping_at(document, "spec", "selector")
    labels = (
        selector if workload.key.kind == "ReplicationController" else selector.get("matchLabels")
    )
    terms = [f"{key}={value}" for key, value in sorted(mapping_at(labels).items())]
    for entry in list_at(selector, "matchExpressions"):
        term = next(_expression(mapping_at(entry)), "")
        if not term:
            return ""
        terms.append(term)
    return ",".join(terms)


def _expression(requirement: Mapping[str, Any]) -> Iterator[str]:
    """Yield a requirement as kubectl takes it; nothing for an operator that is not known."""
    key, operator = requirement.get("key"), requirement.get("operator")
    if operator in _SETS:
        values = ",".join(map(str, list_at(requirement, "values")))
        yield f"{key} {_SETS[operator]} ({values})"
    elif operator in {"Exists", "DoesNotExist"}:
        yield f"{key}" if operator == "Exists" else f"!{key}"
