"""What an unquoted YAML word means to Kubernetes, and which strings need quotes because of it.

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
"""The decimal exponent from which format 'g' is written with one, when digits are not limited."""

_PLAIN: Final = re.compile(r"(?!.*(?:: |:$| #| $))[A-Za-z0-9/_][ -~]*")
"""Words that need no quotes for their characters: a subset, ASCII, no `: ` and no ` #`."""
_NUMBER_LIKE: Final = re.compile(r"[0-9][-+.:_0-9a-fA-FeExXoOtTzZ ]*")
"""Every string that some reader of YAML 1.1 or 1.2 takes for a number or a time, and a few more."""
_WORD_LIKE: Final = frozenset(
    ("y", "n", "yes", "no", "true", "false", "on", "off", "null", "nan", "inf")
)
_UNPRINTABLE: Final = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def resolved(text: str) -> Scalar:
    """Return the value of an unquoted word; infinities and NaN as floats.

    >>> [resolved(word) for word in ("yes", "0x10", "010", "1e3", "1_000", "3Gi", "2024-01-01")]
    [True, 16, 8, 1000, 1000, '3Gi', '2024-01-01']
    """
    value = _before_json(text)
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**63:
        return int(value)  # JSON has it without a fraction, so Kubernetes reads an int64.
    return value


def key(text: str) -> str | None:
    """Return the JSON key that an unquoted YAML key becomes; None where Kubernetes refuses it.

    >>> [key(word) for word in ("app", "on", "0x10", "1.10", "1e9", "~")]
    ['app', 'true', '16', '1.1', '1e+09', None]
    """
    match _before_json(text):
        case None:
            return None
        case bool(value):
            return "true" if value else "false"
        case int(value):
            return str(value) if value < 2**63 else None
        case float(value):
            return _general(value)
        case str(value):
            return value


def _before_json(text: str) -> Scalar:
    """Return what go-yaml makes of an unquoted word."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _STARTS_A_NUMBER:
        return text
    digits = _BETWEEN_DIGITS.sub("", text) if text[0] == "." else text.replace("_", "")
    if whole := _INTEGER.fullmatch(digits):
        value = _integer(*whole.groups())
        if -(2**63) <= value < 2**63 or (0 < value < 2**64 and whole.group(1) != "+"):
            return value
    if _FLOAT.fullmatch(digits) and math.isfinite(number := float(digits)):
        return number
    return text


def _integer(
    sign: str, sixteens: str | None, twos: str | None, eights: str | None, tens: str
) -> int:
    if sixteens:
        value = int(sixteens[:17], 16)
    elif twos:
        value = int(twos[:65], 2)
    elif eights:
        value = int(eights[:23], 8)
    else:
        value = int(tens[:21])  # Enough to see that 64 bits do not hold it, and bounded.
    return -value if sign == "-" else value


def _general(value: float) -> str:
    """Return strconv.FormatFloat(value, 'g', -1, 32), with go-yaml's words for the specials."""
    if math.isnan(value):
        return ".nan"
    if abs(value) > _LARGEST_FLOAT32:
        return ".inf" if value > 0 else "-.inf"
    single = struct.pack("f", value)
    candidates = (f"{struct.unpack('f', single)[0]:.{places}e}" for places in range(9))
    shortest = next(each for each in candidates if struct.pack("f", float(each)) == single)
    mantissa, exponent = shortest.split("e")
    if not -4 <= int(exponent) < _EXPONENT_FROM:
        return shortest
    places = max(0, len(mantissa.lstrip("-").replace(".", "")) - 1 - int(exponent))
    return f"{float(shortest):.{places}f}"


def floating(value: float) -> str:
    """Return a finite number as readers of YAML 1.1 and 1.2 both take it for one.

    >>> floating(0.1), floating(1e300), floating(1.5e-7)
    ('0.1', '1.0e+300', '1.5e-07')
    """
    mantissa, exponent, power = repr(value).partition("e")
    return f"{mantissa}.0e{power}" if exponent and "." not in mantissa else repr(value)


def quoted(text: str) -> str:
    """Return one line of YAML that every reader, of YAML 1.1 or 1.2, takes for this string.

    Strings that could be mistaken for another type are in double quotes, in single ones those that
    would need escapes there.

    >>> [quoted(word) for word in ("nginx:1.27", "3Gi", "yes", "1e3", "a: b", "", "é")]
    ['nginx:1.27', '3Gi', '"yes"', '"1e3"', '"a: b"', '""', '"é"']
    >>> print(quoted('{"a": 1}'))
    '{"a": 1}'
    """
    if (
        _PLAIN.fullmatch(text)
        and not _NUMBER_LIKE.fullmatch(text)
        and text.lower() not in _WORD_LIKE
    ):
        return text
    if text.isprintable() and ('"' in text or "\\" in text):
        # Nothing is escaped between single quotes, so JSON in an annotation stays readable.
        return "'" + text.replace("'", "''") + "'"
    return _UNPRINTABLE.sub(_escaped, json.dumps(text, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def literal(text: str, indent: str) -> str | None:
    """Return a block literal of a text of several lines, or None where one cannot hold it.

    Args:
        text: Any string.
        indent: What stands before each line of the content; two more than the parent has.
    """
    if "\n" not in text or not text.strip("\n") or _NOT_IN_LITERAL.search(text):
        return None
    body = text.rstrip("\n")
    trailing = len(text) - len(body)
    # Without an indicator the first line tells the depth, so it must not begin with white space.
    indicator = "2" if text[0] in " \t\n" else ""
    chomping = ("-", "")[trailing] if trailing < 2 else "+"
    lines = [indent + line if line else "" for line in text.split("\n")[: -1 if trailing else None]]
    return "\n".join([f"|{indicator}{chomping}", *lines])


_NOT_IN_LITERAL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"
)
