"""Which part of a selector a device does not meet, in words.

A selector is usually a chain of `&&`; people want to know which link broke and what the device
has there: `memory 16Gi below 40Gi`, not `CEL is false`. Texts come from claims and values from
drivers, so both are bounded and shown without control characters.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from allocator.core.inventory import Chain, Place, chain
from allocator.core.model import Expression, PublishedDevice
from kube.api.resource import DeviceAttribute, DeviceCapacity

_SHOWN: Final = 96
"""Characters of an expression, or of a value, that a message shows."""

_REMEMBERED: Final = 256
"""Expressions whose parts are remembered, ten kilobytes each at most."""

# A string of CEL, raw or not, an optional member's `.?`, or one character of anything else.
_TOKEN: Final = re.compile(
    r"""[rR]?(?P<quote>\"\"\"|'''|"|')(?:\\.|(?!(?P=quote)).)*+(?P=quote)|&&|\.\?|.""", re.DOTALL
)
_AMOUNT: Final = r"""quantity\(\s*["'](?P<wanted>[^"'\\]*)["']\s*\)"""
_OR_ELSE: Final = r"""(?:\s*\.orValue\((?:[^()]|\([^()]*\))*\))?"""
_NAME: Final = r"""(?:\.\??(?P<name>\w+)|\[\??\s*["'](?P<key>[^"'\\]*)["']\s*\])""" + _OR_ELSE
_AMOUNTS: Final = re.compile(rf"{_NAME}\s*\.compareTo\(\s*{_AMOUNT}\s*\)\s*(?P<sign>[<>]=?)\s*0$")
_COMPARED: Final = re.compile(
    rf"{_NAME}\s*\.(?P<sign>isGreaterThan|isLessThan)\(\s*{_AMOUNT}\s*\)$"
)
_NUMBER: Final = re.compile(rf"{_NAME}\s*(?P<sign>[<>]=?)\s*(?P<wanted>-?\d+)$")
_RELATIONS: Final = {
    ">=": "below",
    ">": "not above",
    "isGreaterThan": "not above",
    "<=": "above",
    "<": "not below",
    "isLessThan": "not below",
}
"""What is wrong with a value that does not compare as it should."""
_EQUAL: Final = re.compile(rf"{_NAME}\s*==\s*(?P<wanted>\"[^\"\\]*\"|'[^'\\]*'|-?\d+|true|false)$")
_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*["'](?P<wanted>[^"'\\]*)["']$""")


def unmet(expressions: tuple[Expression, ...], published: PublishedDevice) -> str:
    """Return what a device lacks for the first selector that it does not satisfy.

    >>> from kube.api.resource import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
    >>> from allocator.core.model import DeviceId
    >>> slice_ = ResourceSlice(spec=ResourceSliceSpec(driver="d.e", pool=ResourcePool(name="p")))
    >>> gpu = Device(name="g", attributes={"model": DeviceAttribute(string="T4")})
    >>> published = PublishedDevice(id=DeviceId("d.e", "p", "g"), device=gpu, slice=slice_)
    >>> unmet((Expression(text='device.attributes["d.e"].model == "A100"', origin=""),), published)
    'model is "T4", not "A100"'
    """
    for expression in expressions:
        if chain((expression,)).verdict(published) is not False:
            continue
        for text in conjuncts(expression.text):
            link = chain((Expression(text=text, origin=expression.origin),))
            if link.verdict(published) is False:
                return _told(text, link, published)
        return f"does not satisfy {shown(expression.text)}"
    return "is selected"


@lru_cache(maxsize=_REMEMBERED)
def conjuncts(expression: str) -> tuple[str, ...]:
    """Return the parts that `&&` joins at the top level, or the whole where it joins nothing.

    It looks at each character once, however deep a stranger nests his parentheses.

    >>> conjuncts('a == "x && y" && (b && c)')
    ('a == "x && y"', 'b', 'c')
    """
    words = [token.group() for token in _TOKEN.finditer(expression)]
    ends = _ends(words)
    if ends is None:
        return (expression.strip(),)
    found: list[str] = []
    waiting = [(0, len(words))]
    while waiting:
        start, stop = _unwrapped(words, ends, *waiting.pop())
        parts = _joined(words, ends, start, stop)
        if len(parts) == 1:
            found.append("".join(words[start:stop]))
        waiting += reversed(parts) if len(parts) > 1 else ()
    return tuple(found)


def _ends(words: Sequence[str]) -> Mapping[int, int] | None:
    """Return the index of each opening bracket to that of its end; None where some have none."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for index, word in enumerate(words):
        if word in "([{":
            opened.append(index)
        elif word in ")]}":
            if not opened:
                return None
            ends[opened.pop()] = index
    return None if opened else ends


