"""Pods that are tried as dry runs, made from the workloads of a wave, one for each namespace. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kube.api.core import Pod, ResourceQuota
from kube.api.workloads import pod_path, resolve_path
from kube.names import REQUEST_ANNOTATION, TRANSLATE_LABEL, TRANSLATE_SELECTED
from kube.quantity import ZERO, Quantity
from migration.cluster.evidence import list_at, mapping_at, text_map
from migration.plan.model.plan import PlannedWorkload, Wave
from migration.trial.model import TrialPod
from translation.vocabularies.kai import FRACTION, MEMORY_MIB

_NAME: Final = "drawbridge-trial-"
_OF_LIFE: Final = frozenset({"nodeName", "ephemeralContainers"})
"""The fields of a pod's spec that only a pod which runs has."""
_COUNTED: Final = ("cpu", "memory", "ephemeral-storage")


def trial_workloads(waves: Iterable[Wave]) -> dict[str, tuple[PlannedWorkload, ...]]:
    """Return namespace to the workloads with claims for new pods, in the order of their trials.

    Those whose pods ran when the plan was made come first, since pods that waited may be rejected for what they request,
    and those without a template last.
    """
    workloads: dict[str, list[PlannedWorkload]] = {}
    for wave in waves:
        for workload in wave.workloads:
            if workload.is_translated:
                namespace = workload.object.split("/", 2)[1]
                workloads.setdefault(namespace, []).append(workload)
    return {
        namespace: tuple(
            sorted(members, key=lambda entry: (entry.object.startswith("Pod/"), entry.has_waited))
        )
        for namespace, members in workloads.items()
    }


def make_trial_pod(
    workload: PlannedWorkload, document: Mapping[str, Any], opt_in: str
) -> TrialPod | str:
    """Return the pod that the controller of a workload creates next in a wave, or the reason for none.

    Args:
        workload: The workload.
        document: The object as the cluster has it.
        opt_in: The label of its namespace. Where that still selects pods by their own label, the pod has it: the wave may
            be the one that opts in the rest.
    """
    kind, namespace, _ = workload.object.split("/", 2)
    path = pod_path(str(document.get("apiVersion", "")), kind)
    _, template = resolve_path(document, path) if path is not None else ((), None)
    if not isinstance(template, Mapping):
        return f"nothing here knows the pod template of a {kind}"
    if kind == "Pod" and list_at(template, "spec", "resourceClaims"):
        return "it has claims already"
    labels = text_map(template, "metadata", "labels")
    if workload.labelled or opt_in == TRANSLATE_SELECTED:
        labels[TRANSLATE_LABEL] = "true"
    annotations = text_map(template, "metadata", "annotations")
    annotations.pop(REQUEST_ANNOTATION, None)
    spec = {
        field: value
        for field, value in mapping_at(template, "spec").items()
        if field not in _OF_LIFE
    }
    claimed = [*_claimed_volumes(document)]
    if claimed:
        spec["volumes"] = [*list_at(spec, "volumes"), *claimed]
    return TrialPod(
        workload=workload.object,
        has_waited=workload.has_waited,
        document={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": _NAME,
                "namespace": namespace,
                "labels": labels,
                "annotations": annotations,
            },
            "spec": spec,
        },
    )


def _claimed_volumes(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the volumes that the controller of StatefulSets adds to the template."""
    for claim in list_at(document, "spec", "volumeClaimTemplates"):
        name = mapping_at(claim, "metadata").get("name")
        if isinstance(name, str):
            yield {"name": name, "persistentVolumeClaim": {"claimName": f"{_NAME}{name}"}}


def is_translated(pod: Pod) -> bool:
    """Check that a pod has claims and the record of their translation."""
    has_record = REQUEST_ANNOTATION in (pod.metadata.annotations or {})
    return has_record and bool(pod.spec.resource_claims)


def has_share(pod: TrialPod) -> bool:
    """Return True if a trial pod requests a share of KAI."""
    annotations = text_map(pod.document, "metadata", "annotations")
    return not annotations.keys().isdisjoint((FRACTION, MEMORY_MIB))


def exhausted_line(quotas: Iterable[ResourceQuota], pod: Pod) -> str:
    """Return the ResourceQuota and the line that leave no room for one more pod; empty if all do.

    Device keys are left out, since a translated pod has none. Init containers are, too: that makes the
    result empty at worst, and then the answer of the API server counts.
    """
    needs = {"pods": Quantity(1), "count/pods": Quantity(1)}
    for name in _COUNTED:
        requests, limits = ZERO, ZERO
        for container in pod.spec.containers or ():
            limit = container.limits.get(name, ZERO)
            limits += limit
            requests += container.requests.get(name, limit)
        needs |= {name: requests, f"requests.{name}": requests, f"limits.{name}": limits}
    for quota in quotas:
        hard, used = quota.spec.hard or {}, quota.status.used or {}
        for line, need in needs.items():
            if line in hard and used.get(line, ZERO) + need > hard[line]:
                return f"{quota.metadata.namespace}/{quota.metadata.name}, {line}"
    return ""
