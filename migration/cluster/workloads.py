"""The workloads of a cluster: each top-level owner with its live pods.

A pod belongs to the owner at the end of its chain of controllers: to a Deployment rather than to the
ReplicaSet between them. A pod without a controller is a workload itself, and so is one that such a pod made, as an
executor of Spark: it is no copy of the other. So is a StatefulSet without pods below an owner without a template, as of
a stopped Notebook: its template alone says what the next pods request.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kube.api.core import FINISHED_PHASES
from kube.api.workloads import DAEMON_SET, pod_path, pods_at_a_time, resolve_path
from kube.manifests.source import SourceObject

_ENDED: Final = frozenset({"Complete", "Failed"})
_JOB: Final = ("spec", "jobTemplate")
"""The path of the Job that a CronJob creates."""
_SUSPENDED_KINDS: Final = frozenset({"Job", "CronJob"})
_PLACING: Final = ("nodeSelector", "affinity", "tolerations", "restartPolicy")
"""Fields of a pod that its nodes depend on, or that say what becomes of it."""
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


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A top-level owner.

    Attributes:
        owner: The object itself; None where only its pods are known.
        pods: Its live pods, which have not ended.
    """

    key: OwnerKey
    owner: SourceObject | None
    pods: tuple[SourceObject, ...]

    @property
    def pod_count(self) -> int:
        """The number of pods: of those that live, or else as many as the owner requests; none while it is suspended."""
        if self.pods or self.owner is None or self.is_suspended:
            return len(self.pods)
        return requested_pods(self.owner)

    @property
    def is_suspended(self) -> bool:
        """Return True if it has no pods, and its controller makes none until somebody, or a queue, resumes it.

        Jobs of a JobSet and of kinds of other projects that are suspended have no pods, either, and no template that
        is read.
        """
        if self.pods or self.owner is None or self.key.kind not in _SUSPENDED_KINDS:
            return False
        _, suspend = resolve_path(self.owner.document, ("spec", "suspend"))
        return suspend is True


def group_workloads(objects: Iterable[SourceObject], namespace: str) -> list[Workload]:
    """Return the workloads that have not ended, by kind, namespace and name.

    Args:
        namespace: The namespace for objects that name none.
    """
    by_key: dict[OwnerKey, SourceObject] = {}
    for source in objects:
        if pod_path(source.api_version, source.kind) is not None or controller(source):
            by_key.setdefault(_key(source, namespace), source)
    pods: dict[OwnerKey, list[SourceObject]] = {}
    stopped: dict[OwnerKey, list[OwnerKey]] = {}
    for key, source in by_key.items():
        if pod_path(source.api_version, source.kind) is None or source.kind == "PodTemplate":
            continue
        top = _top_owner(key, by_key)
        members = pods.setdefault(top, [])
        if source.kind == "Pod" and not _has_ended(source):
            members.append(source)
        elif source.kind == "StatefulSet" and not requested_pods(source):
            stopped.setdefault(top, []).append(key)
    for top, keys in stopped.items():
        if not pods[top] and not _has_template(by_key.get(top)):
            for key in keys:
                pods.setdefault(key, [])
    return [
        Workload(key=key, owner=by_key.get(key), pods=tuple(members))
        for key, members in sorted(pods.items())
        if not ((owner := by_key.get(key)) is not None and _has_ended(owner))
    ]


def _key(source: SourceObject, namespace: str) -> OwnerKey:
    return OwnerKey(
        kind=source.kind, namespace=source.namespace or namespace, name=source.name or "unnamed"
    )


def _top_owner(key: OwnerKey, by_key: Mapping[OwnerKey, SourceObject]) -> OwnerKey:
    """Return the owner at the end of the chain; the last that is known of if it is broken, and no other pod.

    A pod in the middle of the chain, as the leader of a group of a LeaderWorkerSet, is passed.
    """
    top = key
    for _ in range(_MAX_OWNERS):
        source = by_key.get(key)
        owner = controller(source) if source is not None else None
        if owner is None:
            return top
        kind, name = owner
        key = OwnerKey(kind=kind, namespace=key.namespace, name=name)
        top = top if kind == "Pod" else key
    return top


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


def _has_template(owner: SourceObject | None) -> bool:
    return owner is not None and pod_path(owner.api_version, owner.kind) is not None


def _has_ended(source: SourceObject) -> bool:
    """Return True if a pod or a Job runs no more."""
    status = source.document.get("status")
    if not isinstance(status, Mapping):
        return False
    if source.kind == "Pod":
        return status.get("phase") in FINISHED_PHASES
    conditions = status.get("conditions")
    return source.kind == "Job" and any(
        isinstance(entry, Mapping) and entry.get("type") in _ENDED and entry.get("status") == "True"
        for entry in (conditions if isinstance(conditions, Sequence) else ())
    )


def requested_pods(owner: SourceObject) -> int:
    """Return the number of pods that an owner has at a time, if it is not suspended."""
    document = owner.document
    if owner.kind == DAEMON_SET:
        status = document.get("status")
        count = status.get("desiredNumberScheduled") if isinstance(status, Mapping) else 0
        return count if isinstance(count, int) and count > 0 else 0
    if owner.kind == "CronJob":
        _, job = resolve_path(document, _JOB)
        return pods_at_a_time("Job", job) if isinstance(job, Mapping) else 1
    return pods_at_a_time(owner.kind, document)


def request_shape(source: SourceObject) -> bytes:
    """Return all of a pod that its nodes depend on."""
    _, spec = resolve_path(source.document, ("spec",))
    fields = spec if isinstance(spec, Mapping) else {}
    resources = [
        container.get("resources")
        for name in ("initContainers", "containers")
        for container in fields.get(name) or ()
        if isinstance(container, Mapping)
    ]
    return msgspec.json.encode(
        (resources, *(fields.get(name) for name in _PLACING)), order="sorted"
    )
