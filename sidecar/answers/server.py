"""The unix socket for the scheduler plugin's calls: decode, answer, encode.

Only those who may open the socket's file are served: the plugin, in the same pod.
"""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
from aiohttp import hdrs, web
from msgspec import structs

from kube.api import meta
from kube.logs import get_logger
from process.serving.bounded_server import bounded_server
from sidecar.answers.intake import UnknownScheduler
from sidecar.answers.service import Service
from sidecar.model.protocol import (
    PREFIX,
    Answer,
    FilterAnswer,
    FilterRequest,
    GroupAnswer,
    GroupRequest,
    HelloAnswer,
    HelloRequest,
    Message,
    PostFilterRequest,
    PreBindRequest,
    PreFilterAnswer,
    PreFilterRequest,
    Request,
    UnreserveRequest,
    VerdictAnswer,
    WakeAnswer,
    WakeRequest,
)
from sidecar.reports.metrics import SidecarMetrics

BACKLOG: Final = 4096
"""Connections that wait to be accepted: the scheduler binds hundreds of pods at once."""
MAX_REQUEST_BYTES: Final = 32 << 20
"""The pods of a group have 4 MiB as protobuf writes them (MaxPodsBytes of the plugin), and names of pods and claims come on top."""
KEEP_ALIVE_S: Final = 90.0

_NUMBER: Final = re.compile("[0-9]{1,18}")

R = TypeVar("R", bound=Request)
_Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]

log = get_logger()


class Session(Protocol):
    """A process while it leads, or waits to lead."""

    @property
    def service(self) -> Service | None:
        """The service; None while this process does not lead."""
        ...

    def problem(self) -> str:
        """Return the reason no call can be answered; empty if it can."""
        ...


class SchedulerServer:
    """Serves the scheduler plugin over a unix socket."""

    def __init__(self, path: Path, session: Session, metrics: SidecarMetrics) -> None:
        """Begin without a socket.

        Args:
            path: The socket's path; a file that exists there is replaced.
        """
        self._path = path
        self._session = session
        self._metrics = metrics
        self._handlers: Mapping[tuple[str, str], _Handler] = {
            (hdrs.METH_POST, f"{PREFIX}/hello"): self._hello,
            (hdrs.METH_GET, f"{PREFIX}/debug/reservations"): self._reservations,
            (hdrs.METH_GET, f"{PREFIX}/debug/decisions"): self._decisions,
            **{
                (hdrs.METH_POST, f"{PREFIX}/{point}"): self._handler(point, endpoint)
                for point, endpoint in _ENDPOINTS.items()
            },
        }

    async def run(self) -> None:
        """Serve until cancelled."""
        server = bounded_server(
            self._route,
            max_body_bytes=MAX_REQUEST_BYTES,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
        )
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        try:
            self._path.unlink(missing_ok=True)
            site = web.UnixSite(runner, str(self._path), backlog=BACKLOG)
            before = os.umask(0o177)  # So that at no moment anybody else may connect.
            try:
                await site.start()
            finally:
                os.umask(before)
            log.info("scheduler.listening", socket=str(self._path))
            await _forever()
        finally:
            await runner.cleanup()
            self._path.unlink(missing_ok=True)

    async def _route(self, request: web.BaseRequest) -> web.Response:
        handler = self._handlers.get((request.method, request.path))
        return web.Response(status=404) if handler is None else await handler(request)

    async def _hello(self, request: web.BaseRequest) -> web.Response:
        service = self._session.service
        if service is None:
            return _response(HelloAnswer(message=self._session.problem()))
        greeting = await _read(request, HelloRequest)
        answer = await service.hello(greeting)
        # Such as feature gates that differ: the scheduler goes on with other pods.
        blocked = self._session.problem() if answer.ready else ""
        return _response(structs.replace(answer, blocked=blocked))

    async def _reservations(self, _: web.BaseRequest) -> web.Response:
        """Answer with the reserved and held devices, for people; it changes nothing."""
        service = self._session.service
        if service is None:
            return _response(Answer(message=self._session.problem()), status=503)
        return _response(service.show())

    async def _decisions(self, request: web.BaseRequest) -> web.Response:
        """Answer with the logged decisions after `number` of `instance`; it changes no decision."""
        service = self._session.service
        if service is None or self._session.problem():
            return _response(Answer(message=self._session.problem()), status=503)
        number = request.query.get("number", "0")
        if not _NUMBER.fullmatch(number):
            return _response(Answer(message="number: write a whole number"), status=400)
        view = await service.decisions.read(request.query.get("instance", ""), int(number))
        # Their amounts are quantities.
        return web.Response(body=meta.encode(view), content_type="application/json")

    def _handler(self, point: str, endpoint: "_Endpoint") -> _Handler:
        async def handle(request: web.BaseRequest) -> web.Response:
            began, verdict = time.perf_counter(), "error"
            try:
                service, problem = self._session.service, self._session.problem()
                if service is None or problem:
                    verdict = "unavailable"
                    return _response(Answer(message=problem), status=503)
                call_request = await _read(request, endpoint.kind)
                try:
                    answer = await endpoint.answer(service, call_request)
                except UnknownScheduler:
                    verdict = "unknown_scheduler"
                    refusal = Answer(instance=service.instance, message="say hello first")
                    return _response(refusal, status=409)
                verdict = _verdict_of(answer)
                return _response(answer)
            finally:
                self._metrics.observe_call(point, verdict, time.perf_counter() - began)

        return handle


class _Endpoint(NamedTuple):
    kind: type[Request]
    answer: Callable[[Service, Request], Awaitable[Answer]]


def _endpoint(kind: type[R], answer: Callable[[Service, R], Awaitable[Answer]]) -> _Endpoint:
    async def call(service: Service, request: Request) -> Answer:
        if not isinstance(request, kind):
            raise TypeError(f"{request} is not a {kind.__name__}")
        return await answer(service, request)

    return _Endpoint(kind, call)


_ENDPOINTS: Final = {
    "prefilter": _endpoint(PreFilterRequest, Service.prefilter),
    "group": _endpoint(GroupRequest, Service.group),
    "filter": _endpoint(FilterRequest, Service.filter),
    "prebind": _endpoint(PreBindRequest, Service.prebind),
    "unreserve": _endpoint(UnreserveRequest, Service.unreserve),
    "postfilter": _endpoint(PostFilterRequest, Service.postfilter),
    "wake": _endpoint(WakeRequest, Service.wake),
}


async def _read(request: web.BaseRequest, kind: type[R]) -> R:
    """Receive and decode a request.

    Raises:
        HTTPBadRequest: It cannot be decoded, and the message says where; or it did not come to its end.
    """
    try:
        return meta.decode_pruned(await request.read(), kind)
    except (ConnectionError, web.RequestPayloadError) as error:
        raise web.HTTPBadRequest(text="the body is incomplete") from error
    except msgspec.DecodeError as error:
        text = msgspec.json.encode(Answer(message=str(error))).decode()
        raise web.HTTPBadRequest(text=text, content_type="application/json") from error


def _response(answer: Message, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(answer), status=status, content_type="application/json"
    )


def _verdict_of(answer: Answer) -> str:
    if isinstance(answer, PreFilterAnswer | GroupAnswer | VerdictAnswer):
        return answer.verdict.value
    if isinstance(answer, WakeAnswer):
        return "woken" if answer.pods else "none"
    return "fits" if isinstance(answer, FilterAnswer) and answer.fits else "does_not_fit"


async def _forever() -> None:
    """Wait to be cancelled."""
    await asyncio.Event().wait()
