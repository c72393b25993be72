"""Hints for selectors in the syntax of other languages, such as Python and SQL."""

import re
from collections.abc import Iterator
from typing import Final

_TEXT: Final = re.compile(
    r"""(?P<quote>['"])(?:\\.?|(?!(?P=quote)).)*(?:(?P=quote)|\Z)""", re.DOTALL
)
"""A text, which ends with the expression if nothing else ends it, so that the search is linear."""
_ASSIGNED: Final = re.compile(r"(?<![=!<>])=(?!=)")
_WORD: Final = re.compile(r"(?<![\w.])(and|or|not)(?!\w)")
_OPERATORS: Final = {"and": "&&", "or": "||", "not": "!"}
_BARE_AMOUNT: Final = re.compile(r"(?<![\w.])\d{1,18}[KMGTPE]i?(?!\w)")


def cel_spellings(expression: str) -> Iterator[str]:
    """Yield the spellings of CEL for those of other languages in an expression, all at once."""
    code = _TEXT.sub('""', expression)
    if _ASSIGNED.search(code):
        yield "compare with =="
    words = dict.fromkeys(_WORD.findall(code))
    if words:
        yield f"write {', '.join(f'{_OPERATORS[word]} for {word}' for word in words)}"
    if amount := _BARE_AMOUNT.search(code):
        yield f'compare an amount with x.compareTo(quantity("{amount[0]}")) >= 0'
