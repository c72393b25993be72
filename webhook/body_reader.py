"""Receives the bodies of requests within a budget of their own.

A body that is still arriving takes no place of a review, so that clients which send slowly hold up
nobody else. If too many arrive at a time, the one that began first is given up.
"""

import asyncio
from typing import Final

from aiohttp import hdrs, web

SMALL_BODY_BYTES: Final = 64 * 1024


class BodyReader:
    """Reads bodies; `len` is the number of those arriving."""

    def __init__(self, max_reading: int, *, timeout_s: float, small_timeout_s: float) -> None:
        """Begin without bodies.

        Args:
            max_reading: Bodies that arrive at a time.
            timeout_s: The time in which a body must be complete.
            small_timeout_s: The same for one of less than `SMALL_BODY_BYTES`.
        """
        self._max_reading = max_reading
        self._timeout_s = timeout_s
        self._small_timeout_s = min(small_timeout_s, timeout_s)
        self._reading: dict[asyncio.Timeout, None] = {}

    def __len__(self) -> int:
        """Return the number of bodies that are arriving."""
        return len(self._reading)

    async def read(self, request: web.BaseRequest, *, until_s: float) -> None:
        """Wait for the body of a request; `request.read` returns it from then on.

        Args:
            until_s: No longer than that, by the clock of the event loop.

        Raises:
            web.HTTPException: It is too large, too slow, or of another content type.
        """
        # Not `request.content_type`: the library for mail behind it takes a second for 8 KB of semicolons.
        media_type, _, _ = request.headers.get(hdrs.CONTENT_TYPE, "").partition(";")
        if media_type.strip().lower() != "application/json":
            raise web.HTTPUnsupportedMediaType(text="want application/json")
        if request.content.is_eof():  # All of it has arrived already, as nearly always.
            await request.read()
            return
        if len(self._reading) >= self._max_reading:
            self._give_up_first()
        is_small = (request.content_length or SMALL_BODY_BYTES) < SMALL_BODY_BYTES
        timeout_s = self._small_timeout_s if is_small else self._timeout_s
        until_s = min(until_s, asyncio.get_running_loop().time() + timeout_s)
        try:
            async with asyncio.timeout_at(until_s) as timeout:
                self._reading[timeout] = None
                try:
                    await request.read()
                finally:
                    self._reading.pop(timeout, None)
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text="the body did not come in time") from error

    def _give_up_first(self) -> None:
        first = next(iter(self._reading))
        del self._reading[first]
        if not first.expired():  # Its own time may have ended in this turn of the loop.
            first.reschedule(asyncio.get_running_loop().time())
