"""A queue with turns for namespaces, so that one with many items delays no other's."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TurnQueue(asyncio.Queue[T]):
    """An `asyncio.Queue` that returns the first item of each namespace, then the second of each, and so on."""

    def __init__(self, namespace_of: Callable[[T], str], max_size: int = 0) -> None:
        """Begin empty.

        Args:
            namespace_of: Returns the namespace of an item.
            max_size: The largest number of items; 0 for no limit.
        """
        self._namespace_of = namespace_of
        self._items: dict[str, deque[T]] = {}
        self._count = 0
        super().__init__(max_size)

    def put_or_displace(self, item: T) -> T | None:
        """Add an item; return the dropped one if the queue is full, perhaps this one.

        It is the last item of the namespace that has most of them, this one included.
        """
        if not self.full():
            self.put_nowait(item)
            return None
        most = max(self._items, key=lambda namespace: len(self._items[namespace]))
        own_count = len(self._items.get(self._namespace_of(item), ()))
        if own_count + 1 >= len(self._items[most]):
            return item
        displaced = self._items[most].pop()
        self._count -= 1
        self.put_nowait(item)
        return displaced

    def qsize(self) -> int:
        """Return the number of items."""
        return self._count

    def empty(self) -> bool:
        """Return True if there is no item."""
        return not self._count

    # --- what `asyncio.Queue` calls ---------------------------------------------------------------

    def _init(self, maxsize: int) -> None:
        """Begin empty."""

    def _put(self, item: T) -> None:
        self._items.setdefault(self._namespace_of(item), deque()).append(item)
        self._count += 1

    def _get(self) -> T:
        namespace = next(iter(self._items))
        items = self._items.pop(namespace)
        item = items.popleft()
        if items:
            self._items[namespace] = items  # Behind all others.
        self._count -= 1
        return item
