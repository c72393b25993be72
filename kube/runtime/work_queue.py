"""Keys to reconcile, each by one worker at a time, with a growing pause after failures.

Keys of several namespaces take turns, since users choose how many objects, and so keys, a namespace has.

Source: the semantics of client-go's util/workqueue: a key that is added while it waits is one key, and
one that is added while it is processed is processed again afterwards.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kube.runtime.turn_queue import TurnQueue

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """A queue for several workers; belongs to one event loop.

    Attributes:
        added: The number of keys that were added, without those that waited already.
        retried: The number of keys that were added again after a failure.
    """

    def __init__(self, pause_s: Callable[[int], float]) -> None:
        """Begin empty.

        Args:
            pause_s: A function from the number of failures in a row, at least 1, to seconds.
        """
        self._pause_s = pause_s
        self._ready: TurnQueue[K] = TurnQueue(_namespace_of)
        self._waiting: set[K] = set()
        self._active: set[K] = set()
        self._failures: dict[K, int] = {}
        self._delayed: dict[K, tuple[float, asyncio.Handle]] = {}
        self.added = 0
        self.retried = 0

    def __len__(self) -> int:
        """Return the number of waiting keys, without those that wait behind themselves."""
        return len(self._waiting - self._active)

    @property
    def active(self) -> int:
        """Return the number of keys that are processed."""
        return len(self._active)

    def add(self, key: K) -> None:
        """Add a key."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        self.added += 1
        if key not in self._active:
            self._ready.put_nowait(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Add a key after a delay; of several delays the one that ends first counts."""
        if delay_s <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        if (delayed := self._delayed.get(key)) is not None:
            earlier, timer = delayed
            if earlier <= due:
                return
            timer.cancel()
        # A timer of uvloop that is due within a millisecond does not know when.
        self._delayed[key] = due, loop.call_at(due, self._delay_ended, key)

    async def get(self) -> K:
        """Return a key that no other worker has; call `succeeded` or `failed` afterwards."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._active.add(key)
        return key

    def forget(self, key: K) -> None:
        """Forget the key's failures."""
        self._failures.pop(key, None)
        self._release(key)

    def retry_later(self, key: K) -> None:
        """Add the key again after a pause, unless it is added before."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._release(key)
        asyncio.get_running_loop().call_later(self._pause_s(failures), self._retry, key, failures)

    def _retry(self, key: K, failures: int) -> None:
        if self._failures.get(key) == failures:  # Otherwise it was processed in the meantime.
            self.retried += 1
            self.add(key)

    def _delay_ended(self, key: K) -> None:
        del self._delayed[key]
        self.add(key)

    def _release(self, key: K) -> None:
        self._active.discard(key)
        if key in self._waiting:
            self._ready.put_nowait(key)


def _namespace_of(key: Hashable) -> str:
    """Return the namespace of a key that ends with namespace and name; all other keys count as of one."""
    return str(key[-2]) if isinstance(key, tuple) and len(key) > 1 else ""
