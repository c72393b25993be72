"""Namespaces and workloads that are opted in already. Pure."""

from collections.abc import Iterable

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


def labelled_namespaces(objects: Iterable[SourceObject], value: str) -> frozenset[str]:
    """Return the namespaces with a value of the label that opts in."""
    return frozenset(
        source.name
        for source in objects
        if (source.api_version, source.kind) == ("v1", "Namespace")
        and mapping_at(source.document, "metadata", "labels").get(TRANSLATE_LABEL) == value
    )
