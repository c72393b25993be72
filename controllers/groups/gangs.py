"""The PodGroup of a gang of another scheduler, by its pods and its own PodGroup; pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from allocator.declarations.adopted import adopted_name
from allocator.declarations.minimum import gang_minimum
from allocator.declarations.model import Declaration, GroupName
from allocator.declarations.pod_group import KIND, PodGroup
from allocator.declarations.read import read_gang
from allocator.groups.model import MAX_MEMBERS
from kube.api.core import Pod
from kube.api.meta import ObjectMeta, OwnerReference, decode
from kube.api.urls import POD_GROUPS
from kube.names import GANG_ANNOTATION, GROUP_SCHEDULER_ANNOTATION, MANAGED_LABEL


class GangPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a gang with a PodGroup that we create.

    Attributes:
        metadata: Name, namespace, uid and time of creation.
        gang: The gang as the pod declares it.
        min_count: The minimum as the pod declares it; None where it does not.
        owner: The controller that owns the pod; None without one.
        is_deleted: It is being deleted.
    """

    metadata: ObjectMeta
    gang: GroupName
    min_count: int | None
    scheduler: str
    priority_class: str
    owner: OwnerReference | None
    is_deleted: bool = False


def project_gang_pod(raw: bytes) -> GangPod | None:
    """Project a pod to its gang; None for one with a PodGroup that is not ours to create."""
    pod = decode(raw, Pod)
    if not pod.spec.scheduling_group:
        return None
    reading = read_gang(pod)
    if not isinstance(reading, Declaration):
        return None
    if pod.spec.scheduling_group.get("podGroupName") != adopted_name(reading.group):
        return None  # A PodGroup that somebody else creates.
    metadata = pod.metadata
    return GangPod(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            creation_timestamp=metadata.creation_timestamp,
        ),
        gang=reading.group,
        min_count=reading.min_count,
        scheduler=pod.spec.scheduler_name,
        priority_class=pod.spec.priority_class_name,
        owner=next((owner for owner in metadata.owner_references or () if owner.controller), None),
        is_deleted=metadata.deletion_timestamp is not None,
    )


def adopted_minimum(pods: Sequence[GangPod], object_: PodGroup | None) -> int | None:
    """Return the number of pods that a gang needs; None while nothing tells a number that it can be.

    Args:
        pods: The pods, in order: the first that declares a number counts.
        object_: The PodGroup of the gang's own scheduler, for pods that declare none; None where there is none.
    """
    minimum = gang_minimum((pod.min_count for pod in pods), object_).number
    return minimum if minimum is not None and 1 <= minimum <= MAX_MEMBERS else None


def in_order(pods: Sequence[GangPod]) -> list[GangPod]:
    """Return the pods of a gang by the time of their creation, then by name."""
    return sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))


def pod_group_document(pods: Sequence[GangPod], minimum: int) -> Mapping[str, Any]:
    """Return the PodGroup of a gang.

    It goes with the owner of its pods where they have one and the same, and else when we delete it. It has the
    priority of its first pod: the webhook denies pods with another one.

    Args:
        pods: The pods, in order; at least one.
        minimum: The number of pods that the gang needs.
    """
    first = pods[0]
    owners = {pod.owner.uid if pod.owner is not None else "" for pod in pods}
    owner = first.owner if len(owners) == 1 else None
    name = adopted_name(first.gang)
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": first.gang.namespace,
        "labels": {MANAGED_LABEL: "true"},
        "annotations": {
            GROUP_SCHEDULER_ANNOTATION: first.scheduler,
            GANG_ANNOTATION: f"{first.gang.system} {first.gang.name}",
        },
    }
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
            }
        ]
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if first.priority_class:
        spec["priorityClassName"] = first.priority_class
    return {
        "apiVersion": f"{POD_GROUPS.group}/{POD_GROUPS.version}",
        "kind": KIND,
        "metadata": metadata,
        "spec": spec,
    }


class StoredPodGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A PodGroup of Kubernetes as the API server has it.

    Attributes:
        min_count: The number of pods that it needs; None where it is not all or nothing.
        is_ours: Whether we have created it.
        is_deleted: Whether it is being deleted.
    """

    uid: str
    min_count: int | None
    is_ours: bool
    is_deleted: bool


def project_pod_group(raw: bytes) -> StoredPodGroup:
    """Project a PodGroup of Kubernetes."""
    group = decode(raw, PodGroup)
    policy = group.spec.scheduling_policy
    return StoredPodGroup(
        uid=group.metadata.uid,
        min_count=policy.gang.min_count if policy is not None and policy.gang is not None else None,
        is_ours=MANAGED_LABEL in (group.metadata.labels or {})
        and GANG_ANNOTATION in (group.metadata.annotations or {}),
        is_deleted=group.metadata.deletion_timestamp is not None,
    )


def project_minimum(raw: bytes) -> PodGroup:
    """Project a PodGroup of another scheduler to the number of pods that it needs."""
    group = decode(raw, PodGroup)
    return PodGroup(spec=msgspec.structs.replace(_NOTHING, min_member=group.spec.min_member))


_NOTHING: Final = PodGroup().spec
