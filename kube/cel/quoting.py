"""Quote a string as a CEL literal without the engine: translations write CEL and never run it."""

import re
from typing import Final

_UNSAFE: Final = re.compile("[^ !#-\\[\\]-~]")
"""Everything but printable ASCII, and the double quote and the backslash."""
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(text: str) -> str:
    r"""Return an ASCII CEL string literal with this value.

    >>> print(quote('a "b" \\ \n é'))
    "a \"b\" \\ \n \u00e9"
    """
    if unsafe_characters := set(_UNSAFE.findall(text)):
        # Each is escaped once, however often it comes.
        text = text.translate(
            {ord(character): _escape(character) for character in unsafe_characters}
        )
    return f'"{text}"'


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    # A lone surrogate is not a character in CEL or in JSON's UTF-8.
    if 0xD800 <= code < 0xE000:
        return "\\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
