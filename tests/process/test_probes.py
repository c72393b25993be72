"""The probe port under clients that hold connections, and the limit of open files."""

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator

import pytest
from prometheus_client import CollectorRegistry

from kube.errors import ConfigError
from process import connections
from process.open_files import RESERVE, check_open_file_limit, raise_open_file_limit
from process.probes import MAX_CONNECTIONS_PER_ADDRESS, ProbeServer
from testing.fake_api_server import running

GET = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(connections, "CHECK_INTERVAL_S", 0.05)
    server = ProbeServer("127.0.0.1", 0, {}, CollectorRegistry())
    async with running(server.run):
        await server.started.wait()
        yield server.port


async def answer(port: int, address: str = "127.0.0.1") -> bytes:
    """Return the status line of a probe, empty where the connection was not accepted."""
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


async def test_probes_are_answered_while_others_hold_connections(port: int) -> None:
    async with asyncio.timeout(10):
        held = [
            writer
            for host in range(2, 6)
            for writer in await hold(port, f"127.0.0.{host}", MAX_CONNECTIONS_PER_ADDRESS)
        ]

        assert await answer(port) == b"HTTP/1.1 200 OK\r\n"

        for writer in held:
            writer.transport.abort()


@pytest.fixture
def open_files() -> Iterator[tuple[int, int]]:
    """The limits of this process, which are put back."""
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
