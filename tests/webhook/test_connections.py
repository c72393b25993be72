"""Connections by real sockets: their number, and the time to begin a request."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.x509.oid import ExtensionOID
from prometheus_client import CollectorRegistry

from certs.authority import Authority
from certs.serving import Listener, client_tls_context, issue_serving_certificate
from process.model.durations import Duration, PositiveDuration
from process.serving import connections
from testing.client_certificates import client_context
from testing.fake_api_server import running, until
from testing.webhook_paths import fixed_path
from webhook.endpoint import Endpoint
from webhook.metrics import WebhookMetrics
from webhook.settings import WebhookSettings

NAME: Final = "w.n.svc"
NOW: Final = datetime.now(UTC)  # noqa: TID251  TLS compares with the clock.
LIFE: Final = timedelta(days=1)
AUTHORITY: Final = Authority.create("test", now=NOW, life=LIFE)
LEAF: Final = issue_serving_certificate(AUTHORITY, [NAME], now=NOW, life=LIFE)
TRUST: Final = client_tls_context(LEAF.authority)
HEAD: Final = b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
ASK: Final = HEAD + b"Content-Length: 2\r\n\r\n{}"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])


class Server:
    """An endpoint that answers when it is let."""

    def __init__(self, **settings: Any) -> None:
        self.registry = CollectorRegistry()
        self.answering = asyncio.Event()
        self.answering.set()
        self.asked = 0
        self._writers: list[asyncio.StreamWriter] = []
        served = WebhookSettings(bind_address="127.0.0.1", port=0, drain=Duration(0), **settings)
        reviews = {"/mutate": self.answer}
        metrics = WebhookMetrics(self.registry)
        self.endpoint = Endpoint(served, reviews, metrics, find_path=fixed_path, chance=lambda: 0.5)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        await request.read()
        self.asked += 1
        await self.answering.wait()
        return web.Response(text="ok")

    async def plain(self) -> Streams:
        return self._track(await asyncio.open_connection("127.0.0.1", self.endpoint.port))

    async def connected(
        self, address: str = "127.0.0.1", client: ssl.SSLContext = TRUST
    ) -> Streams:
        return self._track(
            await asyncio.open_connection(
                "127.0.0.1",
                self.endpoint.port,
                ssl=client,
                server_hostname=NAME,
                local_addr=(address, 0),
            )
        )

    def _track(self, streams: Streams) -> Streams:
        self._writers.append(streams[1])
        return streams

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def is_answered(
        self, streams: Streams | None = None, *, address: str = "127.0.0.1"
    ) -> bool:
        """Return True if a client gets an answer."""
        try:
            reader, writer = streams or await self.connected(address)
            writer.write(ASK)
            answer = await reader.readuntil(b"\r\n\r\nok")
        except (OSError, asyncio.IncompleteReadError):
            return False
        return answer.startswith(b"HTTP/1.1 200")

    def open(self) -> float | None:
        return self.registry.get_sample_value("drawbridge_connections")

    def closed(self, reason: str) -> float | None:
        name = "drawbridge_connections_closed_total"
        return self.registry.get_sample_value(name, {"reason": reason})


@asynccontextmanager
async def started_server(
    listener: Listener | None = None, **settings: Any
) -> AsyncIterator[Server]:
    started = Server(**settings)
    await started.endpoint.start((listener or Listener(LEAF)).context)
    async with asyncio.timeout(60), running(started.endpoint.run):
        try:
            yield started
        finally:
            # uvloop waits for ever for what is still open when it is closed.
            started.close()
            started.answering.set()
            await started.endpoint.stop()


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHECK_INTERVAL_S", 0.05)


async def is_over(streams: Streams) -> bool:
    """Return True if the other side ends the connection."""
    try:
        return await streams[0].read(1) == b""
    except OSError:
        return True


async def test_an_idle_connection_is_evicted_for_a_new_one() -> None:
    async with started_server(max_connections=2) as server:
        oldest, newer = await server.connected(), await server.connected()
        assert await server.is_answered(newer)
        await until(lambda: server.open() == 2)
        await asyncio.sleep(0.1)

        assert await server.is_answered()

        assert await is_over(oldest)
        assert await server.is_answered(newer)
        assert (2, 1, None) == (server.open(), server.closed("evicted"), server.closed("rejected"))


async def test_a_connection_with_a_review_keeps_its_place_and_a_new_one_is_rejected() -> None:
    async with started_server(max_connections=1) as server, asyncio.TaskGroup() as group:
        server.answering.clear()
        first = group.create_task(server.is_answered())
        await until(lambda: server.asked == 1)
        await asyncio.sleep(0.1)

        assert not await server.is_answered()

        server.answering.set()
        assert await first
        assert (1, None) == (server.closed("rejected"), server.closed("evicted"))


async def test_connections_without_a_valid_request_are_evicted_before_others() -> None:
    async with started_server(max_connections=3) as server:
        used = await server.connected()
        assert await server.is_answered(used)
        unused = [await server.connected() for _ in range(2)]
        await until(lambda: server.open() == 3)
        await asyncio.sleep(0.1)

        assert await server.is_answered()

        assert await is_over(unused[0])
        assert await server.is_answered(used)


async def test_a_client_cannot_have_more_unused_connections_than_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "CHECK_INTERVAL_S", 60.0)  # None is idle for so long.
    async with started_server(max_connections=8, max_unused_connections_per_address=2) as server:
        first = await server.connected("127.0.0.2")
        await server.connected("127.0.0.2")
        assert not await server.is_answered(address="127.0.0.2")
        monkeypatch.setattr(connections, "CHECK_INTERVAL_S", 0.0)

        assert await server.is_answered()
        assert await server.is_answered(await server.connected("127.0.0.2"))

        assert await is_over(first)
        assert (server.closed("rejected"), server.closed("evicted")) == (1, 1)


async def test_who_opens_connections_without_end_makes_room_for_others() -> None:
    async with started_server(max_connections=4) as server:
        flood = [await server.connected("127.0.0.2") for _ in range(4)]
        await until(lambda: server.open() == 4)

        assert await server.is_answered()

        assert await is_over(flood[0])
        assert server.closed("evicted") == 1


class Made(asyncio.Protocol):
    """Notes the address of its client once its handshake is over."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._addresses.append(transport.get_extra_info("peername")[0])


