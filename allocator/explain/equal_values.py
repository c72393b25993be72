"""Published values in place of one that a condition requires: `model == "large"` for `model == "Large"`.

A number has the nearest ones, and a text has similar ones: `3g.20gb` and `1g.10gb` differ in one number each.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from allocator.explain.selector import ComparedValue, required_value
from allocator.model.devices import PublishedDevice
from findings.fitting import OtherValue
from findings.similar_names import MISSPELT, equal_start
from kube.api.resource import DeviceAttribute

_MAX_VALUES: Final = 4
_MAX_PUBLISHED: Final = 64
_MAX_TEXT: Final = 64
_DIGITS: Final = re.compile(r"[0-9]+")
_NUMBERS_DIFFER: Final = 0.3
"""The distance between texts that differ in all of their numbers, and in nothing else."""


class EqualValue(NamedTuple):
    """A condition with a published value.

    Attributes:
        before: The value as the condition has it, with its quotes.
        after: The published value, with the same quotes.
        condition: The condition with that value.
        distance: 0 for the same value, 1 for one that has nothing in common with it.
        value: Both values without quotes.
    """

    before: str
    after: str
    condition: str
    distance: float
    value: OtherValue


def find_equal_values(text: str, devices: Iterable[PublishedDevice]) -> Iterator[EqualValue]:
    """Yield a condition with the published values that are nearest to the one that it requires, the nearest first."""
    condition_value = required_value(text)
    if condition_value is None:
        return
    values = dict.fromkeys(
        value for device in devices if (value := _value(condition_value, device)) is not None
    )
    quote = condition_value.amount[0] if condition_value.amount[0] in "\"'" else ""
    literal = condition_value.amount.strip(quote) if quote else condition_value.amount
    published_values = sorted(values)[:_MAX_PUBLISHED]
    near = (
        _near_texts(literal, published_values)
        if quote
        else _near_numbers(literal, published_values)
    )
    for distance, value in near[:_MAX_VALUES]:
        after = f"{quote}{value}{quote}"
        yield EqualValue(
            condition_value.amount,
            after,
            condition_value.replace_amount(text, after),
            distance,
            OtherValue(before=literal, after=value),
        )


def _value(condition_value: ComparedValue, device: PublishedDevice) -> str | None:
    """Return the value of a device as the condition would have it, without quotes; None if it has none."""
    value = condition_value.field.value(device.id.driver, device.device)
    if not isinstance(value, DeviceAttribute):
        return None
    if condition_value.amount[0] in "\"'":
        text = value.string
        is_plain = text is not None and text.isprintable() and not set(text) & set("\"'\\")
        return text if is_plain else None
    return str(value.int_) if value.int_ is not None else None


def _near_numbers(literal: str, published_values: Iterable[str]) -> list[tuple[float, str]]:
    number = int(literal)
    distances = [
        (min(abs(int(value) - number) / max(abs(number), 1), 1.0), value)
        for value in published_values
        if value != literal
    ]
    # Of two that are as near, the larger one is enough.
    return sorted(distances, key=lambda entry: (entry[0], -int(entry[1])))


def _near_texts(literal: str, published_values: Sequence[str]) -> list[tuple[float, str]]:
    if not literal or len(literal) > _MAX_TEXT:
        return []
    distances = [
        (1 - similarity, value)
        for value in published_values
        if len(value) <= _MAX_TEXT and (similarity := _similarity(literal, value)) >= MISSPELT
    ]
    return sorted(
        distances,
        key=lambda entry: (entry[0], -equal_start(literal[::-1], entry[1][::-1]), entry[1]),
    )


def _similarity(literal: str, value: str) -> float:
    lower, other = literal.lower(), value.lower()
    if lower in other:
        return 1.0
    ratio = difflib.SequenceMatcher(a=lower, b=other, autojunk=False).ratio()
    return max(ratio, _similarity_of_numbers(lower, other))


def _similarity_of_numbers(lower: str, other: str) -> float:
    """Return the similarity of texts that differ in their numbers only; 0 for other texts.

    >>> _similarity_of_numbers("1g.5gb", "1g.10gb")
    0.85
    """
    if _DIGITS.sub("0", lower) != _DIGITS.sub("0", other):
        return 0.0
    numbers = list(zip(_DIGITS.findall(lower), _DIGITS.findall(other), strict=True))
    differing_count: int = sum(number != other_number for number, other_number in numbers)
    return 1 - _NUMBERS_DIFFER * differing_count / max(len(numbers), 1)
