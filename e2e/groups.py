"""Pod groups of Kubernetes: their needs of a control plane and a scheduler, and groups as objects."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from e2e.access import Object
from testing.documents import api_object

GATES: Final[Mapping[str, bool]] = {
    "DRAWorkloadResourceClaims": True,
    "GenericWorkload": True,
    "WorkloadWithJob": True,
}
"""Feature gates of API server, controller manager, schedulers and kubelets."""
TOPOLOGY_GATES: Final[Mapping[str, bool]] = {**GATES, "TopologyAwareWorkloadScheduling": True}
"""Those with which the scheduler tries one value of a group's topology label after the other (alpha)."""


def _cluster(gates: Mapping[str, bool]) -> Mapping[str, Any]:
    flag = "--runtime-config=scheduling.k8s.io/v1beta1=true"
    return {"feature_gates": gates, "api_server_flags": (flag,)}


def _scheduler_flags(gates: Mapping[str, bool]) -> Sequence[str]:
    # With it a group that waits is tried again without a pause, as long as nothing else is to be scheduled.
    every = {**gates, "SchedulerPopFromBackoffQ": False}
    return (
        "--feature-gates=" + ",".join(f"{name}={str(on).lower()}" for name, on in every.items()),
    )


CLUSTER: Final = _cluster(GATES)
"""Keyword arguments of `Cluster`."""
TOPOLOGY_CLUSTER: Final = _cluster(TOPOLOGY_GATES)
SCHEDULER_FLAGS: Final = _scheduler_flags(GATES)
"""More flags of the bridge's scheduler."""
TOPOLOGY_SCHEDULER_FLAGS: Final = _scheduler_flags(TOPOLOGY_GATES)
LABEL: Final = "example.com/group"


def pod_group(
    name: str,
    min_count: int,
    *,
    priority_class: str = "",
    claims: Sequence[Object] = (),
    topology: str = "",
) -> Object:
    """Return a PodGroup that needs so many of its pods, and has some claims of its own.

    Args:
        topology: The label of nodes that has one value for all pods; empty for none.
    """
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    if claims:
        spec["resourceClaims"] = list(claims)
    if priority_class:
        spec["priorityClassName"] = priority_class
    return api_object("PodGroup", name, spec=spec)


def member(pod: Object, group: str) -> Object:
    """Return a pod as a member of a PodGroup, with a label that selects the members."""
    metadata = {**pod["metadata"]}
    metadata["labels"] = {**metadata.get("labels", {}), LABEL: group}
    spec = {**pod["spec"], "schedulingGroup": {"podGroupName": group}}
    return {**pod, "metadata": metadata, "spec": spec}
