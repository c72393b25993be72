"""Foreign text in messages: quoted, cut, and without control characters."""

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

    >>> print(printable("nvidia.com/mig-\x1b[2J"))
    nvidia.com/mig-\x1b[2J
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
