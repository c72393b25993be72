"""The HTTP protocol of every port; it discloses nothing to unknown clients.

aiohttp answers by itself what never reaches a handler: malformed HTTP, a path or method without a route,
an unknown `Expect`. Its answers name aiohttp and its version, and quote the request. Here all of them are
empty, and no answer names a server.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import _ErrInfo

from kube.logs import get_logger

ANONYMOUS: Final = {hdrs.SERVER: ""}
"""An empty Server header, without which aiohttp would name itself and its version."""

log = get_logger()


class AnonymousProtocol(web.RequestHandler):
    """aiohttp's protocol of one connection, with empty answers in place of its own."""

    __slots__ = ("_count_malformed", "_is_malformed")

    def __init__(
        self, server: web.Server, count_malformed: Callable[[], None], **options: Any
    ) -> None:
        """Begin a connection.

        Args:
            server: Has the handler of requests.
            count_malformed: Called where what arrives is not HTTP.
            options: The options of `web.RequestHandler`.
        """
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._count_malformed = count_malformed
        self._is_malformed = False

    def data_received(self, data: bytes) -> None:
        """Parse data; text that is not HTTP is dropped at once, with all after it.

        aiohttp quotes all of it for each piece that arrives before its answer: 39 MB for one connection.
        """
        if self._is_malformed:
            return
        super().data_received(data)
        self._forget_malformed()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response; an exception of aiohttp becomes an empty 404, even if it has a text."""
        if isinstance(resp, web.HTTPException):
            resp = bare_response(HTTPStatus.NOT_FOUND)
        resp.headers.setdefault(hdrs.SERVER, "")
        finished = await super().finish_response(request, resp, start_time)
        self._forget_malformed()  # What came after an upgrade is parsed only now.
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  It quotes the request.
    ) -> web.StreamResponse:
        """Return an empty response; the fault is counted or logged, and never quoted.

        Raises:
            ConnectionError: A part of another response was sent already.
        """
        if isinstance(exc, HttpProcessingError):
            self._count_malformed()
            # Its text quotes the request, and there may be any number of them.
            log.debug("http.malformed", error=type(exc).__name__)
        else:
            log.error("http.failed", status=status, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the response was sent")
        return bare_response(status)

    def _forget_malformed(self) -> None:
        """If the last message is not HTTP, replace it by one without text."""
        fault, body = self._messages[-1] if self._messages else (None, None)
        if not isinstance(fault, _ErrInfo) or body is None:
            return
        self._is_malformed = True
        fault.exc.with_traceback(
            None
        )  # A cycle, which would keep the text until garbage is collected.
        wordless = BaseException.__new__(type(fault.exc))
        self._messages[-1] = (_ErrInfo(status=fault.status, exc=wordless, message=""), body)


def anonymous_protocols(
    server: web.Server | None,
    count_malformed: Callable[[], None] = lambda: None,
    **options: Any,
) -> Callable[[], AnonymousProtocol]:
    """Return a factory of protocols, one for each connection.

    Args:
        server: The server of a runner that was set up.
        count_malformed: Called where what arrives is not HTTP.
        options: The options of `web.RequestHandler`.

    Raises:
        RuntimeError: The runner was not set up.
    """
    if server is None:
        raise RuntimeError("set up the runner first")
    return lambda: AnonymousProtocol(server, count_malformed, access_log=None, **options)


def bare_response(status: int) -> web.Response:
    """Return a response without a body; it closes the connection without reading its rest."""
    response = web.Response(status=status, headers=ANONYMOUS)
    response.force_close()
    return response
