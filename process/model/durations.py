"""Durations as Go writes them: `10s`, `1m30s`, `500ms`.

Source: Go's time.ParseDuration, which metav1.Duration uses, without signs and without the units below
a millisecond.
"""

import re
from typing import Final

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")


class Duration(float):
    """Seconds, written as a duration in settings."""

    def __str__(self) -> str:
        """Return the shortest text that parses to the same duration.

        >>> [str(Duration(seconds)) for seconds in (0, 0.25, 10, 90, 3600, 31536000)]
        ['0s', '250ms', '10s', '1m30s', '1h', '8760h']
        """
        if not self:
            return "0s"
        left_ms, parts = round(self * 1000), []
        for unit, seconds in _UNITS.items():
            number, left_ms = divmod(left_ms, round(seconds * 1000))
            if number:
                parts.append(f"{number}{unit}")
        return "".join(parts)


class PositiveDuration(Duration):
    """A duration above zero."""


def parse_duration(text: object) -> Duration:
    """Return the duration that a text says.

    Raises:
        ValueError: It is no text, or not a duration.

    >>> parse_duration("1m30s"), parse_duration("0s")
    (90.0, 0.0)
    """
    if isinstance(text, Duration):
        return text
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise ValueError(f'a duration needs a unit: write "{Duration(text)}", not {text:g}')  # noqa: TRY004
    parts = _PART.findall(text) if isinstance(text, str) else []
    if not parts or "".join(map("".join, parts)) != text:
        fault = "not a duration"
        if isinstance(text, str) and text.startswith("-"):
            fault = "a duration has no sign"
        raise ValueError(f'{fault}: {text!r}; write "10s", "1m30s" or "500ms"')
    return Duration(sum(float(number) * _UNITS[unit] for number, unit in parts))
