"""The objects of manifests as rules validate them. Pure."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from allocator.declarations.pod_group import PodGroup
from answers.manifests.translate import TEMPLATE_KIND, TranslatedObject
from answers.model.findings import namespace_of
from answers.model.kinds import STATE_KINDS
from answers.model.views import decode_view, original_paths, view_type
from findings.field_path import FieldPath
from findings.finding import Finding
from kube.api.conversion import to_current_version
from kube.api.core import Pod, PodSpec
from kube.api.meta import ObjectHead
from kube.api.urls import POD_GROUPS
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from rules.engine.engine import MAX_FINDINGS, VIEWS, Target
from rules.objects.fields import find_fields_of_undecodable
from translation.reading.custom_workloads import Path, with_scheduler, workload_kind
from translation.reading.workload_kinds import WorkloadKind


def object_target(
    source: SourceObject, document: Mapping[str, Any], namespace: str
) -> Target | None:
    """Return an object for validation; None for other kinds, and if a value has the wrong type.

    Args:
        document: The object after its translation.
    """
    head = decode_view(document, ObjectHead)
    if isinstance(head, list):
        return None
    kind = (source.api_version, source.kind)
    path = pod_path(*kind)
    if path is not None:
        _, raw = resolve_path(document, path)
        pod = decode_view(raw, Pod) if raw is not None else None
        if not isinstance(pod, Pod):
            return None
        return Target(
            view=pod,
            raw=raw,
            path=FieldPath.of(*path),
            metadata=head.metadata,
            namespace=namespace,
        )
    if STATE_KINDS.get(kind) is PodGroup and kind[0].startswith(f"{POD_GROUPS.group}/"):
        group = decode_view(document, PodGroup)
        return _claims_target(group, document, namespace) if isinstance(group, PodGroup) else None
    current_document = to_current_version(document)
    value = decode_view(current_document, view_type(source, VIEWS) or ObjectHead)
    if isinstance(value, list):
        return None
    # A rule warns about the version of the manifest.
    raw = {**current_document, "apiVersion": source.api_version}
    return Target(view=value, raw=raw, metadata=head.metadata, namespace=namespace)


def _claims_target(group: PodGroup, document: Mapping[str, Any], namespace: str) -> Target | None:
    """Return the claims of a PodGroup of Kubernetes as those of a pod without containers; None without any."""
    if not group.spec.resource_claims:
        return None
    spec = {"resourceClaims": document["spec"]["resourceClaims"]}
    return Target(
        view=Pod(spec=PodSpec(resource_claims=group.spec.resource_claims)),
        raw={"spec": spec},
        metadata=group.metadata,
        namespace=namespace,
    )


def fields_of_undecodable(source: SourceObject) -> Iterator[Finding]:
    """Yield the fields that an object with values of the wrong type has, and its kind has not."""
    kind = view_type(source, VIEWS)
    if kind is not None:
        findings = find_fields_of_undecodable(kind, to_current_version(source.document))
        yield from original_paths(islice(findings, MAX_FINDINGS), source)


def pod_targets(result: TranslatedObject, namespace: str) -> Iterator[Target]:
    """Yield the pod, the pod template or the embedded pods of an object after its translation.

    Args:
        namespace: The namespace for objects that name none.
    """
    source = result.source
    document = result.document or source.document
    place = namespace_of(source, namespace)
    kind = workload_kind(source.api_version, source.kind)
    if kind is not None:
        paths = [path for path, _ in result.pods if kind.has_claims]
        targets = [pod_target(document, kind, path, place) for path in paths]
        yield from filter(None, targets)
    elif pod_path(source.api_version, source.kind) is not None:
        target = object_target(source, document, place)
        if target is not None:
            yield target


def template_target(document: Mapping[str, Any], pod: Target) -> Target:
    """Return a template of the translation for validation, with the owner of its pod."""
    value = decode_view(document, VIEWS[TEMPLATE_KIND])
    if isinstance(value, list):
        raise TypeError(f"a translation made no {TEMPLATE_KIND[1]}: {value[0].message}")
    return Target(view=value, raw=document, metadata=pod.metadata, namespace=pod.namespace)


def pod_target(
    document: Mapping[str, Any], kind: WorkloadKind, path: Path, namespace: str
) -> Target | None:
    """Return one pod of a workload of another project; None if a value has the wrong type.

    Its view has the scheduler that the pod gets from the workload.
    """
    head = decode_view(document, ObjectHead)
    raw: Any = document
    for step in path:
        raw = raw[step]
    pod = decode_view(with_scheduler(kind, document, raw), Pod)
    if isinstance(head, list) or not isinstance(pod, Pod):
        return None
    field = FieldPath.of(*path)
    return Target(view=pod, raw=raw, path=field, metadata=head.metadata, namespace=namespace)
