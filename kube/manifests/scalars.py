"""Resolve unquoted YAML words as Kubernetes does, and quote strings that need it.

kubectl and the API server read YAML with sigs.k8s.io/yaml: go-yaml v2 resolves words as YAML 1.1
does (`yes` is true, `010` is eight, `1_000` a thousand), timestamps stay text, base 60 is not
supported, and the result passes through JSON, which turns `1e3` and `1.0` into integers.
Source: go.yaml.in/yaml/v2 resolve.go and sigs.k8s.io/yaml convertToJSONableObject.
"""

import json
import math
import re
import struct
from typing import Final

Scalar = None | bool | int | float | str

_WORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_STARTS_A_NUMBER: Final = frozenset("+-.0123456789")
_INTEGER: Final = re.compile(
    r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII
)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_BETWEEN_DIGITS: Final = re.compile(r"(?<=[0-9])_(?=[0-9])", re.ASCII)
_LARGEST_FLOAT32: Final = 3.4028235677973366e38
_EXPONENT_FROM: Final = 6
"""The decimal exponent from which format 'g' uses exponent notation."""

_PLAIN: Final = re.compile(r"(?!.*(?:: |:$| #| $))[A-Za-z0-9/_][ -~]*")
"""Strings whose characters need no quotes; a subset: ASCII without `: ` and ` #`."""
_NUMBER_LIKE: Final = re.compile(r"[0-9][-+.:_0-9a-fA-FeExXoOtTzZ ]*")
"""A superset of the strings that a YAML 1.1 or 1.2 parser resolves to a number or a time."""
_WORD_LIKE: Final = frozenset(
    ("y", "n", "yes", "no", "true", "false", "on", "off", "null", "nan", "inf")
)
_HIDDEN: Final = (
    r"\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    r"\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f"
)
"""Characters that a terminal obeys, that turn text around or that nobody sees, as in a class of a
regular expression; those that JSON escapes in any case are not among them."""
_UNPRINTABLE: Final = re.compile(f"[{_HIDDEN}]")


def resolve(text: str) -> Scalar:
    """Resolve an unquoted word; infinities and NaN are floats.

    >>> [resolve(word) for word in ("yes", "0x10", "010", "1e3", "1_000", "3Gi", "2024-01-01")]
    [True, 16, 8, 1000, 1000, '3Gi', '2024-01-01']
    """
    value = _resolve_yaml(text)
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**63:
        return int(value)  # JSON has no fraction there, so Kubernetes decodes an int64.
    return value


def resolve_key(text: str) -> str | None:
    """Resolve an unquoted YAML key to its JSON key; None if Kubernetes rejects it.

    >>> [resolve_key(word) for word in ("app", "on", "0x10", "1.10", "1e9", "~")]
    ['app', 'true', '16', '1.1', '1e+09', None]
    """
    match _resolve_yaml(text):
        case None:
            return None
        case bool(value):
            return "true" if value else "false"
        case int(value):
            return str(value) if value < 2**63 else None
        case float(value):
            return _format_key_float(value)
        case str(value):
            return value


def _resolve_yaml(text: str) -> Scalar:
    """Resolve an unquoted word as go-yaml does, before the conversion to JSON."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _STARTS_A_NUMBER:
        return text
    digits = _BETWEEN_DIGITS.sub("", text) if text[0] == "." else text.replace("_", "")
    if whole := _INTEGER.fullmatch(digits):
        value = _parse_integer(*whole.groups())
        if -(2**63) <= value < 2**63 or (0 < value < 2**64 and whole.group(1) != "+"):
            return value
    if _FLOAT.fullmatch(digits) and math.isfinite(number := float(digits)):
        return number
    return text


def _parse_integer(
    sign: str, sixteens: str | None, twos: str | None, eights: str | None, tens: str
) -> int:
    if sixteens:
        value = int(sixteens[:17], 16)
    elif twos:
        value = int(twos[:65], 2)
    elif eights:
        value = int(eights[:23], 8)
    else:
        value = int(tens[:21])  # Enough digits to exceed 64 bits, and bounded.
    return -value if sign == "-" else value


def _format_key_float(value: float) -> str:
    """Return strconv.FormatFloat(value, 'g', -1, 32), with go-yaml's special values."""
    if math.isnan(value):
        return ".nan"
    if abs(value) > _LARGEST_FLOAT32:
        return ".inf" if value > 0 else "-.inf"
    single = struct.pack("f", value)
    candidates = (f"{struct.unpack('f', single)[0]:.{places}e}" for places in range(9))
    shortest = next(text for text in candidates if struct.pack("f", float(text)) == single)
    mantissa, exponent = shortest.split("e")
    if not -4 <= int(exponent) < _EXPONENT_FROM:
        return shortest
    places = max(0, len(mantissa.lstrip("-").replace(".", "")) - 1 - int(exponent))
    return f"{float(shortest):.{places}f}"


def format_float(value: float) -> str:
    """Return the text of a finite number that YAML 1.1 and 1.2 both resolve to a number.

    >>> format_float(0.1), format_float(1e300), format_float(1.5e-7)
    ('0.1', '1.0e+300', '1.5e-07')
    """
    mantissa, exponent, power = repr(value).partition("e")
    return f"{mantissa}.0e{power}" if exponent and "." not in mantissa else repr(value)


def quote(text: str) -> str:
    """Return a line of YAML that parsers of YAML 1.1 and 1.2 resolve to this string.

    Strings that could be resolved to another type are in double quotes, or in single quotes if
    double quotes would need escapes.

    >>> [quote(word) for word in ("nginx:1.27", "3Gi", "yes", "1e3", "a: b", "", "é")]
    ['nginx:1.27', '3Gi', '"yes"', '"1e3"', '"a: b"', '""', '"é"']
    >>> print(quote('{"a": 1}'))
    '{"a": 1}'
    """
    if (
        _PLAIN.fullmatch(text)
        and not _NUMBER_LIKE.fullmatch(text)
        and text.lower() not in _WORD_LIKE
    ):
        return text
    if text.isprintable() and ('"' in text or "\\" in text):
        # Single quotes need no escapes, so JSON in an annotation stays readable.
        return "'" + text.replace("'", "''") + "'"
    return _UNPRINTABLE.sub(_escape_match, json.dumps(text, ensure_ascii=False))


def _escape_match(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape_json(text: str) -> str:
    """Return JSON with hidden characters in its strings escaped, so that no terminal obeys them."""
    return _UNPRINTABLE.sub(_escape_in_json, text)


def _escape_in_json(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", errors="surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def block_literal(text: str, indent: str) -> str | None:
    """Return a multi-line string as a block literal; None if it cannot be one.

    Args:
        text: Any string.
        indent: The indentation of the content; two more than the parent's.
    """
    if "\n" not in text or not text.strip("\n") or _NOT_IN_LITERAL.search(text):
        return None
    body = text.rstrip("\n")
    trailing = len(text) - len(body)
    # Without an indicator the first line determines the indentation.
    indicator = "2" if text[0] in " \t\n" else ""
    chomping = ("-", "")[trailing] if trailing < 2 else "+"
    lines = [indent + line if line else "" for line in text.split("\n")[: -1 if trailing else None]]
    return "\n".join([f"|{indicator}{chomping}", *lines])


_NOT_IN_LITERAL: Final = re.compile(rf"[\x00-\x08\x0b-\x1f{_HIDDEN}]")
