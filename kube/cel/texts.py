"""String literals and comments in the text of an expression, and the rest of it."""

import re
from typing import Final

_LITERAL: Final = re.compile(
    r"""(?P<raw>[bB]?[rR])?(?P<quote>'''|\"{3}|'|")"""
    r"""(?:(?(raw)(?!)|\\.)|(?!(?P=quote)).)*(?:(?P=quote)|\Z)"""
    r"""|(?P<comment>//[^\n]*)""",
    re.DOTALL,
)
"""A literal ends at the end of the text if nothing else ends it, so the pattern never goes back."""
_TWO_VARIABLES: Final = re.compile(
    r"(?<=\.)(?P<space>\s*)exists_one(?=\s*\(\s*[A-Za-z_]\w*\s*,\s*[A-Za-z_]\w*\s*,)", re.ASCII
)


def blank_texts(expression: str) -> str:
    """Return an expression with blanks for its literals and comments; all else stays in its place.

    >>> blank_texts("'a || b' == x // c")[:14]
    '         == x '
    """
    return _LITERAL.sub(lambda literal: " " * len(literal[0]), expression)


def rename_exists_one(expression: str) -> str:
    """Return an expression with `existsOne` for `exists_one` of two variables.

    Upstream has both names for the macro, this engine one.

    >>> rename_exists_one("[1].exists_one(i, v, v == 1) || [1].exists_one(v, v == 1)")
    '[1].existsOne(i, v, v == 1) || [1].exists_one(v, v == 1)'
    """
    parts, end = [], 0
    for name in _TWO_VARIABLES.finditer(blank_texts(expression)):
        parts.append(expression[end : name.end("space")] + "existsOne")
        end = name.end()
    return "".join((*parts, expression[end:]))
