"""Quote a string as a CEL literal without the engine: translations write CEL and never run it."""

from typing import Final

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(text: str) -> str:
    r"""Return an ASCII CEL string literal with this value.

    >>> print(quote('a "b" \\ \n é'))
    "a \"b\" \\ \n \u00e9"
    """
    if text.isascii() and text.isprintable() and not _ESCAPES.keys() & set(text):
        return f'"{text}"'
    # Few characters come often, so each is escaped once.
    escapes = {ord(character): _escape(character) for character in set(text)}
    return f'"{text.translate(escapes)}"'


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isascii() and character.isprintable():
        return character
    code = ord(character)
    # A lone surrogate is not a character in CEL or in JSON's UTF-8.
    if 0xD800 <= code < 0xE000:
        return "\\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
