"""`BodyReader`, with bodies that arrive slowly; through real connections in test_connections.py."""

import asyncio
import time

import pytest
from aiohttp import web
from aiohttp.streams import EmptyStreamReader
from aiohttp.test_utils import make_mocked_request

from webhook.body_reader import BodyReader

MAX_CPU_S = 0.1


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


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON ; charset=utf-8", 200),
        ("application/json" + ";" * 8000, 200),
        ("application/json" + '";' * 4000, 415),
        ("application/json" + "".join(f";a*{number}*=x" for number in range(800)), 200),
        ("(" * 8000, 415),
        ("text/plain", 415),
        ("", 415),
    ],
)
async def test_a_type_of_content_is_read_at_no_cost(content_type: str, status: int) -> None:
    """A second of the event loop for 8 KB of semicolons delayed every other review."""
    reader = BodyReader(1, timeout_s=10, small_timeout_s=10)
    request = make_mocked_request("POST", "/", headers={"Content-Type": content_type})
    began_s = time.process_time()
    try:
        await reader.read(request, until_s=asyncio.get_running_loop().time() + 10)
        answered = 200
    except web.HTTPException as error:
        answered = error.status

    assert answered == status
    assert time.process_time() - began_s < MAX_CPU_S