def _unwrapped(
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


def _joined(
    words: Sequence[str], ends: Mapping[int, int], start: int, stop: int
) -> list[tuple[int, int]]:
    """Return the ranges that `&&` joins; all of it as one where something binds weaker."""
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


class Bound(NamedTuple):
    """A least amount in a selector's part: `...memory.compareTo(quantity("40Gi")) >= 0`.

    Attributes:
        place: What is compared.
        wanted: The amount, as it is written.
        start: Where `wanted` begins in the text; it ends where its length says.
    """

    place: Place
    wanted: str
    start: int

    def replaced(self, text: str, amount: str) -> str:
        """Return the part with another amount."""
        return text[: self.start] + amount + text[self.start + len(self.wanted) :]


def bound(text: str) -> Bound | None:
    """Return the least amount that a part of a selector asks for; None where it asks for none."""
    for pattern in (_AMOUNTS, _NUMBER):
        match = pattern.search(text)
        if match is None or match["sign"] != ">=":
            continue
        places = chain((Expression(text=text, origin=""),)).places or ()
        named = [place for place in places if place.identifier]
        if len(named) == 1 and named[0].identifier == _named(match):
            return Bound(named[0], match["wanted"], match.start("wanted"))
    return None


def _told(text: str, link: Chain, published: PublishedDevice) -> str:
    places = [place for place in link.places or () if place.identifier]
    found = {place.identifier: _value(place, published) for place in places}
    for pattern in (_AMOUNTS, _COMPARED, _NUMBER):
        match = pattern.search(text)
        if match and len(found) == 1 and (value := found.get(_named(match))) is not None:
            return f"{_named(match)} {value} {_RELATIONS[match['sign']]} {shown(match['wanted'])}"
    match = _EQUAL.search(text)
    if match and len(found) == 1 and (value := found.get(_named(match))) is not None:
        return f"{_named(match)} is {value}, not {shown(match['wanted'])}"
    if not places:
        driver = _DRIVER.match(text)
        if driver:
            return f"driver {published.id.driver} is not {shown(driver['wanted'])}"
        if text.startswith("device.driver"):
            return f"driver is {published.id.driver}; wanted is {shown(text)}"
        return f"does not satisfy {shown(text)}"
    has = ", ".join(
        f"{name} is {value}" if value is not None else f"no {name}"
        for name, value in sorted(found.items())
    )
    return f"{has}; wanted is {shown(text)}"


def _named(match: re.Match[str]) -> str:
    return match["name"] or match["key"] or ""


def _value(place: Place, published: PublishedDevice) -> str | None:
    value = place.value(published.id.driver, published.device)
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
        return f'"{shown(value.string)}"'
    if value.version is not None:
        return shown(value.version)
    many = value.ints or value.bools or value.strings or value.versions or ()
    return shown("[" + ", ".join(str(one) for one in many) + "]")


def shown(text: str, most: int = _SHOWN) -> str:
    """Return a text in one line of at most `most` characters, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split())
    return line if len(line) <= most else line[: most - 3] + "..."
