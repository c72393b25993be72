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
    """A workload by name; an owner that is not among the objects has one as well.

    Attributes:
        group: The API group where another workload has the same kind, namespace and name, as a Job of Volcano beside one
            of Kubernetes; empty otherwise, and for Kubernetes' own of both.
    """

    kind: str
    namespace: str
    name: str
    group: str = ""

    @property
    def reference(self) -> str:
        """`Kind/namespace/name`, or `Kind.group/namespace/name`, as kubectl takes both."""
        kind = f"{self.kind}.{self.group}" if self.group else self.kind
        return f"{kind}/{self.namespace}/{self.name}"


def kind_of(reference: str) -> str:
    """Return the kind of an object in a reference, without its group.

    >>> kind_of("Job/team/a"), kind_of("Job.batch.volcano.sh/team/a")
    ('Job', 'Job')
    """
    return reference.partition("/")[0].partition(".")[0]


def owners_by_key(objects: Iterable[SourceObject], namespace: str) -> dict[OwnerKey, SourceObject]:
    """Return the objects with a pod template or a controller; of two with one name the one with a template.

    Two workloads of one kind in different API groups both stay, and Kubernetes' own has the key without a group.

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
            if first is source or not is_workload:
                continue
            # Knative's Service has the name of one of Kubernetes, which has a controller.
            if not (has_template(first) or has_custom_template(first)):
                by_key[key] = source
            elif _group(first.api_version) != _group(source.api_version):
                # Kubernetes' own has the plain key, as `kubectl get job` means its Job.
                plain, other = (source, first) if has_template(source) else (first, source)
                by_key[key] = plain
                by_key[msgspec.structs.replace(key, group=_group(other.api_version))] = other
    return by_key


def owner_key(api_version: str, key: OwnerKey, by_key: Mapping[OwnerKey, SourceObject]) -> OwnerKey:
    """Return the key of an object in a reference, with its group beside another workload of the plain key.

    Args:
        api_version: The API version of the reference; empty if it has none.
        key: Kind, namespace and name of the reference.
        by_key: The objects with a template or a controller.
    """
    plain = by_key.get(key)
    group = _group(api_version)
    if (
        plain is None
        or not (has_template(plain) or has_custom_template(plain))
        or _group(plain.api_version) == group
        or not (pod_path(api_version, key.kind) or workload_kind(api_version, key.kind))
    ):
        return key
    return msgspec.structs.replace(key, group=group)


def chain_of_owners(key: OwnerKey, by_key: Mapping[OwnerKey, SourceObject]) -> tuple[OwnerKey, ...]:
    """Return an object and its owners up to the end of the chain; the last that is known of if it is broken.

    A pod in the middle of the chain, as the leader of a group of a LeaderWorkerSet, is left out.
    """
    chain = [key]
    for _ in range(_MAX_OWNERS):
        source = by_key.get(key)
        owner = _reference(source) if source is not None else None
        if owner is None:
            break
        api_version, kind, name = owner
        key = OwnerKey(kind=kind, namespace=key.namespace, name=name)
        key = owner_key(api_version, key, by_key)
        if kind != "Pod":
            chain.append(key)
    return tuple(chain)


def controller(source: SourceObject) -> tuple[str, str] | None:
    """Return kind and name of the controller of an object; a node is none of its mirror pods."""
    owner = _reference(source)
    return owner[1:] if owner is not None else None


def _reference(source: SourceObject) -> tuple[str, str, str] | None:
    """Return API version, kind and name of the controller of an object; the version may be empty."""
    metadata = source.document.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    for entry in references if isinstance(references, Sequence) else ():
        if isinstance(entry, Mapping) and entry.get("controller") is True:
            kind, name = entry.get("kind"), entry.get("name")
            if isinstance(kind, str) and isinstance(name, str) and kind != "Node":
                version = entry.get("apiVersion")
                return version if isinstance(version, str) else "", kind, name
    return None


def _group(api_version: str) -> str:
    """Return the group of an API version; empty for the core group."""
    return api_version.rpartition("/")[0]


def has_template(source: SourceObject | None) -> bool:
    """Return True if an object is a pod, or has the template of one, and is of a kind of Kubernetes."""
    return source is not None and pod_path(source.api_version, source.kind) is not None


def has_custom_template(source: SourceObject | None) -> bool:
    """Return True if an object is of a kind of another project that makes pods of a template."""
    row = workload_kind(source.api_version, source.kind) if source is not None else None
    return row is not None and row.numbers is not None
