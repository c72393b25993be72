"""Who may hold a connection to the endpoint: so many at a time, and nobody who only begins to ask.

Neither aiohttp nor an event loop bounds connections, and TLS takes memory for each before it has
said anything. So they are accepted here, one by one, and only then given to aiohttp. Where all
places are taken, the connection that has been of no use for longest makes room for a new one; while
a review is answered on it, it keeps its place.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

import structlog

from webhook.metrics import Ended, WebhookMetrics

BACKLOG: Final = 1024
AGAIN_S: Final = 0.5
"""Before the next attempt where the system gave no connection, such as for want of descriptors."""
LOOK_S: Final = 1.0
"""Between looks for heads that do not end. Also how long each has its place for certain, so that
somebody who opens connections without end cannot take from others what they were just given."""
SHUTDOWN_S: Final = 1.0
"""For how long the end of TLS is waited for."""

log = structlog.get_logger()


class Connection(asyncio.Protocol):
    """One connection, from its acceptance to its end; what comes is passed on.

    Attributes:
        handler: What it is passed to.
        useful_at: When it was accepted or last answered, by the clock of the event loop.
        head_since: When the head began that is not complete; that of the first begins with the
            acceptance, and so includes the handshake. None while there is none.
        answering: Whether a review is being answered.
    """

    def __init__(
        self,
        handler: asyncio.Protocol,
        accepted: socket.socket,
        forget: Callable[["Connection"], None],
    ) -> None:
        """Remember what is connected, and whom to tell of its end."""
        self.handler = handler
        self.useful_at = asyncio.get_running_loop().time()
        self.head_since: float | None = self.useful_at
        self.answering = False
        self._accepted = accepted
        self._forget = forget
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that TLS is agreed."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport
        self.handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Note the beginning of a head."""
        if self.head_since is None and not self.answering:
            self.head_since = asyncio.get_running_loop().time()
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
        """Give the place back."""
        self._forget(self)
        self.handler.connection_lost(exc)

    def cut(self) -> None:
        """End it at once, without a word: its place is needed."""
        if self._transport is not None:
            self._transport.abort()
        else:
            with suppress(OSError):  # The handshake may just have failed by itself.
                self._accepted.shutdown(socket.SHUT_RDWR)


class Connections:
    """Accepts connections and bounds them.

    Attributes:
        port: Where it listens, after `listen`.
    """

    def __init__(self, most: int, *, head_s: float, metrics: WebhookMetrics) -> None:
        """Remember the bounds.

        Args:
            most: Connections at a time, those in their handshake included.
            head_s: A connection whose next head is not complete after so long is cut.
        """
        self._most = most
        self._head_s = head_s
        self._metrics = metrics
        self._open: dict[asyncio.BaseProtocol | None, Connection] = {}
        self._listener: socket.socket | None = None
        self._closing = asyncio.Event()
        self._closed = asyncio.Event()
        self._closed.set()
        self.port = 0
        metrics.connections.set_function(self.__len__)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._open)

    async def listen(self, host: str, port: int) -> None:
        """Bind; from now on the system keeps who comes.

        Args:
            host: An address or name; empty for all addresses, IPv4 and IPv6.
            port: 0 for any.

        Raises:
            OSError: It is not ours to have.
        """
        family, both = socket.AF_INET, not host and socket.has_dualstack_ipv6()
        if host:
            found = await asyncio.get_running_loop().getaddrinfo(host, port)
            family = found[0][0]
        elif both:
            family = socket.AF_INET6
        self._listener = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both
        )
        self._listener.settimeout(0)
        self.port = self._listener.getsockname()[1]

    async def run(self, handlers: Callable[[], asyncio.Protocol], context: ssl.SSLContext) -> None:
        """Accept who comes until `close`, and look after the connections until cancelled.

        Args:
            handlers: Makes what speaks HTTP on a new connection.

        Raises:
            RuntimeError: It does not listen.
        """
        if self._listener is None:
            raise RuntimeError("listen first")
        self._closed.clear()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._look())
                await self._until_closing(self._accept(self._listener, handlers, context, group))
                self._listener.close()
                self._closed.set()
        finally:
            self._listener.close()
            self._closed.set()

    async def close(self) -> None:
        """Accept nobody new; who is connected stays so."""
        self._closing.set()
        await self._closed.wait()
        if self._listener is not None:
            self._listener.close()

    def begins(self, handler: asyncio.BaseProtocol | None) -> None:
        """Note that a review came, by what speaks HTTP on its connection."""
        connection = self._open.get(handler)
        if connection is not None:
            connection.answering, connection.head_since = True, None

    def ends(self, handler: asyncio.BaseProtocol | None) -> None:
        """Note that it was answered."""
        connection = self._open.get(handler)
        if connection is not None:
            connection.answering = False
            connection.useful_at = asyncio.get_running_loop().time()

    # --- coming

    async def _until_closing(self, accepting: Coroutine[None, None, None]) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(accepting)
            await self._closing.wait()
            task.cancel()

    async def _accept(
        self,
        listener: socket.socket,
        handlers: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        group: asyncio.TaskGroup,
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # Whoever came has gone again.
            except OSError as fault:
                log.warning("connection.none", error=str(fault))
                await asyncio.sleep(AGAIN_S)
                continue
            if len(self) < self._most or self._made_room(loop.time()):
                connection = Connection(handlers(), accepted, self._forget)
                self._open[connection.handler] = connection
                group.create_task(self._welcome(connection, accepted, context))
            else:
                accepted.close()
                self._metrics.ended(Ended.REFUSED)

    def _made_room(self, now: float) -> bool:
        """Whether a connection of no use was cut."""
        useless = [
            one
            for one in self._open.values()
            if not one.answering and now - one.useful_at >= LOOK_S
        ]
        oldest = min(useless, key=lambda one: one.useful_at, default=None)
        if oldest is None:
            return False
        self._cut(oldest, Ended.MADE_ROOM)
        return True

    async def _welcome(
        self, connection: Connection, accepted: socket.socket, context: ssl.SSLContext
    ) -> None:
        """Agree on TLS; from then on the connection looks after itself."""
        with suppress(OSError):
            # Not every event loop does, of a socket that it has not made.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=context,
                ssl_handshake_timeout=self._head_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as fault:  # ssl.SSLError is one, and so is a handshake that takes too long.
            if connection.handler in self._open:
                self._forget(connection)
                self._metrics.ended(Ended.HANDSHAKE)
                log.debug("connection.failed", error=str(fault))

    # --- going

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            since = loop.time() - self._head_s
            for one in tuple(self._open.values()):
                if one.head_since is not None and one.head_since < since:
                    self._cut(one, Ended.HEAD)

    def _cut(self, connection: Connection, why: Ended) -> None:
        # At once, since what was cut may take its time to learn of it.
        self._forget(connection)
        self._metrics.ended(why)
        connection.cut()

    def _forget(self, connection: Connection) -> None:
        self._open.pop(connection.handler, None)
