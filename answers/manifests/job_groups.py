"""The PodGroup that Kubernetes makes for a Job with a gang in `spec.scheduling`. Pure.

Source: k8s.io/kubernetes v1.37.1, pkg/controller/job/job_scheduling_manager.go, getManagementMode and
generateWorkload; pkg/api/job/util.go, defaultMinCountForJob. The gates are GenericWorkload and WorkloadWithJob.
Not modelled: claims of the PodGroup, and Jobs whose controller owns the Workload.
"""

from collections.abc import Mapping
from typing import Any, Final

from allocator.declarations.pod_group import KIND
from kube.api.urls import POD_GROUPS
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject

_JOB: Final = ("batch/v1", "Job")


def job_group_name(source: SourceObject, document: Mapping[str, Any]) -> str | None:
    """Return the name of the PodGroup of a Job's pods; None for a Job without, and for other kinds.

    The real one has hashes of the Job's UID.
    """
    return f"{source.name}-gang" if _scheduling(source, document) is not None else None


def job_group(
    source: SourceObject, document: Mapping[str, Any], namespace: str, existing: int
) -> SourceObject | None:
    """Return the PodGroup of a Job's pods; None for a Job without, and for other kinds.

    Args:
        source: The Job of the manifests, which the PodGroup has file and line of.
        document: It after its translation.
        namespace: The Job's namespace.
        existing: The pods that it has already, which are in its real PodGroup.
    """
    scheduling = _scheduling(source, document)
    if scheduling is None:
        return None
    minimum = scheduling["schedulingPolicy"]["gang"].get("minCount")
    if minimum is None:
        # Unlike the number of its pods, it is not bounded by completions.
        parallelism = document["spec"].get("parallelism")
        minimum = max(1, parallelism) if isinstance(parallelism, int) else 1
    if type(minimum) is int and minimum > 0:
        minimum = max(1, minimum - existing)
    _, pod_spec = resolve_path(document, (*(pod_path(*_JOB) or ()), "spec"))
    spec = {
        # As the Job's controller writes it.
        "priorityClassName": pod_spec.get("priorityClassName")
        if isinstance(pod_spec, Mapping)
        else None,
        "schedulingPolicy": {"gang": {"minCount": minimum}},
        "schedulingConstraints": scheduling.get("schedulingConstraints"),
    }
    group = {
        "apiVersion": f"{POD_GROUPS.group}/{POD_GROUPS.version}",
        "kind": KIND,
        "metadata": {
            "name": job_group_name(source, document),
            "namespace": namespace,
            "ownerReferences": [
                {"apiVersion": _JOB[0], "kind": _JOB[1], "name": source.name, "controller": True}
            ],
        },
        "spec": {name: value for name, value in spec.items() if value is not None},
    }
    return SourceObject(document=group, source=source.source, line=source.line)


def _scheduling(source: SourceObject, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the `spec.scheduling` of a Job that Kubernetes makes a gang of."""
    if (source.api_version, source.kind) != _JOB:
        return None
    _, template = resolve_path(document, pod_path(*_JOB) or ())
    if not isinstance(template, Mapping):
        return None
    pod_spec = template.get("spec")
    if isinstance(pod_spec, Mapping) and pod_spec.get("schedulingGroup") is not None:
        return None
    if _has_controller(document.get("metadata")):
        return None
    scheduling = document["spec"].get("scheduling")
    policy = scheduling.get("schedulingPolicy") if isinstance(scheduling, Mapping) else None
    gang = policy.get("gang") if isinstance(policy, Mapping) else None
    return scheduling if isinstance(gang, Mapping) else None


def _has_controller(metadata: object) -> bool:
    owners = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    return any(
        isinstance(owner, Mapping) and owner.get("controller") is True
        for owner in (owners if isinstance(owners, list) else ())
    )
