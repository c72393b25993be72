"""Objects of files, or of a cluster, each as a typed view with its namespace.

An object of `-f` replaces its namesake in the state of the cluster. A PodGroup keeps the status that it has there,
with the names of its claims, as the API server keeps it.
"""

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import msgspec

from allocator.declarations.pod_group import KIND, PodGroup
from allocator.model.feature_gates import Features
from answers.model.findings import ObjectFinding, namespace_of, reference
from answers.model.kinds import Kinds
from answers.model.views import decode_object, view_type
from kube.api.meta import ApiStruct, decode_document, encode
from kube.api.urls import POD_GROUPS
from kube.manifests.source import SourceObject, ViewedObject

T = TypeVar("T", bound=ApiStruct)

InputObject = SourceObject | ViewedObject
G = TypeVar("G", bound=InputObject)


class NamespacedObject(msgspec.Struct, frozen=True, kw_only=True):
    """A typed object and its namespace, empty for kinds without one."""

    namespace: str
    value: ApiStruct


def merge_objects(
    state: Iterable[InputObject], manifests: Iterable[InputObject], namespace: str
) -> list[InputObject]:
    """Return the objects of both, with the later one of namesakes; objects without a name all stay.

    Args:
        namespace: The namespace for objects that name none.
    """
    by_name: dict[tuple[str, ...], InputObject] = {}
    for number, object_ in enumerate((*state, *manifests)):
        # A version is a way to look at an object, so only the group counts.
        group = object_.api_version.rpartition("/")[0]
        key = (group, object_.kind, namespace_of(object_, namespace), object_.name)
        if object_.is_named:
            by_name[key] = _applied(object_, by_name.get(key))
        else:
            by_name[(str(number),)] = object_
    return list(by_name.values())


def _applied(object_: InputObject, before: InputObject | None) -> InputObject:
    """Return an object as it is once it is applied.

    Args:
        before: Its namesake; None for a new one.
    """
    if before is None or object_.kind != KIND or not isinstance(object_, SourceObject):
        return object_
    if object_.document.get("status"):
        return object_
    status: Any = None
    if isinstance(before, SourceObject):
        status = before.document.get("status")
    elif isinstance(before.value, PodGroup):
        status = decode_document(encode(before.value.status))
    return msgspec.structs.replace(object_, document={**object_.document, "status": status})


def decode_objects(
    objects: Iterable[InputObject],
    kinds: Kinds,
    namespace: str,
    *,
    reported_elsewhere: Collection[InputObject] = (),
) -> tuple[list[NamespacedObject], list[ObjectFinding]]:
    """Return the objects of these kinds, and a finding for each wrong value.

    Args:
        namespace: The namespace for objects that name none.
        reported_elsewhere: Objects whose wrong values the caller reports itself.
    """
    silent = {id(object_) for object_ in reported_elsewhere}
    views: list[NamespacedObject] = []
    faults: list[ObjectFinding] = []
    for document in objects:
        kind = view_type(document, kinds)
        if kind is None:
            continue
        value = (
            document.value if isinstance(document, ViewedObject) else decode_object(document, kind)
        )
        if not isinstance(value, list):
            views.append(NamespacedObject(namespace=namespace_of(document, namespace), value=value))
        elif id(document) not in silent:
            name = reference(document, namespace)
            faults += [ObjectFinding(object=name, finding=finding) for finding in value]
    return views, faults


def of_kind(objects: Iterable[NamespacedObject], kind: type[T]) -> list[tuple[str, T]]:
    """Return the objects of one kind, each with its namespace, in order."""
    return [(entry.namespace, entry.value) for entry in objects if isinstance(entry.value, kind)]


def as_stored(objects: Iterable[G], features: Features) -> tuple[G, ...]:
    """Return objects without the claims of PodGroups, if the gate for these is off.

    Then every pod gets a claim of its own. A PodGroup that was stored while the gate was on keeps them, and its pods
    get no claim at all; here none was.

    Source: k8s.io/kubernetes v1.37.1, pkg/registry/scheduling/podgroup/strategy.go,
    dropDisabledDRAWorkloadResourceClaimsFields; pkg/controller/resourceclaim, handleClaim.
    """
    if features.group_claims:
        return tuple(objects)
    return tuple(
        _without_claims(object_)
        if object_.kind == KIND and object_.api_version.startswith(f"{POD_GROUPS.group}/")
        else object_
        for object_ in objects
    )


def _without_claims(group: G) -> G:
    if isinstance(group, ViewedObject):
        view = group.value
        if not isinstance(view, PodGroup):
            return group
        spec_without = msgspec.structs.replace(view.spec, resource_claims=None)
        return msgspec.structs.replace(
            group, value=msgspec.structs.replace(view, spec=spec_without)
        )
    spec = group.document.get("spec")
    if not isinstance(spec, dict):
        return group
    rest = {name: value for name, value in spec.items() if name != "resourceClaims"}
    return msgspec.structs.replace(group, document={**group.document, "spec": rest})
