"""`BodyReader`, with bodies that arrive slowly; through real connections in test_connections.py."""

import asyncio

from aiohttp import web
from aiohttp.streams import EmptyStreamReader
from aiohttp.test_utils import make_mocked_request

from webhook.body_reader import BodyReader


class NeverComplete(EmptyStreamReader):
    """A body without any arriving data."""

    def is_eof(self) -> bool:
        """Return that the end has not come."""
        return False

    async def readany(self) -> bytes:
        """Wait for ever."""
        await asyncio.Event().wait()
        return b""


async def test_a_body_whose_time_ends_is_not_given_up_a_second_time() -> None:
    reader = BodyReader(1, timeout_s=10, small_timeout_s=10)
    loop = asyncio.get_running_loop()
    headers = {"Content-Type": "application/json", "Content-Length": "2"}

    async def status(until_s: float) -> int:
        request = make_mocked_request("POST", "/", headers=headers, payload=NeverComplete())
        try:
            await reader.read(request, until_s=until_s)
        except web.HTTPException as error:
            return error.status
        return 200

    async with asyncio.TaskGroup() as group:
        first = group.create_task(status(loop.time()))
        await asyncio.sleep(0)  # Its time is over, which it learns in the next turn.
        second = group.create_task(status(loop.time()))

    assert (first.result(), second.result()) == (408, 408)
    assert len(reader) == 0
