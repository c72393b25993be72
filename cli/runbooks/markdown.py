"""Foreign text on a page of Markdown. Pure."""

from findings.text import printable


def inert(text: str) -> str:
    """Return foreign text for a page, escaped against markup and against the end of a cell."""
    marks = {"\\": "\\\\", "|": "\\|", "<": "&lt;", ">": "&gt;", "`": "'", "[": "\\[", "*": "\\*"}
    return "".join(marks.get(char, char) for char in printable(text))
