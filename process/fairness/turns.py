"""Turns at a resource with few places, so that a tenant with long turns delays no other for long.

Whose turn took a second rests for four while others wait. So a tenant that is never done has a fifth of the
time, and one that asks now and then waits for one turn at most. Where only resting tenants wait, the one
whose rest ends first goes on: no time is lost. What is left of its rest is taken off those of all, so that nobody
who was alone for long rests for that long when others come.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Generic, TypeVar

REST: Final = 4.0
"""Times as long as a turn is the rest after it."""
MAX_REMEMBERED: Final = 4096
"""Tenants of which the rest is remembered; those that were heard of longest ago are forgotten first."""

T = TypeVar("T")


class Rests:
    """The end of each tenant's rest."""

    def __init__(self) -> None:
        """Begin without a tenant."""
        # By a clock that is ahead of the monotonic one by the rests that were skipped.
        self._until_s: OrderedDict[str, float] = OrderedDict()
        self._skipped_s = 0.0

    def add(self, tenant: str, took_s: float, now_s: float) -> None:
        """Have a tenant rest after a turn, in proportion to its time.

        Args:
            now_s: The time by a monotonic clock, as in all methods.
        """
        self._until_s[tenant] = now_s + self._skipped_s + self.left_s(tenant, now_s) + REST * took_s
        self._until_s.move_to_end(tenant)
        if len(self._until_s) > MAX_REMEMBERED:
            self._until_s.popitem(last=False)

    def left_s(self, tenant: str, now_s: float) -> float:
        """Return the time that a tenant rests from now on; 0 if it does not."""
        return max(0.0, self._until_s.get(tenant, 0.0) - self._skipped_s - now_s)

    def skip(self, tenant: str, now_s: float) -> None:
        """Take the remaining rest of a tenant off those of all: it has a turn, and no other waits for one."""
        self._skipped_s += self.left_s(tenant, now_s)


class FairQueue(Generic[T]):
    """Items of tenants that take turns. Not for several threads."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin empty.

        Args:
            clock: Monotonic seconds.
        """
        self._clock = clock
        self._rests = Rests()
        self._waiting: dict[str, deque[T]] = {}
        self._has_items = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of tenants that wait."""
        return len(self._waiting)

    def put(self, tenant: str, item: T) -> None:
        """Add an item behind those of its tenant."""
        self._waiting.setdefault(tenant, deque()).append(item)
        self._has_items.set()

    def put_first(self, tenant: str, item: T) -> None:
        """Add an item before those of its tenant: one that is not finished."""
        self._waiting.setdefault(tenant, deque()).appendleft(item)
        self._has_items.set()

    async def get(self) -> tuple[str, T]:
        """Wait for an item; return it with its tenant."""
        while (next_item := self.take()) is None:
            self._has_items.clear()
            await self._has_items.wait()
        return next_item

    def take(self, *, excluded: Collection[str] = ()) -> tuple[str, T] | None:
        """Return the next item with its tenant; None if there is none.

        It is that of the tenant that came first of those that do not rest.

        Args:
            excluded: The tenants that get no turn now.
        """
        now_s = self._clock()
        tenant = min(
            (tenant for tenant in self._waiting if tenant not in excluded),
            key=lambda tenant: self._rests.left_s(tenant, now_s),
            default=None,
        )
        if tenant is None:
            return None
        self._rests.skip(tenant, now_s)
        items = self._waiting.pop(tenant)
        item = items.popleft()
        if items:
            self._waiting[tenant] = items  # Behind all others.
        return tenant, item

    def skip_rest(self, tenant: str) -> None:
        """Take note that a tenant has a turn without waiting."""
        self._rests.skip(tenant, self._clock())

    def charge(self, tenant: str, took_s: float) -> None:
        """Have a tenant rest after its turn."""
        self._rests.add(tenant, took_s, self._clock())

    def discard(self, tenant: str, item: T) -> None:
        """Remove an item, if it waits."""
        items = self._waiting.get(tenant)
        if items is not None and item in items:
            items.remove(item)
            if not items:
                del self._waiting[tenant]


class Turns:
    """A lock, or several places, that tenants take in turns. Not for several threads."""

    def __init__(
        self,
        places: int = 1,
        *,
        per_tenant: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with all places free.

        Args:
            places: The number of turns at a time.
            per_tenant: The number of turns at a time of one tenant; None for all of them.
            clock: Monotonic seconds.
        """
        self._places = places
        self._per_tenant = places if per_tenant is None else per_tenant
        self._clock = clock
        self._queue = FairQueue[asyncio.Future[None]](clock=clock)
        self._taken: Counter[str] = Counter()

    @asynccontextmanager
    async def take(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a turn of a tenant, and hold it for a block."""
        end = await self.begin(tenant)
        try:
            yield
        finally:
            end()

    async def begin(self, tenant: str) -> Callable[[], None]:
        """Wait for a turn of a tenant; return the function to end it with."""
        await self._acquire(tenant)
        return partial(self._end, tenant, self._clock())

    def _end(self, tenant: str, began_s: float) -> None:
        self._queue.charge(tenant, self._clock() - began_s)
        self._release(tenant)

    async def _acquire(self, tenant: str) -> None:
        # Where a place is free, only tenants that have all of theirs wait.
        if self._has_place() and self._taken[tenant] < self._per_tenant:
            self._taken[tenant] += 1
            self._queue.skip_rest(tenant)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(tenant, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(tenant)
            else:
                self._queue.discard(tenant, turn)
            raise

    def _has_place(self) -> bool:
        return self._taken.total() < self._places

    def _release(self, tenant: str) -> None:
        """Give the place to the next that waits; one that is cancelled may still be in the queue."""
        self._taken[tenant] -= 1
        self._taken = +self._taken  # Forgets the tenants without a turn.
        while self._has_place():
            excluded = [
                tenant for tenant, count in self._taken.items() if count >= self._per_tenant
            ]
            next_item = self._queue.take(excluded=excluded)
            if next_item is None:
                return
            next_tenant, turn = next_item
            if not turn.done():
                self._taken[next_tenant] += 1
                turn.set_result(None)
