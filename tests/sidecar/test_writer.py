"""What a sidecar that ends can say about its last writes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kube.errors import KubeError
from sidecar.writer import ClaimWriter
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import put_claim

NAME = ("default", "claim")


@asynccontextmanager
async def writer_of(server: FakeApiServer, timeout_s: float) -> AsyncIterator[ClaimWriter]:
    async with server.client(timeout_s=5.0) as client:
        yield ClaimWriter(
            client,
            identity="us",
            timeout_s=timeout_s,
            max_in_flight=2,
            may_write=lambda: True,
        )


async def write(writer: ClaimWriter) -> bytes:
    return await writer.patch(NAME, {"metadata": {"annotations": {"a": "b"}}}, status=False)


async def test_writes_that_were_answered_are_over() -> None:
    async with FakeApiServer() as server, writer_of(server, 2.0) as writer:
        put_claim(server, NAME[1])
        await write(writer)

        assert await writer.drain()


async def test_a_write_under_way_is_waited_for() -> None:
    async with FakeApiServer() as server, writer_of(server, 30.0) as writer:
        put_claim(server, NAME[1])
        server.hang()
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write(writer))
            await until(lambda: server.counts["PATCH"] == 1)
            draining = group.create_task(writer.drain())
            await asyncio.sleep(0.1)
            assert not draining.done()
            server.resume()

        assert writing.result()
        assert draining.result()


async def test_a_write_that_never_is_answered_is_not_over() -> None:
    async with FakeApiServer() as server, writer_of(server, 0.2) as writer:
        put_claim(server, NAME[1])
        server.hang()
        with pytest.raises(KubeError):
            await write(writer)

        assert not await writer.drain()


async def test_a_write_that_was_cancelled_is_not_over() -> None:
    async with FakeApiServer() as server, writer_of(server, 30.0) as writer:
        put_claim(server, NAME[1])
        server.hang()
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write(writer))
            await until(lambda: server.counts["PATCH"] == 1)
            writing.cancel()

        assert writing.cancelled()
        assert not await writer.drain()
