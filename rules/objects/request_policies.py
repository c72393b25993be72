"""Request policies of capacities in a ResourceSlice.

Source: KEP-5075; k8s.io/kubernetes v1.37.1, pkg/apis/resource/validation, validateRequestPolicy, for
what the API server rejects. What it accepts and the allocator fails on has a rule of its own.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from allocator.model.feature_gates import Features
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
)
from kube.quantity import ZERO, Quantity

MAX_VALID_VALUES: Final = 10
_MAX_INT64: Final = Quantity(2**63 - 1)
_NANOS_PER_MILLI: Final = 10**6


def find_invalid_policies(device: Device, path: FieldPath, features: Features) -> Iterator[Finding]:
    """Yield the faults of the policies of a device that the API server rejects."""
    if not features.consumable_capacity:
        return  # The API server drops the policies.
    for name, capacity in (device.capacity or {}).items():
        place = path.child("capacity").key(name).child("requestPolicy")
        if capacity.request_policy is None:
            continue
        if device.allow_multiple_allocations:
            yield from _policy_faults(capacity, capacity.request_policy, place, features)
        else:
            yield _invalid(
                place,
                "is allowed only with allowMultipleAllocations: true",
                "set allowMultipleAllocations: true, or remove the policy",
            )


def find_failing_policies(device: Device, path: FieldPath, features: Features) -> Iterator[Finding]:
    """Yield policies that the API server accepts, and that fail requests on all nodes."""
    for place, _, policy in _policies(device, path, features):
        if policy.default is not None and policy.default < ZERO:
            yield error(
                Code.UNSATISFIABLE_REQUEST_POLICY,
                place.child("default"),
                f"{policy.default} is negative, which fails every allocation for requests without an"
                " amount",
                "use 0 or more",
            )
        least = _negative_min(policy)
        if least is not None and _has_exact_steps(policy, features):
            yield error(
                Code.UNSATISFIABLE_REQUEST_POLICY,
                place.child("validRange", "min"),
                f"{least} is negative, which fails every allocation for requests with an amount, since"
                " there is a step",
                "use 0 or more",
            )


def find_unhelpful_policies(
    device: Device, path: FieldPath, features: Features
) -> Iterator[Finding]:
    """Yield policies with an amount that some requests need, and that does not serve them."""
    for place, capacity, policy in _policies(device, path, features):
        least = _negative_min(policy)
        if least is not None and not _has_exact_steps(policy, features):
            yield warning(
                Code.UNSATISFIABLE_REQUEST_POLICY,
                place.child("validRange", "min"),
                f"{least} is negative, so it does not raise negative requests, which fail every"
                " allocation",
                "use 0 or more",
            )
        if policy.default is not None and policy.default > capacity.value:
            yield warning(
                Code.UNSATISFIABLE_REQUEST_POLICY,
                place.child("default"),
                f"{policy.default} exceeds the capacity {capacity.value}, so no request without an"
                " amount fits",
                f"use {capacity.value} or less",
            )


def _policies(
    device: Device, path: FieldPath, features: Features
) -> Iterator[tuple[FieldPath, DeviceCapacity, CapacityRequestPolicy]]:
    for name, capacity in (device.capacity or {}).items():
        if capacity.request_policy is not None and features.consumable_capacity:
            place = path.child("capacity").key(name).child("requestPolicy")
            yield place, capacity, capacity.request_policy


def _negative_min(policy: CapacityRequestPolicy) -> Quantity | None:
    """Return the minimum of the valid range if it is negative."""
    least = policy.valid_range.min if policy.valid_range is not None else None
    return least if least is not None and least < ZERO else None


def _has_exact_steps(policy: CapacityRequestPolicy, features: Features) -> bool:
    """Return True if steps are counted in thousandths; that arithmetic rejects a negative minimum."""
    step = policy.valid_range and policy.valid_range.step
    return features.fractional_capacity_range and step is not None


def _policy_faults(
    capacity: DeviceCapacity, policy: CapacityRequestPolicy, path: FieldPath, features: Features
) -> Iterator[Finding]:
    values, bounds = policy.valid_values, policy.valid_range
    if values and bounds is not None:
        yield _invalid(path, "validValues and validRange are mutually exclusive", "remove one")
    elif values or bounds is not None:
        kind = "validValues" if values else "validRange"
        if policy.default is None:
            yield _invalid(path.child("default"), f"is required with {kind}")
        elif values:
            yield from _value_faults(policy.default, capacity.value, values, path, features)
        elif bounds is not None:
            yield from _range_faults(policy.default, capacity.value, bounds, path, features)


# --- validValues ----------------------------------------------------------------------------------


def _value_faults(
    default: Quantity,
    capacity: Quantity,
    values: Sequence[Quantity],
    path: FieldPath,
    features: Features,
) -> Iterator[Finding]:
    place = path.child("validValues")
    for index, (smaller, larger) in enumerate(pairwise(values), start=1):
        if smaller > larger:
            yield _invalid(place.child(index), f"{larger} comes after {smaller}", "sort ascending")
    if len(values) > MAX_VALID_VALUES:
        yield _invalid(place, f"{len(values)} values, but at most {MAX_VALID_VALUES} are allowed")
    else:
        keys: set[int] = set()
        for index, value in enumerate(values):
            if value > capacity:
                yield _invalid(place.child(index), f"{value} exceeds the capacity {capacity}")
            key = value.nanos if features.fractional_capacity_range else value.round_up()
            if key in keys:
                yield _invalid(place.child(index), f"duplicate value {value}")
            keys.add(key)
    if default not in values:
        yield _invalid(path.child("default"), f"{default} is not one of validValues")


# --- validRange -----------------------------------------------------------------------------------


def _range_faults(
    default: Quantity,
    capacity: Quantity,
    bounds: CapacityRequestPolicyRange,
    path: FieldPath,
    features: Features,
) -> Iterator[Finding]:
    place = path.child("validRange")
    least, most = bounds.min, bounds.max
    if least is None:
        yield _invalid(place.child("min"), "is required with validRange")
        return
    if least > capacity:
        yield _invalid(place.child("min"), f"{least} exceeds the capacity {capacity}")
    if default < least:
        yield _invalid(path.child("default"), f"{default} is less than min {least}")
    if most is not None:
        if least > most:
            yield _invalid(place.child("max"), f"{most} is less than min {least}")
        if most > capacity:
            yield _invalid(place.child("max"), f"{most} exceeds the capacity {capacity}")
        if default > most:
            yield _invalid(path.child("default"), f"{default} is more than max {most}")
    yield from _step_faults(default, capacity, bounds, path, features)


def _step_faults(
    default: Quantity,
    capacity: Quantity,
    bounds: CapacityRequestPolicyRange,
    path: FieldPath,
    features: Features,
) -> Iterator[Finding]:
    """Yield the faults of the step, and of amounts that are not on it."""
    place, least, step = path.child("validRange"), bounds.min or ZERO, bounds.step
    amounts = [
        (path.child("default"), default),
        (place.child("min"), least),
        (place.child("max"), bounds.max),
        (place.child("step"), step),
    ]
    present_amounts = [(at, amount) for at, amount in amounts if amount is not None]
    in_milli = features.fractional_capacity_range and not all(
        amount.is_whole for _, amount in present_amounts
    )
    if in_milli:
        faults = [
            _invalid(at, f"{amount} has more than three decimal places")
            for at, amount in present_amounts
            if amount.nanos % _NANOS_PER_MILLI
        ]
        if faults:
            yield from faults
            return
    if step is None:
        return
    if step <= ZERO:
        yield _invalid(place.child("step"), f"must be greater than zero, found {step}")
        return
    if least + step > capacity:
        yield _invalid(
            place.child("step"),
            f"min plus one step, {least + step}, exceeds the capacity {capacity}",
        )
    if not in_milli:
        faults = [fault for at, amount in present_amounts for fault in _int64_faults(at, amount)]
        if faults:
            yield from faults
            return
    for at, amount in present_amounts[:1] + [
        (at, amount) for at, amount in present_amounts if amount is bounds.max
    ]:
        if (_units(amount, in_milli) - _units(least, in_milli)) % _units(step, in_milli):
            yield _invalid(at, f"{amount} is not min {least} plus a multiple of step {step}")


def _units(amount: Quantity, in_milli: bool) -> int:  # noqa: FBT001
    return amount.nanos // _NANOS_PER_MILLI if in_milli else amount.round_up()


def _int64_faults(path: FieldPath, amount: Quantity) -> Iterator[Finding]:
    if amount < ZERO:
        yield _invalid(path, f"must not be negative with a step, found {amount}")
    elif amount > _MAX_INT64:
        yield _invalid(path, f"must not exceed {_MAX_INT64} with a step, found {amount}")


def _invalid(path: FieldPath, message: str, fix: str = "") -> Finding:
    return error(Code.INVALID_REQUEST_POLICY, path, message, fix)
