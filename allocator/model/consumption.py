"""The consumption of a device's capacities by a request (KEP-5075).

The check applies to every device. For a dedicated device it decides whether the device is large
enough; on a device that allows multiple allocations it computes what one share consumes.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/consumable_capacity.go.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, Reason, RejectionReason, Verb
from kube.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
)
from kube.quantity import Quantity, format_amount

_NANOS: Final = 10**9
_MILLIS: Final = 10**6
"""Nano-units in a thousandth."""
_MAX_INT64: Final = 2**63 - 1


class Consumption(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The consumption of a device by a request.

    Attributes:
        amounts: Amount of *every* capacity of the device, requested or not, including zero; sorted
            by key.
    """

    amounts: Mapping[str, Quantity]


def consumption(
    requested_amounts: Mapping[str, Quantity] | None, device: Device, features: Features
) -> Consumption | RejectionReason:
    """Return the consumption of a request, or the reason the device cannot serve it even if unused.

    Raises:
        AttemptFailed: An amount is negative, or out of range for the arithmetic of the device's
            request policy: invalid data, which another device does not make valid.
    """
    fractional = features.fractional_capacity_range
    return capacity_consumption(requested_amounts, device.capacity or {}, fractional=fractional)


def capacity_consumption(
    requested_amounts: Mapping[str, Quantity] | None,
    capacity: Mapping[str, DeviceCapacity],
    *,
    fractional: bool,
) -> Consumption | RejectionReason:
    """Return the consumption of capacities; see `consumption`."""
    requested_amounts = requested_amounts or {}
    for name in sorted(requested_amounts):
        # Keys are compared literally: the driver's domain is neither added nor removed.
        if name not in capacity:
            return RejectionReason(
                reason=Reason.CAPACITY_NOT_FOUND, verb=Verb.HAVE, subject="no capacity", value=name
            )
    # Fatal errors come before rejections of this device, whatever the order of the keys.
    amounts = {
        name: _consumed_amount(
            name, requested_amounts.get(name), device_capacity, fractional=fractional
        )
        for name, device_capacity in sorted(capacity.items())
    }
    for name, amount in amounts.items():
        total = capacity[name].value
        violation = _violation(name, amount, capacity[name].request_policy, fractional=fractional)
        if violation is not None:
            return violation
        if amount > total:
            return RejectionReason(
                reason=Reason.CAPACITY,
                verb=Verb.HAVE,
                subject=name,
                value=format_amount(total),
                remark=f"< {format_amount(amount)}",
            )
    return Consumption(amounts=amounts)


def _consumed_amount(
    name: str, requested_amount: Quantity | None, capacity: DeviceCapacity, *, fractional: bool
) -> Quantity:
    """Return the amount that a share consumes of one capacity.

    Source: calculateConsumedCapacity.
    """
    policy = capacity.request_policy
    if requested_amount is None:
        # "If no requestPolicy, return capacity value": no amount means all of it.
        default = policy.default if policy is not None else None
        amount = capacity.value if default is None else default
    elif policy is None:
        amount = requested_amount
    elif policy.valid_range is not None and policy.valid_range.min is not None:
        amount = _round_up(name, requested_amount, policy.valid_range, fractional=fractional)
    else:
        # The smallest of the valid values, which ascend, that is sufficient. If none is, the
        # requested amount, which then violates the policy.
        valid = policy.valid_values or ()
        amount = next((value for value in valid if requested_amount <= value), requested_amount)
    if amount.nanos < 0:
        raise AttemptFailed(f"capacity {name}: capacity value is negative")
    return amount


