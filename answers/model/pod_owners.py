"""The workload that a pod belongs to, as far as the pod tells it, or an event about one. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kube.api.core import Pod
from translation.reading.workload_kinds import WORKLOAD_KINDS

HASH_LABEL: Final = "pod-template-hash"
FAILED_CREATE: Final = "FailedCreate"
"""The beginning of the reason of events about pods that a controller could not create; others add a word."""

FAILED_CLAIM: Final = "FailedResourceClaimCreation"
"""The reason of events about a claim of a pod that was not created, as when its template came after the pod."""

_BUILT_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "CronJob": ("cronjob", "cronjobs", "cj"),
    "DaemonSet": ("daemonset", "daemonsets", "ds"),
    "Deployment": ("deployment", "deployments", "deploy"),
    "Job": ("job", "jobs"),
    "ReplicaSet": ("replicaset", "replicasets", "rs"),
    "ReplicationController": ("replicationcontroller", "replicationcontrollers", "rc"),
    "StatefulSet": ("statefulset", "statefulsets", "sts"),
}
WORKLOAD_NAMES: Final[Mapping[str, str]] = {
    **{
        name: custom.kind
        for custom in WORKLOAD_KINDS
        if custom.namespaced and custom.numbers is not None
        for name in (custom.kind.lower(), custom.resource)
    },
    **{name: kind for kind, names in _BUILT_IN.items() for name in names},
}
"""Names by which kubectl knows kinds with pods to those kinds; `job` is the one of Kubernetes."""


def is_made_by(pod: Pod, kind: str, name: str) -> bool:
    """Return True if a workload of the pod's namespace controls it.

    The owner of a pod is the object that made it. The only owner of an owner that is known is a
    Deployment, which calls its ReplicaSets after itself and the hash of their template.
    """
    owner = next((entry for entry in pod.metadata.owner_references or () if entry.controller), None)
    if owner is None:
        return False
    if kind == "Deployment":
        return (owner.kind, owner.name) == (
            "ReplicaSet",
            f"{name}-{pod.labels.get(HASH_LABEL, '')}",
        )
    return (owner.kind, owner.name) == (kind, name)


def deployment_of(pod: Pod) -> str:
    """Return the name of the Deployment of a pod; empty without one.

    >>> deployment_of(Pod())
    ''
    """
    owner = next((entry for entry in pod.metadata.owner_references or () if entry.controller), None)
    suffix = f"-{pod.labels.get(HASH_LABEL, '')}"
    if owner is None or owner.kind != "ReplicaSet" or suffix == "-":
        return ""
    name = owner.name.removesuffix(suffix)
    return name if name != owner.name else ""


def pods_made_by(pods: Iterable[Pod], kind: str, namespace: str, name: str) -> tuple[Pod, ...]:
    """Return the pods of a workload, by name."""
    own = (
        pod for pod in pods if pod.metadata.namespace == namespace and is_made_by(pod, kind, name)
    )
    return tuple(sorted(own, key=lambda pod: pod.metadata.name))


class FailedCreation(msgspec.Struct, frozen=True, kw_only=True):
    """The last words of the API server about a pod, or a claim of a pod, that it did not create.

    Attributes:
        kind: The kind of the object that makes the pods; `Pod` for claims.
        name: Its name.
        note: The message.
        last: The time of the last attempt, as the API server writes it; empty if it is not known.
    """

    kind: str
    name: str
    note: str
    last: str = ""


def failures_of(
    failures: Iterable[FailedCreation], kind: str, name: str
) -> tuple[FailedCreation, ...]:
    """Return the failures of a workload, the last first.

    A Deployment calls its ReplicaSets after itself and a hash.
    """
    own = [
        failure
        for failure in failures
        if (failure.kind, failure.name) == (kind, name)
        or (kind, failure.kind, failure.name.rpartition("-")[0])
        == ("Deployment", "ReplicaSet", name)
    ]
    return tuple(sorted(own, key=lambda failure: failure.last, reverse=True))
