"""Fields that the API server drops since their feature gate is off.

Source: k8s.io/kubernetes v1.37.1, pkg/registry/resource/{deviceclass,resourceclaim,resourceslice}/strategy.go,
dropDisabledFields. A gate that is off by default is no news here: `noUsableDevice` names it.
"""

from collections.abc import Iterator
from typing import Any, Final

from allocator.model.feature_gates import Features
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.api.resource import Device, DeviceClass, ResourceSlice
from rules.context.context import Context
from rules.context.rule import (
    DROPPED_ON_DECODE,
    Category,
    Claim,
    ClaimRule,
    ClassRule,
    Rule,
    Scope,
    SliceRule,
    Subject,
)
from rules.model.requests import list_alternatives

_CONSUMABLE: Final = "DRAConsumableCapacity"
_TURN_ON: Final = "turn on the feature gate, or leave the field out"


def find_shares(claim: Claim, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield amounts of shared devices that the API server drops: the claim would get whole devices."""
    if context.features.consumable_capacity:
        return
    for alternative in list_alternatives(claim.view):
        if alternative.request.capacity is not None:
            yield error(
                Code.SHARES_NOT_SUPPORTED,
                path.join(alternative.path).child("capacity"),
                f"the feature gate {_CONSUMABLE} is off, so the API server drops this, and the claim gets a "
                "whole device",
                "request whole devices, or turn on the feature gate",
            )


def find_gated_claim_fields(claim: Claim, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield fields of a claim that belong to a gate that is off."""
    features = context.features
    for index, constraint in enumerate(claim.view.constraints or ()):
        if constraint.distinct_attribute is not None and not features.consumable_capacity:
            place = path.child("constraints", index, "distinctAttribute")
            yield _dropped(place, _CONSUMABLE)
    for index, request in enumerate(claim.view.requests or ()):
        if request.first_available and not features.prioritized_list:
            yield _dropped(path.child("requests", index, "firstAvailable"), "DRAPrioritizedList")
        if (
            request.exactly is not None
            and request.exactly.admin_access
            and not features.admin_access
        ):
            place = path.child("requests", index, "exactly", "adminAccess")
            yield _dropped(place, "DRAAdminAccess")
    if not features.device_taints:
        for alternative in list_alternatives(claim.view):
            if alternative.request.tolerations:
                place = path.join(alternative.path).child("tolerations")
                yield _dropped(place, "DRADeviceTaints")


def find_gated_slice_fields(
    subject: Subject[ResourceSlice], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield fields of a slice that belong to a gate that is off, each once, at its first device."""
    features, spec = context.features, subject.view.spec
    place = path.child("spec")
    if spec.shared_counters and not features.partitionable_devices:
        yield _dropped(place.child("sharedCounters"), "DRAPartitionableDevices")
    fields_seen: set[str] = set()
    for index, device in enumerate(spec.devices or ()):
        for field, gate in _gated_fields(device, features):
            if field not in fields_seen:
                fields_seen.add(field)
                yield _dropped(place.child("devices", index, field), gate)


def find_gated_class_fields(
    subject: Subject[DeviceClass], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield the resource name of a class if its gate is off."""
    if subject.view.spec.extended_resource_name and not context.features.extended_resources:
        yield _dropped(path.child("spec", "extendedResourceName"), "DRAExtendedResource")


def _gated_fields(device: Device, features: Features) -> Iterator[tuple[str, str]]:
    """Yield the fields of a device that belong to a gate that is off, with the gate."""
    if device.allow_multiple_allocations and not features.consumable_capacity:
        yield "allowMultipleAllocations", _CONSUMABLE
    if device.consumes_counters and not features.partitionable_devices:
        yield "consumesCounters", "DRAPartitionableDevices"
    if device.taints and not features.device_taints:
        yield "taints", "DRADeviceTaints"
    if device.binding_conditions and not features.device_binding_conditions:
        yield "bindingConditions", "DRADeviceBindingConditions"


def _dropped(path: FieldPath, gate: str) -> Finding:
    return warning(
        Code.FEATURE_GATE_OFF,
        path,
        f"the feature gate {gate} is off, so the API server drops this",
        _TURN_ON,
    )


_FIX: Final = "Turn on the feature gate that the message names, or leave the field out."

RULES: Final[tuple[Rule[Any], ...]] = (
    ClaimRule(
        code=Code.SHARES_NOT_SUPPORTED,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_shares,
        fix="Request whole devices, or turn on the feature gate `DRAConsumableCapacity`.",
        no_cel_reason=DROPPED_ON_DECODE,
    ),
    ClaimRule(
        code=Code.FEATURE_GATE_OFF,
        scope=Scope.CLAIM,
        category=Category.ADVICE,
        validate=find_gated_claim_fields,
        fix=_FIX,
        no_cel_reason=DROPPED_ON_DECODE,
    ),
    ClassRule(
        code=Code.FEATURE_GATE_OFF,
        scope=Scope.CLASS,
        category=Category.ADVICE,
        validate=find_gated_class_fields,
        fix=_FIX,
        no_cel_reason=DROPPED_ON_DECODE,
    ),
    SliceRule(
        code=Code.FEATURE_GATE_OFF,
        scope=Scope.SLICE,
        category=Category.ADVICE,
        validate=find_gated_slice_fields,
        fix=_FIX,
        no_cel_reason=DROPPED_ON_DECODE,
    ),
)
