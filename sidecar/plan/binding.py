"""The readiness of a claim's devices for the pod to be bound (KEP-5007).

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources, isPodReadyForBinding.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from allocator.pods.claims import allocation_of
from kube.api.resource import DeviceRequestAllocationResult, ResourceClaim

DeviceKey = tuple[str, str, str, str | None]
"""Driver, pool, device and share id."""


class Binding(StrEnum):
    """The progress of the devices of a claim."""

    READY = "ready"
    PENDING = "pending"
    FAILED = "failed"


def binding_state(claims: Iterable[ResourceClaim]) -> Binding:
    """Return the progress of the devices of allocated claims, all together."""
    states = {_device_state(result, conditions) for result, conditions in _devices(claims)}
    if Binding.FAILED in states:
        return Binding.FAILED
    return Binding.PENDING if Binding.PENDING in states else Binding.READY


def has_binding_conditions(claim: ResourceClaim) -> bool:
    """Return whether some device of a claim has to be waited for."""
    return any(result.binding_conditions for result, _ in _devices((claim,)))


def _devices(
    claims: Iterable[ResourceClaim],
) -> Iterable[tuple[DeviceRequestAllocationResult, frozenset[str]]]:
    """Yield each allocated device with the types of its conditions that are true."""
    for claim in claims:
        allocation = allocation_of(claim)
        if allocation is None:
            continue
        reported_conditions: Mapping[DeviceKey, frozenset[str]] = {
            (device.driver, device.pool, device.device, device.share_id): frozenset(
                _true_types(device.conditions or ())
            )
            for device in (claim.status.devices if claim.status else None) or ()
        }
        for result in allocation.devices.results or ():
            key = (result.driver, result.pool, result.device, result.share_id)
            yield result, reported_conditions.get(key, frozenset())


def _true_types(conditions: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    return (
        str(condition.get("type")) for condition in conditions if condition.get("status") == "True"
    )


def _device_state(result: DeviceRequestAllocationResult, conditions: frozenset[str]) -> Binding:
    condition_types = result.binding_conditions or ()
    if not condition_types:
        return Binding.READY
    if not conditions.isdisjoint(result.binding_failure_conditions or ()):
        return Binding.FAILED
    return Binding.READY if conditions.issuperset(condition_types) else Binding.PENDING
