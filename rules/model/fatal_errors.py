"""Errors of parts of an expression that leave it no way to be true, as `&&`, `||` and loops absorb errors.

Read from the text, so an expression that is written in another way than usual counts as one with a way.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kube.cel.texts import blank_texts

Span = tuple[int, int]
"""The start and the end of a part of an expression."""

_FAULT: Final = "\0"
"""The mark of a faulty part, which no expression has outside of literals."""
_MAX_DEPTH: Final = 32
"""Parentheses and operators in each other that are looked into."""
_WAY: Final = re.compile(
    r"\|\||&&|\?|\.\s*(?:all|bind|filter|map|opt\w+|or|orValue|sortBy|transform\w+)\s*\(", re.ASCII
)
"""Operators and functions that may leave a part unevaluated, or absorb its error; loops may be over nothing."""
_EXISTS: Final = re.compile(r"\.\s*exists\w*\s*\(", re.ASCII)
"""A loop that is false if it is over nothing."""
_NEGATION: Final = re.compile(r"!(?!=)|\b(?:true|false)\b", re.ASCII)
_BRACKETS: Final = "()[]{}"
_SIGN: Final = re.compile(r"[()\[\]{}]|\|\||&&|(?<![.\[])\?")

WAYS_IN_CEL: Final = (
    r"\\|\\||\\?|(^|[^\\w\\s])\\s*\\(|(^|[^\\w\\s\\])])\\s*[\\[{]"
    r"|\\.\\s*(all|bind|exists\\w*|filter|map|opt\\w+|or|orValue|sortBy|transform\\w+)\\s*\\("
)
"""A pattern for the API server, for which brackets that are not of arguments and keys may leave a way."""


def is_fatal(expression: str, faults: Iterable[Span]) -> bool:
    """Return True if the errors of its faulty parts keep an expression from being true.

    >>> expression = "a && b.string == 'x'"
    >>> is_fatal(expression, [(5, 13)]), is_fatal(f"!({expression})", [(7, 15)])
    (True, False)
    """
    text = blank_texts(expression)
    for start, end in faults:
        text = text[:start] + _FAULT * (end - start) + text[end:]
    return _cannot_be_true(text, 0)


def _cannot_be_true(text: str, depth: int) -> bool:
    text = text.strip()
    if _FAULT not in text or depth > _MAX_DEPTH:
        return False
    if _is_in_parentheses(text):
        return _cannot_be_true(text[1:-1], depth + 1)
    operators = [sign for sign, level in _signs(text) if level == 0 and sign[0] not in _BRACKETS]
    if any(operator[0] == "?" for operator in operators):
        return False
    for sign, combine in (("||", all), ("&&", any)):
        parts = _split(text, [operator for operator in operators if operator[0] == sign])
        if len(parts) > 1:
            return combine(_cannot_be_true(part, depth + 1) for part in parts)
    negated_loop = _EXISTS.search(text) is not None and _NEGATION.search(text) is not None
    return _WAY.search(text) is None and not negated_loop


def _is_in_parentheses(text: str) -> bool:
    """Return True if the parenthesis that opens a text is closed at its end."""
    closing = next((sign for sign, level in _signs(text) if level == 0 and sign[0] == ")"), None)
    return text.startswith("(") and closing is not None and closing.end() == len(text)


def _signs(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield brackets and operators with the number of brackets around them."""
    level = 0
    for sign in _SIGN.finditer(text):
        level -= sign[0] in ")]}"
        yield sign, level
        level += sign[0] in "([{"


def _split(text: str, operators: Sequence[re.Match[str]]) -> list[str]:
    starts = [0, *(operator.end() for operator in operators)]
    ends = [*(operator.start() for operator in operators), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]
