"""Claims and pods as far as quotas count them."""

from typing import Final

import msgspec

from allocator.pods.claims import is_pod_group
from allocator.pods.extended_resource_claim import ANNOTATION
from kube.api.core import (
    FINISHED_PHASES,
    Container,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from kube.api.extended_resources import is_extended_resource, requests_extended_resources
from kube.api.meta import ObjectMeta
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceClaim,
    ResourceClaim,
)
from kube.names import QUOTA_GATE, SCHEDULER_NAME
from quotas.device_quotas.counted_claims import CountedClaim, LegacyPod
from quotas.gates.groups import group_annotations, group_labels, membership

MAPPED_KEYS: Final = "the bridge places no pod with keys that a DeviceClass maps; request these devices by a ResourceClaim"
"""The reason a pod of the bridge is promised nothing: it could never use it."""

MAX_CLAIMS: Final = 128
"""Claims of a pod that is let through where a quota limits its namespace. Each round looks at the claims of all pods
that wait, and users choose how many a pod names."""
TOO_MANY_CLAIMS: Final = (
    f"a pod with more than {MAX_CLAIMS} claims does not get through where a DeviceQuota limits its namespace; "
    "name fewer claims, with more requests each"
)


class QuotaClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A ResourceClaim, as far as it is charged.

    Attributes:
        devices: Its requests.
        allocation: The allocated devices; None before.
        pod_uids: The pods that own it.
        pod_group_uid: The PodGroup of Kubernetes that it was made for; empty without one.
        is_for_extended_resources: The scheduler made it for the keys of its pod.
    """

    devices: DeviceClaim
    allocation: AllocationResult | None = None
    pod_uids: tuple[str, ...] = ()
    pod_group_uid: str = ""
    is_for_extended_resources: bool = False


def counted_claim(claim: ResourceClaim) -> QuotaClaim:
    """Return the requests and devices of a claim."""
    allocation = claim.status.allocation if claim.status is not None else None
    if allocation is not None:
        allocation = AllocationResult(
            devices=DeviceAllocationResult(results=allocation.devices.results)
        )
    owners = claim.metadata.owner_references or ()
    return QuotaClaim(
        devices=DeviceClaim(requests=claim.spec.devices.requests),
        allocation=allocation,
        pod_uids=tuple(owner.uid for owner in owners if owner.kind == "Pod"),
        pod_group_uid=next((owner.uid for owner in owners if is_pod_group(owner)), ""),
        is_for_extended_resources=(claim.metadata.annotations or {}).get(ANNOTATION) == "true",
    )


def counted_pod(pod: Pod, bridge_scheduler: str = SCHEDULER_NAME) -> Pod | None:
    """Return the fields that make a pod wait or not; None for a pod that no quota counts.

    One without claims, device keys and our gate counts as a member of its group only. None of a pod that has
    finished, too: it keeps no claim that is not allocated.

    Args:
        bridge_scheduler: schedulerName of the bridge; its pods have the usual name in the result.
    """
    spec, status = pod.spec, pod.status or PodStatus()
    if status.phase in FINISHED_PHASES:
        return None
    containers = _with_extended_resources(spec.containers)
    init_containers = _with_extended_resources(spec.init_containers)
    reduced = PodSpec(containers=containers, init_containers=init_containers)
    has_devices = spec.resource_claims or is_gated(pod) or requests_extended_resources(reduced)
    if not has_devices and membership(pod) is None:
        return None
    metadata = pod.metadata
    return Pod(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            creation_timestamp=metadata.creation_timestamp,
            deletion_timestamp=metadata.deletion_timestamp,
            labels=group_labels(metadata),
            annotations=group_annotations(metadata),
        ),
        spec=PodSpec(
            containers=containers,
            init_containers=init_containers,
            resource_claims=spec.resource_claims,
            node_name=spec.node_name,
            scheduler_name=_scheduler_of(spec, bridge_scheduler),
            scheduling_gates=spec.scheduling_gates,
            scheduling_group=spec.scheduling_group,
            priority=spec.priority,
        ),
        status=PodStatus(
            resource_claim_statuses=status.resource_claim_statuses,
            extended_resource_claim_status=status.extended_resource_claim_status,
        ),
    )


def _scheduler_of(spec: PodSpec, bridge_scheduler: str) -> str:
    """Return the usual name for the bridge, and nothing for a scheduler that only has that name."""
    if spec.scheduler_name == bridge_scheduler:
        return SCHEDULER_NAME
    return "" if spec.scheduler_name == SCHEDULER_NAME else spec.scheduler_name


def is_gated(pod: Pod) -> bool:
    """Return True if a pod has the gate of quotas."""
    return any(gate.name == QUOTA_GATE for gate in pod.spec.scheduling_gates or ())


def is_of_bridge(pod: Pod) -> bool:
    """Return True if the bridge places a pod of `counted_pod`."""
    return pod.spec.scheduler_name == SCHEDULER_NAME


def is_left_to_bridge(pod: Pod) -> bool:
    """Return True if the bridge alone decides about a pod of `counted_pod`.

    It decides about claims, and not about the keys of device plugins.
    """
    return is_of_bridge(pod) and not requests_extended_resources(pod.spec)


def _with_extended_resources(
    containers: tuple[Container, ...] | None,
) -> tuple[Container, ...] | None:
    """Return containers with nothing but their extended resources; their number and order stay."""
    if containers is None:
        return None
    return tuple(
        Container(
            restart_policy=container.restart_policy,
            resources=ResourceRequirements(
                requests={
                    key: amount
                    for key, amount in {**container.limits, **container.requests}.items()
                    if is_extended_resource(key)
                }
            ),
        )
        for container in containers
    )


def legacy_pod(pod: Pod, mapped: frozenset[str], *, is_let_through: bool) -> CountedClaim:
    """Return the devices that a pod of `counted_pod` has by keys, without a claim.

    Args:
        mapped: The keys of the pod that a DeviceClass maps, for which the scheduler makes a claim; the bridge
            makes none.
        is_let_through: It may get devices without a further decision.
    """
    spec, status = pod.spec, pod.status
    is_running = bool(spec.node_name)
    has_claim = status is not None and status.extended_resource_claim_status is not None
    if is_of_bridge(pod) or (is_running and not has_claim):
        mapped = frozenset()  # A device plugin serves all of them.
    return CountedClaim(
        namespace=pod.metadata.namespace,
        devices=DeviceClaim(),
        is_let_through=is_let_through,
        legacy_pod=LegacyPod(
            PodSpec(containers=spec.containers, init_containers=spec.init_containers),
            is_running=is_running,
            mapped=mapped,
        ),
    )
