"""Foreign text as a CEL literal, without the engine: the webhook writes CEL and never runs it."""

import re
from typing import Final

_UNSAFE: Final = re.compile(r"[^ !#-\[\]-~]")
"""All but printable ASCII without the double quote and the backslash."""


def quote(text: str) -> str:
    r"""Return a CEL string literal that evaluates to the text, in plain ASCII.

    >>> print(quote('a"b\\c'))
    "a\U00000022b\U0000005cc"
    >>> quote("NVIDIA A100")
    '"NVIDIA A100"'

    Source:
        CEL language definition, string escapes: `\U` and eight hexadecimal digits is a code point.
    """
    return '"' + _UNSAFE.sub(lambda found: f"\\U{ord(found.group()):08x}", text) + '"'
