"""A TCP connection that can be cut: what is between a program and the API server."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Self
from urllib.parse import urlsplit

from e2e.balancer import CHUNK

HOST: Final = "127.0.0.1"


class Link:
    """Forwards connections to a server, as long as it is not cut."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        """Remember where to forward to.

        Args:
            entry: A cluster, as a kubeconfig has it.
        """
        self._entry = entry
        self._target = urlsplit(str(entry["server"]))
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="link")
        self._port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def entry(self) -> dict[str, Any]:
        """The cluster, as it is reached through this link."""
        return {**self._entry, "server": f"https://{HOST}:{self._port}"}

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

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, HOST)
        self._port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._ended.wait()
        server.close()
        self._cut()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
