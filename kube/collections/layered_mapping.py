"""A mapping that is never changed and shares most of its entries with the one that it was made from.

For large values that are replaced with every change: a copy of 50,000 entries takes milliseconds, a layer
microseconds.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")

MAX_CHANGES: Final = 512
"""Keys in the upper layer; with more, the mapping is made anew. One with fewer entries is copied instead."""


class LayeredMapping(Mapping[K, V]):
    """Entries of a mapping, with some replaced, added or removed by an upper layer."""

    __slots__ = ("_base", "_changes", "_length")

    def __init__(self, base: Mapping[K, V], changes: Mapping[K, V | None], length: int) -> None:
        """Lay changes over a mapping.

        Args:
            base: The entries; it must not be changed any more.
            changes: Key to its new value; None removes a key.
            length: The number of entries after the changes.
        """
        self._base = base
        self._changes = changes
        self._length = length

    def replace(self, changes: Mapping[K, V | None]) -> "LayeredMapping[K, V]":
        """Return a mapping with further changes.

        Args:
            changes: Key to its new value; None removes a key.
        """
        length = self._length
        for key, value in changes.items():
            length += (value is not None) - (key in self)
        all_changes = {**self._changes, **changes}
        if len(all_changes) > MAX_CHANGES:
            return LayeredMapping(dict(self.items()), changes, length)
        return LayeredMapping(self._base, all_changes, length)

    def get(self, key: K, default: V | D | None = None) -> V | D | None:  # type: ignore[override]
        """Return the value of a key, or the default."""
        value = self._changes[key] if key in self._changes else self._base.get(key)
        return default if value is None else value

    def __getitem__(self, key: K) -> V:
        """Return the value of a key."""
        value = self._changes[key] if key in self._changes else self._base[key]
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        """Return True if there is a key."""
        if key in self._changes:
            return self._changes[key] is not None  # type: ignore[index]
        return key in self._base

    def __iter__(self) -> Iterator[K]:
        """Yield the keys, those of the lower layer first."""
        for key in self._base:
            if key in self:
                yield key
        for key, value in self._changes.items():
            if value is not None and key not in self._base:
                yield key

    def __len__(self) -> int:
        """Return the number of keys."""
        return self._length


def with_changes(entries: Mapping[K, V], changes: Mapping[K, V | None]) -> Mapping[K, V]:
    """Return a mapping with some entries replaced, added or removed, at the cost of few entries.

    >>> with_changes({"a": 1, "b": 2}, {"a": 3, "b": None, "c": 4})
    {'a': 3, 'c': 4}

    Args:
        entries: The entries; the mapping must not be changed any more.
        changes: Key to its new value; None removes a key.
    """
    if isinstance(entries, LayeredMapping):
        return entries.replace(changes)
    if len(entries) > MAX_CHANGES:
        return LayeredMapping(entries, {}, len(entries)).replace(changes)
    copied = dict(entries)
    for key, value in changes.items():
        if value is None:
            copied.pop(key, None)
        else:
            copied[key] = value
    return copied
