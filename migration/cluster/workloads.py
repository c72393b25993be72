"""The workloads of a cluster: each top-level owner with its live pods.

A pod belongs to the owner at the end of its chain of controllers: to a Deployment rather than to the
ReplicaSet between them. A pod without a controller is a workload itself, and so is one that such a pod made, as an
executor of Spark: it is no copy of the other. So is a stopped workload of another project, by the object whose template
says what its next pods request.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final

import msgspec

from kube.api.core import FINISHED_PHASES
from kube.api.workloads import DAEMON_SET, pods_at_a_time, resolve_path
from kube.manifests.source import SourceObject
from migration.cluster.evidence import RUN_TO_COMPLETION, list_at, mapping_at, text_map
from migration.cluster.owners import (
    OwnerKey,
    chain_of_owners,
    has_custom_template,
    has_template,
    owners_by_key,
)
from migration.cluster.reservations import RESERVATIONS, is_reservation
from migration.cluster.stopped import find_stopped, has_ended

_ENDED: Final = frozenset({"Complete", "Failed"})
_JOB: Final = ("spec", "jobTemplate")
"""The path of the Job that a CronJob creates."""
_SUSPENDED_KINDS: Final = frozenset({"Job", "CronJob"})
_PLACING: Final = ("nodeSelector", "affinity", "tolerations", "restartPolicy")
"""Fields of a pod that its nodes depend on, or that say what becomes of it."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A top-level owner.

    Attributes:
        owner: The object itself, of a kind of Kubernetes; None where only its pods are known.
        pods: Its live pods, which have not ended.
        custom: The object itself, of a kind of another project with templates; None where it is not known, or makes no pods.
    """

    key: OwnerKey
    owner: SourceObject | None
    pods: tuple[SourceObject, ...]
    custom: SourceObject | None = None

    @property
    def pod_count(self) -> int:
        """The number of pods: of those that live, or else as many as the owner requests; none while it is suspended."""
        if self.pods or self.owner is None or self.is_suspended:
            return len(self.pods)
        return requested_pods(self.owner)

    @property
    def runs_to_completion(self) -> bool:
        """Return True if it has pods, and each of them runs to its end."""
        policies = {mapping_at(pod.document, "spec").get("restartPolicy") for pod in self.pods}
        return bool(policies) and policies <= RUN_TO_COMPLETION

    @property
    def is_suspended(self) -> bool:
        """Return True if it has no pods, and its controller makes none until somebody, or a queue, resumes it."""
        if self.pods:
            return False
        if self.custom is not None:
            spec = mapping_at(self.custom.document, "spec")
            return True in (spec.get("suspend"), mapping_at(spec, "runPolicy").get("suspend"))
        if self.owner is None or self.key.kind not in _SUSPENDED_KINDS:
            return False
        return mapping_at(self.owner.document, "spec").get("suspend") is True


def group_workloads(objects: Iterable[SourceObject], namespace: str) -> list[Workload]:
    """Return the workloads that have not ended, by kind, namespace and name; pods that hold a GPU for others are none.

    Args:
        namespace: The namespace for objects that name none.
    """
    by_key = owners_by_key(objects, namespace)
    pods: dict[OwnerKey, list[SourceObject]] = {}
    live = [
        key
        for key, source in by_key.items()
        if has_template(source) and source.kind == "Pod" and not _has_ended(source)
    ]
    makers = frozenset(maker for key in live for maker in _makers(key, by_key))
    for key, source in by_key.items():
        if not has_template(source) or source.kind == "PodTemplate":
            continue
        # The namespace first, since nearly all objects of a cluster have another one.
        if source.namespace == RESERVATIONS and is_reservation(source):
            continue
        members = pods.setdefault(_workload_key(key, by_key, makers), [])
        if source.kind == "Pod" and not _has_ended(source):
            members.append(source)
    stopped = find_stopped(by_key, live)
    for key in stopped:
        pods.setdefault(key, [])
    workloads = []
    for key, members in sorted(pods.items()):
        top = by_key.get(key)
        is_custom = has_custom_template(top)
        makes_pods = key in stopped or (bool(members) and not has_ended(top))
        custom = top if is_custom and makes_pods else None
        owner = None if is_custom else top
        if owner is None or not _has_ended(owner):
            entry = Workload(key=key, owner=owner, pods=tuple(members), custom=custom)
            workloads.append(entry)
    return workloads


def _makers(pod: OwnerKey, by_key: Mapping[OwnerKey, SourceObject]) -> tuple[OwnerKey, ...]:
    """Return the objects of other projects above the workload of a live pod, as the RayJob of its RayCluster."""
    custom = (key for key in chain_of_owners(pod, by_key) if has_custom_template(by_key.get(key)))
    return tuple(custom)[1:]


def _workload_key(
    key: OwnerKey, by_key: Mapping[OwnerKey, SourceObject], makers: Collection[OwnerKey]
) -> OwnerKey:
    """Return the key of the workload of a pod, or of an object between both.

    That is the owner at the end of its chain, or the first of another project: an object of its own kind, such as a
    RayCluster below a RayService, changes nothing of a workload that runs. The Job that submits a RayJob is a workload of
    its own while the RayCluster of this runs: with its pod alone, the RayJob would be one without devices.

    Args:
        key: The pod, or the object.
        by_key: The objects with a template or a controller.
        makers: The objects of other projects with live pods below other objects of these.
    """
    chain = chain_of_owners(key, by_key)
    custom = [number for number, own in enumerate(chain) if has_custom_template(by_key.get(own))]
    if not custom:
        return chain[-1]
    first = custom[0]
    is_job_of_maker = chain[first] in makers and first > 0 and chain[first - 1].kind == "Job"
    return chain[first - 1] if is_job_of_maker else chain[first]


def _has_ended(source: SourceObject) -> bool:
    """Return True if a pod or a Job runs no more."""
    if source.kind == "Pod":
        return text_map(source.document, "status").get("phase") in FINISHED_PHASES
    return source.kind == "Job" and any(
        text_map(entry).get("type") in _ENDED and text_map(entry).get("status") == "True"
        for entry in list_at(source.document, "status", "conditions")
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


def translation_shape(source: SourceObject) -> Hashable:
    """Return the parts of a pod that its translation reads: its request shape, its labels and its annotations."""
    texts = (text_map(source.document, "metadata", name) for name in ("labels", "annotations"))
    return request_shape(source), *(frozenset(own.items()) for own in texts)
