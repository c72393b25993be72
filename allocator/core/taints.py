"""Whether a device's taints keep a request away (KEP-5055).

Taints are judged when a device is chosen, never again afterwards: a taint that comes later does
not stop further pods from using an allocated claim. Admin access is not exempt.

Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim/devicetoleration.go, ToleratesTaint;
structured/internal/experimental/allocator_experimental.go, taintPreventsAllocation.
"""

from collections.abc import Sequence
from typing import Final

from allocator.core.model import Features
from allocator.core.outcome import Reason, Refusal
from kube.api.resource import Device, DeviceTaint, DeviceToleration

# Upstream: only known effects prevent allocation, others (None among them) are ignored.
_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})


def refusal(
    device: Device, tolerations: Sequence[DeviceToleration], features: Features
) -> Refusal | None:
    """Return why a request with these tolerations may not have the device; None when it may."""
    if not features.device_taints or not device.taints:
        return None
    taint = blocking(device, tolerations)
    if taint is None:
        return None
    value = f"={taint.value}" if taint.value else ""
    return Refusal(
        reason=Reason.TAINT, detail=f"taint {taint.key}{value}:{taint.effect} is not tolerated"
    )


def blocking(device: Device, tolerations: Sequence[DeviceToleration]) -> DeviceTaint | None:
    """Return the first taint that keeps the device from whoever has only these tolerations."""
    for taint in device.taints or ():
        if taint.effect in _BLOCKING and not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Return whether a toleration matches a taint; how long it does is for the eviction only.

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