@pytest.mark.parametrize("share", [500, 3])
async def test_connections_wait_behind_few_of_another_address(share: int) -> None:
    """One address had hundreds of costly handshakes before those of others, also beyond its share."""
    served = connections.Connections(600, max_unused_per_address=share, header_timeout_s=10.0)
    await served.listen("127.0.0.1", 0)
    addresses: list[str] = []
    clients = [
        socket.create_connection(("127.0.0.1", served.port), source_address=(address, 0))
        for address in (*["127.0.0.2"] * 50, "127.0.0.1")
    ]
    async with running(partial(served.run, partial(Made, addresses))):
        await until(lambda: "127.0.0.1" in addresses)
        for client in clients:
            client.close()
        await served.close()
        await until(lambda: len(served) == 0)
    assert addresses.index("127.0.0.1") <= 2


# --- bodies ---------------------------------------------------------------------------------------


async def test_bodies_that_are_still_arriving_take_no_place_of_a_review() -> None:
    async with started_server(max_in_flight=1) as server:
        for _ in range(5):
            _, writer = await server.connected()
            writer.write(HEAD + b"Content-Length: 2\r\n\r\n{")
            await writer.drain()

        assert await server.is_answered()


async def test_a_review_beyond_the_limit_waits_for_a_place() -> None:
    async with started_server(max_in_flight=1) as server, asyncio.TaskGroup() as group:
        server.answering.clear()
        first = group.create_task(server.is_answered())
        await until(lambda: server.asked == 1)
        second = group.create_task(server.is_answered())
        await asyncio.sleep(0.05)
        server.answering.set()

        assert await first
        assert await second


