"""The common steps of handlers of reviews: decoding, answering, logging.

A problem of the object is an answer, a problem of the call a 4xx, and a problem of ours a 500, so that
the administrator's failurePolicy decides; never `allowed: false`.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final, ParamSpec, Protocol, TypeVar

import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

from admission.pods import Answer, Decision
from admission.review import ReviewError, UnreadableObjectError, encode_answer
from admission.shadow import shadow_answer
from findings.documentation import codes_address
from kube.api.admission import AdmissionRequest
from kube.logs import get_logger
from kube.names import DISTRIBUTION, DOCUMENTATION
from process.fairness.turns import Turns
from webhook.budgets import ReviewBudgets
from webhook.metrics import WebhookMetrics

DEBUG: Final = 10
"""The level, as structlog and the standard library count."""
UID: Final = web.RequestKey("uid", str)
"""The review's uid, for the log of what fails outside a handler."""
CODES: Final = codes_address(DOCUMENTATION, version(DISTRIBUTION)) if DOCUMENTATION else ""
"""The address of the page that explains codes, for denials; empty where no site is published."""
MAX_LOGGED: Final = 256
"""Characters of a text that the caller wrote; before validation a name may be as long as a body."""

CLOSE: Final = "Connection: close\r\n"
JSON: Final = "application/json"

log = get_logger()


LARGE_BODY: Final = 8 * 1024
"""Bytes of a body above which a review is decoded and answered on a thread."""
MAX_SMALL_CPU_S: Final = 0.025
"""Seconds of CPU that a step of a smaller review takes at most, whatever is in it (`make fuzz`)."""
OVER_BUDGET: Final = "reviews of this user or namespace took too much time"
BUSY: Final = "the webhook is busy"
DEADLINE_S: Final = web.RequestKey("deadline_s", float)
"""The time by which a request has to have its answer, by the clock of the event loop."""
_NAMESPACE: Final = re.compile(rb'"namespace":"([a-z0-9-]{1,63})"')
_HEAD_BYTES: Final = 4096
_IS_LARGE: Final = web.RequestKey("is_large", bool)
_LAST_REFERENCE: Final = web.RequestKey("last_reference", list)
"""A list of the review alone, for `drop_large_review`."""


class Review(Protocol):
    """A decoded AdmissionReview."""

    @property
    def request(self) -> AdmissionRequest:
        """Its request."""
        ...

    @property
    def counted_kind(self) -> str:
        """The kind of its object, for metrics; empty if it needs no answer, since any text may stand there."""
        ...


R = TypeVar("R", bound=Review)
T = TypeVar("T")
P = ParamSpec("P")


class TooBusy(Exception):
    """A review that gets no answer of its own, since nobody has time for it.

    Attributes:
        review: The review.
        reason: The reason, for whoever made the request.
    """

    def __init__(self, review: Review, reason: str) -> None:
        super().__init__(reason)
        self.review = review
        self.reason = reason


