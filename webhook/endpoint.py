"""The HTTPS endpoint: limits, errors and metrics around the handlers, and draining."""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache, partial
from http import HTTPStatus
from time import perf_counter
from typing import Final

from aiohttp import hdrs, web

from admission.webhook_configuration import TIMEOUT_S
from certs.serving import peer_names
from kube.logs import get_logger
from process.serving.anonymous_http import anonymous_protocols, bare_response
from process.serving.bounded_server import bounded_server
from process.serving.connections import CloseReason, Connections
from webhook.body_reader import SMALL_BODY_BYTES, BodyReader
from webhook.metrics import WebhookMetrics
from webhook.places import Places
from webhook.reviews import DEADLINE_S, LARGE_BODY, UID, drop_large_review
from webhook.settings import WebhookSettings

PLACE_WAIT_S: Final = 1.0
"""The longest wait of a review for a place, before it is turned away."""
MARGIN_S: Final = 1.0
"""The time between the answer and the caller's timeout: an API server that has waited in vain
quotes the address of the webhook, and fails the request of the user."""
ROUNDED_UP_S: Final = 1.0
"""The largest excess of the timeout in a URL over the time that the API server really waits."""
MIN_ANSWER_S: Final = 0.01
"""The least time for an answer; a review that takes longer is turned away."""

Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]
"""Answers a review; it may raise web.HTTPException."""

FindPath = Callable[[str], str | None]
"""Returns a requested path without its key; None where the key is not right."""

IsOutdated = Callable[[ssl.SSLObject], bool]
"""Returns whether the client of a connection was accepted by authorities that are no longer trusted."""

log = get_logger()


