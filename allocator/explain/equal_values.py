"""Published values in place of one that a condition requires: `model == "large"` for `model == "Large"`.

A number has the nearest ones, and a text has similar ones: of those that differ in their numbers only, such as
MIG profiles, first the smallest that is at least as large.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from operator import ne
from typing import Final, NamedTuple

from allocator.explain.selector import ComparedValue, required_value
from allocator.model.devices import PublishedDevice
from findings.fitting import OtherValue
from findings.numbered_names import differ_in_numbers, size_of
from findings.similar_names import MISSPELT, equal_start
from kube.api.resource import DeviceAttribute

_MAX_VALUES: Final = 4
_MAX_PUBLISHED: Final = 64
_MAX_TEXT: Final = 64
_NUMBERS_DIFFER: Final = 0.3
"""The least distance of a text that differs in its numbers only, and is smaller."""


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
        (distance, value)
        for value in published_values
        if len(value) <= _MAX_TEXT and (distance := _distance(literal, value)) is not None
    ]
    return sorted(
        distances,
        key=lambda entry: (entry[0], -equal_start(literal[::-1], entry[1][::-1]), entry[1]),
    )


def _distance(literal: str, value: str) -> float | None:
    """Return the distance between texts, 0 to 1; None if they are not similar.

    >>> [_distance("1g.12gb", value) for value in ("1g.16gb", "2g.24gb", "1g.3gb", "large")]
    [0.0375, 0.075, 0.525, None]
    """
    lower, other = literal.lower(), value.lower()
    if lower in other:
        return 0.0
    if lower != other and differ_in_numbers(lower, other):
        return _distance_of_sizes(size_of(lower), size_of(other))
    ratio = difflib.SequenceMatcher(a=lower, b=other, autojunk=False).ratio()
    return 1 - ratio if ratio >= MISSPELT else None


def _distance_of_sizes(size: Sequence[int], other: Sequence[int]) -> float | None:
    """Return the distance between texts that differ in their numbers only; None to one far smaller.

    One that is at least as large is nearer than any that is smaller.
    """
    number, other_number = next(
        (
            (number, another)
            for number, another in zip(size, other, strict=True)
            if number != another
        ),
        (1, 1),
    )
    if other_number >= number:
        return _NUMBERS_DIFFER / 2 * (1 - number / max(other_number, 1))
    differing_count: int = sum(map(ne, size, other))
    is_similar = 1 - _NUMBERS_DIFFER * differing_count / len(size) >= MISSPELT
    return _NUMBERS_DIFFER * (2 - other_number / number) if is_similar else None
