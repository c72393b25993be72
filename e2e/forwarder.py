"""A TCP server between a client and others; it runs in a thread so that stories stay plain functions."""

import asyncio
import threading
from abc import abstractmethod
from typing import Self


class Forwarder:
    """Listens on a port while a block runs.

    Attributes:
        port: The port that it listens at.
    """

    def __init__(self, name: str, host: str) -> None:
        """Begin without a port.

        Args:
            name: The name of the thread.
            host: The address that it listens at.
        """
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    # --- in the thread ---------------------------------------------------------------------------

    @abstractmethod
    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""

    @abstractmethod
    async def serve(self, server: asyncio.Server, ended: asyncio.Event) -> None:
        """Serve until the end is set, then end all connections."""

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        server = await asyncio.start_server(self.accept, self._host)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self.serve(server, self._ended)
