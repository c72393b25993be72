"""Texts that cel-go converts to other types, by the grammars of Go's strconv and time.

The engine has other grammars: it reads `int(" 5")`, and it does not read `duration("1µs")`.

Source: cel-go v0.29.2, common/types/string.go, ConvertToType; Go 1.26, strconv and time.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

_BOOL: Final = re.compile(r"[1tT0fF]|true|True|TRUE|false|False|FALSE")
_INT: Final = re.compile(r"(?P<sign>[+-]?)0*(?P<digits>[0-9]{1,19})")
_UINT: Final = re.compile(r"0*(?P<digits>[0-9]{1,20})")

_DIGITS: Final = r"[0-9]+(?:_[0-9]+)*"
_HEX_DIGITS: Final = r"[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*"
_DECIMAL: Final = re.compile(
    rf"(?i:[+-]?inf|[+-]?infinity|nan)"
    rf"|[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?P<exponent>[eE][+-]?{_DIGITS})?"
)
_HEXADECIMAL: Final = re.compile(
    rf"[+-]?0[xX]_?(?:{_HEX_DIGITS}(?:\.(?:{_HEX_DIGITS})?)?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}"
)

_NANOSECONDS: Final[Mapping[str, int]] = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(
    rf"(?:0*(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))(?P<unit>{'|'.join(_NANOSECONDS)})"
)
_TIMESTAMP: Final = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})T(?P<hour>[0-9]{1,2})(?P<time>:[0-9]{2}:[0-9]{2})"
    r"(?:[.,][0-9]+)?(?:Z|(?P<sign>[+-])(?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2}))"
)
_MAX_INT: Final = 2**63 - 1
_MAX_UINT: Final = 2**64 - 1
_MAX_DIGITS: Final = 19
"""The digits of the largest integer."""


def is_converted(function: str, text: str) -> bool:
    """Return True if a conversion of a text succeeds upstream.

    >>> is_converted("int", "5"), is_converted("int", " 5"), is_converted("duration", "1.5h")
    (True, False, True)
    """
    return _GRAMMARS[function](text)


def _is_bool(text: str) -> bool:
    return _BOOL.fullmatch(text) is not None


def _is_int(text: str) -> bool:
    number = _INT.fullmatch(text)
    return number is not None and int(number["digits"]) <= _MAX_INT + (number["sign"] == "-")


def _is_uint(text: str) -> bool:
    number = _UINT.fullmatch(text)
    return number is not None and int(number["digits"]) <= _MAX_UINT


def _is_double(text: str) -> bool:
    """Return True for a number in the range of doubles, or a name of one that is not finite."""
    if _HEXADECIMAL.fullmatch(text) is not None:
        try:
            float.fromhex(text.replace("_", ""))
        except OverflowError:
            return False
        return True
    if _DECIMAL.fullmatch(text) is None:
        return False
    is_named = text[-1:].lower() in {"f", "n", "y"}
    return is_named or abs(float(text.replace("_", ""))) != float("inf")


def _is_duration(text: str) -> bool:
    """Return True for a sum of parts in the range of nanoseconds in 64 bits."""
    unsigned = text[text[:1] in {"+", "-"} :]
    if unsigned == "0":
        return True
    nanoseconds, end = 0, 0
    while (part := _PART.match(unsigned, end)) is not None:
        unit, end = _NANOSECONDS[part["unit"]], part.end()
        whole, fraction = part["whole"] or "0", (part["part"] or part["only"] or "0")[:_MAX_DIGITS]
        if len(whole) > _MAX_DIGITS:
            return False
        nanoseconds += int(whole) * unit + int(fraction) * unit // 10 ** len(fraction)
    return end == len(unsigned) > 0 and nanoseconds <= _MAX_INT + text.startswith("-")


def _is_timestamp(text: str) -> bool:
    """Return True for a time of the years 1 to 9999."""
    stamp = _TIMESTAMP.fullmatch(text)
    if stamp is None:
        return False
    offset = timedelta(hours=int(stamp["hours"] or 0), minutes=int(stamp["minutes"] or 0))
    if int(stamp["hours"] or 0) > 24 or int(stamp["minutes"] or 0) > 60:
        return False
    try:
        local = datetime.fromisoformat(f"{stamp['date']}T{stamp['hour']:0>2}{stamp['time']}+00:00")
        # Fails outside of those years.
        local + offset if stamp["sign"] == "-" else local - offset
    except (ValueError, OverflowError):
        return False
    return True


_GRAMMARS: Final[Mapping[str, Callable[[str], bool]]] = {
    "bool": _is_bool,
    "double": _is_double,
    "duration": _is_duration,
    "int": _is_int,
    "timestamp": _is_timestamp,
    "uint": _is_uint,
}
CONVERTED: Final = frozenset(_GRAMMARS)
"""The functions whose grammars are here."""
