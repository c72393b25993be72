"""Bounds of every port on the bytes of a client that are parsed, and on those in memory."""

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from process.serving import anonymous_http
from process.serving.anonymous_http import MAX_FRAMING_BYTES, anonymous_protocols, bare_response
from process.serving.bounded_server import bounded_server
from testing.fuzz.endpoint import Wire

MEBIBYTE = 2**20
PIECE = 256 * 1024
"""Bytes that a socket hands over at once."""
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
WIDE = "\U0001f600".encode() + b"a" * 8000
"""A value that takes four times its length as a text."""
MANY_HEADERS = b"".join(b"x%d: %b\r\n" % (number, WIDE) for number in range(120))

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Client:
    """One connection without a socket."""

    def __init__(self, handle: Handler) -> None:
        self.malformed = 0
        server = bounded_server(handle, max_body_bytes=8 * MEBIBYTE)
        self.wire = Wire(anonymous_protocols(server, self._count)())

    def _count(self) -> None:
        self.malformed += 1

    async def send(self, data: bytes) -> None:
        """Send bytes as a socket hands them over, while the server reads."""
        for begin in range(0, len(data), PIECE):
            while not self.wire.is_reading():
                await self.wire.changes()
            self.wire.protocol.data_received(data[begin : begin + PIECE])
        await settle()


async def settle() -> None:
    """Let everything happen that is due."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def connected(handle: Handler) -> AsyncIterator[Client]:
    client = Client(handle)
    await settle()
    async with asyncio.timeout(30):
        yield client
    client.wire.close()
    await settle()


async def reject(_request: web.BaseRequest) -> web.StreamResponse:
    """Answer as a stranger is answered: before the body is read."""
    return bare_response(404)


async def count_body(request: web.BaseRequest) -> web.StreamResponse:
    """Answer with the length of the body."""
    return web.Response(text=str(len(await request.read())))


def status(client: Client) -> bytes:
    return bytes(client.wire.sent[9:12])


@pytest.mark.parametrize(
    ("name", "first", "rest"),
    [
        ("a header that does not end", b"", POST + MANY_HEADERS),
        ("a header behind an answer", CHUNKED, b"0\r\n\r\n" + POST + MANY_HEADERS),
        ("trailers behind an answer", CHUNKED, b"0\r\n" + MANY_HEADERS),
    ],
)
async def test_a_stranger_keeps_little_in_memory(name: str, first: bytes, rest: bytes) -> None:
    async with connected(reject) as client:
        await client.send(first)
        tracemalloc.start()
        try:
            await client.send(rest)
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert kept_bytes < 16 * MAX_FRAMING_BYTES, name


async def test_headers_of_requests_that_wait_share_the_bound() -> None:
    going_on = asyncio.Event()

    async def wait(_request: web.BaseRequest) -> web.StreamResponse:
        await going_on.wait()
        return web.Response()

    request = POST + b"x: " + WIDE + b"\r\n\r\n"
    async with connected(wait) as client:
        tracemalloc.start()
        try:
            await client.send(request * 32)
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        going_on.set()
        await settle()

        assert kept_bytes < 16 * MAX_FRAMING_BYTES
        assert client.malformed == 1
        assert 2 <= client.wire.sent.count(b"HTTP/1.1 200 OK") < 8


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 1\r\n" + b"x: a\r\n" * 100,
        POST + b"".join(b"x%d: %b\r\n" % (number, b"a" * 300) for number in range(100)),
    ],
    ids=["short", "too long"],
)
async def test_a_long_header_is_malformed_and_counted(request_: bytes) -> None:
    is_long = len(request_) > MAX_FRAMING_BYTES
    async with connected(count_body) as client:
        await client.send(request_)
        assert (status(client), client.malformed) == ((b"400", 1) if is_long else (b"", 0))


@pytest.mark.parametrize(
    ("chunk_bytes", "answer"),
    [(1, b""), (100, b"200"), (4096, b"200")],
)
async def test_chunks_have_a_least_size(chunk_bytes: int, answer: bytes) -> None:
    chunk = b"%x\r\n%b\r\n" % (chunk_bytes, b"a" * chunk_bytes)
    chunks = chunk * (MEBIBYTE // chunk_bytes // 2)
    async with connected(count_body) as client:
        await client.send(CHUNKED + chunks + b"0\r\n\r\n")
        assert status(client) == answer


async def test_a_large_body_is_received_whole_even_if_its_reader_is_late() -> None:
    going_on = asyncio.Event()

    async def read_late(request: web.BaseRequest) -> web.StreamResponse:
        await going_on.wait()
        return await count_body(request)

    body = b"a" * (7 * MEBIBYTE)
    async with connected(read_late) as client:
        async with asyncio.TaskGroup() as group:
            head = POST + b"Content-Length: %d\r\n\r\n" % len(body)
            group.create_task(client.send(head + body))
            await settle()
            assert not client.wire.is_reading()
            going_on.set()

        assert client.wire.sent.endswith(b"%d" % len(body))
        assert client.malformed == 0


async def test_one_request_after_the_other_may_be_sent_for_ever() -> None:
    request = POST + b"x: " + b"a" * 4000 + b"\r\nContent-Length: 4000\r\n\r\n" + b"b" * 4000
    async with connected(count_body) as client:
        for _ in range(20):
            await client.send(request)
        assert client.wire.sent.count(b"HTTP/1.1 200 OK") == 20
        assert client.malformed == 0


async def test_no_body_is_decompressed() -> None:
    body = gzip.compress(bytes(MEBIBYTE))
    head = POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with connected(count_body) as client:
        await client.send(head + body)
        assert client.wire.sent.endswith(b"\r\n\r\n%d" % len(body))


async def test_an_address_with_a_host_that_is_no_name_is_malformed() -> None:
    host = b"xn--a." * 1000
    async with connected(reject) as client:
        await client.send(b"GET http://" + host + b"/ HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.wire.is_closing()
        assert client.malformed == 1


async def test_the_rest_of_a_rejected_body_is_dropped_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(anonymous_http, "LINGERING_S", 0.01)
    async with connected(reject) as client:
        await client.send(CHUNKED + b"1\r\na\r\n")
        await client.send(b"not a chunk")
        assert status(client) == b"404"
        while not client.wire.is_closing():
            await client.wire.changes()
        assert client.malformed == 0
