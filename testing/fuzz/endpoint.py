"""The real endpoint, spoken to without a socket: bytes in, bytes out, on one event loop."""

import asyncio
import logging
import ssl
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPResponse
from io import BytesIO
from typing import Any, Final, cast

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.processors import format_exc_info
from structlog.testing import capture_logs

from admission.pods import Answer as Verdict
from admission.webhook_configuration import (
    MUTATE_PATH,
    VALIDATE_OBJECTS_PATH,
    VALIDATE_WORKLOADS_PATH,
)
from certs.authority import Authority
from certs.serving import Listener, client_tls_context, issue_serving_certificate
from process.model.durations import PositiveDuration
from process.running.logs import LibraryLines
from rules.context.context import Context
from testing.fake_api_server import running
from testing.fuzz.calls import Call
from testing.fuzz.measures import HEARTBEAT_S, Cost, Heartbeat, Watch
from testing.fuzz.reviews import Place
from testing.review_runner import review_runner
from testing.signing import fixed_signing
from testing.webhook_paths import fixed_path
from webhook.endpoint import Endpoint
from webhook.metrics import WebhookMetrics
from webhook.mutate import PodReviewHandler
from webhook.settings import WebhookSettings
from webhook.validate import ObjectReviewHandler, WorkloadReviewHandler

PIECE: Final = 256 * 1024
"""Bytes that a socket hands over at once; asyncio's own bound."""
PATIENCE_S: Final = 20.0
"""The time until a call that got no answer counts as lost."""
PATIENCE_WITH_ODD_HTTP_S: Final = 0.2
"""The patience with a client that sends half a head: its connection is idle for long before an answer."""
HASTE_S: Final = 0.03
"""The wait for a body if HTTP is odd, since many such bodies never come."""
SETTINGS: Final = WebhookSettings(
    bind_address="127.0.0.1",
    port=0,
    read_timeout=PositiveDuration(20.0),
    # A small body comes with its head here, or never.
    small_body_read_timeout=PositiveDuration(HASTE_S),
    shutdown_grace_period=PositiveDuration(0.1),
)
"""The shipped settings, but patient: machines that fuzz have other things to do."""
NAME: Final = "webhook.fuzz.svc"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the endpoint.

    Attributes:
        closes: Whether the server will close the connection.
        cost: The cost until the answer was there.
    """

    status: int
    closes: bool
    body: bytes
    cost: Cost


class Wire(asyncio.Transport):
    """One end of a connection that needs no socket.

    Attributes:
        sent: The bytes that the server wrote.
        changed: Set when the server wrote, closed, or wants to read on.
    """

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("192.0.2.1", 40_000)})
        self.protocol = protocol
        self.sent = bytearray()
        self.changed = asyncio.Event()
        self._reading = True
        self._closing = False
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data
        self.changed.set()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.changed.set()
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.changed.set()

    async def changes(self) -> None:
        """Wait until the server did something."""
        await self.changed.wait()
        self.changed.clear()


class Recorded(LibraryLines):
    """Keeps the log records of libraries, and passes them on as the webhook does."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        super().emit(record)


class Log:
    """The log since it was last cleared."""

    def __init__(
        self, lines: list[MutableMapping[str, Any]], records: list[logging.LogRecord]
    ) -> None:
        self.lines = lines
        self.records = records

    def clear(self) -> None:
        self.lines.clear()
        self.records.clear()


@contextmanager
def recorded_log() -> Iterator[Log]:
    """Record all log lines from here on."""
    handler = Recorded()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with capture_logs(processors=[format_exc_info]) as lines:
            yield Log(lines, handler.records)
    finally:
        root.removeHandler(handler)


class Known:
    """Rules that know a place, and answer at once or are too busy."""

    def __init__(self, place: Place) -> None:
        self._context = place.context
        self._names = Context(namespaces=place.snapshot.namespaces)

    async def evaluate(
        self,
        question: Callable[[Context], Verdict],
        *,
        tenant: str,
        charge: Callable[[float], None],
    ) -> Verdict:
        if self._context is None:
            raise TimeoutError
        return await asyncio.to_thread(question, self._context)

    async def evaluate_without_inventory(
        self,
        question: Callable[[Context], Verdict],
        *,
        tenant: str,
        charge: Callable[[float], None],
    ) -> Verdict:
        return await asyncio.to_thread(question, self._names)


