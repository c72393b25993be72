"""Numbers for the keys of nodes, so that equivalence classes compare and hash cheaply.

Keys consist of what drivers publish and what users write into claims, so that they are bounded by
bytes, too.
"""

from collections.abc import Hashable
from itertools import count
from sys import getsizeof

import msgspec

from kube.collections.sized_cache import SizedCache


class InternedKeys:
    """Keys with their numbers, the least recently used evicted first.

    A number never stands for two keys. A key that comes back after it was evicted gets another number,
    and so another equivalence class: that costs a search, and no verdict is wrong.

    >>> keys = InternedKeys(max_keys=10, max_bytes=1000)
    >>> keys.number(("a", 1)), keys.number(("b", 1)), keys.number(("a", 1))
    (1, 2, 1)
    >>> keys.number("x" * 1000), keys.number("x" * 1000)
    (3, 4)
    """

    def __init__(self, *, max_keys: int, max_bytes: int) -> None:
        self._cache = SizedCache[Hashable, int](max_entries=max_keys, max_bytes=max_bytes)
        # Never reset, so that no number is given twice.
        self._numbers = count(1)

    @property
    def bytes(self) -> int:
        """Bytes of all keys, roughly."""
        return self._cache.bytes

    def number(self, key: Hashable) -> int:
        """Return the number of a key; it is positive."""
        number = self._cache.get(key)
        if number is None:
            number = self._cache.put(key, next(self._numbers), size=estimate_size(key))
        return number


def estimate_size(key: Hashable) -> int:
    """Return the bytes of a key; parts that several keys have in common count for each of them."""
    size = 0
    parts: list[object] = [key]
    while parts:
        part = parts.pop()
        if part is None or isinstance(part, bool):
            continue
        if isinstance(part, tuple | frozenset):
            parts.extend(part)
        elif isinstance(part, msgspec.Struct):
            parts.extend(getattr(part, field) for field in part.__struct_fields__)
        size += getsizeof(part)
    return size
