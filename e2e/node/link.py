"""A TCP connection that can be cut: what is between a program and the API server."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from e2e.balancer import CHUNK
from e2e.forwarder import Forwarder

HOST: Final = "127.0.0.1"


class Link(Forwarder):
    """Forwards connections to a server, as long as it is not cut."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        """Remember where to forward to.

        Args:
            entry: A cluster, as a kubeconfig has it.
        """
        super().__init__("link", HOST)
        self._entry = entry
        self._target = urlsplit(str(entry["server"]))
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()

    def entry(self) -> dict[str, Any]:
        """The cluster, as it is reached through this link."""
        return {**self._entry, "server": f"https://{HOST}:{self.port}"}

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        self._loop.call_soon_threadsafe(self._cut)

    def mend(self) -> None:
        """Let new connections through again."""
        self._is_cut = False

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
            target = await asyncio.open_connection(self._target.hostname, self._target.port)
            ends = {writer, target[1]}
            self._writers |= ends
            await asyncio.gather(_pipe(reader, target[1]), _pipe(target[0], writer))
            self._writers -= ends


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until one side ends."""
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()
