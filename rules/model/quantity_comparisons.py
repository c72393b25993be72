"""Comparisons of a capacity with a text or a quantity by an operator, in the spelling of CEL."""

import re
from collections.abc import Mapping
from typing import Final

_CAPACITY: Final = (
    r"""(?P<capacity>\bdevice\s*\.\s*capacity\s*\[\s*(?P<quote>["'])[A-Za-z0-9.-]{1,253}(?P=quote)\s*\]"""
    r"""\s*\.\s*[A-Za-z_]\w{0,62})"""
)
_SIGN: Final = r"\s*(?P<sign>[<>]=?|[=!]=)\s*"
_AMOUNT: Final = (
    r"""(?P<call>\bquantity\(\s*)?(?P<mark>["'])"""
    r"""(?P<amount>[0-9]{1,18}(?:\.[0-9]{1,9})?(?:[KMGTPE]i|[kMGTPEmun])?)(?P=mark)(?(call)\s*\))"""
)
_COMPARISONS: Final = (
    re.compile(_CAPACITY + _SIGN + _AMOUNT, re.ASCII),
    re.compile(_AMOUNT + _SIGN + _CAPACITY, re.ASCII),
)
"""The capacity on the left, and on the right. Bounded in all of their parts, so that a fix may show them."""
_MIRRORED: Final[Mapping[str, str]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The signs that change when both sides change places."""


def compare_quantities(expression: str) -> str:
    """Return an expression with the comparisons of its capacities in CEL's spelling.

    >>> compare_quantities('device.capacity["a.com"].memory >= "8Gi"')
    'device.capacity["a.com"].memory.compareTo(quantity("8Gi")) >= 0'
    >>> compare_quantities('"8Gi" <= device.capacity["a.com"].memory')
    'device.capacity["a.com"].memory.compareTo(quantity("8Gi")) >= 0'
    """
    for comparison in _COMPARISONS:
        expression = comparison.sub(_compared, expression)
    return expression


def write_comparison(expression: str) -> str:
    """Return the fix with the first comparison that `compare_quantities` replaces; empty without any.

    >>> print(write_comparison("device.capacity['a.com'].memory > quantity('8Gi') && true"))
    write device.capacity['a.com'].memory.compareTo(quantity("8Gi")) > 0
    """
    matches = [match for form in _COMPARISONS if (match := form.search(expression)) is not None]
    first = min(matches, key=re.Match.start, default=None)
    return f"write {_compared(first)}" if first is not None else ""


def _compared(comparison: re.Match[str]) -> str:
    capacity = re.sub(r"\s+", "", comparison["capacity"])
    is_left = comparison.start("capacity") < comparison.start("sign")
    sign = comparison["sign"] if is_left else _MIRRORED.get(comparison["sign"], comparison["sign"])
    return f'{capacity}.compareTo(quantity("{comparison["amount"]}")) {sign} 0'
