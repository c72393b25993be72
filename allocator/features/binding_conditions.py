"""Devices with binding conditions: they can be chosen only with a feature gate (KEP-5007).

Waiting for the conditions is the scheduler's task and not decided here.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/allocator_experimental.go, isSelectable.
"""

from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason, Verb
from kube.api.resource import Device


def rejection(device: Device, features: Features) -> RejectionReason | None:
    """Return the reason a device with binding conditions cannot be chosen; None if it can."""
    # "Devices with binding conditions are not supported, feature is off."
    if device.binding_conditions and not features.binding_conditions:
        return RejectionReason(
            reason=Reason.BINDING_CONDITIONS_DISABLED,
            verb=Verb.HAVE,
            subject="binding conditions",
            remark="need feature gates DRADeviceBindingConditions and DRAResourceClaimDeviceStatus",
        )
    return None
