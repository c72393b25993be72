"""The connections of a client, which end soon after their peer is gone without a word.

A machine that loses its power closes nothing. A watch that waits for events would wait for minutes,
and nobody would know that what it shows is old.
"""

import socket
from typing import Any, Final

import aiohttp

from kube.client.connection import RESTClientObject

# A peer counts as gone after half a minute, as in client-go. What a system lacks is left to its defaults.
_OPTIONS: Final = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,
}


class Connections(RESTClientObject):
    """The connections to one API server."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, socket_factory=_open_socket
        )


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    """Open a socket for an entry of `getaddrinfo`."""
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened
