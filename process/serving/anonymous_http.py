"""The HTTP protocol of every port; it discloses nothing to unknown clients.

aiohttp answers by itself what never reaches a handler: malformed HTTP, a path or method without a route,
an unknown `Expect`. Its answers name aiohttp and its version, and quote the request. Here all of them are
empty, and no answer names a server.

Nor does a client decide how much is parsed for it: no body is decompressed, what is not body is bounded, and
nothing is parsed behind the last answer of a connection.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from kube.logs import get_logger

ANONYMOUS: Final = {hdrs.SERVER: ""}
"""An empty Server header, without which aiohttp would name itself and its version."""
PIECE: Final = 16 * 1024
"""The bytes that are parsed at once."""
MAX_FRAMING_BYTES: Final = 16 * 1024
"""The bytes of requests without an answer that are no body: headers, sizes of chunks, trailers. aiohttp takes a
megabyte of them, and five in memory, since one emoji makes a text of four bytes for each character."""
BODY_PER_FRAMING: Final = 16
"""The bytes of a body for which one more byte that is none may come: chunks may have 100 bytes."""
LINGERING_S: Final = 1.0
"""The time for which the rest of a rejected body is received and dropped."""

log = get_logger()


class AnonymousProtocol(web.RequestHandler):
    """aiohttp's protocol of one connection, with empty answers in place of its own."""

    __slots__ = (
        "_bodies",
        "_count_malformed",
        "_drops_rest",
        "_parsed_requests",
        "_received_bytes",
    )

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
        self._drops_rest = False
        # The bytes since there was no request without an answer, and the bodies among them.
        self._received_bytes = 0
        self._bodies: list[StreamReader] = []
        self._parsed_requests = 0

    async def start(self) -> None:
        """Answer requests; the connection ends at an address with a host that is no name."""
        try:
            await super().start()
        except ValueError:
            self._count_malformed()
            self.force_close()

    def data_received(self, data: bytes) -> None:
        """Parse data; text that is not HTTP is dropped at once, with all after it.

        aiohttp quotes all of it for each piece that arrives before its answer: 39 MB for one connection.
        """
        for begin in range(0, max(len(data), 1), PIECE):
            if self._drops_rest:
                return
            piece = data[begin : begin + PIECE]
            super().data_received(piece)
            new_count = self._request_count - self._parsed_requests
            if new_count:
                self._forget_malformed()
            if new_count or piece:  # aiohttp itself calls without data after each body.
                self._bound_framing(len(piece), new_count)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response; an exception of aiohttp becomes an empty 404, even if it has a text."""
        if isinstance(resp, web.HTTPException):
            resp = bare_response(HTTPStatus.NOT_FOUND)
        resp.headers.setdefault(hdrs.SERVER, "")
        finished = await super().finish_response(request, resp, start_time)
        self._forget_malformed()  # What came after an upgrade is parsed only now.
        if not resp.keep_alive:
            self._drops_rest = True
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
        self._drops_rest = True
        fault.exc.with_traceback(
            None
        )  # A cycle, which would keep the text until garbage is collected.
        wordless = BaseException.__new__(type(fault.exc))
        self._messages[-1] = (_ErrInfo(status=fault.status, exc=wordless, message=""), body)

    def _bound_framing(self, size: int, new_count: int) -> None:
        """Count received bytes; too many beside bodies are not HTTP.

        Requests that wait behind one without an answer share the bound.

        Args:
            size: The bytes that were parsed.
            new_count: The number of requests that began in them.
        """
        self._parsed_requests = self._request_count
        if new_count >= len(self._messages) > 0:  # None was waiting.
            self._received_bytes = 0
            self._bodies = [body for _, body in self._messages]
            return
        self._received_bytes += size
        if new_count:
            self._bodies += [body for _, body in list(self._messages)[-new_count:]]
        body_bytes = sum(body.total_bytes for body in self._bodies)
        max_bytes = MAX_FRAMING_BYTES + body_bytes // BODY_PER_FRAMING
        is_paused = self._reading_paused or self._buffer_paused  # Nothing is parsed of what comes.
        if self._received_bytes - body_bytes <= max_bytes or is_paused or self._drops_rest:
            return
        self._drops_rest = True
        fault = _ErrInfo(status=HTTPStatus.BAD_REQUEST, exc=BadHttpMessage(""), message="")
        self._messages.append((fault, EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


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
    return lambda: AnonymousProtocol(
        server,
        count_malformed,
        access_log=None,
        auto_decompress=False,
        lingering_time=LINGERING_S,
        **options,
    )


def bare_response(status: int) -> web.Response:
    """Return a response without a body; it closes the connection without reading its rest."""
    response = web.Response(status=status, headers=ANONYMOUS)
    response.force_close()
    return response