class _Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A review of an object that cannot be read."""

    request: AdmissionRequest
    reason: str
    counted_kind: str = ""


class ReviewRunner:
    """Decodes and answers reviews: small ones at once, large ones on a thread, each within a budget.

    Large ones of one namespace take turns with those of others. A handler calls `decode` with the HTTP
    request, then `compute` with the review, as often as it needs.
    """

    def __init__(
        self,
        budgets: ReviewBudgets,
        metrics: WebhookMetrics,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start without a thread.

        Args:
            budgets: The budgets of users and namespaces.
            metrics: The webhook's metrics.
            clock: Monotonic seconds, for small reviews.
        """
        self._budgets = budgets
        self._metrics = metrics
        self._clock = clock
        self._turns = Turns()

    async def decode(self, http_request: web.BaseRequest, decode: Callable[[bytes], R]) -> R:
        """Decode the review in a request, and charge the time taken.

        Args:
            http_request: The request; its body was received by `body_reader`.
            decode: The decoder of the handler's kind of review; it raises ReviewError for another body, and
                UnreadableObjectError for an unreadable object.

        Raises:
            web.HTTPException: The body is not such a review, or there was not even time to decode it.
            UnreadableObjectError: The object under review cannot be read.
            TooBusy: The user or the namespace of the review has used up its budget.
        """
        body = await http_request.read()
        is_large = http_request[_IS_LARGE] = len(body) > LARGE_BODY
        if is_large:
            try:
                async with asyncio.timeout_at(http_request[DEADLINE_S]):
                    review, took_s = await self._compute_on_thread(
                        _peek_namespace(body), _request_of, _decode_readable, decode, body
                    )
            except TimeoutError:
                raise web.HTTPServiceUnavailable(text=BUSY) from None
            http_request[_LAST_REFERENCE] = [review]
        else:
            # What waits for nothing needs no timer, which takes as long as a part of its answer.
            review, took_s = self._compute_here(_decode_readable, decode, body)
        request = review.request
        http_request[UID] = request.uid[:MAX_LOGGED]
        is_allowed = self._budgets.allows(request)
        self._budgets.charge(request, took_s)
        if not is_allowed:
            self._metrics.over_budget.inc()
            raise TooBusy(review, OVER_BUDGET)
        if isinstance(review, _Unreadable):
            raise UnreadableObjectError(review.reason, request)
        return review

    async def compute(
        self,
        http_request: web.BaseRequest,
        review: Review,
        function: Callable[P, T],
        *arguments: P.args,
        **keywords: P.kwargs,
    ) -> T:
        """Call a function for the answer to a review, and charge the time taken.

        Args:
            function: The function; it raises ReviewError where the object under review is not what it
                should be.

        Raises:
            web.HTTPException: The object is not what it should be.
            TooBusy: There is no time left for the function.
        """
        request = review.request
        if http_request[_IS_LARGE]:
            async with self.deadline(http_request, review):
                result, took_s = await self._compute_on_thread(
                    request.namespace, lambda _result: request, function, *arguments, **keywords
                )
        else:
            result, took_s = self._compute_here(function, *arguments, **keywords)
        self._budgets.charge(request, took_s)
        return result

    @asynccontextmanager
    async def deadline(self, http_request: web.BaseRequest, review: Review) -> AsyncIterator[None]:
        """Let a block wait for others until the request has to have its answer.

        Raises:
            TooBusy: The block waited so long.
        """
        try:
            async with asyncio.timeout_at(http_request[DEADLINE_S]):
                yield
        except TimeoutError:
            self._metrics.validation_timeouts.inc()
            raise TooBusy(review, BUSY) from None

    def respond_busy(self, busy: TooBusy, answer: Answer) -> web.Response:
        """Count and return an answer that nobody looked at the object for."""
        request, kind = busy.review.request, busy.review.counted_kind
        if kind:
            self._metrics.count_review(kind, request.operation, answer)
        return respond(request, answer)

    @staticmethod
    def is_large(http_request: web.BaseRequest) -> bool:
        """Return True if the review of a request is answered on a thread."""
        return http_request[_IS_LARGE]

    def has_budget(self, request: AdmissionRequest) -> bool:
        """Return True if a review's user and namespace have time left."""
        return self._budgets.allows(request)

    def charge(self, request: AdmissionRequest, took_s: float) -> None:
        """Charge a review's user and namespace for work done elsewhere."""
        self._budgets.charge(request, took_s)

    def _compute_here(
        self, function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs
    ) -> tuple[T, float]:
        """Return a result, and the seconds of the event loop that it took."""
        # A system call for the CPU time would be a tenth of a small review. What takes longer than one can
        # is a pause of the process or of the machine, for which no user pays.
        began_s = self._clock()
        try:
            result = function(*arguments, **keywords)
        except ReviewError as fault:
            raise web.HTTPBadRequest(text=str(fault)) from None
        return result, min(self._clock() - began_s, MAX_SMALL_CPU_S)

    async def _compute_on_thread(
        self,
        tenant: str,
        request_of: Callable[[T], AdmissionRequest],
        function: Callable[P, T],
        *arguments: P.args,
        **keywords: P.kwargs,
    ) -> tuple[T, float]:
        """Return a result, and the CPU seconds of a thread that it took.

        Args:
            tenant: The namespace that takes its turn.
            request_of: Returns the request that is charged if nobody waits for the result any more.
        """
        # Not as the thread's result, which the event loop would drop some time later.
        results: list[tuple[T | ReviewError, float]] = []

        def call() -> None:
            results.append(_time_on_thread(function, *arguments, **keywords))

        # One at a time: more threads would not be faster, and take the interpreter from the loop. The
        # turn is that of the thread, which goes on when nobody waits for it any more.
        end_turn = await self._turns.begin(tenant)
        thread = asyncio.get_running_loop().run_in_executor(None, call)
        thread.add_done_callback(lambda _thread: end_turn())
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            thread.add_done_callback(lambda _thread: self._charge_late(request_of, results))
            raise
        result, took_s = results.pop()
        if isinstance(result, ReviewError):
            raise web.HTTPBadRequest(text=str(result))
        return result, took_s

    def _charge_late(
        self,
        request_of: Callable[[T], AdmissionRequest],
        results: list[tuple[T | ReviewError, float]],
    ) -> None:
        """Charge for a result that nobody waited for, and drop it on a thread, as a large review."""
        # A function that failed has none. No variable has the result: it would be the last to drop it.
        if results and not isinstance(results[0][0], ReviewError):
            self._budgets.charge(request_of(results[0][0]), results[0][1])
        asyncio.get_running_loop().run_in_executor(None, results.clear)


