"""A TCP balancer in place of a Service: connections go to those that say they are ready, in turn.

As with kube-proxy, whoever is not ready gets no new connections and keeps those that it has; one
that takes none is passed over.
"""

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from e2e.forwarder import Forwarder

LOOK_S: Final = 0.05
"""The pause between looks at each readiness; a Service takes a second or two to hear of it."""
PATIENCE_S: Final = 3.0
"""The time for a connection or a probe, on a busy machine too; below the timeout of the webhooks."""
CHUNK: Final = 2**16


class Balancer(Forwarder):
    """Forwards the connections to its port."""

    def __init__(self, host: str, backends: Mapping[int, int]) -> None:
        """Remember the backends to forward to.

        Args:
            host: The address that it listens at, and the backends, too.
            backends: A backend's port to the port of its probes.
        """
        super().__init__("balancer", host)
        self._backends = dict(backends)
        self._ready: frozenset[int] = frozenset()
        self._turn = itertools.count()

    def ready(self) -> frozenset[int]:
        """The ports of those that get new connections."""
        return self._ready

    # --- in the thread ---------------------------------------------------------------------------

    async def serve(self, server: asyncio.Server, ended: asyncio.Event) -> None:
        """Look at the backends until the end is set."""
        async with server, asyncio.TaskGroup() as group:
            looks = [group.create_task(self._look(*item)) for item in self._backends.items()]
            await ended.wait()
            for look in looks:
                look.cancel()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection to the next backend."""
        # Cancelled when the balancer ends; asyncio's streams would print that as a failure.
        with suppress(asyncio.CancelledError):
            await self._forward(reader, writer)

    async def _look(self, port: int, probes: int) -> None:
        while True:
            is_ready = False
            try:
                async with asyncio.timeout(PATIENCE_S):
                    is_ready = await self._probe(probes)
            except (OSError, TimeoutError):
                pass
            self._ready = self._ready | {port} if is_ready else self._ready - {port}
            await asyncio.sleep(LOOK_S)

    async def _probe(self, probes: int) -> bool:
        reader, writer = await asyncio.open_connection(self._host, probes)
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: balancer\r\nConnection: close\r\n\r\n")
            return b" 200 " in await reader.readline()
        finally:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = await self._connected()
            if connection is not None:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_piped(reader, connection[1]))
                    group.create_task(_piped(connection[0], writer))
        except* OSError:
            pass  # Who broke it off is known to the other side by what follows.
        finally:
            writer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        ports = sorted(self._ready)
        first = next(self._turn)
        for offset in range(len(ports)):
            try:
                async with asyncio.timeout(PATIENCE_S):
                    port = ports[(first + offset) % len(ports)]
                    return await asyncio.open_connection(self._host, port)
            except (OSError, TimeoutError):
                continue
        return None


async def _piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on the data until it ends."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
