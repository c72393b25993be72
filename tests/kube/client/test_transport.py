"""Connections to a peer that is gone without a word, or has another certificate than before."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from certs.authority import Authority
from certs.serving import Listener, ServingCertificate, issue_serving_certificate
from kube.client.client import Client
from kube.client.connection import Configuration
from kube.client.transport import Transport
from kube.errors import KubeError
from testing.fake_api_server import FakeApiServer

LOST_S: Final = 45
"""The time until client-go gives a silent connection up."""
HOST: Final = "127.0.0.1"


async def test_a_peer_that_is_gone_is_noticed_as_soon_as_by_client_go() -> None:
    async with FakeApiServer() as server:
        connections: Any = Transport(Configuration(host=server.url))
        try:
            answer = await connections.request("GET", f"{server.url}/api/v1/pods?watch=true")
            opened = answer.response.connection.transport.get_extra_info("socket")

            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle_s, pause_s, probes, unacknowledged_ms = (
                opened.getsockopt(socket.IPPROTO_TCP, option)
                for option in (
                    socket.TCP_KEEPIDLE,
                    socket.TCP_KEEPINTVL,
                    socket.TCP_KEEPCNT,
                    socket.TCP_USER_TIMEOUT,
                )
            )
            assert idle_s + pause_s * probes <= LOST_S
            assert 0 < unacknowledged_ms <= LOST_S * 1000
        finally:
            answer.response.close()
            await connections.close()


def serving_certificate() -> ServingCertificate:
    """Return a certificate of an authority of its own."""
    now, life = datetime.now(UTC), timedelta(days=1)  # noqa: TID251  TLS compares with the real clock.
    authority = Authority.create("cluster", now=now, life=life)
    return issue_serving_certificate(authority, [HOST], now=now, life=life)


@asynccontextmanager
async def serving(listener: Listener) -> AsyncIterator[str]:
    """Yield the URL of an API server that tells its version, each time on a new connection."""

    async def version(_: web.Request) -> web.Response:
        answer = web.json_response({"gitVersion": "v1.37.1"})
        answer.force_close()
        return answer

    application = web.Application()
    application.router.add_get("/version", version)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0, ssl_context=listener.context)
        await site.start()
        yield f"https://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_an_authority_that_was_added_to_the_file_is_trusted(tmp_path: Path) -> None:
    first, second, strange = (serving_certificate() for _ in range(3))
    file = tmp_path / "ca.crt"
    file.write_bytes(first.authority)
    listener = Listener(first)
    async with serving(listener) as url:
        configuration = Configuration(host=url)
        configuration.ssl_ca_cert = str(file)
        async with Client(configuration, timeout_s=10.0) as client:
            assert await client.version() == "v1.37.1"

            file.write_bytes(first.authority + second.authority)
            listener.replace(second)
            assert await client.version() == "v1.37.1"

            listener.replace(strange)
            with pytest.raises(KubeError, match="certificate verify failed"):
                await client.version()

            file.unlink()
            with pytest.raises(KubeError, match="certificate verify failed"):
                await client.version()
            listener.replace(first)
            assert await client.version() == "v1.37.1"
