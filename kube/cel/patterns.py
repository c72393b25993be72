r"""The size of the program that a regular expression compiles to, computed without compiling it.

RE2 matches in linear time, but compiles counted repetition by copying and a Unicode class to a
branch per range of characters: `(\pL|.){0,700}` has 14 characters and takes RE2 as long as a
million simple comparisons. The engine compiles a pattern anew in every evaluation, so its size counts
more than its text.

The size is an upper bound, in instructions of about a microsecond of compilation each. It never fails:
text that RE2 rejects has a size, too.

Source: google/re2, re2/parse.cc and re2/compile.cc.
"""

import re
from typing import Final

MAX_SIZE: Final = 2000
"""The largest size of all patterns of one expression: two milliseconds per evaluation."""
COMPILATION: Final = 50
"""Units of CEL cost to compile one instruction (1 us)."""

_CAP: Final = 10**9
_ANY: Final = 4
"""A dot, or a negated class: the ranges of UTF-8."""
_PERL_CLASSES: Final = {"d": 1, "s": 2, "w": 2, "D": 4, "S": 4, "W": 4}
_UNICODE_CLASS: Final = 1250
r"""The largest class, \pL."""
_POSIX_CLASS: Final = 8
_FOLDED_LITERAL: Final = 4
_FOLDED_RANGE: Final = 250
"""A range of other than ASCII characters, each of which brings its cases."""

_FOLDS: Final = re.compile(r"\(\?[A-Za-z-]*i")
_CLASS_NAME: Final = re.compile(r"\{[^}]*\}|.", re.DOTALL)
_COUNTED: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")


_ESCAPES: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(?P<escaped>.)", re.DOTALL)


def matches_bytes(pattern: str) -> bool:
    r"""Return True if a pattern has `\C`, a byte: Go rejects it, RE2 does not.

    >>> matches_bytes(r"a\C"), matches_bytes(r"a\\C"), matches_bytes(r"\Q\C\E")
    (True, False, False)
    """
    return any(escape["escaped"] == "C" for escape in _ESCAPES.finditer(pattern))


def program_size(pattern: str) -> int:
    r"""Return an upper bound of the number of instructions that a pattern compiles to.

    >>> program_size("a{10}"), program_size("(a{10}){10}") > 100
    (20, True)
    >>> program_size(r"(?i)(\pL|.){0,700}c") > MAX_SIZE
    True
    """
    return _Scanner(pattern).size()


class _Scanner:
    """A single pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._literal = _FOLDED_LITERAL if _FOLDS.search(pattern) else 1
        self._position = 0
        # Of each open group: the size before it, without its last item, which may be repeated.
        self._open: list[int] = []
        self._total = self._last = 0

    def size(self) -> int:
        while self._position < len(self._pattern):
            self._scan_item()
        return min(sum(self._open) + self._total + self._last, _CAP)

    def _scan_item(self) -> None:
        character = self._pattern[self._position]
        match character:
            case "(":
                self._open.append(self._total + self._last)
                self._total = self._last = 0
                self._position += 1
            case ")":
                self._close_group()
            case "|":
                self._append(1)
                self._position += 1
            case "*" | "+" | "?":
                self._last += 1
                self._position += 1
            case "{":
                self._repeat()
            case "[":
                self._append(self._class_size())
            case ".":
                self._append(_ANY)
                self._position += 1
            case "\\":
                self._scan_escape()
            case _:
                self._append(self._literal_size(character))
                self._position += 1

    def _append(self, size: int) -> None:
        self._total = min(self._total + self._last, _CAP)
        self._last = size

    def _literal_size(self, character: str) -> int:
        return self._literal * (1 if character.isascii() else 2)

    def _close_group(self) -> None:
        self._position += 1
        if self._open:
            group = self._total + self._last + 2
            self._total, self._last = self._open.pop(), min(group, _CAP)

    def _repeat(self) -> None:
        repeat_count = _COUNTED.match(self._pattern, self._position)
        if repeat_count is None:
            self._append(self._literal)
            self._position += 1
            return
        copies = max(int(repeat_count[1]), int(repeat_count[2] or 0), 1)
        self._last = min((self._last + 1) * copies, _CAP)
        self._position = repeat_count.end()

    def _scan_escape(self) -> None:
        escaped_letter = self._pattern[self._position + 1 : self._position + 2]
        if escaped_letter == "Q":
            self._scan_quoted()
            return
        self._append(self._escape_size(escaped_letter))
        self._position += 2
        if escaped_letter in {"p", "P"}:  # The name belongs to it: a repetition repeats the class.
            class_name = _CLASS_NAME.match(self._pattern, self._position)
            self._position = class_name.end() if class_name else self._position

    def _scan_quoted(self) -> None:
        start = self._position + 2
        end = self._pattern.find("\\E", start)
        quoted_text = self._pattern[start : end if end >= 0 else len(self._pattern)]
        for character in quoted_text:
            self._append(self._literal_size(character))
        self._position = start + len(quoted_text) + 2

    def _escape_size(self, escaped_letter: str) -> int:
        if escaped_letter in {"p", "P"}:
            return _UNICODE_CLASS
        if escaped_letter in _PERL_CLASSES:
            return _PERL_CLASSES[escaped_letter] * self._literal
        return 2 * self._literal

    def _class_size(self) -> int:
        """Return the size of the class at the position, and move behind it."""
        start = position = self._position + 1
        if self._pattern.startswith("^", position):
            position += 1
        if self._pattern.startswith("]", position):
            position += 1
        size = 2 * _ANY
        while position < len(self._pattern) and self._pattern[position] != "]":
            if self._pattern.startswith("[:", position):
                end = self._pattern.find(":]", position)
                if end >= 0:
                    size, position = size + _POSIX_CLASS, end + 2
                    continue
            if self._pattern[position] == "\\":
                size += self._escape_size(self._pattern[position + 1 : position + 2])
                position += 1
            else:
                size += self._literal_size(self._pattern[position])
            position += 1
        text = self._pattern[start:position]
        if self._literal != 1 and "-" in text and not (text.isascii() and "\\" not in text):
            size += _FOLDED_RANGE * text.count("-")
        self._position = position + 1
        return min(size, _CAP)
