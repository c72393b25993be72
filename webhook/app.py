"""The HTTPS endpoint: limits, errors and metrics around the handler, and its end in good order."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from time import perf_counter
from typing import Final

import structlog
from aiohttp import web

from certs.serving import Leaf, client_context, names_of_peer
from webhook.connections import Connections
from webhook.handlers import UID
from webhook.metrics import WebhookMetrics
from webhook.probes import Check, probe_routes
from webhook.settings import ServeSettings

LINGERING_S: Final = 1.0
"""For how long the rest of a refused body is read and thrown away."""
RETRY_AFTER_S: Final = "1"
"""With this header, and not without, the API server tries again within the webhook's timeout."""

Review = Callable[[web.Request], Awaitable[web.Response]]
"""Answers a review; it may raise web.HTTPException."""

log = structlog.get_logger()


class Endpoint:
    """Serves reviews over TLS.

    Attributes:
        port: Where it listens, once it has started.
    """

    def __init__(
        self,
        settings: ServeSettings,
        reviews: Mapping[str, Review],
        metrics: WebhookMetrics,
        *,
        chance: Callable[[], float],
    ) -> None:
        """Remember what to serve.

        Args:
            reviews: Path to what answers a POST there.
            chance: Uniform from 0 to 1.
        """
        self._settings = settings
        self._reviews = reviews
        self._metrics = metrics
        self._chance = chance
        self._callers = frozenset(settings.client_names) if settings.client_ca_file else None
        self._asked_at = 0.0
        self._in_flight = dict.fromkeys(reviews, 0)
        self._bytes_in_flight = 0
        self._latency = {path: metrics.latency.labels(path) for path in reviews}
        self._by_status = cache(lambda path, code: metrics.requests.labels(path, str(code)))
        for path in reviews:
            metrics.in_flight.labels(path).set_function(partial(self._in_flight.__getitem__, path))
        self.draining = False
        self.port = settings.port
        self._connections = Connections(
            settings.max_connections, head_s=settings.head_seconds, metrics=metrics
        )
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None

    def application(self, checks: Mapping[str, Check]) -> web.Application:
        """Return the routes with the limits around them."""
        app = web.Application(client_max_size=self._settings.max_body_bytes)
        posts = [web.post(path, partial(self._review, path)) for path in self._reviews]
        app.add_routes([*posts, *probe_routes(checks)])
        return app

    async def start(self, context: ssl.SSLContext, checks: Mapping[str, Check]) -> None:
        """Listen; who comes is answered by `run`.

        Args:
            checks: That say whether the process is ready; told over TLS as well.
        """
        settings = self._settings
        self._runner = web.AppRunner(
            self.application(checks),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=settings.keepalive_seconds,
            lingering_time=LINGERING_S,
            shutdown_timeout=settings.shutdown_seconds,
        )
        await self._runner.setup()
        await self._connections.listen(settings.bind_address, settings.port)
        self._context = context
        self.port = self._connections.port
        log.info("endpoint.listening", port=self.port)

    async def run(self) -> None:
        """Take connections until cancelled, new ones until it has drained.

        Raises:
            RuntimeError: It was not started.
        """
        if self._runner is None or self._runner.server is None or self._context is None:
            raise RuntimeError("start first")
        await self._connections.run(self._runner.server, self._context)

    async def drain(self) -> None:
        """Stop without losing a review: become unready, answer on until it is quiet, then close.

        Each answer asks for a new connection meanwhile, which is what moves the API server's. A
        fixed time would be too short for a Service that is slow to forget us, and too long for the
        others.
        """
        self.draining = True
        most_s = self._settings.drain_most_seconds
        log.info("endpoint.draining", quiet_s=self._settings.drain_seconds, most_s=most_s)
        began = self._asked_at = perf_counter()
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._quiet()
        await self._connections.close()
        log.info("endpoint.closed", after_s=round(perf_counter() - began, 3))

    async def _quiet(self) -> None:
        """Return when no review came for `drainSeconds`."""
        while True:
            left_s = self._asked_at + self._settings.drain_seconds - perf_counter()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)

    async def stop(self) -> None:
        """Close what is left; running reviews get `shutdownSeconds`."""
        await self._connections.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def wants_certificate(self) -> bool:
        """Whether callers without one are refused in the handshake."""
        return self._callers is not None

    def check(self) -> str:
        """Return why no new work should come."""
        return "draining" if self.draining else ""

    async def _review(self, path: str, request: web.Request) -> web.Response:
        """Answer within the limits, and count.

        Not a middleware of aiohttp: those cost as much as a small review.
        """
        began = self._asked_at = perf_counter()
        self._connections.begins(request.protocol)
        size = self._announced(request)
        if not self._may_ask(request):
            response = _refused(web.HTTPForbidden(text="the certificate is not of a caller"))
        elif not self._has_room_for(size):
            response = self._shed()
        else:
            self._in_flight[path] += 1
            self._bytes_in_flight += size
            try:
                response = await self._reviews[path](request)
            except web.HTTPException as refusal:
                response = _refused(refusal)
            except (ConnectionError, web.RequestPayloadError):
                response = _refused(web.HTTPBadRequest(text="the body broke off"))
            except Exception:  # A bug of ours, so the administrator's failurePolicy decides.
                log.exception("review.failed", uid=request.get(UID))
                response = self._failed(path)
            finally:
                self._in_flight[path] -= 1
                self._bytes_in_flight -= size
        if self.draining or self._chance() * self._settings.requests_per_connection < 1:
            response.force_close()
        self._connections.ends(request.protocol)
        self._by_status(path, response.status).inc()
        self._latency[path].observe(perf_counter() - began)
        return response

    def _may_ask(self, request: web.Request) -> bool:
        """Whether the caller's certificate names somebody who may ask, where one is wanted."""
        if self._callers is None:
            return True
        certificate = request.get_extra_info("peercert") or {}
        return not self._callers.isdisjoint(names_of_peer(certificate))

    def _announced(self, request: web.Request) -> int:
        """Return how many bytes the body may bring; more than the most are not read."""
        most = self._settings.max_body_bytes
        announced = request.content_length
        return most if announced is None else min(announced, most)

    def _has_room_for(self, size: int) -> bool:
        return (
            sum(self._in_flight.values()) < self._settings.max_in_flight
            and self._bytes_in_flight + size <= self._settings.max_bytes_in_flight
        )

    def _shed(self) -> web.Response:
        self._metrics.shed.inc()
        response = web.Response(
            status=503, text="too many reviews", headers={"Retry-After": RETRY_AFTER_S}
        )
        response.force_close()  # The body was not read.
        return response

    def _failed(self, path: str) -> web.Response:
        self._metrics.panics.labels(path).inc()
        return web.Response(status=500, text="internal error")


