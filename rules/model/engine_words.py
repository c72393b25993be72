"""Messages of the CEL engine, without the parts that tell users nothing."""

import re
from typing import Final

_ENGINE: Final = re.compile(r"compilation failed: ERROR: <input>:\d+:\d+: | \(in container ''\)")


def without_engine_words(message: str) -> str:
    """Return a message of the engine for users.

    >>> without_engine_words("compilation failed: ERROR: <input>:1:1: no such field (in container '')")
    'no such field'
    """
    return _ENGINE.sub("", message)