class Current:
    """The place that reviews are answered for now.

    Attributes:
        place: The number of one of the places.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self.place = 0
        metrics = WebhookMetrics(CollectorRegistry())
        self.metrics = metrics
        self.take(places)

    def take(self, places: Sequence[Place]) -> None:
        """Answer in these places from here on, with empty caches."""
        self._handlers = {
            number: _handlers(place, self.metrics) for number, place in enumerate(places)
        }

    async def review(self, request: web.BaseRequest) -> web.Response:
        return await self._handlers[self.place][request.path](request)


Review = Callable[[web.BaseRequest], Awaitable[web.Response]]


def _handlers(place: Place, metrics: WebhookMetrics) -> Mapping[str, Review]:
    """Return the handlers of a place, by path."""
    picture, rules = partial(getattr, place, "snapshot"), Known(place)
    runner = review_runner(metrics)
    mutation = PodReviewHandler(
        picture, place.options, metrics, runner, signing=fixed_signing, evaluator=rules
    )
    validation = WorkloadReviewHandler(picture, rules, place.options, metrics, runner)
    validation_handler = ObjectReviewHandler(rules, picture, metrics, runner)
    return {
        MUTATE_PATH: mutation.handle,
        VALIDATE_WORKLOADS_PATH: validation.handle,
        VALIDATE_OBJECTS_PATH: validation_handler.handle,
    }


class Stand:
    """An endpoint, and a connection to it.

    Attributes:
        log: The records that the last call left there.
    """

    def __init__(
        self, endpoint: Endpoint, current: Current, log: Log, context: ssl.SSLContext
    ) -> None:
        self.log = log
        self._endpoint = endpoint
        self._current = current
        self._context = context
        self._wire: Wire | None = None

    def validate_in(self, place: int) -> None:
        """Let reviews be validated in another place from here on."""
        self._current.place = place

    def forget(self, places: Sequence[Place]) -> None:
        """Drop all that is cached, by answering in the same places made anew."""
        self._current.take(places)

    async def ask(self, call: Call) -> Answer | None:
        """Return the answer; None if the server closed without one."""
        self.log.clear()
        wire = self._connected()
        wire.sent.clear()
        watch, heartbeat = Watch(), Heartbeat()
        try:
            async with asyncio.timeout(PATIENCE_S if call.is_http else PATIENCE_WITH_ODD_HTTP_S):
                async with running(heartbeat.run):
                    await _sent(wire, call)
                    await asyncio.sleep(2 * HEARTBEAT_S)
        except TimeoutError:
            wire.close()
        answer = _parse(bytes(wire.sent), watch.cost(heartbeat))
        if answer is None or answer.closes or not call.is_http:
            wire.close()
            self._wire = None
        return answer

    async def ask_over_tls(self, call: Call) -> Answer | None:
        """Return the answer to the same bytes through a real socket."""
        self.log.clear()
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._endpoint.port, ssl=self._context, server_hostname=NAME
        )
        received_bytearray = bytearray()
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(call.bytes)
                while not _is_complete(received_bytearray) and (piece := await reader.read(PIECE)):
                    received_bytearray += piece
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
        return _parse(bytes(received_bytearray), Cost())

    def _connected(self) -> Wire:
        if self._wire is None or self._wire.is_closing():
            self._wire = Wire(self._endpoint.protocols()())
        return self._wire


async def _sent(wire: Wire, call: Call) -> None:
    """Send a call, and wait for an answer or an end."""
    data = call.bytes
    for start in range(0, len(data), PIECE):
        while not (wire.is_reading() or wire.is_closing()):
            await wire.changes()
        if wire.is_closing():
            return
        wire.protocol.data_received(data[start : start + PIECE])
        await asyncio.sleep(0)
    if call.breaks_off:
        wire.close()
        await asyncio.sleep(0)
    while not (wire.is_closing() or _is_complete(wire.sent)):
        await wire.changes()


def _is_complete(data: bytearray) -> bool:
    head, separator, body = bytes(data).partition(b"\r\n\r\n")
    while separator and head.startswith(b"HTTP/1.1 100 "):
        head, separator, body = body.partition(b"\r\n\r\n")
    if not separator:
        return False
    lengths = [line[15:] for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
    return len(lengths) == 1 and len(body) >= int(lengths[0])


class _Heard:
    """Received bytes that `http.client` takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._sent = data

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self._sent)


def _parse(data: bytes, cost: Cost) -> Answer | None:
    if not data:
        return None
    response = HTTPResponse(cast(Any, _Heard(data)), method="POST")
    response.begin()
    return Answer(
        status=response.status,
        closes=response.will_close,
        body=response.read(),
        cost=cost,
    )


@asynccontextmanager
async def standing(places: Sequence[Place]) -> AsyncIterator[Stand]:
    """Start an endpoint with the settings that we ship, and stop it."""
    now, life = datetime.now(UTC), timedelta(days=1)  # noqa: TID251  TLS compares with the clock.
    leaf = issue_serving_certificate(
        Authority.create("fuzz", now=now, life=life), [NAME], now=now, life=life
    )
    current = Current(places)
    reviews = dict.fromkeys(
        (MUTATE_PATH, VALIDATE_WORKLOADS_PATH, VALIDATE_OBJECTS_PATH), current.review
    )
    endpoint = Endpoint(
        SETTINGS, reviews, current.metrics, find_path=fixed_path, chance=lambda: 0.5
    )
    with recorded_log() as log:
        await endpoint.start(Listener(leaf).context)
        async with running(endpoint.run):
            try:
                yield Stand(endpoint, current, log, client_tls_context(leaf.authority))
            finally:
                await endpoint.stop()
