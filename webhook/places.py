"""A limit on the reviews in flight, by number or bytes. A review beyond it waits for a moment.

A review that is turned away at once fails the request of a user, although most reviews take milliseconds.
"""

import asyncio


class Places:
    """Places that are given in the order of the requests.

    Attributes:
        taken: Number of places that are taken.
    """

    def __init__(self, places: int) -> None:
        """Begin with all places free."""
        self.taken = 0
        self._places = places
        # What is set once the places are given, and their number.
        self._waiting: dict[asyncio.Future[None], int] = {}

    async def take(self, count: int, *, until_s: float) -> bool:
        """Take some places at once; return False if there are not enough in time.

        Args:
            count: The number of places; 0 waits for nobody.
            until_s: The end of the wait, by the clock of the event loop.
        """
        if self._has(count) and not (count and self._waiting):
            self.taken += count
            return True
        loop = asyncio.get_running_loop()
        place = loop.create_future()
        self._waiting[place] = count
        try:
            # It leaves the place alone: that may be given in the moment in which the wait ends.
            await asyncio.wait([place], timeout=until_s - loop.time())
        except asyncio.CancelledError:
            if place.done():
                self.leave(count)
            raise
        finally:
            if not place.done():
                del self._waiting[place]
                self._give()
        return place.done()

    def leave(self, count: int) -> None:
        """Return places, and give them to those that wait."""
        self.taken -= count
        self._give()

    def _give(self) -> None:
        """Give places in order, until there are not enough for the next."""
        while self._waiting:
            place, count = next(iter(self._waiting.items()))
            if not self._has(count):
                return
            del self._waiting[place]
            self.taken += count
            place.set_result(None)

    def _has(self, count: int) -> bool:
        return self.taken + count <= self._places
