"""Text in messages: foreign text quoted, cut, and without control characters; numbers with nouns."""

import re
from collections.abc import Sequence
from typing import Final

_CI_COMMAND: Final = re.compile(r"##(?=\w*\[)")

MAX_QUOTED_LENGTH = 80


def quote_text(text: str, length: int = MAX_QUOTED_LENGTH) -> str:
    r"""Return foreign text fit for a message: quoted, on one line, without control characters.

    >>> print(quote_text("a\nb"))
    "a\nb"
    """
    cut = text if len(text) <= length else text[: length - 3] + "..."
    return f'"{printable(cut)}"'


def printable(text: str) -> str:
    r"""Return text with its control characters escaped, so that no terminal and no log obeys it.

    Commands that CI servers find anywhere in a line (`##vso[...]`, `##[...]`, `##teamcity[...]`) are
    escaped, too.

    >>> print(printable("nvidia.com/mig-\x1b[2J"))
    nvidia.com/mig-\x1b[2J
    >>> print(printable("##vso[task.setvariable]"))
    #\x23vso[task.setvariable]
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return _CI_COMMAND.sub(r"#\\x23", text)


def inert_line(line: str) -> str:
    r"""Return a line that GitHub Actions does not take for a workflow command.

    >>> print(inert_line("  ::error::of a name"))
      \x3a:error::of a name
    """
    return line.replace(":", r"\x3a", 1) if line.lstrip().startswith("::") else line


ELLIPSIS: Final = "..."


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count_text(1, "object"), count_text(0, "error")
    ('1 object', '0 errors')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def join_names(names: Sequence[str], limit: int = 3) -> str:
    """Return the first names, and the number of further ones.

    >>> join_names(("a", "b")), join_names(("a", "b", "c", "d", "e"))
    ('a, b', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{more}"


def reference_text(reference: str) -> str:
    """Return `Kind/namespace/name` as people read it: without the namespace if it is empty.

    >>> reference_text("Node//a"), reference_text("Pod/team/a")
    ('Node/a', 'Pod/team/a')
    """
    return reference.replace("//", "/", 1)


def shorten(text: str, length: int) -> str:
    """Shorten a text to so many characters; if cut, it ends with a whole word and an ellipsis.

    >>> shorten("leave out the limit of cores", 20)
    'leave out the...'
    """
    if len(text) <= length:
        return text
    return _end_at_word(text, text[: max(length - len(ELLIPSIS), 0)])[:length]


def shorten_encoded(text: str, size: int) -> str:
    """Return text of at most so many bytes in UTF-8, as `shorten` does."""
    raw = text.encode(errors="replace")
    if len(raw) <= size:
        return text
    head = raw[: max(size - len(ELLIPSIS), 0)].decode(errors="ignore")
    return _end_at_word(text, head)[:size]


def _end_at_word(text: str, head: str) -> str:
    """Return the words that are whole in the head of a text; half a word if that were too little."""
    words = head
    if not text[len(head) : len(head) + 1].isspace():
        words = head[: max(head.rfind(" "), 0)]
    if len(words) < len(head) // 2:
        words = head
    return f"{words.rstrip(' ,;:')}{ELLIPSIS}"
