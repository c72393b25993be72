"""A cache bounded by entries and by bytes, least recently used first out.

For answers to strangers, who choose how large what they make us remember is.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """Values of a pure function, so that evicting is always correct.

    >>> cache = SizedCache[str, int](max_entries=10, max_bytes=100)
    >>> cache.put("a", 1, size=60), cache.put("b", 2, size=60)
    (1, 2)
    >>> cache.get("a"), cache.get("b")
    (None, 2)
    """

    def __init__(self, *, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return a cached value; None if there is none."""
        entry = self._values.get(key)
        if entry is None:
            return None
        self._values.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, *, size: int) -> V:
        """Cache a value unless it is larger than the cache; return it.

        Args:
            size: Bytes that it holds, roughly.
        """
        if size > self._max_bytes:
            return value
        _, replaced_size = self._values.pop(key, (value, 0))
        self._values[key] = value, size
        self.bytes += size - replaced_size
        while self.bytes > self._max_bytes or len(self._values) > self._max_entries:
            _, (_, evicted_size) = self._values.popitem(last=False)
            self.bytes -= evicted_size
        return value

    def clear(self) -> None:
        """Drop everything."""
        self._values.clear()
        self.bytes = 0
