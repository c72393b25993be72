"""The evidence in the pods of a cluster that its API server adds tolerations for device keys."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from answers.model.findings import namespace_of
from answers.model.objects import InputObject
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject, ViewedObject
from kube.names import REQUEST_ANNOTATION
from translation.cluster.node_taints import shows_added_tolerations
from translation.record.record import RecordError, decode_record

_Owner = tuple[str, str, str]
"""Namespace, kind and name."""


def find_added_tolerations(objects: Iterable[InputObject], namespace: str) -> bool:
    """Return True if a pod has a toleration of a device key, and the template of its owner does not.

    Args:
        namespace: The namespace of objects that name none.
    """
    pods: list[tuple[_Owner, Pod]] = []
    documents: dict[_Owner, Mapping[str, Any]] = {}
    for object_ in objects:
        place = namespace_of(object_, namespace)
        if object_.kind == "Pod":
            pod = _pod_of(object_)
            # Most pods tolerate no device key.
            if pod is None or not _names_a_resource(pod):
                continue
            pods += (
                ((place, owner.kind, owner.name), pod)
                for owner in pod.metadata.owner_references or ()
                if owner.controller
            )
        elif isinstance(object_, SourceObject) and pod_path(object_.api_version, object_.kind):
            documents[place, object_.kind, object_.name] = object_.document
    return any(
        _shows(pod, documents[owner], kind=owner[1]) for owner, pod in pods if owner in documents
    )


def _shows(pod: Pod, document: Mapping[str, Any], *, kind: str) -> bool:
    path = pod_path(str(document.get("apiVersion")), kind) or ()
    template = _converted(resolve_path(document, path)[1])
    return template is not None and shows_added_tolerations(pod, template, _recorded_keys(pod))


def _names_a_resource(pod: Pod) -> bool:
    return any("/" in toleration.key for toleration in pod.spec.tolerations or ())


def _pod_of(object_: InputObject) -> Pod | None:
    if isinstance(object_, ViewedObject):
        return object_.value if isinstance(object_.value, Pod) else None
    return _converted(object_.document)


def _converted(document: Any) -> Pod | None:
    try:
        return convert(document, Pod)
    except msgspec.ValidationError:
        return None


def _recorded_keys(pod: Pod) -> frozenset[str]:
    text = pod.annotations.get(REQUEST_ANNOTATION)
    try:
        return frozenset() if text is None else decode_record(text).keys()
    except RecordError:
        return frozenset()
