"""The driver's sockets under calls that no kubelet sends: errors, and the kubelet is served as ever.

Only root on the node can open the sockets, so this bounds the damage of a confused neighbour.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor

from driver.kubelet.api import dra_v1_pb2 as api
from driver.kubelet.servers import MAX_CALLS, MAX_MESSAGE_BYTES, Unary, service, serving

DRA: Final[ServiceDescriptor] = api.DESCRIPTOR.services_by_name["DRAPlugin"]
PREPARE: Final = f"/{DRA.full_name}/NodePrepareResources"
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS: Final = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
CONNECTIONS: Final = 200


class Driver:
    """The services of a driver that prepares nothing, and the calls to them.

    Attributes:
        claims: The number of claims in the last request.
        pause: Set when calls may end.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.claims = 0
        self.calls = 0
        self.pause = asyncio.Event()
        self.pause.set()

    async def prepare(
        self, request: api.NodePrepareResourcesRequest
    ) -> api.NodePrepareResourcesResponse:
        self.claims = len(request.claims)
        self.calls += 1
        await self.pause.wait()
        return api.NodePrepareResourcesResponse()

    async def unprepare(
        self, _request: api.NodeUnprepareResourcesRequest
    ) -> api.NodeUnprepareResourcesResponse:
        return api.NodeUnprepareResourcesResponse()

    async def assert_serves(self) -> None:
        """Prepare a claim, as the kubelet does."""
        request = api.NodePrepareResourcesRequest(claims=[api.Claim(uid="u")])
        await self.call(request.SerializeToString())
        assert self.claims == 1

    async def call(self, message: bytes, **options: Any) -> bytes:
        """Send any message."""
        async with grpc.aio.insecure_channel(f"unix://{self.socket}") as channel:
            call: Any = channel.unary_unary(PREPARE)
            async with asyncio.timeout(60):
                return bytes(await call(message, **options))


@asynccontextmanager
async def driving(folder: Path) -> AsyncIterator[Driver]:
    driver = Driver(folder / "dra.sock")
    handlers: dict[str, Unary] = {
        "NodePrepareResources": driver.prepare,
        "NodeUnprepareResources": driver.unprepare,
    }
    async with serving(driver.socket, service(DRA, unary=handlers)):
        yield driver


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    async with driving(tmp_path) as driver:
        yield driver


def frame(kind: int, payload: bytes, *, stream: int = 1, flags: int = 0, size: int = -1) -> bytes:
    """Return a frame of HTTP/2, with another size than it has if one is given."""
    length = len(payload) if size < 0 else size
    return struct.pack(">I", length)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


HOSTILE: Final = {
    "nothing": b"",
    "zero bytes": b"\x00" * 4096,
    "HTTP/1.1": b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    "a preface that is cut off": PREFACE[:10],
    "a frame that says it is huge": PREFACE + SETTINGS + frame(0, b"", size=2**24 - 1),
    "a frame of an unknown kind": PREFACE + SETTINGS + frame(0xEE, b"\xff" * 999),
    "headers that are no HPACK": PREFACE + SETTINGS + frame(1, b"\xff" * 999, flags=4),
    "data without a stream": PREFACE + SETTINGS + frame(0, b"\x00" * 999, stream=7),
    "settings of a wrong size": PREFACE + frame(4, b"\x00" * 5, stream=0),
    "many settings": PREFACE + SETTINGS * 5000,
    "many pings": PREFACE + SETTINGS + frame(6, b"\x00" * 8, stream=0) * 5000,
    "streams that are reset at once": PREFACE
    + SETTINGS
    + b"".join(
        frame(1, b"\x82", stream=2 * number + 1, flags=4)
        + frame(3, b"\x00\x00\x00\x08", stream=2 * number + 1)
        for number in range(2000)
    ),
    "noise": Random(1).randbytes(2**16),
    "noise behind a preface": PREFACE + SETTINGS + Random(2).randbytes(2**16),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
async def test_what_is_no_grpc_is_not_served(data: bytes, driver: Driver) -> None:
    reader, writer = await asyncio.open_unix_connection(str(driver.socket))
    try:
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(60):
            await reader.read()
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()

    assert driver.calls == 0
    await driver.assert_serves()


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\xff" * 100, id="noise"),
        pytest.param(b"\x0a\xff\xff\xff\xff\x0f", id="a length beyond its end"),
        pytest.param(b"\x0a\x03\x0a\x01\xff", id="a name that is no UTF-8"),
        pytest.param(b"\x0b" * 1000, id="groups in groups"),
    ],
)
async def test_a_message_that_cannot_be_read_is_an_error(message: bytes, driver: Driver) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await driver.call(message)

    assert driver.calls == 0
    await driver.assert_serves()


async def test_a_message_beyond_the_bound_is_rejected(driver: Driver) -> None:
    claim = api.Claim(namespace="n" * MAX_MESSAGE_BYTES)
    message = api.NodePrepareResourcesRequest(claims=[claim]).SerializeToString()

    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await driver.call(message)

    assert fault.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await driver.assert_serves()


async def test_a_message_is_not_decompressed(driver: Driver) -> None:
    """The bound counts bytes as they arrive, so it would be none for compressed ones."""
    claim = api.Claim(namespace="n" * (MAX_MESSAGE_BYTES // 2))
    message = api.NodePrepareResourcesRequest(claims=[claim]).SerializeToString()

    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await driver.call(message, compression=grpc.Compression.Gzip)

    assert fault.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert driver.calls == 0
    await driver.assert_serves()


async def test_connections_that_say_nothing_hold_up_nobody(driver: Driver) -> None:
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(driver.socket))
            connection.send((PREFACE + SETTINGS)[: number % 40])

        await driver.assert_serves()


async def test_calls_beyond_the_bound_are_rejected(driver: Driver) -> None:
    driver.pause.clear()
    async with grpc.aio.insecure_channel(f"unix://{driver.socket}") as channel:
        method: Any = channel.unary_unary(PREPARE)
        calls = [asyncio.ensure_future(method(b"")) for _ in range(MAX_CALLS + 50)]
        async with asyncio.timeout(60):
            rejected, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            driver.pause.set()
            answers = await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(call.exception(), grpc.aio.AioRpcError) for call in rejected)
    assert sum(isinstance(answer, bytes) for answer in answers) >= MAX_CALLS
    await driver.assert_serves()
