"""Projections: the fields of each object that this project reads, and nothing else."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from clusterstate.kinds import Kind
from clusterstate.parameter_bounds import bounded_config, bounded_spec
from kube.api.core import Namespace, Node, NodeSpec, NodeStatus
from kube.api.device_quota import DeviceQuota
from kube.api.meta import ObjectMeta, decode, encode
from kube.api.ownership import project_ownership
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import (
    AllocationResult,
    Device,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceSubRequest,
    DeviceTaintRule,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceSlice,
)
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    DEVICE_QUOTAS,
    DEVICE_TAINT_RULES,
    NODES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from kube.runtime.stores import Projection

MAX_SHARED: Final = 4096
"""Values of a kind that slices share; those that were not met for longest are let go."""


def _identity(metadata: ObjectMeta) -> ObjectMeta:
    """Return the metadata that names an object in an event, and its owner."""
    return ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        owner_references=metadata.owner_references,
    )


def _dated_identity(metadata: ObjectMeta) -> ObjectMeta:
    """Return an identity with its age, for kinds with precedence by age."""
    return msgspec.structs.replace(
        _identity(metadata), creation_timestamp=metadata.creation_timestamp
    )


def project_node(raw: bytes) -> Node:
    """Project a Node to the facts that decide its pods and devices, without its heartbeats."""
    node = decode(raw, Node)
    return Node(
        metadata=ObjectMeta(
            name=node.metadata.name, uid=node.metadata.uid, labels=node.metadata.labels
        ),
        spec=NodeSpec(taints=node.spec.taints, unschedulable=node.spec.unschedulable),
        status=NodeStatus(
            allocatable=node.status.allocatable, declared_features=node.status.declared_features
        ),
    )


def project_claim(raw: bytes) -> ResourceClaim:
    """Project a ResourceClaim to its spec; an allocated one to its allocation, pods and requested classes."""
    claim = decode(raw, ResourceClaim)
    metadata = _identity(claim.metadata)
    status = claim.status
    allocation = status.allocation if status is not None else None
    if status is None or allocation is None:
        return ResourceClaim(metadata=metadata, spec=bounded_spec(claim.spec))
    projected_allocation = AllocationResult(
        devices=DeviceAllocationResult(
            results=allocation.devices.results, config=_shared_device_config(allocation.devices)
        ),
        node_selector=allocation.node_selector,
    )
    return ResourceClaim(
        metadata=metadata,
        spec=ResourceClaimSpec(devices=_requested_classes(claim.spec.devices)),
        status=ResourceClaimStatus(
            allocation=projected_allocation, reserved_for=status.reserved_for
        ),
    )


def _requested_classes(devices: DeviceClaim) -> DeviceClaim:
    """Return the requests with their names and classes, since a DeviceQuota counts by them."""
    return _shared_requests(
        tuple(
            (
                request.name,
                None if request.exactly is None else request.exactly.device_class_name,
                tuple(
                    (alternative.name, alternative.device_class_name)
                    for alternative in request.first_available or ()
                ),
            )
            for request in devices.requests or ()
        )
    )


@lru_cache(maxsize=MAX_SHARED)
def _shared_requests(
    requests: tuple[tuple[str, str | None, tuple[tuple[str, str], ...]], ...],
) -> DeviceClaim:
    return DeviceClaim(
        requests=tuple(
            DeviceRequest(
                name=name,
                exactly=None
                if device_class is None
                else ExactDeviceRequest(device_class_name=device_class),
                first_available=tuple(
                    DeviceSubRequest(name=alternative, device_class_name=class_of_alternative)
                    for alternative, class_of_alternative in alternatives
                )
                or None,
            )
            for name, device_class, alternatives in requests
        )
        or None
    )


def _shared_device_config(
    devices: DeviceAllocationResult,
) -> tuple[DeviceAllocationConfiguration, ...] | None:
    """Return the configuration of shared devices, since co-tenants are compared by it."""
    drivers = {result.driver for result in devices.results or () if result.share_id is not None}
    config = tuple(
        entry
        for entry in devices.config or ()
        if entry.opaque is not None and entry.opaque.driver in drivers
    )
    return bounded_config(config) or None


def project_template(raw: bytes) -> ResourceClaimTemplate:
    """Project a ResourceClaimTemplate to the spec of the claims that are made from it."""
    template = decode(raw, ResourceClaimTemplate)
    spec = msgspec.structs.replace(template.spec, spec=bounded_spec(template.spec.spec))
    return ResourceClaimTemplate(metadata=_identity(template.metadata), spec=spec)


def project_slice(raw: bytes) -> ResourceSlice:
    """Project a ResourceSlice to its spec.

    Devices of a cluster differ in little but their names and uuids, so equal attributes, capacities
    and counters of all slices are one object each: less than half of the memory.
    """
    resource_slice = decode(raw, ResourceSlice)
    devices = resource_slice.spec.devices
    shared_devices = tuple(map(_with_shared_values, devices)) if devices is not None else None
    return ResourceSlice(
        metadata=_identity(resource_slice.metadata),
        spec=msgspec.structs.replace(resource_slice.spec, devices=shared_devices),
    )


def _with_shared_values(device: Device) -> Device:
    attributes, capacity, counters = device.attributes, device.capacity, device.consumes_counters
    return msgspec.structs.replace(
        device,
        attributes={name: _shared_attribute(value) for name, value in attributes.items()}
        if attributes is not None
        else None,
        capacity=_shared_capacity(encode(capacity)) if capacity is not None else None,
        consumes_counters=_shared_counters(encode(counters)) if counters is not None else None,
    )


@lru_cache(maxsize=MAX_SHARED)
def _shared_attribute(value: DeviceAttribute) -> DeviceAttribute:
    return value


# Quantities are equal where their texts differ, so these are told apart by their text.


@lru_cache(maxsize=MAX_SHARED)
def _shared_capacity(text: bytes) -> Mapping[str, DeviceCapacity]:
    return decode(text, dict[str, DeviceCapacity])


@lru_cache(maxsize=MAX_SHARED)
def _shared_counters(text: bytes) -> tuple[DeviceCounterConsumption, ...]:
    return decode(text, tuple[DeviceCounterConsumption, ...])


def project_class(raw: bytes) -> DeviceClass:
    """Project a DeviceClass to its spec and age; the age decides between two of one resource name."""
    device_class = decode(raw, DeviceClass)
    return DeviceClass(metadata=_dated_identity(device_class.metadata), spec=device_class.spec)


def project_taint_rule(raw: bytes) -> DeviceTaintRule:
    """Project a DeviceTaintRule to its spec."""
    rule = decode(raw, DeviceTaintRule)
    return DeviceTaintRule(metadata=_identity(rule.metadata), spec=rule.spec)


def project_policy(raw: bytes) -> DeviceCompatibilityPolicy:
    """Project a DeviceCompatibilityPolicy to its spec and age; its status changes more often."""
    policy = decode(raw, DeviceCompatibilityPolicy)
    return DeviceCompatibilityPolicy(metadata=_dated_identity(policy.metadata), spec=policy.spec)


def project_policy_with_status(raw: bytes) -> DeviceCompatibilityPolicy:
    """Project a DeviceCompatibilityPolicy to all of it."""
    return decode(raw, DeviceCompatibilityPolicy)


def project_device_quota(raw: bytes) -> DeviceQuota:
    """Project a DeviceQuota to its spec; its status changes more often."""
    quota = decode(raw, DeviceQuota)
    return DeviceQuota(metadata=_identity(quota.metadata), spec=quota.spec)


RESOURCES: Final[Mapping[Kind, Resource]] = {
    Kind.NODE: NODES,
    Kind.CLAIM: RESOURCE_CLAIMS,
    Kind.TEMPLATE: RESOURCE_CLAIM_TEMPLATES,
    Kind.SLICE: RESOURCE_SLICES,
    Kind.CLASS: DEVICE_CLASSES,
    Kind.TAINT_RULE: DEVICE_TAINT_RULES,
    Kind.POLICY: DEVICE_COMPATIBILITY_POLICIES,
    Kind.OWNERSHIP: ALLOCATOR_OWNERSHIPS,
    Kind.QUOTA: DEVICE_QUOTAS,
}
"""Kind to its resource."""


PROJECTIONS: Final[Mapping[Kind, Projection[Any]]] = {
    Kind.NODE: project_node,
    Kind.CLAIM: project_claim,
    Kind.TEMPLATE: project_template,
    Kind.SLICE: project_slice,
    Kind.CLASS: project_class,
    Kind.TAINT_RULE: project_taint_rule,
    Kind.POLICY: project_policy,
    Kind.OWNERSHIP: project_ownership,
    Kind.QUOTA: project_device_quota,
}
"""Kind to its projection."""


def project_namespace_labels(raw: bytes) -> Mapping[str, str]:
    """Project a Namespace to its labels."""
    return decode(raw, Namespace).metadata.labels or {}


def project_presence(_raw: bytes) -> bool:
    """Project an object to the fact that it exists."""
    return True
