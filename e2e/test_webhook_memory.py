"""The webhook stays within its memory limit and answers, under any post, however slow."""

import re
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from e2e.access import Access
from e2e.drawbridge import WEBHOOK, Drawbridge

MEBIBYTE = 2**20
LIMIT = 512 * MEBIBYTE
"""The limit in manifests/base/webhook.yaml."""
SIZE = 7 * MEBIBYTE - 1
CALLERS = 40
FLOODS = 4
HELD_S = 0.5
"""So that as many bodies as may be are there at the same time."""

pytestmark = pytest.mark.usefixtures("fleet")


def peak(pid: int) -> int:
    """The most memory that a process ever had, in bytes."""
    outcome = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert outcome is not None
    return int(outcome[1]) * 1024


def posted(drawbridge: Drawbridge, path: str, body: bytes) -> int:
    """Post, and hold back the last byte for a while; returns the status, 0 for none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    address = (drawbridge.endpoints.host, drawbridge.endpoints.webhook)
    try:
        with (
            socket.create_connection(address, timeout=20) as plain,
            context.wrap_socket(plain) as connection,
        ):
            head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
            connection.sendall(body[:-1])
            time.sleep(HELD_S)
            connection.sendall(body[-1:])
            return int(connection.recv(12).split()[1] or 0)
    except (OSError, IndexError):
        return 0  # It was refused and closed before it was all sent.


def flood(drawbridge: Drawbridge, path: str, body: bytes) -> list[int]:
    """Post from all callers at once; returns their statuses."""
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(posted(drawbridge, path, body)))
        for _ in range(CALLERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("no JSON", b"\0" * SIZE),
        ("a review of many containers", b""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_many_large_bodies(cluster: Access, drawbridge: Drawbridge, name: str, body: bytes) -> None:
    record = cluster.children[WEBHOOK].record
    assert record is not None
    body, path = body or many_containers(), drawbridge.path()
    statuses: list[int] = []

    for _ in range(FLOODS):
        statuses = flood(drawbridge, path, body)
        if {200, 400} & set(statuses):
            break  # Of a first flood on a busy machine no body may have come in time.

    print(f"{name}: at most {peak(record.pid) / MEBIBYTE:.0f} MiB, {sorted(statuses)}")
    # 408: on a busy machine a body may not have come in time.
    assert set(statuses) <= {0, 200, 400, 408, 413, 503}
    assert {200, 400} & set(statuses)
    assert peak(record.pid) < LIMIT
    assert drawbridge.post(b"{}")[0] == 400


def many_containers() -> bytes:
    """A review as large as it may be, of a pod that asks for a device in each container."""
    container_ = b'{"name":"a","image":"i","resources":{"limits":{"nvidia.com/gpu":1}}}'
    review = (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",'
        b'"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"default",'
        b'"operation":"CREATE","object":{"metadata":{"name":"p"},"spec":{"containers":['
    )
    return review + b",".join([container_] * ((SIZE - 1000) // (len(container_) + 1))) + b"]}}}}"
