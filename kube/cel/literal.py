"""Foreign text as a CEL literal, without the engine: the webhook writes CEL and never runs it."""

import re
from typing import Final

_UNSAFE: Final = re.compile("[^ !#-\\[\\]-~]")
"""All but printable ASCII without the double quote and the backslash."""
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(text: str) -> str:
    r"""Return a CEL string literal with this value, in ASCII.

    >>> print(quote('a "b" \\ \n é'))
    "a \"b\" \\ \n \u00e9"
    """
    return f'"{_UNSAFE.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    # A lone surrogate is no character of CEL, as it is none of JSON's UTF-8.
    if 0xD800 <= code < 0xE000:
        return "\\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
