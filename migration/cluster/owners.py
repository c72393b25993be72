"""The chains of controllers of a cluster's objects."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kube.api.workloads import pod_path
from kube.manifests.source import SourceObject
from translation.reading.custom_workloads import workload_kind

_MAX_OWNERS: Final = 16
"""The longest chain of owners that is followed; the objects of a file may own each other."""


class OwnerKey(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A workload by name; an owner that is not among the objects has one as well."""

    kind: str
    namespace: str
    name: str

    @property
    def reference(self) -> str:
        """`Kind/namespace/name`."""
        return f"{self.kind}/{self.namespace}/{self.name}"


def owners_by_key(objects: Iterable[SourceObject], namespace: str) -> dict[OwnerKey, SourceObject]:
    """Return the objects with a pod template or a controller; of two with one key the one with a template.

    Args:
        namespace: The namespace for objects that name none.
    """
    by_key: dict[OwnerKey, SourceObject] = {}
    for source in objects:
        is_workload = has_template(source) or has_custom_template(source)
        if is_workload or controller(source):
            key = OwnerKey(
                kind=source.kind,
                namespace=source.namespace or namespace,
                name=source.name or "unnamed",
            )
            first = by_key.setdefault(key, source)
            # Knative's Service has the name of one of Kubernetes, which has a controller.
            if is_workload and not (has_template(first) or has_custom_template(first)):
                by_key[key] = source
    return by_key


def chain_of_owners(key: OwnerKey, by_key: Mapping[OwnerKey, SourceObject]) -> tuple[OwnerKey, ...]:
    """Return an object and its owners up to the end of the chain; the last that is known of if it is broken.

    A pod in the middle of the chain, as the leader of a group of a LeaderWorkerSet, is left out.
    """
    chain = [key]
    for _ in range(_MAX_OWNERS):
        source = by_key.get(key)
        owner = controller(source) if source is not None else None
        if owner is None:
            break
        kind, name = owner
        key = OwnerKey(kind=kind, namespace=key.namespace, name=name)
        if kind != "Pod":
            chain.append(key)
    return tuple(chain)


def controller(source: SourceObject) -> tuple[str, str] | None:
    """Return kind and name of the controller of an object; a node is none of its mirror pods."""
    metadata = source.document.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    for entry in references if isinstance(references, Sequence) else ():
        if isinstance(entry, Mapping) and entry.get("controller") is True:
            kind, name = entry.get("kind"), entry.get("name")
            if isinstance(kind, str) and isinstance(name, str) and kind != "Node":
                return kind, name
    return None


def has_template(source: SourceObject | None) -> bool:
    """Return True if an object is a pod, or has the template of one, and is of a kind of Kubernetes."""
    return source is not None and pod_path(source.api_version, source.kind) is not None


def has_custom_template(source: SourceObject | None) -> bool:
    """Return True if an object is of a kind of another project that makes pods of a template."""
    row = workload_kind(source.api_version, source.kind) if source is not None else None
    return row is not None and row.numbers is not None
