"""The connections of a client, for a process that runs for months.

They end soon after their peer is gone without a word: a machine that loses its power closes nothing. A
watch that waits for events would wait for minutes, and nobody would know that what it shows is old. And
they trust an authority that was added to the file, as when that of a cluster is rotated.
"""

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import aiohttp

from kube.client.connection import RESTClientObject
from kube.logs import get_logger

# A peer counts as gone after half a minute, as in client-go. What a system lacks is left to its defaults.
_OPTIONS: Final = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,
}

log = get_logger()


class Transport(RESTClientObject):
    """The connections to one API server."""

    async def request(self, *arguments: Any, **options: Any) -> Any:
        """Make a request; see `RESTClientObject.request`."""
        send: Callable[..., Awaitable[Any]] = super().request
        try:
            return await send(*arguments, **options)
        except aiohttp.ClientConnectorCertificateError:
            # Nothing was sent. An authority that was taken out of the file is trusted until the process ends.
            if self.configuration.ssl_ca_cert is None:
                raise
            with suppress(OSError):  # ssl.SSLError is an OSError.
                self.ssl_context.load_verify_locations(cafile=self.configuration.ssl_ca_cert)
            log.warning("authorities.reloaded", file=self.configuration.ssl_ca_cert)
            return await send(*arguments, **options)

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
