"""The reviews in flight, limited by number and bytes. A review without a place waits for a moment.

A review that is turned away at once fails the request of a user, although most reviews take milliseconds.
"""

import asyncio
from collections import deque
from typing import NamedTuple


class _Waiting(NamedTuple):
    size: int
    place: asyncio.Future[None]


class Places:
    """Places for reviews, given in the order of their requests.

    Attributes:
        taken: Number of places that are taken.
        bytes: Size of the reviews that have one.
    """

    def __init__(self, max_taken: int, max_bytes: int) -> None:
        """Begin empty.

        Args:
            max_taken: Places.
            max_bytes: Size of the reviews that have one.
        """
        self.taken = self.bytes = 0
        self._max_taken = max_taken
        self._max_bytes = max_bytes
        self._waiting: deque[_Waiting] = deque()

    async def take(self, size: int, *, until_s: float) -> bool:
        """Take a place; return False if there is none in time.

        Args:
            size: The review's size in bytes.
            until_s: The end of the wait for a place, by the clock of the event loop.
        """
        if not self._waiting and self._has_room(size):
            self._fill(size)
            return True
        loop = asyncio.get_running_loop()
        waiting = _Waiting(size, loop.create_future())
        self._waiting.append(waiting)
        try:
            # It leaves the place alone: that may be given in the moment in which the wait ends.
            await asyncio.wait([waiting.place], timeout=until_s - loop.time())
        except asyncio.CancelledError:
            if waiting.place.done():
                self.leave(size)
            raise
        finally:
            if not waiting.place.done():
                self._waiting.remove(waiting)
        return waiting.place.done()

    def leave(self, size: int) -> None:
        """Give a place to those that wait."""
        self.taken -= 1
        self.bytes -= size
        while self._waiting and self._has_room(self._waiting[0].size):
            waiting = self._waiting.popleft()
            self._fill(waiting.size)
            waiting.place.set_result(None)

    def _has_room(self, size: int) -> bool:
        return self.taken < self._max_taken and self.bytes + size <= self._max_bytes

    def _fill(self, size: int) -> None:
        self.taken += 1
        self.bytes += size
