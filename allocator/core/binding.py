"""Whether devices that want conditions before a pod is bound may be chosen at all (KEP-5007).

Waiting for the conditions is the scheduler's; here is only what happens while it cannot wait.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/allocator_experimental.go, isSelectable.
"""

from allocator.core.model import Features
from allocator.core.outcome import Reason, Refusal
from kube.api.resource import Device


def refusal(device: Device, features: Features) -> Refusal | None:
    """Return why a device with binding conditions will not do; None when it will."""
    # "Devices with binding conditions are not supported, feature is off."
    if device.binding_conditions and not features.binding_conditions:
        return Refusal(
            reason=Reason.BINDING_CONDITIONS_OFF,
            detail="it has binding conditions, and their feature gates are off",
        )
    return None
