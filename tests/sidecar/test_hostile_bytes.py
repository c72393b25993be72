"""The sidecar's socket under bytes that no scheduler sends: nothing is promised, and honest calls go on.

Only the container of the scheduler can open the socket. What it sends when it is compromised is not
limited to the protocol.
"""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from structlog.testing import capture_logs

from sidecar.answers.server import MAX_REQUEST_BYTES
from testing.fake_api_server import FakeApiServer
from testing.malformed_http import MALFORMED, Malformed
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)

CONNECTIONS = 200
DEPTH = 100_000


class Scene(NamedTuple):
    sidecar: Sidecar
    scheduler: FakeScheduler
    pod: dict[str, Any]

    async def assert_serves(self) -> None:
        """Let a pod find its node, and show that nothing was promised meanwhile."""
        assert self.sidecar.service is not None
        assert self.sidecar.service.reservations.by_pod == {}
        answer = await self.scheduler.prefilter(self.pod)
        assert [node["name"] for node in answer["nodes"]] == ["node-1"]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            yield Scene(sidecar, scheduler, pod)


async def exchange(path: Path, data: bytes, *, ends: bool = False) -> bytes:
    """Send bytes, and return the answer until the server closes.

    Args:
        ends: Tell the server that no more comes.
    """
    reader, writer = await asyncio.open_unix_connection(str(path))
    answer = b""
    try:
        writer.write(data)
        await writer.drain()
        if ends:
            writer.write_eof()
        async with asyncio.timeout(60):
            while piece := await reader.read(2**16):
                answer += piece
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
    return answer


def post(point: str, body: bytes, *headers: str) -> bytes:
    head = (
        f"POST /v1/{point} HTTP/1.1",
        "Host: sidecar",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *headers,
    )
    return "\r\n".join((*head, "", "")).encode() + body


def call(scene: Scene, **fields: object) -> bytes:
    body = {"scheduler": scene.scheduler.name, "instance": scene.scheduler.instance, **fields}
    return msgspec.json.encode(body)


@pytest.mark.parametrize("malformed", MALFORMED, ids=lambda malformed: malformed.name)
async def test_what_is_no_http_holds_up_nobody(malformed: Malformed, scene: Scene) -> None:
    await exchange(scene.sidecar.socket, malformed.request, ends=True)

    await scene.assert_serves()


@pytest.mark.parametrize(
    "point",
    ["hello", "prefilter", "group", "filter", "prebind", "unreserve", "postfilter", "wake"],
)
async def test_what_is_no_call_is_rejected(point: str, scene: Scene) -> None:
    nested = b"[" * DEPTH + b"]" * DEPTH
    bodies = {
        "nothing": b"",
        "no JSON": b"\x00\xff{",
        "a list": b"[]",
        "wrong types": b'{"scheduler": 1, "reservations": {}}',
        "a number beyond int64": call(scene, unreserved=[]).replace(b"[]", b"[%s]" % (b"9" * 5000)),
        "a list of what it is not": call(scene, reservations=[[], 1, None]),
        "depth": call(scene, reservations=[]).replace(b"[]", nested),
    }
    with capture_logs() as log:
        for name, body in bodies.items():
            answer = await exchange(scene.sidecar.socket, post(point, body))
            assert answer.startswith(b"HTTP/1.1 400 "), f"{name}: {answer[:300]!r}"

    assert not [line for line in log if "exception" in line]
    await scene.assert_serves()


async def test_a_body_beyond_the_bound_is_not_read_to_its_end(scene: Scene) -> None:
    large = b" " * (MAX_REQUEST_BYTES + 1)
    bomb = gzip.compress(b" " * (2 * MAX_REQUEST_BYTES))

    for body, headers in ((large, ()), (bomb, ("Content-Encoding: gzip",))):
        answer = await exchange(scene.sidecar.socket, post("hello", body, *headers))
        assert answer.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 ")), answer[:300]

    await scene.assert_serves()


async def test_reservations_of_pods_that_do_not_exist_take_no_devices(scene: Scene) -> None:
    stranger = {"podUID": "u", "podNamespace": "../..", "podName": "\x1b[2J", "node": "node-1"}
    reservations = [{"number": number + 1, **stranger} for number in range(1000)]

    answer = await exchange(
        scene.sidecar.socket, post("wake", call(scene, reservations=reservations))
    )

    assert answer.startswith(b"HTTP/1.1 200 "), answer[:300]
    assert not scene.sidecar.state.holds
    answer_ = await scene.scheduler.prefilter(scene.pod)
    assert [node["name"] for node in answer_["nodes"]] == ["node-1"]


async def test_connections_that_say_nothing_hold_up_nobody(scene: Scene) -> None:
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(scene.sidecar.socket))
            connection.send(post("prefilter", b" " * 1000)[: number % 200])

        await scene.assert_serves()
