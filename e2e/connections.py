"""Connections to the API server through the socket of a `kubectl proxy`, and watches that last."""

import http.client
import json
import socket
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, Self

TIMEOUT_S: Final = 90.0
BOOKMARK: Final = "BOOKMARK"


class UnixConnection(http.client.HTTPConnection):
    """A connection to a server that listens on a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Watch:
    """Collects every version of the objects of a kind while a block runs.

    The API server ends a watch whose client reads too slowly, which a busy machine makes of any client.
    The watch goes on where it ended, so that nothing is missing; where that cannot be, the block fails.

    Source: k8s.io/apiserver v0.37.1, pkg/storage/cacher, cacheWatcher.add.

    Attributes:
        events: All that was seen so far, the oldest first, as the API server gives it: `type` and `object`,
            with the moment of our clock as `at`.
    """

    def __init__(self, proxy: Path, path: str, version: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._proxy = proxy
        self._path = path
        self._version = version
        self._fault = ""
        self._reader = threading.Thread(target=self._read, name=f"watch of {path}", daemon=True)
        self._changing = threading.Lock()
        self._socket: socket.socket | None = None
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._changing:
            self._over.set()
            if self._socket is not None:
                with suppress(OSError):  # The API server may have ended it.
                    self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        assert kind or not self._fault, f"the watch of {self._path} has ended: {self._fault}"

    def _read(self) -> None:
        while not (self._over.is_set() or self._fault):
            try:
                with closing(UnixConnection(self._proxy)) as connection:
                    self._follow(connection)
            except (OSError, http.client.HTTPException, ValueError) as error:
                # Our own end of it is no fault.
                self._fault = "" if self._over.is_set() else repr(error)

    def _follow(self, connection: UnixConnection) -> None:
        """Read from the version that was seen last until the connection ends."""
        with self._changing:
            if self._over.is_set():
                return
            connection.connect()
            self._socket = connection.sock
        query = f"watch=true&allowWatchBookmarks=true&resourceVersion={self._version}"
        connection.request("GET", f"{self._path}?{query}")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            self._fault = f"{answer.status} {answer.read().decode(errors='replace')}"
            return
        # Nothing may change for long.
        self._socket.settimeout(None)
        for line in answer:
            event = json.loads(line.decode(errors="replace"))
            if event["type"] == "ERROR":
                self._fault = str(event)
                return
            self._version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != BOOKMARK:
                self.events.append({**event, "at": time.monotonic()})
