"""Pod groups of Kubernetes: their needs of a control plane and a scheduler, and groups as objects."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from e2e.access import Object

GATES: Final[Mapping[str, bool]] = {
    "DRAWorkloadResourceClaims": True,
    "GenericWorkload": True,
    "WorkloadWithJob": True,
}
"""Feature gates of API server, controller manager, schedulers and kubelets."""
CLUSTER: Final[Mapping[str, Any]] = {
    "feature_gates": GATES,
    "api_server_flags": ("--runtime-config=scheduling.k8s.io/v1beta1=true",),
}
"""Keyword arguments of `Cluster`."""
SCHEDULER_FLAGS: Final[Sequence[str]] = (
    "--feature-gates="
    + ",".join(
        f"{name}={str(on).lower()}"
        # With it a group that waits is tried again without a pause, as long as nothing else is to be scheduled.
        for name, on in {**GATES, "SchedulerPopFromBackoffQ": False}.items()
    ),
)
"""More flags of the bridge's scheduler."""
LABEL: Final = "example.com/group"


def pod_group(
    name: str, min_count: int, *, priority_class: str = "", claims: Sequence[Object] = ()
) -> Object:
    """Return a PodGroup that needs so many of its pods, and has some claims of its own."""
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
    if claims:
        spec["resourceClaims"] = list(claims)
    if priority_class:
        spec["priorityClassName"] = priority_class
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }


def member(pod: Object, group: str) -> Object:
    """Return a pod as a member of a PodGroup, with a label that selects the members."""
    metadata = {**pod["metadata"]}
    metadata["labels"] = {**metadata.get("labels", {}), LABEL: group}
    spec = {**pod["spec"], "schedulingGroup": {"podGroupName": group}}
    return {**pod, "metadata": metadata, "spec": spec}
