"""A cache with a share for every tenant: one tenant's entries evict nothing of another's.

For answers to strangers, who choose how many there are and how large. A full cache evicts from the tenant
that has most. An entry that several tenants use is dropped when the last of them loses it.

Safe for several threads: each operation that another thread could see is one of the interpreter. Sizes may
be off by what two threads add at the same moment.
"""

from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CacheEntry(Generic[V]):
    """A value, its size, and its users.

    Attributes:
        value: The value.
        size: Bytes that it holds, roughly.
        tenants: The tenants that use it; it is counted for each of them.
        pins: Unfinished questions that need it.
        used: Grows with each use of any entry.
    """

    __slots__ = ("pins", "size", "tenants", "used", "value")

    def __init__(self, value: V) -> None:
        self.value = value
        self.size = 0
        self.tenants: set[str] = set()
        self.pins: set[str] = set()
        self.used = 0


class TenantCache(Generic[K, V]):
    """Values that can be computed again, so that evicting one is always correct.

    >>> cache = TenantCache[str, int](max_bytes=100, max_pinned_bytes=200)
    >>> for number, name in enumerate("abc"):
    ...     _ = cache.put(name, number, tenant="loud" if name < "c" else "quiet", size=40)
    >>> cache.get("a", tenant="loud"), cache.get("b", tenant="loud"), cache.get("c", tenant="quiet")
    (None, 1, 2)

    Attributes:
        bytes: Size of all entries.
    """

    def __init__(self, *, max_bytes: int, max_pinned_bytes: int) -> None:
        """Begin empty.

        Args:
            max_bytes: Size of all entries above which the largest tenant loses entries that no unfinished
                question needs.
            max_pinned_bytes: Size above which it loses any.
        """
        self._max_bytes = max_bytes
        self._max_pinned_bytes = max_pinned_bytes
        self._entries: dict[K, CacheEntry[V]] = {}
        self._sizes: dict[str, int] = {}
        self._uses = count(1)
        self._evict_above = max_bytes
        self.bytes = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def size_of(self, tenant: str) -> int:
        """Return the size of all entries that a tenant uses."""
        return self._sizes.get(tenant, 0)

    def get(self, key: K, *, tenant: str, question: str | None = None) -> V | None:
        """Return a value and count a use by a tenant; None if there is none.

        Args:
            tenant: Whom the entry is counted for from now on.
            question: An unfinished question that needs the entry, until `unpin`.
        """
        entry = self.find(key, tenant=tenant, question=question)
        return None if entry is None else entry.value

    def find(self, key: K, *, tenant: str, question: str | None = None) -> CacheEntry[V] | None:
        """Return the entry of a value, as `get` returns the value."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = next(self._uses)
        if tenant not in entry.tenants:
            entry.tenants.add(tenant)
            self._sizes[tenant] = self._sizes.get(tenant, 0) + entry.size
        if question is not None:
            entry.pins.add(question)
        return entry

    def put(
        self, key: K, value: V, *, tenant: str, size: int, question: str | None = None
    ) -> CacheEntry[V]:
        """Cache a value, and return its entry.

        Args:
            tenant: Whom it is counted for.
            size: Bytes that it holds, roughly.
            question: The same as in `get`.
        """
        entry = CacheEntry(value)
        entry.used = next(self._uses)
        entry.tenants.add(tenant)
        if question is not None:
            entry.pins.add(question)
        self.drop(key)
        self._entries[key] = entry
        self.grow(entry, size)
        return entry

    def grow(self, entry: CacheEntry[V], size: int) -> None:
        """Count additional bytes of an entry; this may evict others, or the entry itself."""
        entry.size += size
        if not entry.tenants:
            return  # It was dropped, and is still in use.
        self.bytes += size
        for tenant in tuple(entry.tenants):
            self._sizes[tenant] = self._sizes.get(tenant, 0) + size
        if self.bytes > self._evict_above:
            self._evict()
            # Where nothing can be evicted, it is not tried again at once.
            self._evict_above = max(self._max_bytes, self.bytes + self._max_bytes // 64)

    def unpin(self, question: str) -> None:
        """Note that a question needs no entry any more."""
        for entry in tuple(self._entries.values()):
            entry.pins.discard(question)

    def drop(self, key: K) -> None:
        """Drop an entry, if there is one."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.bytes -= entry.size
        for tenant in tuple(entry.tenants):
            self._shrink(tenant, entry.size)
        entry.tenants.clear()

    def clear(self) -> None:
        """Drop everything."""
        for key in tuple(self._entries):
            self.drop(key)

    def _evict(self) -> None:
        """Drop the oldest entries of the tenant that has most, until the cache is small enough."""
        while self.bytes > self._max_bytes and self._sizes:
            largest = max(tuple(self._sizes.items()), key=lambda item: item[1])[0]
            entries = [
                (entry.used, key, entry)
                for key, entry in tuple(self._entries.items())
                if largest in entry.tenants
            ]
            if self.bytes <= self._max_pinned_bytes:
                entries = [item for item in entries if not item[2].pins]
            if not entries:
                return  # Others must not lose theirs for it.
            entries.sort(key=lambda item: item[0])
            # Some at a time, since looking for them takes longer than dropping them.
            for _, key, entry in entries[: 1 + len(entries) // 8]:
                self._release(key, entry, largest)

    def _release(self, key: K, entry: CacheEntry[V], tenant: str) -> None:
        """Drop an entry of a tenant; for others that use it, it stays."""
        if entry.tenants == {tenant}:
            self.drop(key)
            return
        entry.tenants.discard(tenant)
        self._shrink(tenant, entry.size)

    def _shrink(self, tenant: str, size: int) -> None:
        left = self._sizes.get(tenant, 0) - size
        if left > 0:
            self._sizes[tenant] = left
        else:
            self._sizes.pop(tenant, None)
