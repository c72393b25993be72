"""Probes over HTTP, /healthz, /livez and /readyz, and on a port of its own /metrics.

A process is live while its event loop runs. That depends on nothing else, so that trouble elsewhere
never causes a restart. It is ready while every check passes. Whoever can reach the probe port learns
that and no more: which check fails, and why, is in the log and in the metrics.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from kube.logs import get_logger
from process.model.settings import ServerSettings
from process.serving.anonymous_http import anonymous_protocols
from process.serving.connections import Connections
from process.serving.metrics import ReadinessCollector

Check = Callable[[], str]
"""Returns why the process is not ready; empty when the check passes."""

METRICS_PATH: Final = "/metrics"
MAX_CONNECTIONS: Final = 32
"""The maximum number of connections of one port."""
MAX_CONNECTIONS_PER_ADDRESS: Final = 16
CONNECTION_TIMEOUT_S: Final = 5.0
"""The time for everything on one connection; a probe takes milliseconds."""
PORTS: Final = 2
MIN_PAUSE_S: Final = 0.002
"""The pause after an answer; with all connections of a port before it, a probe waits for a tenth of a second."""
PAUSE_FACTOR: Final = 9
"""A pause is so many times as long as its answer took."""

log = get_logger()


class Readiness:
    """The readiness checks of a process: asked by probes, told in the log."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._failing: tuple[str, ...] | None = None

    def is_ready(self) -> bool:
        """Return True if all checks pass, and log when another set of checks fails."""
        problems = {name: problem for name, check in self._checks.items() if (problem := check())}
        failing = tuple(problems)
        if failing != self._failing:
            self._failing = failing
            if problems:
                log.warning("process.not_ready", problems=problems)
            else:
                log.info("process.ready")
        return not problems


class Pace:
    """Lets one request of a port be answered at a time, with a pause behind each.

    However many are asked, the port takes about a tenth of the event loop, which answers reviews, too.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._free_at_s = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, in the order of the requests."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(max(0.0, self._free_at_s - loop.time()))
            began_s = loop.time()
            yield
            ended_s = loop.time()
            self._free_at_s = ended_s + max(MIN_PAUSE_S, (ended_s - began_s) * PAUSE_FACTOR)


def probe_routes(readiness: Readiness) -> list[web.RouteDef]:
    """Return the routes of the liveness and readiness probes."""
    pace = Pace()

    async def live(_request: web.Request) -> web.Response:
        async with pace.turn():
            return web.Response(text="ok")

    async def ready(_request: web.Request) -> web.Response:
        async with pace.turn():
            if readiness.is_ready():
                return web.Response(text="ok")
            return web.Response(text="not ready", status=503)

    return [web.get("/healthz", live), web.get("/livez", live), web.get("/readyz", ready)]


class ProbeServer:
    """Serves probes and metrics over plain HTTP, each on a port of its own, within the same bounds.

    Attributes:
        port: The port of the probes, once `started` is set.
        metrics_port: The port of the metrics, once `started` is set.
        started: Set when it listens.
    """

    def __init__(
        self, settings: ServerSettings, checks: Mapping[str, Check], registry: CollectorRegistry
    ) -> None:
        self._host = settings.bind_address
        self._readiness = Readiness(checks)
        self._registry = registry
        self._pace = Pace()
        registry.register(ReadinessCollector(checks))
        self.port = settings.probe_port
        self.metrics_port = settings.metrics_port
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled."""
        probes, metrics = _Port(self._host), _Port(self._host)
        try:
            self.port = await probes.listen(self.port, probe_routes(self._readiness))
            routes = [web.get(METRICS_PATH, self._metrics)]
            self.metrics_port = await metrics.listen(self.metrics_port, routes)
            log.info("probes.listening", port=self.port, metrics_port=self.metrics_port)
            self.started.set()
            async with asyncio.TaskGroup() as group:
                group.create_task(probes.run())
                group.create_task(metrics.run())
        finally:
            await probes.close()
            await metrics.close()

    async def _metrics(self, _request: web.Request) -> web.Response:
        async with self._pace.turn():
            body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


class _Port:
    """A port with its routes and its bounds."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._runner: web.AppRunner | None = None
        self._connections = Connections(
            MAX_CONNECTIONS,
            max_unused_per_address=MAX_CONNECTIONS_PER_ADDRESS,
            header_timeout_s=CONNECTION_TIMEOUT_S,
        )

    async def listen(self, port: int, routes: list[web.RouteDef]) -> int:
        """Listen, and return the port."""
        app = web.Application()
        app.add_routes(routes)
        self._runner = web.AppRunner(app, shutdown_timeout=1.0, handler_cancellation=True)
        await self._runner.setup()
        await self._connections.listen(self._host, port)
        return self._connections.port

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            RuntimeError: `listen` was not called.
        """
        if self._runner is None:
            raise RuntimeError("listen first")
        await self._connections.run(anonymous_protocols(self._runner.server))

    async def close(self) -> None:
        """Stop to listen."""
        await self._connections.close()
        if self._runner is not None:
            await self._runner.cleanup()
