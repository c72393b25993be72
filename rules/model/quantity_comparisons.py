"""Comparisons of a capacity with a text or a quantity by an operator, in the spelling of CEL."""

import re
from typing import Final

_COMPARISON: Final = re.compile(
    r"""(?P<operand>\bdevice\s*\.\s*capacity\s*\[\s*(?P<quote>["'])[A-Za-z0-9.-]{1,253}(?P=quote)\s*\]"""
    r"""\s*\.\s*[A-Za-z_]\w{0,62})\s*(?P<sign>[<>]=?)\s*"""
    r"""(?P<call>quantity\(\s*)?(?P<mark>["'])"""
    r"""(?P<amount>[0-9]{1,18}(?:\.[0-9]{1,9})?(?:[KMGTPE]i|[kMGTPEmun])?)(?P=mark)(?(call)\s*\))""",
    re.ASCII,
)
"""Bounded in all of its parts, so that a fix may show it."""


def compare_quantities(expression: str) -> str:
    """Return an expression with the comparisons of its capacities in CEL's spelling.

    >>> compare_quantities('device.capacity["a.com"].memory >= "8Gi"')
    'device.capacity["a.com"].memory.compareTo(quantity("8Gi")) >= 0'
    """
    return _COMPARISON.sub(_compared, expression)


def write_comparison(expression: str) -> str:
    """Return the fix with the first comparison that `compare_quantities` replaces; empty without any.

    >>> print(write_comparison("device.capacity['a.com'].memory > quantity('8Gi') && true"))
    write device.capacity['a.com'].memory.compareTo(quantity("8Gi")) > 0
    """
    comparison = _COMPARISON.search(expression)
    return f"write {_compared(comparison)}" if comparison is not None else ""


def _compared(comparison: re.Match[str]) -> str:
    operand = re.sub(r"\s+", "", comparison["operand"])
    return f'{operand}.compareTo(quantity("{comparison["amount"]}")) {comparison["sign"]} 0'
