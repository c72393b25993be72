"""The probe port and the metrics port under malformed HTTP: nothing of it, or of us, is in an answer."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from process.model.settings import ServerSettings
from process.serving import connections, probes
from process.serving.anonymous_http import anonymous_protocols
from process.serving.bounded_server import bounded_server
from process.serving.probes import ProbeServer
from testing.fake_api_server import running
from testing.malformed_http import MALFORMED, WORD, Malformed, revealing_lines

HONEST = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProbeServer]:
    monkeypatch.setattr(connections, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(probes, "CONNECTION_TIMEOUT_S", 1.0)
    settings = ServerSettings(bind_address="127.0.0.1", probe_port=0, metrics_port=0)
    server = ProbeServer(settings, {}, CollectorRegistry())
    async with asyncio.timeout(30), running(server.run):
        await server.started.wait()
        yield server


async def every_byte(port: int, request: bytes) -> bytes:
    """Return the whole answer, until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("port", ["port", "metrics_port"])
@pytest.mark.parametrize("malformed", MALFORMED, ids=lambda malformed: malformed.name)
async def test_an_answer_to_malformed_http_is_empty(
    malformed: Malformed, port: str, server: ProbeServer
) -> None:
    with capture_logs() as log:
        answer = await every_byte(getattr(server, port), malformed.request)

    assert revealing_lines(answer) == []
    assert WORD not in str(log)
    assert (await every_byte(server.port, HONEST)).endswith(b"\r\n\r\nok")


class Silent(asyncio.Transport):
    """A transport without a peer."""

    def pause_reading(self) -> None: ...

    def close(self) -> None: ...


async def test_nothing_is_kept_of_what_is_not_http() -> None:
    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.Response()

    protocol = anonymous_protocols(bounded_server(answer, max_body_bytes=1))()
    protocol.connection_made(Silent())
    piece = bytes(256 * 1024)  # uvloop hands over up to 32 of these in one turn, before any answer.
    tracemalloc.start()
    try:
        for _ in range(8):
            protocol.data_received(piece)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await protocol.shutdown(0)

    assert kept_bytes < len(piece)
