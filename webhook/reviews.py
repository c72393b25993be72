"""What the handlers of reviews share: reading the body, answering, logging.

A problem of the object is an answer, a problem of the call a 4xx, and a problem of ours a 500, so that
the administrator's failurePolicy decides; never `allowed: false`.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import structlog
from aiohttp import web

from admission.pods import Answer, Decision
from admission.review import ReviewError, encode_answer
from kube.api.admission import AdmissionRequest

DEBUG: Final = 10
"""The level, as structlog and the standard library count."""
UID: Final = web.RequestKey("uid", str)
"""The review's uid, for the log of what fails outside a handler."""
MAX_LOGGED: Final = 256
"""Characters of a text that the caller wrote; before validation a name may be as long as a body."""

log = structlog.get_logger()


class Review(Protocol):
    """A decoded AdmissionReview."""

    @property
    def request(self) -> AdmissionRequest:
        """Its request."""
        ...


R = TypeVar("R", bound=Review)


async def read_review(
    http_request: web.Request, decode: Callable[[bytes], R], timeout_s: float
) -> R:
    """Read and decode a review.

    Args:
        decode: Raises ReviewError where a body is not a review for this handler.
        timeout_s: Until the body is complete.

    Raises:
        web.HTTPException: The body is too large, too slow, or not such a review.
    """
    try:
        review = decode(await read_body(http_request, timeout_s))
    except ReviewError as fault:
        raise web.HTTPBadRequest(text=str(fault)) from fault
    http_request[UID] = review.request.uid[:MAX_LOGGED]
    return review


async def read_body(http_request: web.Request, timeout_s: float) -> bytes:
    """Read the body of a call.

    Raises:
        web.HTTPException: It is too large, too slow, or of another content type.
    """
    if http_request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="want application/json")
    if http_request.content.is_eof():  # All of it has arrived already, as nearly always.
        return await http_request.read()
    try:
        async with asyncio.timeout(timeout_s):
            return await http_request.read()
    except TimeoutError as fault:
        raise web.HTTPRequestTimeout(text="the body did not come in time") from fault


def respond(request: AdmissionRequest, answer: Answer) -> web.Response:
    """Return the HTTP response with an answer."""
    return web.Response(body=encode_answer(request, answer), content_type="application/json")


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
