"""A bound on open connections, and on the time until a request header is complete.

Neither aiohttp nor an event loop bounds connections, and TLS takes memory for each before any byte is
read. So they are accepted here, one by one, and only then given to aiohttp. Where all places are
taken, an idle connection is evicted: first one that was never used for a valid request, of the client
address that has most of these. A connection on which a request is answered keeps its place.

A handshake takes milliseconds, so one begins in each turn of the event loop, and addresses take turns. Accepting
takes less, so a client that opens thousands of connections does not fill the system's queue, in which all are equal.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import chain
from typing import Any, Final

from kube.logs import get_logger
from process.fairness.turns import FairQueue

BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 64
"""Connections that are accepted in one turn of the event loop, beside the first: some milliseconds."""
ACCEPT_RETRY_S: Final = 0.5
"""The time before the next attempt if the system returned no connection, such as without
descriptors."""
CHECK_INTERVAL_S: Final = 1.0
"""The time between checks for incomplete headers. Also the time that a new connection cannot be
evicted, so that a client which opens connections without end cannot evict those just accepted."""
TLS_SHUTDOWN_S: Final = 1.0
"""The longest wait for the end of TLS."""

log = get_logger()


class CloseReason(StrEnum):
    """The reason a connection was closed, or not accepted."""

    HANDSHAKE = "handshake"
    """The TLS handshake failed or took too long."""
    HEADER_TIMEOUT = "header_timeout"
    """The header of a request was not complete in time."""
    EVICTED = "evicted"
    """All places were taken, and it had been idle for longest."""
    REJECTED = "rejected"
    """All places were taken, and none could be freed."""
    MALFORMED = "malformed"
    """The bytes that arrived are not HTTP."""


class Connection(asyncio.Protocol):
    """One connection, from its acceptance to its end; it passes on the received data.

    Attributes:
        handler: Receives it.
        address: The client's.
        is_used: There was a valid request on it.
        active_at: The time when it was accepted or last answered, by the clock of the event loop.
        header_since: The time when the incomplete header began; the first begins with the
            acceptance, and so includes the handshake. None while there is none.
        answering: A request is being answered.
    """

    def __init__(
        self,
        handler: asyncio.Protocol,
        stream: socket.socket,
        address: str,
        forget: Callable[["Connection"], None],
    ) -> None:
        """Begin a connection.

        Args:
            stream: Its socket.
            address: The client's.
            forget: Called when it ends.
        """
        self.handler = handler
        self.address = address
        self.is_used = False
        self.active_at = asyncio.get_running_loop().time()
        self.header_since: float | None = self.active_at
        self.answering = False
        self._accepted = stream
        self._forget = forget
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass on the end of the handshake."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport
        self.handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on data; it may begin a header."""
        if self.header_since is None and not self.answering:
            self.header_since = asyncio.get_running_loop().time()
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on."""
        return self.handler.eof_received()

    def pause_writing(self) -> None:
        """Pass on."""
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        """Pass on."""
        self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place."""
        self._forget(self)
        self.handler.connection_lost(exc)

    def abort(self) -> None:
        """End it at once, without a response: its place is needed."""
        if self._transport is not None:
            self._transport.abort()
        else:
            with suppress(OSError):  # The handshake may just have failed by itself.
                self._accepted.shutdown(socket.SHUT_RDWR)


