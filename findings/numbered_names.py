"""The size of names that differ in their numbers only, such as MIG profiles: `2g.20gb` is larger than `1g.12gb`."""

import re
from typing import Final

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


def size_of(name: str) -> tuple[int, ...]:
    """Return the numbers of a name, the last one first: of a MIG profile its memory, then its slices.

    >>> size_of("2g.20gb"), size_of("1g.12gb+me"), size_of("large")
    ((20, 2), (12, 1), ())
    """
    return tuple(int(digits) for digits in reversed(_NUMBER.findall(name)))


def differ_in_numbers(name: str, other: str) -> bool:
    """Return True if two names are equal but for their numbers.

    >>> differ_in_numbers("1g.12gb", "2g.20gb"), differ_in_numbers("1g.10gb", "1g.10gb+me")
    (True, False)
    """
    return _NUMBER.sub("0", name) == _NUMBER.sub("0", other)
