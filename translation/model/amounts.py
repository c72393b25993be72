"""Amounts of extended resources, validated as the API server and the device plugins do."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding, error
from kube.quantity import Format, Quantity, format_count
from translation.model.intents import LegacyContainer


def whole_amount(container: LegacyContainer, key: str) -> int | Finding | None:
    """Return the amount of an integer resource; None when the container does not have the key.

    Returns:
        A number that is never negative, or an error.

    Source:
        k8s.io/kubernetes pkg/apis/core/validation, ValidateResourceQuantityValue: extended
        resources are integers; a translation that removes them must not admit anything else.
    """
    amount = container.limits.get(key)
    if amount is None:
        return None
    if not amount.is_whole:
        return error(
            Code.NOT_AN_INTEGER,
            container.limit_path(key),
            f"{amount} is not a whole number",
            "write a whole number",
        )
    number = int(amount)
    if number < 0:
        return error(
            Code.NEGATIVE,
            container.limit_path(key),
            f"{amount} is negative",
            "write 0 or more",
        )
    return number


def requested_amounts(container: LegacyContainer) -> Iterator[tuple[str, int | Finding]]:
    """Yield the container's keys, sorted, with their amounts above zero, or with the error."""
    for key in sorted(container.limits):
        amount = whole_amount(container, key)
        if amount:
            yield key, amount


def written_amount(text: str) -> tuple[str, str]:
    """Return a number and the unit behind it as a quantity has it; two empty texts without a number.

    >>> written_amount("100GB"), written_amount("8 GiB"), written_amount("624 TFLOPS")
    (('100', 'G'), ('8', 'Gi'), ('624', ''))
    >>> written_amount("much")
    ('', '')
    """
    match = _NUMBER_WITH_UNIT.fullmatch(text)
    if match is None:
        return "", ""
    unit = match[2].upper().removesuffix("B")
    return match[1], f"{unit[0]}{unit[1:].lower()}" if unit in _UNITS else ""


def suggest_amount(text: str, *, with_unit: bool) -> str:
    """Return the amount that a malformed text probably means; empty if it tells none.

    >>> suggest_amount("100GB", with_unit=True), suggest_amount("624 TFLOPS", with_unit=False)
    ('100G', '624')
    """
    number, unit = written_amount(text)
    return f"{number}{unit}" if unit or not with_unit else ""


def probable_amount(text: str) -> Quantity | None:
    """Return the amount that people mean by a text that is no quantity; None if it tells none.

    GB of a GPU are GiB.

    >>> probable_amount("100GB"), probable_amount("40 gi"), probable_amount("1.5 TiB")
    (Quantity('100Gi'), Quantity('40Gi'), Quantity('1536Gi'))
    >>> probable_amount("1e2Mi"), probable_amount("8,000"), probable_amount("50%")
    (Quantity('100Mi'), Quantity('8k'), Quantity('50'))
    """
    match = _AMOUNT_OF_PEOPLE.fullmatch(text)
    if match is None:
        return None
    number = Quantity(match["number"].replace(",", ""))
    unit = match["unit"]
    if not unit or unit == "%":
        return number
    return Quantity.from_nanos(number.nanos << _BITS[unit[0].upper()], Format.BINARY)


def invalid_amount(path: FieldPath, value: object, shown_value: str) -> Finding:
    """Return an error for a value that is no quantity, with the amount to write if the value tells it.

    Kubernetes takes whole numbers without a unit of a resource whose name has a prefix.

    Args:
        path: The place of the value.
        shown_value: The value in words.
    """
    (*_, last) = path.steps or ("",)
    is_extended = isinstance(last, Key) and "/" in last.name
    amount = probable_amount(value) if isinstance(value, str) else None
    invalid = error(Code.INVALID_QUANTITY, path, f"Invalid value: {shown_value}: not a quantity")
    if amount is None or (is_extended and not amount.is_whole):
        fix = f"write a {'whole number' if is_extended else 'number, such as 1 or 500m or 8Gi'}"
        return msgspec.structs.replace(invalid, fix=fix)
    fix = f"write {format_count(amount)}"
    if isinstance(value, str) and value.endswith("%"):
        fix = f"{fix}, without the percent sign"
    elif is_extended and amount.format is Format.BINARY:
        mib = -(-int(amount) // 2**20)
        fix = f"write a whole number without a unit: {mib} where the key counts MiB"
    return msgspec.structs.replace(invalid.corrected_by(amount), fix=fix)


_AMOUNT_OF_PEOPLE: Final = re.compile(
    r"\s*(?P<number>[0-9]{1,12}(?:,[0-9]{3}){0,3}(?:\.[0-9]{1,9})?(?:e[0-9]{1,2})?)\s*(?P<unit>|%|[MGT]i?B?)\s*",
    re.ASCII | re.IGNORECASE,
)
_BITS: Final = {"M": 20, "G": 30, "T": 40}

_NUMBER_WITH_UNIT: Final = re.compile(
    r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]{0,20})\s*", re.ASCII
)
_UNITS: Final = frozenset({"M", "G", "T", "MI", "GI", "TI"})

_LEAST_BYTES: Final = Quantity(10**9)
_MOST_BYTES: Final = Quantity(2**50)
"""A pebibyte; what is more is no size of a device in any unit."""


def is_meant_in_bytes(amount: Quantity) -> bool:
    """Return True if an amount of the memory of one device that counts MiB or more is one of bytes.

    A device with a thousand million MiB does not exist, so such an amount is in bytes without a suffix
    of its own, too.

    >>> is_meant_in_bytes(Quantity("8Gi")), is_meant_in_bytes(Quantity("8G"))
    (True, True)
    >>> is_meant_in_bytes(Quantity("8192"))
    False
    """
    return is_in_bytes(amount) or _LEAST_BYTES <= amount <= _MOST_BYTES


def is_in_bytes(amount: Quantity) -> bool:
    """Return True if the amount is written in bytes: with a binary suffix of Mi or more.

    >>> is_in_bytes(Quantity("8Gi")), is_in_bytes(Quantity("5k")), is_in_bytes(Quantity("8192"))
    (True, False, False)
    """
    return amount.format is Format.BINARY and str(amount).endswith(("Mi", "Gi", "Ti", "Pi", "Ei"))
