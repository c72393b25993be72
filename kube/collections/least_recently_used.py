"""A cache bounded by its number of entries, the least recently used evicted first."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LeastRecentlyUsed(Generic[K, V]):
    """Values that can be computed again, so that evicting one is always correct.

    >>> cache = LeastRecentlyUsed[str, int](2)
    >>> for number, name in enumerate("aba"):
    ...     cache[name] = number
    >>> cache["c"] = 3
    >>> cache.get("a"), cache.get("b")
    (2, None)
    """

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return a value and count a use of it; None if there is none."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._max_entries:
            self._values.popitem(last=False)

    def pop(self, key: K) -> V | None:
        """Remove a value and return it; None if there is none."""
        return self._values.pop(key, None)