class Endpoint:
    """Serves reviews over TLS.

    Attributes:
        port: The port after `start`.
    """

    def __init__(
        self,
        settings: WebhookSettings,
        handlers: Mapping[str, Handler],
        metrics: WebhookMetrics,
        *,
        find_path: FindPath,
        chance: Callable[[], float],
        is_outdated: IsOutdated = lambda _connection: False,
    ) -> None:
        """Set up limits and metrics; `start` listens.

        Args:
            handlers: Fixed part of a path to the handler of POSTs.
            find_path: Returns a requested path without its key, to be looked up in `handlers`.
            chance: Uniform from 0 to 1.
            is_outdated: Returns True for a connection whose next answer is its last.
        """
        self._settings = settings
        self._handlers = handlers
        self._metrics = metrics
        self._find_path = find_path
        self._chance = chance
        self._is_outdated = is_outdated
        self._client_names = frozenset(settings.client_names) if settings.client_ca_file else None
        self._last_review_s = 0.0
        self._in_flight = dict.fromkeys(handlers, 0)
        # Bodies that arrive hold memory; reviews that are answered hold the event loop.
        self._places_of_bytes = Places(settings.max_bytes_in_flight)
        self._places = Places(settings.max_in_flight)
        self._bodies = BodyReader(
            settings.max_reading,
            timeout_s=settings.read_timeout,
            small_timeout_s=settings.small_body_read_timeout,
        )
        self._latency = {path: metrics.latency.labels(path) for path in handlers}
        self._by_status = cache(lambda path, code: metrics.requests.labels(path, str(code)))
        for path in handlers:
            metrics.in_flight.labels(path).set_function(partial(self._in_flight.__getitem__, path))
        self.draining = False
        self.port = settings.port
        self._connections = Connections(
            settings.max_connections,
            max_unused_per_address=settings.max_unused_connections_per_address,
            header_timeout_s=settings.request_header_timeout,
            count_closed=metrics.count_closed,
        )
        metrics.connections.set_function(self._connections.__len__)
        self._context: ssl.SSLContext | None = None
        self._runner: web.ServerRunner | None = None

    async def start(self, context: ssl.SSLContext) -> None:
        """Listen; `run` answers."""
        settings = self._settings
        self._runner = web.ServerRunner(
            bounded_server(self._route, max_body_bytes=settings.max_body_bytes),
            shutdown_timeout=settings.shutdown_grace_period,
        )
        await self._runner.setup()
        await self._connections.listen(settings.bind_address, settings.port)
        self._context = context
        self.port = self._connections.port
        log.info("endpoint.listening", port=self.port)

    async def run(self) -> None:
        """Serve connections until cancelled, new ones until it is drained.

        Raises:
            RuntimeError: `start` was not called.
        """
        if self._context is None:
            raise RuntimeError("start first")
        await self._connections.run(self.protocols(), self._context)

    def protocols(self) -> Callable[[], asyncio.Protocol]:
        """Return the factory of HTTP protocols, one for each connection.

        Raises:
            RuntimeError: `start` was not called.
        """
        if self._runner is None:
            raise RuntimeError("start first")
        return anonymous_protocols(
            self._runner.server,
            partial(self._metrics.count_closed, CloseReason.MALFORMED),
            keepalive_timeout=self._settings.keepalive_timeout,
        )

    async def drain(self) -> None:
        """Stop without losing a review: become unready, answer until no review comes, then close.

        Meanwhile each response closes its connection, so that the API server opens the next one to
        another replica. A fixed time would be too short where a Service is slow to drop this one,
        and too long elsewhere.
        """
        self.draining = True
        max_drain_s = self._settings.max_drain
        log.info("endpoint.draining", drain_s=self._settings.drain, max_drain_s=max_drain_s)
        began = self._last_review_s = perf_counter()
        with suppress(TimeoutError):
            async with asyncio.timeout(max_drain_s):
                await self._wait_quiet()
        await self._connections.close()
        log.info("endpoint.closed", after_s=round(perf_counter() - began, 3))

    async def _wait_quiet(self) -> None:
        """Wait until no review has come for `drain`."""
        while True:
            left_s = self._last_review_s + self._settings.drain - perf_counter()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)

    async def stop(self) -> None:
        """Close the remaining connections; running reviews get `shutdownGracePeriod`."""
        await self._connections.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def reading(self) -> int:
        """Return the number of bodies that are arriving."""
        return len(self._bodies)

    @property
    def wants_certificate(self) -> bool:
        """Return True if the handshake fails for clients without one."""
        return self._client_names is not None

    def check(self) -> str:
        """Return the reason no new reviews should be sent here, as a readiness check."""
        return "draining" if self.draining else ""

    async def _route(self, request: web.BaseRequest) -> web.Response:
        """Answer a review; everything else alike, so that nobody learns the existing paths."""
        path = self._known_path(request)
        if path is None:
            self._metrics.unknown_paths.inc()
            return bare_response(HTTPStatus.NOT_FOUND)
        if hdrs.EXPECT in request.headers:
            await self._invite_body(request)
        return await self._review(path, request)

    def _known_path(self, request: web.BaseRequest) -> str | None:
        """Return the fixed part of the path of a review; None for every other request."""
        if request.method != hdrs.METH_POST:
            return None
        path = self._find_path(request.rel_url.raw_path)
        return path if path in self._handlers else None

    async def _invite_body(self, request: web.BaseRequest) -> None:
        """Tell a client that waits for it to send its body."""
        if request.headers[hdrs.EXPECT].lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0

    async def _review(self, path: str, request: web.BaseRequest) -> web.Response:
        """Answer within the limits, and count.

        Not a middleware of aiohttp: those cost as much as a small review.
        """
        began = self._last_review_s = perf_counter()
        within_s = answer_within_s(request.rel_url.raw_query_string)
        now_s = asyncio.get_running_loop().time()
        request[DEADLINE_S] = now_s + within_s
        until_s = now_s + min(PLACE_WAIT_S, within_s)
        length = request.content_length
        size = self._counted_size(length)
        if not self._is_allowed(request):
            response = _rejection(
                web.HTTPForbidden(text="the client certificate is not of an allowed client")
            )
        elif length is not None and length > self._settings.max_body_bytes:
            response = self._too_large()
        elif size and not await self._places_of_bytes.take(size, until_s=until_s):
            response = self._shed()
        else:
            self._connections.header_received(request.protocol)
            try:
                await self._bodies.read(request, until_s=now_s + within_s)
                self._connections.request_started(request.protocol)
                response = await self._answer(path, request, until_s)
            except web.HTTPRequestEntityTooLarge:
                response = self._too_large()
            except web.HTTPException as error:
                response = _rejection(error)
            except (ConnectionError, web.RequestPayloadError):
                response = _rejection(web.HTTPBadRequest(text="the body is incomplete"))
            finally:
                if size:
                    self._places_of_bytes.leave(size)
                if length is None or length > LARGE_BODY:
                    drop_large_review(request)
        if self._is_last(request):
            response.force_close()
        is_valid = response.status == HTTPStatus.OK
        self._connections.request_finished(request.protocol, is_valid=is_valid)
        self._by_status(path, response.status).inc()
        self._latency[path].observe(perf_counter() - began)
        return response

    def _is_last(self, request: web.BaseRequest) -> bool:
        """Return True if the connection ends with this answer."""
        if self.draining or self._chance() * self._settings.requests_per_connection < 1:
            return True
        # An idle connection is not closed for it: a review that was just sent on it would be lost.
        connection = request.get_extra_info("ssl_object") if self.wants_certificate else None
        return connection is not None and self._is_outdated(connection)

    async def _answer(self, path: str, request: web.BaseRequest, until_s: float) -> web.Response:
        """Answer a review that has arrived, unless too many are answered until then."""
        if not await self._places.take(1, until_s=until_s):
            return self._shed()
        self._in_flight[path] += 1
        try:
            return await self._handlers[path](request)
        except (web.HTTPException, ConnectionError, web.RequestPayloadError):
            raise
        except Exception:  # A bug of ours, so the administrator's failurePolicy decides.
            log.exception("review.failed", uid=request.get(UID))
            return self._failure_response(path)
        finally:
            self._in_flight[path] -= 1
            self._places.leave(1)

    def _is_allowed(self, request: web.BaseRequest) -> bool:
        """Return True if the client certificate, if one is required, names an allowed client."""
        if self._client_names is None:
            return True
        certificate = request.get_extra_info("peercert") or {}
        return not self._client_names.isdisjoint(peer_names(certificate))

    def _counted_size(self, length: int | None) -> int:
        """Return the bytes of a body that count: those that may be read, none of a small body.

        Who knows the path can announce large bodies and send none of them; nearly all reviews wait for none.

        Args:
            length: The announced bytes; None for a body in chunks.
        """
        max_bytes = self._settings.max_body_bytes
        size = max_bytes if length is None else length
        return 0 if size < SMALL_BODY_BYTES else min(size, max_bytes)

    def _shed(self) -> web.Response:
        # Without Retry-After: the API server would repeat the call until its own timeout, and quote the
        # address of this webhook then.
        self._metrics.shed.inc()
        response = web.Response(status=503, text="too many reviews")
        response.force_close()  # The body may not have been read.
        return response

    def _too_large(self) -> web.Response:
        """Reject a body that need not be read; the words are a Status that the API server quotes."""
        max_bytes = self._settings.max_body_bytes
        message = (
            f"the review has more than {max_bytes} bytes, which Drawbridge does not read; the object "
            "counts once or twice, and each of < > & as six bytes: make the object smaller"
        )
        log.warning("review.rejected", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, error=message)
        status = {
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "reason": "RequestEntityTooLarge",
            "message": message,
            "code": HTTPStatus.REQUEST_ENTITY_TOO_LARGE.value,
        }
        response = web.json_response(status, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        response.force_close()  # The body was not read.
        return response

    def _failure_response(self, path: str) -> web.Response:
        self._metrics.panics.labels(path).inc()
        return web.Response(status=500, text="internal error")


def _rejection(error: web.HTTPException) -> web.Response:
    log.warning("review.rejected", status=error.status, error=error.text)
    response = web.Response(status=error.status, text=error.text)
    response.force_close()  # The body may not have been read.
    return response


@lru_cache(maxsize=64)
def answer_within_s(query: str) -> float:
    """Return the seconds for an answer: the caller's shortest wait, without a margin.

    The API server rounds the time that is left up to whole seconds: `timeout=1s` may mean 20 ms. A small
    review is answered even then, since it takes less than `MIN_ANSWER_S`.

    Args:
        query: The query of the URL. The API server writes `timeout=5s`; without it the timeout is
            that of our configurations.

    Source: k8s.io/apiserver v0.37.1, admission/plugin/webhook/mutating/dispatcher.go:288, and
    k8s.io/client-go v0.37.1, rest/request.go, Request.URL.

    >>> [answer_within_s(query) for query in ("timeout=5s", "timeout=2.5s", "timeout=9m", "")]
    [3.0, 0.5, 3.0, 3.0]
    """
    matched = _TIMEOUT.search(query)
    waits_s = float(TIMEOUT_S)
    if matched:
        waits_s = min(waits_s, float(matched["number"]) * (0.001 if matched["milli"] else 1))
    return max(waits_s - ROUNDED_UP_S - MARGIN_S, MIN_ANSWER_S)


_TIMEOUT: Final = re.compile(
    r"(?:^|&)timeout=(?P<number>\d{1,4}(?:\.\d{1,9})?)(?P<milli>m)?s(?:&|$)", re.ASCII
)
