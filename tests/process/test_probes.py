"""The probe port under clients that hold connections, and the limit of open files."""

import asyncio
import re
import resource
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kube.errors import ConfigError
from process.model.settings import ServerSettings
from process.running.open_files import RESERVE, check_open_file_limit, raise_open_file_limit
from process.serving import connections, probes
from process.serving.probes import (
    MAX_CONNECTIONS_PER_ADDRESS,
    MIN_PAUSE_S,
    PAUSE_FACTOR,
    Check,
    Pace,
    ProbeServer,
)
from testing.fake_api_server import running

GET = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(connections, "CHECK_INTERVAL_S", 0.05)
    async with serving({}) as server:
        yield server.port


@asynccontextmanager
async def serving(checks: Mapping[str, Check]) -> AsyncIterator[ProbeServer]:
    settings = ServerSettings(bind_address="127.0.0.1", probe_port=0, metrics_port=0)
    server = ProbeServer(settings, checks, CollectorRegistry())
    async with running(server.run):
        await server.started.wait()
        yield server


async def get(port: int, path: str) -> tuple[int, str, Mapping[str, str]]:
    """Return status, text and headers of a response."""
    url = f"http://127.0.0.1:{port}{path}"
    async with ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text(), dict(answer.headers)


async def answer(port: int, address: str = "127.0.0.1") -> bytes:
    """Return the status line of a probe, empty if the connection was not accepted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        writer.write(GET)
        return await reader.readline()
    except OSError:
        return b""
    finally:
        writer.transport.abort()


async def hold(port: int, address: str, count: int) -> list[asyncio.StreamWriter]:
    """Open connections with half a request each."""
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        writer.write(GET[:20])
        writers.append(writer)
    return writers


async def test_a_probe_tells_strangers_only_whether_the_process_is_ready() -> None:
    problem = ["none yet"]
    checks = {"certificate": lambda: problem[0], "informers": lambda: ""}
    async with serving(checks) as server:
        for path in ("/readyz", "/readyz?verbose"):
            status, text, headers = await get(server.port, path)
            assert (status, text, headers["Server"]) == (503, "not ready", "")
        problem[0] = ""
        assert (await get(server.port, "/readyz?verbose"))[:2] == (200, "ok")


async def test_the_log_and_the_metrics_have_the_reasons() -> None:
    problem = ["none yet"]
    with capture_logs() as log:
        async with serving({"certificate": lambda: problem[0], "informers": str}) as server:
            for _ in range(3):
                await get(server.port, "/readyz")
            _, text, _ = await get(server.metrics_port, "/metrics")
            assert 'drawbridge_readiness_check{check="certificate"} 0.0' in text
            assert 'drawbridge_readiness_check{check="informers"} 1.0' in text
            problem[0] = ""
            await get(server.port, "/readyz")

    lines = [line for line in log if line["event"].startswith("process.")]
    assert lines == [
        {
            "event": "process.not_ready",
            "problems": {"certificate": "none yet"},
            "log_level": "warning",
        },
        {"event": "process.ready", "log_level": "info"},
    ]


async def test_probes_and_metrics_have_ports_of_their_own() -> None:
    async with serving({}) as server:
        assert server.port != server.metrics_port
        assert (await get(server.port, "/metrics"))[0] == 404
        assert (await get(server.metrics_port, "/metrics"))[0] == 200
        assert (await get(server.metrics_port, "/readyz"))[0] == 404


@pytest.mark.parametrize("attacked", ["port", "metrics_port"])
async def test_both_ports_have_the_same_bounds(
    attacked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CHECK_INTERVAL_S", 0.05)
    async with serving({}) as server, asyncio.timeout(60):
        open_connections = [
            writer
            for host in range(2, 6)
            for writer in await hold(
                getattr(server, attacked), f"127.0.0.{host}", MAX_CONNECTIONS_PER_ADDRESS
            )
        ]

        assert (await get(server.port, "/livez"))[0] == 200
        assert (await get(server.metrics_port, "/metrics"))[0] == 200

        for writer in open_connections:
            writer.transport.abort()


@pytest.mark.parametrize(("attacked", "path"), [("port", "livez"), ("metrics_port", "metrics")])
async def test_a_port_that_is_asked_without_pause_answers_at_its_own_pace(
    attacked: str, path: str
) -> None:
    requests = 40
    keeping = f"GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    async with serving({}) as server, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", getattr(server, attacked))
        began = asyncio.get_running_loop().time()
        writer.write(keeping * requests)
        for _ in range(requests):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            assert length is not None
            await reader.readexactly(int(length[1]))
        took_s = asyncio.get_running_loop().time() - began
        writer.transport.abort()

    assert took_s >= (requests - 1) * MIN_PAUSE_S


async def test_requests_of_clients_that_are_gone_take_no_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "MIN_PAUSE_S", 0.5)
    async with serving({}) as server:
        for host in range(2, 6):
            for writer in await hold(server.port, f"127.0.0.{host}", 10):
                writer.write(GET[20:])
                await writer.drain()
                writer.transport.abort()

        async with asyncio.timeout(60):  # Their turns would take 20 s.
            assert await answer(server.port) == b"HTTP/1.1 200 OK\r\n"


async def test_an_answer_that_takes_long_is_followed_by_a_longer_pause() -> None:
    loop, pace, began_s = asyncio.get_running_loop(), Pace(), [0.0, 0.0]
    for turn in range(2):
        async with pace.turn():
            began_s[turn] = loop.time()
            while loop.time() < began_s[turn] + 0.01:
                pass

    assert began_s[1] - began_s[0] >= 0.01 * (1 + PAUSE_FACTOR)


async def test_probes_are_answered_while_others_hold_connections(port: int) -> None:
    async with asyncio.timeout(60):
        open_connections = [
            writer
            for host in range(2, 6)
            for writer in await hold(port, f"127.0.0.{host}", MAX_CONNECTIONS_PER_ADDRESS)
        ]

        assert await answer(port) == b"HTTP/1.1 200 OK\r\n"

        for writer in open_connections:
            writer.transport.abort()


@pytest.fixture
def open_files() -> Iterator[tuple[int, int]]:
    """The limits of this process; they are put back."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield limits
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_soft_limit_of_open_files_is_raised(open_files: tuple[int, int]) -> None:
    _, hard = open_files
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

    limit = raise_open_file_limit()

    assert limit > 256
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == limit
    check_open_file_limit(limit - RESERVE, "webhook.maxConnections")


@pytest.mark.usefixtures("open_files")
def test_more_connections_than_files_are_an_error() -> None:
    limit = raise_open_file_limit()

    with pytest.raises(
        ConfigError, match=r"webhook.maxConnections is \d+, which needs \d+ open files"
    ):
        check_open_file_limit(limit, "webhook.maxConnections")
