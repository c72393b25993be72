"""Probes over HTTP, /healthz, /livez and /readyz, and on a port of its own /metrics.

A process is live while its event loop runs. That depends on nothing else, so that trouble elsewhere
never causes a restart. It is ready while every check passes. Whoever can reach the probe port learns
that and no more: which check fails, and why, is in the log and in the metrics.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from process.anonymous_http import anonymous_protocols
from process.connections import Connections
from process.metrics import ReadinessCollector
from process.settings import ServerSettings

Check = Callable[[], str]
"""Returns why the process is not ready; empty when the check passes."""

METRICS_PATH: Final = "/metrics"
MAX_CONNECTIONS: Final = 32
"""Of one port."""
MAX_CONNECTIONS_PER_ADDRESS: Final = 16
CONNECTION_TIMEOUT_S: Final = 5.0
"""For everything on one connection; a probe takes milliseconds."""
PORTS: Final = 2

log = structlog.get_logger()


class Readiness:
    """The readiness checks of a process: asked by probes, told in the log."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._failing: tuple[str, ...] | None = None

    def is_ready(self) -> bool:
        """Return whether all checks pass, and log when another set of checks fails."""
        problems = {name: problem for name, check in self._checks.items() if (problem := check())}
        failing = tuple(problems)
        if failing != self._failing:
            self._failing = failing
            if problems:
                log.warning("process.not_ready", problems=problems)
            else:
                log.info("process.ready")
        return not problems


def probe_routes(readiness: Readiness) -> list[web.RouteDef]:
    """Return the routes of the liveness and readiness probes."""

    async def live(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(_request: web.Request) -> web.Response:
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
        self._runner = web.AppRunner(app, shutdown_timeout=1.0)
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
