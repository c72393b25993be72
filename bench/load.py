"""A small HTTP/1.1 load generator: as many connections as asked for, one request at a time on each.

It runs in a process of its own, so that the server has a core to itself. Requests are bytes that are
made once; answers are read by their Content-Length.
"""

import asyncio
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from statistics import median

import msgspec
import uvloop


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The requests to send.

    Attributes:
        bodies: Sent in turn.
        connections: Open at the same time, all the while.
        seconds: The duration of sending.
        per_second: Requests of each connection; 0 sends the next when the last one is answered.
        statuses: The statuses of expected answers.
        content: A text in each answer.
    """

    port: int
    path: str
    bodies: Sequence[bytes]
    connections: int
    seconds: float
    authority: str
    host: str = "127.0.0.1"
    per_second: float = 0
    statuses: tuple[int, ...] = (200,)
    content: bytes = b""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The results; latencies in milliseconds."""

    requests: int
    rate: float
    p50: float
    p99: float


def measure_load(job: Job) -> Measured:
    """Send the requests from a process of its own and return the measurements."""
    process = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=msgspec.msgpack.encode(job),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.msgpack.decode(process.stdout, type=Measured)


def alternately(
    ours: Callable[[], Measured], anchor: Callable[[], Measured], *, rounds: int = 3
) -> tuple[list[Measured], list[Measured]]:
    """Measure both in turn, so that other load of the machine meets both."""
    pairs = [(ours(), anchor()) for _ in range(rounds)]
    return [first for first, _ in pairs], [second for _, second in pairs]


def median_of(rounds: Sequence[Measured], field: str) -> float:
    """Return the median of a field of several measurements."""
    return float(median(getattr(measured, field) for measured in rounds))


def request_bytes(path: str, body: bytes) -> bytes:
    """Return an HTTP request as the API server's client would send it."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def run(job: Job) -> Measured:
    """Send for the given time and return the measurements."""
    context = ssl.create_default_context(cafile=job.authority)
    context.check_hostname = False
    requests = [request_bytes(job.path, body) for body in job.bodies]
    latencies: list[float] = []
    began = time.perf_counter()
    until = began + job.seconds
    async with asyncio.TaskGroup() as group:
        for first in range(job.connections):
            # Far apart, so that no two connections send the same body at about the same time.
            at = first * len(requests) // job.connections
            rotated_requests = requests[at:] + requests[:at]
            group.create_task(_connection(job, context, rotated_requests, until, latencies))
    took = time.perf_counter() - began
    latencies.sort()
    return Measured(
        requests=len(latencies),
        rate=len(latencies) / took,
        p50=latencies[len(latencies) // 2] * 1000,
        p99=latencies[int(len(latencies) * 0.99)] * 1000,
    )


async def _connection(
    job: Job,
    context: ssl.SSLContext,
    requests: Sequence[bytes],
    until: float,
    latencies: list[float],
) -> None:
    """Send one request after the other; open a new connection if the server asks for one."""
    pending = cycle(requests)
    while time.perf_counter() < until:
        reader, writer = await asyncio.open_connection(job.host, job.port, ssl=context)
        closing = False
        while not closing:
            sent_at = time.perf_counter()
            if sent_at >= until:
                break
            writer.write(next(pending))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if int(head[9:12]) not in job.statuses:
                raise RuntimeError(f"answered {head[:60]!r}")
            answer = await reader.readexactly(_content_length(head))
            if job.content not in answer:
                raise RuntimeError(f"answered {answer[:1000]!r}")
            latencies.append(time.perf_counter() - sent_at)
            closing = b"\r\nconnection: close\r\n" in head
            if job.per_second:
                await asyncio.sleep(max(0, sent_at + 1 / job.per_second - time.perf_counter()))
        writer.close()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    raise RuntimeError("an answer without Content-Length")


def main() -> None:
    """Read a job from standard input, write the measurements to standard output."""
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.stdout.buffer.write(msgspec.msgpack.encode(runner.run(run(job))))


if __name__ == "__main__":
    main()
