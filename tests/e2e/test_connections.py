"""A watch of the stories goes on if the API server ends it, and says when it cannot."""

import json
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from e2e.connections import BOOKMARK, Watch

LAST = 5
EXPIRED = "99"
REFUSED = "98"


class ImpatientApiServer(BaseHTTPRequestHandler):
    """Ends each watch after one event: a version, or a bookmark for the even ones; waits after the last."""

    def do_GET(self) -> None:
        version = parse_qs(urlsplit(self.path).query)["resourceVersion"][0]
        if version == EXPIRED:
            self.send_event("ERROR", {"code": 410, "message": "too old resource version"})
        elif version == REFUSED:
            self.send_error(403)
        elif int(version) < LAST:
            number = int(version) + 1
            metadata = {"resourceVersion": str(number)}
            self.send_event("MODIFIED" if number % 2 else BOOKMARK, {"metadata": metadata})
        else:
            self.send_response(200)
            self.end_headers()
            self.rfile.read()  # Until the client has gone.

    def send_event(self, kind: str, stored: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"type": kind, "object": stored}).encode() + b"\n")

    def log_message(self, *_: object) -> None:
        pass


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, _ = super().get_request()
        return connection, ("localhost", 0)

    def handle_error(self, *_: object) -> None:
        """A client that has gone is nothing to print."""


@pytest.fixture
def proxy() -> Iterator[Path]:
    # A socket's path is limited to about 100 bytes, which a test's directory may exceed.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "api"
        with UnixServer(str(path), ImpatientApiServer) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield path
            server.shutdown()
            thread.join()


def test_a_watch_that_is_ended_goes_on_where_it_was(proxy: Path) -> None:
    with Watch(proxy, "/api/v1/pods", "0") as watch:
        deadline = time.monotonic() + 30
        while len(watch.events) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)

    seen = [event["object"]["metadata"]["resourceVersion"] for event in watch.events]
    assert seen == ["1", "3", "5"]


@pytest.mark.parametrize(("version", "status"), [(EXPIRED, 410), (REFUSED, 403)])
def test_a_watch_that_cannot_go_on_fails(proxy: Path, version: str, status: int) -> None:
    words = rf"watch of /api/v1/pods has ended: .*{status}"

    with pytest.raises(AssertionError, match=words), Watch(proxy, "/api/v1/pods", version):
        wait_until_nobody_watches()


def test_what_fails_in_the_block_is_what_is_reported(proxy: Path) -> None:
    with pytest.raises(ValueError, match="of the block"), Watch(proxy, "/pods", EXPIRED):
        raise ValueError("of the block")


def test_a_watch_without_a_server_fails(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "nobody", "/pods", "0")

    with pytest.raises(AssertionError, match="FileNotFoundError"), watch:
        wait_until_nobody_watches()


def wait_until_nobody_watches() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("watch of"):
            thread.join(30)
