"""Device taints: they keep requests without a matching toleration away (KEP-5055).

Taints are evaluated when a device is chosen and not afterwards: a later taint does not stop
further pods from using an allocated claim. Requests with admin access are not exempt.

Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim/devicetoleration.go, ToleratesTaint;
structured/internal/experimental/allocator_experimental.go, taintPreventsAllocation.
"""

from collections.abc import Sequence
from typing import Final

from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason, Verb
from kube.api.resource import Device, DeviceTaint, DeviceToleration

# Upstream: only known effects prevent allocation, others (including None) are ignored.
_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})


def rejection(
    device: Device, tolerations: Sequence[DeviceToleration], features: Features
) -> RejectionReason | None:
    """Return the taint that keeps the device from a request with these tolerations; None if it can."""
    if not features.device_taints or not device.taints:
        return None
    taint = find_untolerated(device, tolerations)
    if taint is None:
        return None
    value = f"={taint.value}" if taint.value else ""
    return RejectionReason(
        reason=Reason.TAINT,
        verb=Verb.HAVE,
        subject="untolerated taint",
        value=f"{taint.key}{value}:{taint.effect}",
    )


def find_untolerated(device: Device, tolerations: Sequence[DeviceToleration]) -> DeviceTaint | None:
    """Return the first taint that prevents allocation and is not tolerated; None without one."""
    for taint in device.taints or ():
        if taint.effect in _BLOCKING and not any(
            tolerates(toleration, taint) for toleration in tolerations
        ):
            return taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Return True if a toleration matches a taint; `tolerationSeconds` only matters for eviction.

    >>> tolerates(DeviceToleration(operator="Exists"), DeviceTaint(key="broken"))
    True
    """
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.key not in {"", taint.key}:
        return False
    if toleration.operator in {"", "Equal"}:
        return toleration.value == taint.value
    return toleration.operator == "Exists"
