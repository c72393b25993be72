"""The part of a selector that a device does not satisfy, and the device's value there.

A selector is usually a chain of `&&`, of which one part is false: `memory 16Gi (< 40Gi)` says more
than that the expression is false. Texts come from claims and values from drivers, so both are
bounded and shown without control characters.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from allocator.model.devices import PublishedDevice
from allocator.model.outcome import Reason, RejectionReason, Verb
from allocator.model.requests import Expression
from allocator.model.selectors import DeviceField, SelectorChain, selector_chain
from findings.text import shorten
from kube.api.resource import DeviceAttribute, DeviceCapacity
from kube.errors import QuantityError
from kube.quantity import Quantity

_SHOWN: Final = 96
"""Characters of an expression, or of a value, that a message shows."""

_CACHED: Final = 256
"""Expressions whose conditions are cached, ten kilobytes each at most."""

# A string of CEL, raw or not, an optional member's `.?`, or one character of anything else.
_TOKEN: Final = re.compile(
    r"""[rR]?(?P<quote>\"\"\"|'''|"|')(?:\\.|(?!(?P=quote)).)*+(?P=quote)|&&|\.\?|.""", re.DOTALL
)
_AMOUNT: Final = r"""quantity\(\s*["'](?P<literal>[^"'\\]*)["']\s*\)"""
_OR_ELSE: Final = r"""(?:\s*\.orValue\((?:[^()]|\([^()]*\))*\))?"""
_NAME: Final = r"""(?:\.\??(?P<name>\w+)|\[\??\s*["'](?P<key>[^"'\\]*)["']\s*\])""" + _OR_ELSE
_AMOUNTS: Final = re.compile(rf"{_NAME}\s*\.compareTo\(\s*{_AMOUNT}\s*\)\s*(?P<sign>[<>]=?)\s*0$")
_COMPARED: Final = re.compile(
    rf"{_NAME}\s*\.(?P<sign>isGreaterThan|isLessThan)\(\s*{_AMOUNT}\s*\)$"
)
_NUMBER: Final = re.compile(rf"{_NAME}\s*(?P<sign>[<>]=?)\s*(?P<literal>-?\d+)$")
_OPPOSITES: Final = {
    ">=": "<",
    ">": "<=",
    "isGreaterThan": "<=",
    "<=": ">",
    "<": ">=",
    "isLessThan": ">=",
}
"""The relation that holds where another does not."""
_EQUAL: Final = re.compile(rf"{_NAME}\s*==\s*(?P<literal>\"[^\"\\]*\"|'[^'\\]*'|-?\d+|true|false)$")
_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*["'](?P<literal>[^"'\\]*)["']$""")


def unmet_condition(
    expressions: tuple[Expression, ...], device: PublishedDevice
) -> RejectionReason:
    """Return the first condition of some selectors that a device does not satisfy.

    >>> from kube.api.resource import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
    >>> from allocator.model.devices import DeviceId
    >>> slice_ = ResourceSlice(spec=ResourceSliceSpec(driver="d.e", pool=ResourcePool(name="p")))
    >>> gpu = Device(name="g", attributes={"model": DeviceAttribute(string="T4")})
    >>> published = PublishedDevice(id=DeviceId("d.e", "p", "g"), device=gpu, slice=slice_)
    >>> expression = Expression(text='device.attributes["d.e"].model == "A100"', origin="")
    >>> unmet_condition((expression,), published).detail
    'model "T4" (!= "A100")'
    """
    for expression in expressions:
        if selector_chain((expression,)).verdict(device) is not False:
            continue
        for text in conjuncts(expression.text):
            link = selector_chain((Expression(text=text, origin=expression.origin),))
            if link.verdict(device) is False:
                return _unmet(text, link, device)
        return _unmatched_reason(expression.text)
    return _unmatched_reason("")


@lru_cache(maxsize=_CACHED)
def conjuncts(expression: str) -> tuple[str, ...]:
    """Return the parts that `&&` joins at the top level, or the whole if it joins nothing.

    Each character is read once, however deep parentheses are nested.

    >>> conjuncts('a == "x && y" && (b && c)')
    ('a == "x && y"', 'b', 'c')
    """
    words = [token.group() for token in _TOKEN.finditer(expression)]
    ends = _match_brackets(words)
    if ends is None:
        return (expression.strip(),)
    conditions: list[str] = []
    ranges = [(0, len(words))]
    while ranges:
        start, stop = _unwrap(words, ends, *ranges.pop())
        parts = _split_conjunction(words, ends, start, stop)
        if len(parts) == 1:
            conditions.append("".join(words[start:stop]))
        ranges += reversed(parts) if len(parts) > 1 else ()
    return tuple(conditions)


def _match_brackets(words: Sequence[str]) -> Mapping[int, int] | None:
    """Return the index of each opening bracket to that of its end; None if some have none."""
    ends: dict[int, int] = {}
    open_brackets: list[int] = []
    for index, word in enumerate(words):
        if word in "([{":
            open_brackets.append(index)
        elif word in ")]}":
            if not open_brackets:
                return None
            ends[open_brackets.pop()] = index
    return None if open_brackets else ends


def _unwrap(
    words: Sequence[str], ends: Mapping[int, int], start: int, stop: int
) -> tuple[int, int]:
    """Return the range of words without spaces and parentheses that hold all of it."""
    while start < stop:
        if words[start].isspace():
            start += 1
        elif words[stop - 1].isspace():
            stop -= 1
        elif words[start] == "(" and ends[start] == stop - 1:
            start, stop = start + 1, stop - 1
        else:
            break
    return start, stop


def _split_conjunction(
    words: Sequence[str], ends: Mapping[int, int], start: int, stop: int
) -> list[tuple[int, int]]:
    """Return the ranges that `&&` joins; all of it as one if something binds weaker."""
    parts: list[tuple[int, int]] = []
    begin = index = start
    while index < stop:
        word = words[index]
        if word in "|?":
            return [(start, stop)]
        if word == "&&":
            parts.append((begin, index))
            begin = index + 1
        index = ends.get(index, index) + 1
    return [*parts, (begin, stop)]


class ComparedValue(NamedTuple):
    """The value that a condition compares a field with: `...memory.compareTo(quantity("40Gi")) >= 0`.

    Attributes:
        field: The field that is compared.
        amount: The value as written; of a text with its quotes.
        start: Index of the amount in the text of the condition.
    """

    field: DeviceField
    amount: str
    start: int

    def replace_amount(self, text: str, amount: str) -> str:
        """Return the condition with another amount."""
        return text[: self.start] + amount + text[self.start + len(self.amount) :]

    def written_like(self, amount: Quantity) -> str:
        """Return another amount in the format of this one."""
        try:
            return str(Quantity.from_nanos(amount.nanos, Quantity(self.amount).format))
        except QuantityError:
            return str(amount)


def lower_bound(text: str) -> ComparedValue | None:
    """Return the least amount that a condition allows; None if it is no lower bound."""
    for pattern in (_AMOUNTS, _NUMBER):
        match = pattern.search(text)
        if match is not None and match["sign"] == ">=":
            return _compared_value(text, match)
    return None


def required_value(text: str) -> ComparedValue | None:
    """Return the only value, a text or a number, that a condition allows for a field; None if it allows several."""
    match = _EQUAL.search(text)
    if match is None or match["literal"] in {"true", "false"}:
        return None
    return _compared_value(text, match)


def _compared_value(text: str, match: re.Match[str]) -> ComparedValue | None:
    """Return the value of a comparison; None if the condition reads further fields."""
    fields = selector_chain((Expression(text=text, origin=""),)).fields or ()
    named_fields = [field for field in fields if field.identifier]
    if len(named_fields) != 1 or named_fields[0].identifier != _field_name(match):
        return None
    return ComparedValue(named_fields[0], match["literal"], match.start("literal"))


def _unmet(text: str, link: SelectorChain, device: PublishedDevice) -> RejectionReason:
    fields = [field for field in link.fields or () if field.identifier]
    values = {field.identifier: _value(field, device) for field in fields}
    for pattern in (_AMOUNTS, _COMPARED, _NUMBER, _EQUAL):
        match = pattern.search(text)
        if match and len(values) == 1 and (value := values.get(_field_name(match))) is not None:
            relation = "!=" if pattern is _EQUAL else _OPPOSITES[match["sign"]]
            return _mismatch_reason(
                _field_name(match), value, f"{relation} {one_line(match['literal'])}"
            )
    if not fields:
        driver = _DRIVER.match(text)
        if driver:
            return _mismatch_reason("driver", device.id.driver, f"!= {one_line(driver['literal'])}")
        if text.startswith("device.driver"):
            return _mismatch_reason("driver", device.id.driver, f"selector: {one_line(text)}")
        return _unmatched_reason(text)
    present = {name: value for name, value in sorted(values.items()) if value is not None}
    missing = [name for name, value in sorted(values.items()) if value is None]
    remark = f"selector: {one_line(text)}"
    if len(present) == 1 and not missing:
        return _mismatch_reason(*next(iter(present.items())), remark)
    value_texts = [f"{name} {value}" for name, value in present.items()]
    return _mismatch_reason(
        "", ", ".join([*value_texts, *(f"no {name}" for name in missing)]), remark
    )


def _mismatch_reason(name: str, value: str, remark: str) -> RejectionReason:
    return RejectionReason(
        reason=Reason.SELECTOR, verb=Verb.HAVE, subject=name, value=value, remark=remark
    )


def _unmatched_reason(text: str) -> RejectionReason:
    return RejectionReason(
        reason=Reason.SELECTOR, verb=Verb.NOT_MATCHING, subject="selector", value=one_line(text)
    )


def _field_name(match: re.Match[str]) -> str:
    return match["name"] or match["key"] or ""


def _value(field: DeviceField, device: PublishedDevice) -> str | None:
    value = field.value(device.id.driver, device.device)
    if isinstance(value, tuple):
        value = value[0]
    if isinstance(value, DeviceCapacity):
        return str(value.value)
    if not isinstance(value, DeviceAttribute):
        return None
    if value.bool_ is not None:
        return "true" if value.bool_ else "false"
    if value.int_ is not None:
        return str(value.int_)
    if value.string is not None:
        return f'"{one_line(value.string)}"'
    if value.version is not None:
        return one_line(value.version)
    values = value.ints or value.bools or value.strings or value.versions or ()
    return one_line(f"[{', '.join(map(str, values))}]")


def one_line(text: str, most: int = _SHOWN) -> str:
    """Return a text in one line of at most `most` characters, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split())
    return shorten(line, most)
