"""Clients that hold connections and send slowly, while honest pods are created."""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pytest

from e2e.access import Access, stream
from e2e.drawbridge import WEBHOOK, Drawbridge
from e2e.objects import pod
from e2e.probes import FAILURE_THRESHOLD, TIMEOUT_S

LIMITS: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}
HONEST: Final = 8
HELD: Final = 120
"""Connections with a body that does not come: more than `maxInFlight` and `maxReading`."""

pytestmark = pytest.mark.usefixtures("fleet")


@contextmanager
def attacking(connect: Callable[[], socket.socket]) -> Iterator[None]:
    """Open connections and hold them, about 40 in a second, until the end."""
    sockets: list[socket.socket] = []
    over, in_place = threading.Event(), threading.Event()

    def hold() -> None:
        while not over.is_set():
            with suppress(OSError):
                sockets.append(connect())
            if len(sockets) >= HELD:
                in_place.set()
                time.sleep(0.025)

    attacker = threading.Thread(target=hold)
    attacker.start()
    try:
        assert in_place.wait(120)
        yield
    finally:
        over.set()
        attacker.join()
        for connection in sockets:
            connection.close()


def create(cluster: Access, namespace: str) -> None:
    """Create honest pods, one after the other."""
    document = stream(pod("honest", limits=LIMITS))
    for _ in range(HONEST):
        cluster.kubectl("create", "--dry-run=server", "-n", namespace, "-f", "-", input=document)


def probe(drawbridge: Drawbridge) -> int:
    """The status of a readiness probe, as patient as the kubelet is."""
    host, port = drawbridge.endpoints.host, drawbridge.endpoints.probes[WEBHOOK]
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S * FAILURE_THRESHOLD)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_bodies_that_do_not_come_hold_up_no_honest_pod(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    address = (drawbridge.endpoints.host, drawbridge.endpoints.webhook)

    # A client that has learned the path; another is not read at all.
    head = (
        f"POST {drawbridge.path()} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Content-Length: 10000\r\n\r\n{"
    )

    def send_half() -> socket.socket:
        connection = context.wrap_socket(socket.create_connection(address, timeout=5))
        connection.sendall(head.encode())
        return connection

    # The API server has the attacker's address here: only a connection with a valid request keeps it
    # apart, and no new one would last.
    create(cluster, namespace)
    before = drawbridge.decisions("translated")
    with attacking(send_half):
        create(cluster, namespace)
        assert probe(drawbridge) == http.client.OK

    assert drawbridge.decisions("translated") >= before + HONEST


def test_half_requests_on_the_probe_port_hold_up_no_probe(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    address = (drawbridge.endpoints.host, drawbridge.endpoints.probes[WEBHOOK])
    numbers = iter(range(10**6))

    def send_half() -> socket.socket:
        attacker = (f"127.0.0.{2 + next(numbers) % 8}", 0)
        connection = socket.create_connection(address, timeout=5, source_address=attacker)
        connection.sendall(b"GET /readyz HTTP/1.1\r\n")
        return connection

    with attacking(send_half):
        assert {probe(drawbridge) for _ in range(10)} == {http.client.OK}
        create(cluster, namespace)