class Connections:
    """Accepts connections, and bounds their number.

    Attributes:
        port: The port after `listen`.
    """

    def __init__(
        self,
        max_connections: int,
        *,
        max_unused_per_address: int,
        header_timeout_s: float,
        count_closed: Callable[[CloseReason], None] = lambda _: None,
    ) -> None:
        """Begin without connections.

        Args:
            max_connections: The maximum number of connections at a time, including those in their
                handshake.
            max_unused_per_address: The maximum number of connections of one client without a valid
                request so far.
            header_timeout_s: A connection whose next header takes longer is closed.
            count_closed: Called for each that is closed here, or not accepted.
        """
        self._max_connections = max_connections
        self._max_unused = max_unused_per_address
        self._header_timeout_s = header_timeout_s
        self._count_closed = count_closed
        self._open: dict[asyncio.BaseProtocol | None, Connection] = {}
        # By address: those before their handshake.
        self._accepted: FairQueue[tuple[Connection, socket.socket]] = FairQueue()
        self._listener: socket.socket | None = None
        self._closing = asyncio.Event()
        self._closed = asyncio.Event()
        self._closed.set()
        self.port = 0

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    async def listen(self, host: str, port: int) -> None:
        """Bind; from now on the system queues connections.

        Args:
            host: An address or name; empty for all addresses, IPv4 and IPv6.
            port: 0 for any.

        Raises:
            OSError: It cannot be bound.
        """
        family, both = socket.AF_INET, not host and socket.has_dualstack_ipv6()
        if host:
            addresses = await asyncio.get_running_loop().getaddrinfo(host, port)
            family = addresses[0][0]
        elif both:
            family = socket.AF_INET6
        self._listener = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both
        )
        self._listener.settimeout(0)
        self.port = self._listener.getsockname()[1]

    async def run(
        self, handlers: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None = None
    ) -> None:
        """Accept connections until `close`, and check them until cancelled.

        Args:
            handlers: Returns a new HTTP protocol for a connection.
            context: None for connections without TLS.

        Raises:
            RuntimeError: `listen` was not called.
        """
        if self._listener is None:
            raise RuntimeError("listen first")
        self._closed.clear()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._check_headers())
                group.create_task(self._begin_handshakes(context, group))
                await self._until_closing(self._accept(self._listener, handlers))
                self._listener.close()
                self._closed.set()
        finally:
            self._listener.close()
            self._closed.set()
            while (next_item := self._accepted.take()) is not None:
                next_item[1][1].close()

    async def close(self) -> None:
        """Accept no further connection; open ones stay open."""
        self._closing.set()
        await self._closed.wait()
        if self._listener is not None:
            self._listener.close()

    def header_received(self, handler: asyncio.BaseProtocol | None) -> None:
        """Mark a connection, given by its HTTP protocol, as one with a complete header."""
        connection = self._open.get(handler)
        if connection is not None:
            connection.header_since = None

    def request_started(self, handler: asyncio.BaseProtocol | None) -> None:
        """Mark it as answering."""
        connection = self._open.get(handler)
        if connection is not None:
            connection.answering, connection.header_since = True, None

    def request_finished(self, handler: asyncio.BaseProtocol | None, *, is_valid: bool) -> None:
        """Mark it as idle, and as used if the request was valid."""
        connection = self._open.get(handler)
        if connection is not None:
            connection.answering = False
            connection.is_used |= is_valid
            connection.active_at = asyncio.get_running_loop().time()

    # --- accepting

    async def _until_closing(self, accepting: Coroutine[None, None, None]) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(accepting)
            await self._closing.wait()
            task.cancel()

    async def _accept(
        self, listener: socket.socket, handlers: Callable[[], asyncio.Protocol]
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                first = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # The client has gone already.
            except OSError as fault:
                log.warning("connection.accept_failed", error=str(fault))
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            for stream, peer in chain((first,), _accept_waiting(listener)):
                self._admit(stream, str(peer[0]), handlers)
            await asyncio.sleep(0)

    def _admit(
        self, stream: socket.socket, address: str, handlers: Callable[[], asyncio.Protocol]
    ) -> None:
        """Queue a connection for its handshake, or close it if there is no place."""
        if self._make_room(address, asyncio.get_running_loop().time()):
            connection = Connection(handlers(), stream, address, self._forget)
            self._open[connection.handler] = connection
            self._accepted.put(address, (connection, stream))
        else:
            stream.close()
            self._count_closed(CloseReason.REJECTED)

    async def _begin_handshakes(
        self, context: ssl.SSLContext | None, group: asyncio.TaskGroup
    ) -> None:
        """Begin one handshake in each turn of the event loop; addresses take turns."""
        while True:
            _, (connection, stream) = await self._accepted.get()
            if connection.handler not in self._open:
                stream.close()  # Its place was needed.
                continue
            group.create_task(self._hand_shake(connection, stream, context))
            await asyncio.sleep(0)

    def _make_room(self, address: str, now: float) -> bool:
        """Close a connection if a new one of a client needs its place; return True if the new one may stay."""
        unused_connections = [
            connection for connection in self._open.values() if not connection.is_used
        ]
        counts = Counter(connection.address for connection in unused_connections)
        if counts[address] >= self._max_unused:
            own = [connection for connection in unused_connections if connection.address == address]
            return self._evict_idle(own, now)
        if len(self) < self._max_connections:
            return True
        busiest, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
        of_busiest = [
            connection for connection in unused_connections if connection.address == busiest
        ]
        if self._evict_idle(of_busiest, now) or self._evict_idle(unused_connections, now):
            return True
        if count > counts[address] + 1:  # It opens them faster than they become idle.
            self._close(of_busiest[0], CloseReason.EVICTED)
            return True
        return self._evict_idle(self._open.values(), now)

    def _evict_idle(self, connections: Iterable[Connection], now: float) -> bool:
        """Close the connection that has been idle for longest; return True if there was one."""
        idle = [
            connection
            for connection in connections
            if not connection.answering and now - connection.active_at >= CHECK_INTERVAL_S
        ]
        oldest = min(idle, key=lambda connection: connection.active_at, default=None)
        if oldest is None:
            return False
        self._close(oldest, CloseReason.EVICTED)
        return True

    async def _hand_shake(
        self, connection: Connection, stream: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        """Perform the TLS handshake, if there is TLS."""
        with suppress(OSError):
            # Not every event loop sets it on a socket that it has not created.
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                stream,
                ssl=context,
                ssl_handshake_timeout=self._header_timeout_s if context else None,
                ssl_shutdown_timeout=TLS_SHUTDOWN_S if context else None,
            )
        # ssl.SSLError is an OSError, and so is a handshake that takes too long. A certificate of a client
        # with text that is not UTF-8 is a ValueError.
        except (OSError, ValueError) as fault:
            if connection.handler in self._open:
                self._forget(connection)
                self._count_closed(CloseReason.HANDSHAKE)
                log.debug("handshake.failed", error=str(fault))

    # --- closing

    async def _check_headers(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            since = loop.time() - self._header_timeout_s
            for connection in tuple(self._open.values()):
                if connection.header_since is not None and connection.header_since < since:
                    self._close(connection, CloseReason.HEADER_TIMEOUT)

    def _close(self, connection: Connection, reason: CloseReason) -> None:
        # At once, since the protocol learns of its end later.
        self._forget(connection)
        self._count_closed(reason)
        connection.abort()

    def _forget(self, connection: Connection) -> None:
        self._open.pop(connection.handler, None)


def _accept_waiting(listener: socket.socket) -> Iterator[tuple[socket.socket, Any]]:
    """Accept some of the connections that wait already; yield each with its address."""
    with suppress(OSError):  # None waits, or the next attempt fails in the same way.
        for _ in range(ACCEPTED_AT_ONCE):
            stream, peer = listener.accept()
            stream.settimeout(0)
            yield stream, peer
