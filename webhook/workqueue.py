"""Keys of objects that need a look, each once at a time, with a growing pause after failures.

Source: the semantics of client-go's util/workqueue: a key that comes while it waits is one key, and
one that comes while it is worked on is looked at again afterwards.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """A queue for several workers; belongs to one event loop.

    Attributes:
        added: How often a look was asked for, of keys that did not wait already.
        retried: How often after a failure.
    """

    def __init__(self, pause_s: Callable[[int], float]) -> None:
        """Remember how long to wait.

        Args:
            pause_s: From the number of failures in a row, at least 1, to seconds.
        """
        self._pause_s = pause_s
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()
        self._active: set[K] = set()
        self._failures: dict[K, int] = {}
        self.added = 0
        self.retried = 0

    def __len__(self) -> int:
        """Return how many keys wait."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """How many keys are worked on."""
        return len(self._active)

    def add(self, key: K) -> None:
        """Ask for a look at a key, soon."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        self.added += 1
        if key not in self._active:
            self._ready.put_nowait(key)

    async def get(self) -> K:
        """Return a key that nobody else works on; tell `succeeded` or `failed` afterwards."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._active.add(key)
        return key

    def succeeded(self, key: K) -> None:
        """Forget the key's failures."""
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: K) -> None:
        """Look at the key again after a pause, or before that if it is added."""
        self._failures[key] = self._failures.get(key, 0) + 1
        self._release(key)
        asyncio.get_running_loop().call_later(
            self._pause_s(self._failures[key]), self._again, key, self._failures[key]
        )

    def _again(self, key: K, failures: int) -> None:
        if self._failures.get(key) == failures:  # Else it was looked at in the meantime.
            self.retried += 1
            self.add(key)

    def _release(self, key: K) -> None:
        self._active.discard(key)
        if key in self._waiting:
            self._ready.put_nowait(key)