async def test_a_review_without_a_place_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Retry-After, or the API server would wait for its timeout, and then quote the path."""
    monkeypatch.setattr("webhook.endpoint.PLACE_WAIT_S", 0.05)
    async with started_server(max_in_flight=1) as server, asyncio.TaskGroup() as group:
        server.answering.clear()
        first = group.create_task(server.is_answered())
        await until(lambda: server.asked == 1)
        reader, writer = await server.connected()
        writer.write(ASK)
        answer = await reader.read()
        server.answering.set()

        assert await first
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"Retry-After" not in answer
        assert server.registry.get_sample_value("drawbridge_requests_shed_total") == 1


async def test_a_small_body_has_a_second_and_the_first_of_too_many_is_given_up() -> None:
    async with started_server(max_reading=1) as server:
        first, second = await server.connected(), await server.connected()
        for _, writer in (first, second):
            writer.write(HEAD + b"Content-Length: 2\r\n\r\n{")
            await asyncio.sleep(0.05)

        assert (await first[0].readline()).startswith(b"HTTP/1.1 408")
        second[1].write(b"}")
        assert (await second[0].readline()).startswith(b"HTTP/1.1 200")


BEGINNINGS: Final = {
    "nothing, not even TLS": None,
    "TLS, and then nothing": b"",
    "half a head": ASK[:30],
    "half a head after a review": ASK + ASK[:30],
}


@pytest.mark.parametrize("sent", BEGINNINGS.values(), ids=BEGINNINGS)
async def test_a_connection_with_an_incomplete_header_is_closed(sent: bytes | None) -> None:
    async with started_server(request_header_timeout=PositiveDuration(1.0)) as server:
        streams = await (server.plain() if sent is None else server.connected())
        if sent and len(sent) > len(ASK):
            assert await server.is_answered(streams)
            sent = sent.removeprefix(ASK)
        streams[1].write(sent or b"")

        assert await is_over(streams)

        assert server.open() == 0
        assert (server.closed("header_timeout"), server.closed("handshake")) in {
            (1, None),
            (None, 1),
        }


async def test_a_header_that_comes_byte_by_byte_is_closed() -> None:
    async with started_server(request_header_timeout=PositiveDuration(0.2)) as server:
        _, writer = await server.connected()
        writer.write(b"POST /mutate HTTP/1.1\r\n")
        while server.closed("header_timeout") is None:
            writer.write(b"A: b\r\n")
            await asyncio.sleep(0.02)


async def test_incomplete_headers_cannot_hold_all_places() -> None:
    async with started_server(max_connections=5) as server:
        half = [await server.connected() for _ in range(3)]
        half += [await server.plain() for _ in range(2)]
        for _, writer in half:
            writer.write(ASK[:30])
        await asyncio.sleep(0.1)

        assert [True] * 5 == [await server.is_answered() for _ in range(5)]


async def test_an_idle_connection_outlives_the_header_timeout() -> None:
    async with started_server(request_header_timeout=PositiveDuration(1.5)) as server:
        open_streams = await server.connected()
        assert await server.is_answered(open_streams)

        await asyncio.sleep(2.0)

        assert await server.is_answered(open_streams)
        assert server.closed("header_timeout") is None


async def test_a_slow_body_is_not_a_header() -> None:
    async with started_server(
        request_header_timeout=PositiveDuration(1.5), small_body_read_timeout=PositiveDuration(30)
    ) as server:
        reader, writer = await server.connected()
        writer.write(ASK[:-1])
        await asyncio.sleep(2.0)
        writer.write(ASK[-1:])

        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_a_failed_handshake_frees_its_place() -> None:
    async with started_server() as server:
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection(
                "127.0.0.1",
                server.endpoint.port,
                ssl=ssl.create_default_context(),
                server_hostname=NAME,
            )
        _, writer = await server.plain()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")

        await until(lambda: server.open() == 0)


async def test_a_certificate_that_is_no_text_ends_its_own_handshake_only(tmp_path: Path) -> None:
    no_text = x509.UnrecognizedExtension(
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\x30\x04\x82\x02a\xff"
    )
    odd_client = client_context(AUTHORITY, "a", LEAF, tmp_path, extensions=[no_text])
    client = client_context(AUTHORITY, "kube-apiserver", LEAF, tmp_path)
    listener = Listener(LEAF, AUTHORITY.certificate_pem)
    async with started_server(listener) as server:
        for _ in range(2):
            with suppress(OSError):  # TLS 1.3 rejects a client after its own handshake.
                reader, _ = await server.connected(client=odd_client)
                await reader.read()

        assert await server.is_answered(await server.connected(client=client))


async def test_without_an_address_both_families_are_bound() -> None:
    started = connections.Connections(1, max_unused_per_address=1, header_timeout_s=1.0)
    await started.listen("", 0)

    for host in ("127.0.0.1", "::1"):
        _, writer = await asyncio.open_connection(host, started.port)
        writer.close()
        await writer.wait_closed()
    await started.close()
