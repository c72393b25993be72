"""Amounts of quotas on device keys, validated as those of pods are."""

from collections.abc import Mapping
from typing import Final

import msgspec

from kube.quantity import ZERO, Quantity
from translation.model.amounts import is_in_bytes

_TYPES: Final[Mapping[type, str]] = {list: "a list", dict: "an object"}
"""Types of YAML to their words; all else is written out."""


class InvalidAmount(msgspec.Struct, frozen=True):
    """An amount that no quota for claims can have.

    Attributes:
        reason: Says what was found, and what would be right.
    """

    reason: str


def read_amount(value: object) -> Quantity | InvalidAmount:
    """Return the amount of a line as its object has it.

    >>> read_amount("80Gi"), read_amount(None)
    (Quantity('80Gi'), InvalidAmount(reason='null is not a quantity such as 500m, 3Gi or 1e3'))
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        text = _TYPES.get(type(value)) or ("null" if value is None else str(value).lower()[:40])
        return InvalidAmount(f"{text} is not a quantity such as 500m, 3Gi or 1e3")
    try:
        return Quantity(str(value))
    except ValueError as error:  # Python writes out no int of thousands of digits.
        return InvalidAmount(str(error))


def count_fault(amount: Quantity) -> str:
    """Explain the fault of an amount as a number of things; empty if it is one.

    >>> count_fault(Quantity("500m")), count_fault(Quantity("-5")), count_fault(Quantity("4"))
    ('500m is not a whole number; write a whole number', '-5 is negative; write 0 or more', '')
    """
    if not amount.is_whole:
        return f"{amount} is not a whole number; write a whole number"
    return negative_fault(amount)


def devices_fault(amount: Quantity) -> str:
    """Explain the fault of an amount as a number of devices; empty if it is one.

    >>> devices_fault(Quantity("80Gi"))
    '80Gi is a number of bytes, and the key counts devices; write a number of devices'
    """
    if is_in_bytes(amount):
        return (
            f"{amount} is a number of bytes, and the key counts devices; write a number of devices"
        )
    return count_fault(amount)


def negative_fault(amount: Quantity) -> str:
    """Explain that an amount is below zero; empty if it is not."""
    return f"{amount} is negative; write 0 or more" if amount < ZERO else ""
