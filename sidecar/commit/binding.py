"""The readiness of a claim's devices for the pod to be bound (KEP-5007).

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources,
isPodReadyForBinding, isClaimReadyForBinding, isClaimTimeout.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from allocator.pods.claims import allocation_of
from kube.api.resource import DeviceRequestAllocationResult, ResourceClaim
from sidecar.model.rejections import Code, Rejection, unschedulable

DeviceKey = tuple[str, str, str, str | None]
"""Driver, pool, device and share id."""


NEVER: Final = datetime.min.replace(tzinfo=UTC)
"""A cutoff before which nothing was allocated."""


class Binding(StrEnum):
    """The progress of the devices of a claim."""

    READY = "ready"
    PENDING = "pending"
    TIMED_OUT = "timedOut"
    """A driver did not make a device ready in time."""
    FAILED = "failed"
    """A driver could not make a device ready."""
    GONE = "gone"
    """A claim does not exist or has no devices any more."""

    @property
    def is_hopeless(self) -> bool:
        """Return True if waiting for these devices makes no sense any more."""
        return self in {Binding.TIMED_OUT, Binding.FAILED}


_WORST_FIRST: Final = (Binding.GONE, Binding.FAILED, Binding.TIMED_OUT, Binding.PENDING)
_REASONS: Final[Mapping[Binding, tuple[Code, str]]] = {
    Binding.GONE: (Code.DEVICES_GONE, "the reserved devices are not free any more"),
    Binding.FAILED: (Code.BINDING_FAILED, "a driver could not make a device ready"),
    Binding.TIMED_OUT: (Code.BINDING_FAILED, "a driver did not make a device ready in time"),
}


def binding_state(claims: Iterable[ResourceClaim | None], *, cutoff: datetime) -> Binding:
    """Return the progress of the devices of allocated claims, all together.

    Args:
        claims: None for one that does not exist.
        cutoff: Devices that were allocated before then, and are not ready yet, have timed out.
    """
    states = {_claim_state(claim, cutoff) for claim in claims}
    return next((state for state in _WORST_FIRST if state in states), Binding.READY)


def binding_rejection(state: Binding) -> Rejection | None:
    """Return the reason for not binding a pod; None if it can be bound, or may yet."""
    reason = _REASONS.get(state)
    return None if reason is None else unschedulable(*reason)


def _claim_state(claim: ResourceClaim | None, cutoff: datetime) -> Binding:
    allocation = None if claim is None else allocation_of(claim)
    if claim is None or allocation is None:
        return Binding.GONE
    reported_conditions: Mapping[DeviceKey, frozenset[str]] = {
        (device.driver, device.pool, device.device, device.share_id): frozenset(
            _true_types(device.conditions or ())
        )
        for device in (claim.status.devices if claim.status else None) or ()
    }
    states = {
        _device_state(
            result,
            reported_conditions.get(
                (result.driver, result.pool, result.device, result.share_id), frozenset()
            ),
        )
        for result in allocation.devices.results or ()
    }
    state = next((state for state in _WORST_FIRST if state in states), Binding.READY)
    # What is promised and not written yet has no time.
    since = allocation.allocation_timestamp
    if state is Binding.PENDING and since and datetime.fromisoformat(since) < cutoff:
        return Binding.TIMED_OUT
    return state


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