def _refused(refusal: web.HTTPException) -> web.Response:
    log.warning("review.refused", status=refusal.status, error=refusal.text)
    response = web.Response(status=refusal.status, text=refusal.text)
    response.force_close()  # The body may not have been read.
    return response


class SelfCheck:
    """Calls the endpoint as the API server does, and remembers whether it answered."""

    def __init__(
        self,
        endpoint: Endpoint,
        leaf: Callable[[], Leaf],
        *,
        host: str,
        name: str,
        every_s: float = 10.0,
        retry_s: float = 0.5,
    ) -> None:
        """Remember whom to call.

        Args:
            leaf: The one that new connections get now.
            host: Where the endpoint listens; empty for everywhere.
            name: The server's name that the API server checks.
        """
        self._endpoint = endpoint
        self._leaf = leaf
        self._host = host
        self._name = name
        self._every_s = every_s
        self._retry_s = retry_s
        self._problem = "not tried yet"

    def check(self) -> str:
        """Return why the API server would not get through."""
        return self._problem

    async def run(self) -> None:
        """Call, wait, and call again, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    self._problem = await self._called()
            except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError.
                self._problem = str(error) or "timed out"
                log.warning("endpoint.unreachable", error=self._problem)
            await asyncio.sleep(self._retry_s if self._problem else self._every_s)

    async def _called(self) -> str:
        reader, writer = await asyncio.open_connection(
            self._host or "localhost",
            self._endpoint.port,
            ssl=client_context(self._leaf().authority),
            server_hostname=self._name,
        )
        try:
            if self._endpoint.wants_certificate:
                return ""  # We have none, and have seen that its own is believed.
            writer.write(b"GET /livez HTTP/1.1\r\nHost: self\r\nConnection: close\r\n\r\n")
            status = (await reader.readline()).split(b" ")
        finally:
            writer.close()
        return "" if status[1:2] == [b"200"] else "no HTTP 200"
