"""Probes and metrics over HTTP: /healthz, /livez, /readyz and /metrics.

A process is live while its event loop runs. That depends on nothing else, so that trouble elsewhere
never causes a restart. It is ready while every check passes; `/readyz?verbose` names each.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from process.connections import Connections

Check = Callable[[], str]
"""Returns why the process is not ready; empty when the check passes."""

METRICS_PATH: Final = "/metrics"
MAX_CONNECTIONS: Final = 32
MAX_CONNECTIONS_PER_ADDRESS: Final = 16
CONNECTION_TIMEOUT_S: Final = 5.0
"""For everything on one connection; a probe takes milliseconds."""

log = structlog.get_logger()


def run_checks(checks: Mapping[str, Check]) -> tuple[bool, str]:
    """Return whether all checks pass, and a line for each.

    >>> print(run_checks({"informers": lambda: "", "certificate": lambda: "none yet"})[1])
    [+]informers ok
    [-]certificate none yet
    """
    problems = {name: check() for name, check in checks.items()}
    lines = (
        f"[{'-' if problem else '+'}]{name} {problem or 'ok'}" for name, problem in problems.items()
    )
    return not any(problems.values()), "\n".join(lines)


def probe_routes(checks: Mapping[str, Check]) -> list[web.RouteDef]:
    """Return the routes of the liveness and readiness probes."""

    async def live(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(request: web.Request) -> web.Response:
        is_ready, lines = run_checks(checks)
        if is_ready and "verbose" not in request.query:
            return web.Response(text="ok")
        return web.Response(text=f"{lines}\n", status=200 if is_ready else 503)

    return [web.get("/healthz", live), web.get("/livez", live), web.get("/readyz", ready)]


class ProbeServer:
    """Serves probes and metrics over plain HTTP.

    Attributes:
        port: The port, once `started` is set.
        started: Set when it listens.
    """

    def __init__(
        self, host: str, port: int, checks: Mapping[str, Check], registry: CollectorRegistry
    ) -> None:
        self._host = host
        self._checks = checks
        self._registry = registry
        self.port = port
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application()
        app.add_routes([*probe_routes(self._checks), web.get(METRICS_PATH, self._metrics)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        connections = Connections(
            MAX_CONNECTIONS,
            max_unused_per_address=MAX_CONNECTIONS_PER_ADDRESS,
            header_timeout_s=CONNECTION_TIMEOUT_S,
        )
        await runner.setup()
        try:
            if runner.server is None:
                raise RuntimeError("the runner was not set up")
            await connections.listen(self._host, self.port)
            self.port = connections.port
            log.info("probes.listening", port=self.port)
            self.started.set()
            await connections.run(runner.server)
        finally:
            await connections.close()
            await runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
