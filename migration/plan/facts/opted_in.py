"""Namespaces and workloads that are opted in already. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.names import REQUEST_ANNOTATION, TRANSLATE_LABEL, TRANSLATE_SELECTED
from migration.assessment.chart_names import requested_keys
from migration.assessment.outcomes import AssessedWorkload
from migration.cluster.evidence import mapping_at
from migration.cluster.stopped import next_pods
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import has_claims
from translation.model.intents import Vocabulary
from translation.reading.arbiter import OTHER_VENDORS


def selected_workloads(
    groups: Iterable[Workload], objects: Iterable[SourceObject]
) -> frozenset[str]:
    """Return the workloads that have claims in namespaces that move in parts, as `Kind/namespace/name`."""
    selective = labelled_namespaces(objects, TRANSLATE_SELECTED)
    return frozenset(
        group.key.reference
        for group in groups
        if group.key.namespace in selective
        and group.owner is not None
        and _template_labels(group.owner).get(TRANSLATE_LABEL) == "true"
    )


def keeping_workloads(
    workloads: Iterable[AssessedWorkload],
    mapped: Collection[str],
    objects: Iterable[SourceObject],
    vocabularies: Mapping[str, Vocabulary],
) -> frozenset[str]:
    """Return the native workloads with lasting keys, as `Kind/namespace/name`.

    No class maps these, so their namespace is not opted in as a whole.

    Args:
        workloads: The cluster's workloads, without those of namespaces that are opted in today.
        mapped: The resource names that classes map once the plan is prepared.
        objects: The objects of the cluster.
        vocabularies: The vocabularies in force, by name.
    """
    classes = {source.name for source in objects if source.kind == "DeviceClass"}
    return frozenset(
        workload.key.reference
        for workload in workloads
        if (names := unmapped_names(workload, mapped))
        and not is_left_to_plugin(workload, names, classes, vocabularies)
    )


def unmapped_names(workload: AssessedWorkload, mapped: Collection[str]) -> dict[str, str]:
    """Return resource name to class of those names of a native workload that no class maps."""
    return {key: name for key, name in workload.unmapped.items() if key not in mapped}


def is_left_to_plugin(
    workload: AssessedWorkload,
    names: Mapping[str, str],
    classes: Collection[str],
    vocabularies: Mapping[str, Vocabulary],
) -> bool:
    """Return True if a workload keeps the device plugin of another vendor than NVIDIA.

    The class of its devices is not there, and its amounts are not 0. Its namespace is opted in as a whole for all that.

    Args:
        workload: The workload.
        names: Its resource names without a class that maps them, to that class.
        classes: The DeviceClasses of the cluster.
        vocabularies: The vocabularies in force, by name.
    """
    vendors = [vocabularies[name] for name in OTHER_VENDORS if name in vocabularies]
    return any(
        names[key] not in classes and any(vendor.handles(key) for vendor in vendors)
        for key in names.keys() & requested_keys(workload)
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


def opted_in_workloads(groups: Iterable[Workload], namespace: str) -> list[str]:
    """Return the workloads of a namespace with the label on their pods that opts in, as `Kind/namespace/name`."""
    return [
        group.key.reference
        for group in groups
        if group.key.namespace == namespace
        and any(
            mapping_at(pod, "metadata", "labels").get(TRANSLATE_LABEL) == "true"
            for pod in _new_pods(group)
        )
    ]


def namespaces_with_claims(
    groups: Iterable[Workload], with_keys: Collection[str]
) -> frozenset[str]:
    """Return the namespaces with pods that have claims by their label, rather than claims of their own.

    Args:
        groups: All workloads. One without a template that is read has no device keys once its pods have claims.
        with_keys: Those with device keys, as `Kind/namespace/name`.
    """
    return frozenset(
        group.key.namespace
        for group in groups
        for pod in group.pods
        if has_claims(pod)
        and (
            group.key.reference in with_keys
            or REQUEST_ANNOTATION in mapping_at(pod.document, "metadata", "annotations")
        )
    )


def _template_labels(owner: SourceObject) -> Mapping[str, Any]:
    """Return the labels of a workload's pod template; other kinds than those of Kubernetes may have one at its usual path."""
    path = pod_path(owner.api_version, owner.kind) or ("spec", "template")
    return mapping_at(owner.document, *path, "metadata", "labels")


def _new_pods(group: Workload) -> Iterator[object]:
    """Yield the pod template of a workload, or its pods if none is read, or those of its templates if it has none."""
    owner = group.owner
    path = pod_path(owner.api_version, owner.kind) if owner is not None else None
    if owner is not None and path is not None:
        yield resolve_path(owner.document, path)[1]
    elif group.custom is not None and not group.pods:
        yield from (entry.pod.document for entry in next_pods(group.custom, group.key.namespace))
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