def drop_large_review(http_request: web.BaseRequest) -> None:
    """Drop the review of a request on a thread, if it is large.

    Objects by the hundred thousand take longer to drop than a review may hold the event loop. Called when
    nobody else refers to the review any more: neither a handler nor the traceback of an exception.
    """
    last_reference = http_request.get(_LAST_REFERENCE)
    if last_reference is not None:
        loop = asyncio.get_running_loop()
        # Not before the task pauses: until then it holds the exception that it was resumed with, as at a
        # timeout, whose traceback has the review.
        loop.call_soon(loop.run_in_executor, None, last_reference.clear)


def _request_of(review: Review) -> AdmissionRequest:
    return review.request


def _peek_namespace(body: bytes) -> str:
    """Return the namespace of a review that is not decoded yet, as the API server writes it; else empty.

    No text in the review looks like it: quotes in texts are escaped.
    """
    head = body[:_HEAD_BYTES].partition(b'"object":')[0]
    matched = _NAMESPACE.search(head)
    return matched[1].decode() if matched else ""


def _decode_readable(decode: Callable[[bytes], R], body: bytes) -> R | _Unreadable:
    """Decode a review; one with an unreadable object is charged, too."""
    try:
        return decode(body)
    except UnreadableObjectError as fault:
        return _Unreadable(request=fault.request, reason=str(fault))


def _time_on_thread(
    function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs
) -> tuple[T | ReviewError, float]:
    """Return the result of a function or the fault of the review, and the CPU seconds of the thread."""
    began_s = time.thread_time()
    try:
        result: T | ReviewError = function(*arguments, **keywords)
    except ReviewError as fault:
        # Without the frames that raised it: they have the review, which would be dropped later.
        result = ReviewError(str(fault))
    return result, time.thread_time() - began_s


def finish_review(
    kind: str,
    event: str,
    request: AdmissionRequest,
    answer: Answer,
    metrics: WebhookMetrics,
    *,
    shadows: bool,
    **labels: object,
) -> web.Response:
    """Count, log and return an answer; in mode Shadow, one that changes and rejects nothing.

    Args:
        kind: The object's kind, for metrics.
        event: The object and operation under review, for the log.
        shadows: True if the answer is only reported.
    """
    given_answer = answer
    if shadows:
        given_answer = shadow_answer(answer, dry_run=bool(request.dry_run))
        metrics.count_shadow_review(kind, request.operation, answer)
        labels["shadow"] = True
    metrics.count_review(kind, request.operation, given_answer)
    log_review(event, request, answer, **labels)
    return respond(request, given_answer)


def respond_unreadable(fault: UnreadableObjectError, answer: Answer) -> web.Response:
    """Log the fault of an unreadable object, and return the answer about it."""
    log.warning("review.unreadable", uid=fault.request.uid[:MAX_LOGGED], reason=str(fault))
    return respond(fault.request, answer)


def respond(request: AdmissionRequest, answer: Answer) -> web.Response:
    """Return the HTTP response with an answer."""
    return ReviewResponse(body=encode_answer(request, answer, CODES), content_type=JSON)


class ReviewResponse(web.Response):
    """A response of JSON with status 200 that is sent in one piece, with the headers that it needs.

    What aiohttp does in place of it is a third of its work for a small review: it collects headers in
    a dictionary, asks for cookies, compression and chunks, and encodes all of them.
    """

    _closes = True
    _was_sent = False

    @property
    def keep_alive(self) -> bool | None:
        """Return True if the connection stays open."""
        return not self._closes

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send everything, since all of it is known."""
        transport, body = request.transport, self.body
        if transport is None or not isinstance(body, bytes) or request.version != HttpVersion11:
            self._closes = True
            return await super().prepare(request)
        self._closes = super().keep_alive is False or not request.keep_alive
        head = (
            "HTTP/1.1 200 OK\r\n"
            f"Content-Type: {JSON}\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"Date: {rfc822_formatted_time()}\r\n"
            f"{CLOSE if self._closes else ''}\r\n"
        )
        if self._closes:
            transport.write(head.encode() + body)
        else:
            # After the reviews that have arrived already: each write wakes a client, which takes
            # longer than a small review if every answer does so by itself.
            asyncio.get_running_loop().call_soon(transport.write, head.encode() + body)
        self._was_sent = True
        # A client that reads no answers gets no further ones: they would be kept here, without bound.
        await request.writer.drain()
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the part of the answer that `prepare` has not sent."""
        if not self._was_sent:
            await super().write_eof(data)


def log_review(event: str, request: AdmissionRequest, answer: Answer, **labels: object) -> None:
    """Log an answer; those that leave the object alone only for debugging."""
    is_untouched = answer.decision is Decision.UNTOUCHED
    if is_untouched and not log.is_enabled_for(DEBUG):
        return
    write = log.debug if is_untouched else log.info
    write(
        event,
        uid=request.uid[:MAX_LOGGED],
        operation=request.operation,
        user=request.user_info.username[:MAX_LOGGED],
        dry_run=bool(request.dry_run),
        decision=answer.decision.value,
        findings=list(dict.fromkeys(finding.code.value for finding in answer.findings)),
        templates=[claim.template for claim in answer.claims],
        **labels,
    )
