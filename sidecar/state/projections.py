"""Projections of the objects that the sidecar follows: more of a claim than others need.

A claim is kept with what a write of it depends on: its version, finalizers, consumers and the state of
its devices. What an allocation copies is kept up to a bound, beyond which the claim is not allocated. A pod is
kept if it has claims.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from allocator.nodes.amounts import CPU, MEMORY
from allocator.nodes.pod_requests import requested_amounts
from clusterstate.kinds import Kind
from clusterstate.parameter_bounds import bounded_config, bounded_spec
from clusterstate.projections import PROJECTIONS
from kube.api.core import Pod, PodSchedulingGate, PodSpec, PodStatus, ResourceRequirements
from kube.api.device_quota import DeviceQuota
from kube.api.extended_resources import requests_extended_resources
from kube.api.meta import ObjectMeta, OwnerReference, decode
from kube.api.ownership import AllocatorOwnership
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimStatus
from kube.names import SCHEDULER_NAME, STRATEGY_ANNOTATION
from kube.quantity import Quantity
from kube.runtime.shared_decoder import SharedDecoder
from kube.runtime.stores import Projection
from quotas.gates.counted_objects import counted_pod
from sidecar.ownership.fence import Binding
from sidecar.state.quota_charges import promised_names

decode_pod: Final = SharedDecoder(Pod)
"""Decodes a Pod for the projections of all parts of the sidecar."""
_SOME_GATE: Final = (PodSchedulingGate(),)


def project_claim(raw: bytes) -> ResourceClaim:
    """Project a ResourceClaim to all but its labels, annotations and parameters of too many values."""
    claim = decode(raw, ResourceClaim)
    metadata = claim.metadata
    return replace(
        claim,
        spec=bounded_spec(claim.spec),
        status=_bounded_status(claim.status),
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            deletion_timestamp=metadata.deletion_timestamp,
            finalizers=metadata.finalizers,
            owner_references=metadata.owner_references,
        ),
    )


def _bounded_status(status: ResourceClaimStatus | None) -> ResourceClaimStatus | None:
    """Return a status without drivers' reports for others, and without oversized parameters.

    No write of ours copies either.
    """
    if status is None or status.allocation is None:
        return status
    devices = status.allocation.devices
    bounded_devices = replace(devices, config=bounded_config(devices.config))
    reports = [replace(report, data=None, network_data=None) for report in status.devices or ()]
    return replace(
        status,
        allocation=replace(status.allocation, devices=bounded_devices),
        devices=tuple(reports) or None,
    )


def project_pod(raw: bytes) -> Pod | None:
    """Project a Pod to the fields that decide about its devices; None for a pod without claims.

    Its CPU and memory become requests of the pod as a whole. A claim for extended resources is made by the
    scheduler, and only the status of the pod names it.
    """
    pod = decode_pod(raw)
    spec, status = pod.spec, pod.status or PodStatus()
    if not spec.resource_claims and status.extended_resource_claim_status is None:
        return None
    metadata = pod.metadata
    return Pod(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            creation_timestamp=metadata.creation_timestamp,
            deletion_timestamp=metadata.deletion_timestamp,
            deletion_grace_period_seconds=metadata.deletion_grace_period_seconds,
            annotations=_strategy_of(metadata),
            owner_references=_controller_of(metadata),
        ),
        spec=PodSpec(
            resources=_requests_of(pod),
            resource_claims=spec.resource_claims,
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
            node_selector=spec.node_selector,
            affinity=spec.affinity,
            tolerations=spec.tolerations,
            priority=spec.priority,
            preemption_policy=spec.preemption_policy,
            # Whether there are any is of interest; a user chooses how many, and their names.
            scheduling_gates=_SOME_GATE if spec.scheduling_gates else None,
            scheduling_group=spec.scheduling_group,
        ),
        status=PodStatus(
            phase=status.phase,
            nominated_node_name=status.nominated_node_name,
            resource_claim_statuses=status.resource_claim_statuses,
        ),
    )


def project_quota_pod(raw: bytes, bridge_scheduler: str = SCHEDULER_NAME) -> Pod | None:
    """Project a Pod to its keys of devices, and to the claims that another scheduler may allocate for it.

    None for one without any, and for one that has ended.

    Args:
        bridge_scheduler: schedulerName of the bridge; its pods get claims from no other scheduler.
    """
    pod = counted_pod(decode_pod(raw), bridge_scheduler)
    if pod is None or not (requests_extended_resources(pod.spec) or promised_names(pod)):
        return None
    metadata, spec, status = pod.metadata, pod.spec, pod.status or PodStatus()
    return Pod(
        metadata=ObjectMeta(name=metadata.name, namespace=metadata.namespace),
        spec=PodSpec(
            containers=spec.containers,
            init_containers=spec.init_containers,
            resource_claims=spec.resource_claims,
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
            scheduling_gates=spec.scheduling_gates,
        ),
        status=PodStatus(
            resource_claim_statuses=status.resource_claim_statuses,
            extended_resource_claim_status=status.extended_resource_claim_status,
        ),
    )


def _controller_of(metadata: ObjectMeta) -> tuple[OwnerReference, ...] | None:
    owners = metadata.owner_references or ()
    return (
        tuple(
            [OwnerReference(uid=owner.uid, controller=True) for owner in owners if owner.controller]
        )
        or None
    )


def _requests_of(pod: Pod) -> ResourceRequirements:
    amounts = requested_amounts(pod)
    return _pod_requests(amounts.cpu_milli, amounts.memory)


@lru_cache(maxsize=1024)
def _pod_requests(cpu_milli: int, memory: int) -> ResourceRequirements:
    """Return requests as a value that pods with the same ones share."""
    cpu, bytes_ = Quantity.from_nanos(cpu_milli * 10**6), Quantity.from_int(memory)
    return ResourceRequirements(requests={CPU: cpu, MEMORY: bytes_})


def project_own_ownership(raw: bytes) -> AllocatorOwnership:
    """Project an AllocatorOwnership to the fields that its status is computed from."""
    ownership = decode(raw, AllocatorOwnership)
    metadata = ownership.metadata
    return replace(
        ownership,
        metadata=ObjectMeta(
            name=metadata.name,
            uid=metadata.uid,
            generation=metadata.generation,
            resource_version=metadata.resource_version,
        ),
    )


def project_quota(raw: bytes) -> DeviceQuota:
    """Project a DeviceQuota to its spec."""
    quota = decode(raw, DeviceQuota)
    return DeviceQuota(metadata=ObjectMeta(name=quota.metadata.name), spec=quota.spec)


def project_fence_binding(raw: bytes) -> Binding:
    """Project a binding of the fence to the fields that put its policy in force."""
    return decode(raw, Binding)


def project_class(raw: bytes) -> DeviceClass:
    """Project a DeviceClass to its spec, its age and the strategy that it names."""
    device_class = decode(raw, DeviceClass)
    metadata = device_class.metadata
    return DeviceClass(
        metadata=ObjectMeta(
            name=metadata.name,
            uid=metadata.uid,
            creation_timestamp=metadata.creation_timestamp,
            annotations=_strategy_of(metadata),
        ),
        spec=device_class.spec,
    )


def _strategy_of(metadata: ObjectMeta) -> Mapping[str, str] | None:
    strategy = (metadata.annotations or {}).get(STRATEGY_ANNOTATION)
    return None if strategy is None else {STRATEGY_ANNOTATION: strategy}


INVENTORY: Final[Mapping[Kind, Projection[Any]]] = {
    Kind.NODE: PROJECTIONS[Kind.NODE],
    Kind.SLICE: PROJECTIONS[Kind.SLICE],
    Kind.CLASS: project_class,
    Kind.TAINT_RULE: PROJECTIONS[Kind.TAINT_RULE],
    Kind.POLICY: PROJECTIONS[Kind.POLICY],
}
"""Kinds other than claims to their projections. Claims are made by then, so that no template counts."""