def _round_up(
    name: str, requested_amount: Quantity, range_: CapacityRequestPolicyRange, *, fractional: bool
) -> Quantity:
    """Round an amount up to the minimum, or to the next step from the minimum.

    The result has the format of the step. Source: roundUpRange.
    """
    assert range_.min is not None
    if requested_amount < range_.min:
        return range_.min
    if range_.step is None:
        return requested_amount
    exact = _is_exact_in_thousandths(range_, fractional=fractional)
    unit = _MILLIS if exact else _NANOS
    if exact and _thousandths(requested_amount) is None:
        raise _not_representable(name, f"{requested_amount} is not a multiple of 0.001")
    if not exact and requested_amount.nanos > _MAX_INT64 * _NANOS:
        raise _not_representable(name, f"{requested_amount} is beyond 64 bits")
    start, step = _units(range_.min, unit), _step(name, range_.step, unit)
    if exact and start < 0:
        # Upstream's check for overflow overflows itself.
        raise _not_representable(name, f"minimum {range_.min} is negative")
    rounded_amount = start + -(-(_units(requested_amount, unit) - start) // step) * step
    if rounded_amount > _MAX_INT64:
        raise _not_representable(
            name, f"{requested_amount} rounded up to the next step is beyond 64 bits"
        )
    return Quantity.from_nanos(rounded_amount * unit, range_.step.format)


def _violation(
    name: str, amount: Quantity, policy: CapacityRequestPolicy | None, *, fractional: bool
) -> RejectionReason | None:
    """Return the violation of the request policy by an amount; None without one.

    Source: violatesPolicy.
    """
    if policy is None or _is_identical(amount, policy.default):
        return None
    if policy.valid_range is not None:
        return _range_violation(name, amount, policy.valid_range, fractional=fractional)
    if policy.valid_values and amount not in policy.valid_values:
        return _too_large(Reason.NOT_IN_VALID_VALUES, name, amount, policy.valid_values[-1])
    return None


def _range_violation(
    name: str, amount: Quantity, range_: CapacityRequestPolicyRange, *, fractional: bool
) -> RejectionReason | None:
    if range_.max is not None and amount > range_.max:
        return _too_large(Reason.ABOVE_MAXIMUM, name, amount, range_.max)
    if range_.step is None or range_.min is None:
        return None
    exact = _is_exact_in_thousandths(range_, fractional=fractional)
    unit = _MILLIS if exact else _NANOS
    step = _step(name, range_.step, unit)
    is_step = not (_units(amount, unit) - _units(range_.min, unit)) % step
    if is_step and not (exact and _thousandths(amount) is None):
        return None
    return RejectionReason(
        reason=Reason.NOT_MULTIPLE_OF_STEP,
        verb=Verb.ALLOW,
        subject=name,
        value=f"{range_.min} plus steps of {range_.step}",
        remark=f"{amount} needed",
    )


def _too_large(reason: Reason, name: str, amount: Quantity, largest: Quantity) -> RejectionReason:
    return RejectionReason(
        reason=reason,
        verb=Verb.ALLOW,
        subject=f"{name} up to",
        value=format_amount(largest),
        remark=f"{format_amount(amount)} needed",
    )


def _is_identical(amount: Quantity, default: Quantity | None) -> bool:
    """Return True if an amount is literally the default: upstream compares with ==.

    This matters only for a default that violates its own policy, which the API server rejects.
    Unlike upstream, the answer does not depend on whether Go stores the amount in 64 bits.
    """
    return default is not None and amount == default and amount.format == default.format


def _is_exact_in_thousandths(range_: CapacityRequestPolicyRange, *, fractional: bool) -> bool:
    """Return True if steps are counted in thousandths, and not in integers rounded up.

    The KEP specifies this for ranges with a fraction; upstream's useMilli does not check for one.
    """
    bounds = (range_.min, range_.max, range_.step)
    return fractional and all(bound is None or _thousandths(bound) is not None for bound in bounds)


def _thousandths(amount: Quantity) -> int | None:
    """Return an amount in thousandths; None if it is not a multiple of them or exceeds 64 bits."""
    whole, rest = divmod(amount.nanos, _MILLIS)
    return whole if not rest and abs(whole) <= _MAX_INT64 else None


def _units(amount: Quantity, unit: int) -> int:
    """Return an amount in integer units, rounded away from zero like upstream's Value()."""
    return -(-amount.nanos // unit) if amount.nanos >= 0 else amount.nanos // unit


def _step(name: str, step: Quantity, unit: int) -> int:
    """Return a step in integer units; the API server only accepts positive steps."""
    if step.nanos <= 0:
        raise _not_representable(name, f"step {step} is not positive")
    return _units(step, unit)


def _not_representable(name: str, why: str) -> AttemptFailed:
    return AttemptFailed(
        f"capacity {name}: capacity request cannot be represented in the device's range arithmetic:"
        f" {why}"
    )
