"""A TCP connection that can be cut: the line between a program and the API server."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from e2e.balancer import CHUNK
from e2e.forwarder import Forwarder

HOST: Final = "127.0.0.1"


class Link(Forwarder):
    """Forwards connections to a server, unless it is cut or swallows the data."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        """Remember the server to forward to.

        Args:
            entry: A cluster, as a kubeconfig has it.
        """
        super().__init__("link", HOST)
        self._entry = entry
        self._target = urlsplit(str(entry["server"]))
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._forwards = asyncio.Event()
        self._forwards.set()

    def entry(self) -> dict[str, Any]:
        """The cluster, as it is reached through this link."""
        return {**self._entry, "server": f"https://{HOST}:{self.port}"}

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        self._loop.call_soon_threadsafe(self._cut)

    def swallow(self) -> None:
        """Pass nothing on and keep all connections, as a network does that loses every packet.

        What is sent meanwhile arrives when it is mended, as TCP sends it again.
        """
        self._loop.call_soon_threadsafe(self._forwards.clear)

    def mend(self) -> None:
        """Let new connections through again, and pass on the swallowed data."""
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._forwards.set)

    # --- in the thread ---------------------------------------------------------------------------

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.close()

    async def serve(self, server: asyncio.Server, ended: asyncio.Event) -> None:
        """Serve until the end is set, then break all connections."""
        await ended.wait()
        server.close()
        self._cut()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection, or break it."""
        if self._is_cut:
            writer.close()
            return
        with suppress(OSError):
            await self._forwards.wait()
            target = await asyncio.open_connection(self._target.hostname, self._target.port)
            ends = {writer, target[1]}
            self._writers |= ends
            await asyncio.gather(self._pipe(reader, target[1]), self._pipe(target[0], writer))
            self._writers -= ends

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the data until one side ends."""
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._forwards.wait()
                writer.write(data)
                await writer.drain()
        # An end is swallowed, too.
        await self._forwards.wait()
        writer.close()
