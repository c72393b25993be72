"""Pods of a gang of Koordinator."""

from typing import Any

from allocator.declarations.adopted import adopted_name
from allocator.declarations.model import GroupName, GroupSystem
from kube.names import SCHEDULER_NAME
from testing.documents import Document

GANG = GroupName(GroupSystem.KOORDINATOR, "team", "ring")


ADOPTED = adopted_name(GANG)


NAME = "gang.scheduling.koordinator.sh/name"


MINIMUM = "gang.scheduling.koordinator.sh/min-available"


def document(
    name: str = "ring-0",
    *,
    minimum: str | None = "2",
    group: str = ADOPTED,
    owner: Document | None = None,
    created: str = "2026-11-20T10:00:00Z",
    is_deleted: bool = False,
    **spec: Any,
) -> Document:
    annotations = {NAME: "ring"} | ({} if minimum is None else {MINIMUM: minimum})
    metadata: Document = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "creationTimestamp": created,
        "annotations": annotations,
    }
    if is_deleted:
        metadata["deletionTimestamp"] = "2026-11-20T11:00:00Z"
        metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    if owner is not None:
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    group_spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
    return {
        "metadata": metadata,
        "spec": {"schedulerName": SCHEDULER_NAME, **group_spec, **spec},
    }
