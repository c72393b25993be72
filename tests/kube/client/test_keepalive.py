"""Connections whose peer is gone without a word."""

import socket
from typing import Any, Final

from kube.client.connection import Configuration
from kube.client.keepalive import Connections
from testing.fake_api_server import FakeApiServer

LOST_S: Final = 45
"""After which client-go gives a silent connection up."""


async def test_a_peer_that_is_gone_is_noticed_as_soon_as_by_client_go() -> None:
    async with FakeApiServer() as server:
        connections: Any = Connections(Configuration(host=server.url))
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
