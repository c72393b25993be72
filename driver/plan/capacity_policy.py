"""Faults of a capacity's request policy that the API server rejects (KEP-5075).

Source: k8s.io/kubernetes v1.37.1, pkg/apis/resource/validation/validation.go,
validateCapacityRequestPolicy and what it calls.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from driver.model import limits
from kube.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange
from kube.errors import FieldError
from kube.quantity import ZERO, Quantity

_MAX_INT64: Final = 2**63 - 1


def policy_faults(
    value: Quantity, policy: CapacityRequestPolicy, path: str
) -> Iterator[FieldError]:
    """Yield the faults of a request policy.

    Args:
        value: The capacity's value.
        path: The path of the capacity in a declared inventory, where the fields of policy and range
            are side by side.
    """
    if policy.valid_values and policy.valid_range is not None:
        yield _fault(f"{path}.validValues", "excludes min, max and step", "remove either")
        return
    if policy.default is None:
        fix = "say what a share takes that does not name the capacity, such as 0"
        yield _fault(f"{path}.default", "is missing beside the amounts of requests", fix)
        return
    if policy.valid_values:
        yield from _values_faults(value, policy.default, policy.valid_values, path)
    if policy.valid_range is not None:
        yield from _range_faults(value, policy.default, policy.valid_range, path)


def _values_faults(
    value: Quantity, default: Quantity, valid: tuple[Quantity, ...], path: str
) -> Iterator[FieldError]:
    here = f"{path}.validValues"
    if len(valid) > limits.CAPACITY_VALUES:
        yield _fault(here, f"has {len(valid)} values, above {limits.CAPACITY_VALUES}")
    for index, (lower, upper) in enumerate(pairwise(valid)):
        if upper.round_up() <= lower.round_up():
            yield _fault(f"{here}[{index + 1}]", f"{upper} is not above {lower}", "sort them")
    if valid[-1] > value:
        yield _fault(here, f"{valid[-1]} is above all of it, {value}")
    if default not in valid:
        yield _fault(f"{path}.default", f"{default} is none of validValues")


def _range_faults(
    value: Quantity, default: Quantity, range_: CapacityRequestPolicyRange, path: str
) -> Iterator[FieldError]:
    if range_.min is None:
        yield _fault(f"{path}.min", "is missing beside max or step", "write min: 0")
        return
    most = value if range_.max is None else range_.max
    if most > value:
        yield _fault(f"{path}.max", f"{most} is above all of it, {value}")
    if not range_.min <= most:
        yield _fault(f"{path}.min", f"{range_.min} is above {most}")
    if not range_.min <= default <= most:
        yield _fault(f"{path}.default", f"{default} is not between {range_.min} and {most}")
    if range_.step is not None:
        yield from _step_faults(value, default, range_.min, range_, path)


def _step_faults(
    value: Quantity,
    default: Quantity,
    least: Quantity,
    range_: CapacityRequestPolicyRange,
    path: str,
) -> Iterator[FieldError]:
    step = range_.step or ZERO
    if not step:
        yield _fault(f"{path}.step", "is 0", "leave it out for amounts of any size")
        return
    if step.round_up() + least.round_up() > value.round_up():
        yield _fault(f"{path}.step", f"{least} plus {step} is above all of it, {value}")
    for name, amount in (("default", default), ("max", range_.max)):
        if amount is None:
            continue
        if not 0 <= amount.round_up() <= _MAX_INT64:
            yield _fault(f"{path}.{name}", f"{amount} does not fit into 64 bits")
        elif (amount.round_up() - least.round_up()) % step.round_up():
            yield _fault(f"{path}.{name}", f"{amount} is not {least} plus steps of {step}")


def _fault(path: str, message: str, fix: str = "") -> FieldError:
    return FieldError(path=path, message=message, fix=fix)
