"""The growth of an expression by its macros, computed from its text before they are expanded.

`target.optMap(v, ...)` becomes `target.hasValue() ? ... target.value() ... : ...`, so each optMap on the result of
another one doubles the expression.
"""

import re
from typing import Final

from kube.cel.texts import blank_texts

MAX_DOUBLINGS: Final = 5
"""The largest number of macros that double the same part: an expression grows to 32 times its size."""

_SIGN: Final = re.compile(
    r"(?P<macro>\.\s*opt(?:Flat)?Map\s*\()|(?P<open>[(\[{])|(?P<close>[)\]}])|\.\s*\?|(?P<operator>[&|?:,<>=!+*/%-])",
    re.ASCII,
)


def count_doublings(expression: str) -> int:
    """Return an upper bound of the number of macros that double the same part of an expression.

    >>> count_doublings("a.optMap(x, x).optMap(x, x)"), count_doublings("a.optMap(x, x) || b.optMap(x, x)")
    (2, 1)
    """
    # Of each open bracket: 1 if a macro opened it, the doublings of the target before it, and those of
    # its members so far.
    levels: list[tuple[int, int, int]] = []
    target = members = 0
    for sign in _SIGN.finditer(blank_texts(expression)):
        if sign["macro"] or sign["open"]:
            levels.append((1 if sign["macro"] else 0, target, members))
            target = members = 0
        elif sign["operator"]:
            members, target = max(members, target), 0
        elif sign["close"] and levels:
            within = max(members, target)
            doubled, target, members = levels.pop()
            target = max(target + doubled, within)
    return max(members, target)
