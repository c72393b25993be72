"""Namespaces and workloads that are opted in already. Pure."""

from collections.abc import Iterable, Iterator

from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.names import TRANSLATE_LABEL, TRANSLATE_SELECTED
from migration.assessment.evidence import mapping_at
from migration.assessment.workloads import Workload


def selected_workloads(
    groups: Iterable[Workload], objects: Iterable[SourceObject]
) -> frozenset[str]:
    """Return the workloads that have claims in namespaces that move in parts, as `Kind/namespace/name`."""
    selective = labelled_namespaces(objects, TRANSLATE_SELECTED)
    labels = ("spec", "template", "metadata", "labels")
    return frozenset(
        group.key.reference
        for group in groups
        if group.key.namespace in selective
        and group.owner is not None
        and mapping_at(group.owner.document, *labels).get(TRANSLATE_LABEL) == "true"
    )


def opted_out_workloads(groups: Iterable[Workload]) -> frozenset[str]:
    """Return the workloads with a label on their pods that opts out, as `Kind/namespace/name`."""
    return frozenset(
        group.key.reference
        for group in groups
        if (pods := list(_new_pods(group)))
        and all(
            mapping_at(pod, "metadata", "labels").get(TRANSLATE_LABEL) == "false" for pod in pods
        )
    )


def _new_pods(group: Workload) -> Iterator[object]:
    """Yield the pod template of a workload, or its pods if none is read."""
    owner = group.owner
    path = pod_path(owner.api_version, owner.kind) if owner is not None else None
    if owner is not None and path is not None:
        yield resolve_path(owner.document, path)[1]
    else:
        yield from (pod.document for pod in group.pods)


def labelled_namespaces(objects: Iterable[SourceObject], value: str) -> frozenset[str]:
    """Return the namespaces with a value of the label that opts in."""
    return frozenset(
        source.name
        for source in objects
        if (source.api_version, source.kind) == ("v1", "Namespace")
        and mapping_at(source.document, "metadata", "labels").get(TRANSLATE_LABEL) == value
    )
