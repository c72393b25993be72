"""Laws that hold for every answer to any request.

The call and the answer are read by parsers that the webhook does not use.
"""

import json
import re
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import jsonpatch
import msgspec
from aiohttp.http_exceptions import HttpProcessingError

from admission.review import MAX_PARTS
from admission.webhook_configuration import (
    MUTATE_PATH,
    VALIDATE_OBJECTS_PATH,
    VALIDATE_WORKLOADS_PATH,
)
from kube.api.meta import prune
from testing.fuzz.calls import Call
from testing.fuzz.endpoint import Answer, Log
from testing.fuzz.measures import Cost
from testing.fuzz.mutations import DEPTH

LIMITS: Final = Cost(cpu_s=0.25, wall_s=0.5, hold_s=0.025, stall_s=0.1)
"""The limits for one review, on a usual machine with other things to do."""
LIMITS_OF_LARGE: Final = Cost(cpu_s=0.5, wall_s=1.0, hold_s=0.025, stall_s=0.2)
LARGE_BYTES: Final = 3 * 2**20
"""The size beyond which no review comes from an API server, but where two pods are in it."""
MAX_LINE: Final = 4096
"""Bytes of a line in the log."""
MAX_REFUSAL: Final = 1024
"""Bytes that say why a call was no review."""
MAX_DENIAL: Final = 64 * 1024
"""Characters that say why an object is refused."""
MAX_WARNINGS_RUNES: Final = 4096
"""Above it the API server cuts every warning."""
WHOLE_WARNINGS_RUNES: Final = MAX_WARNINGS_RUNES // 2
"""Above it a long warning is cut by the webhook, since other answers share what is passed on."""

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
ANSWERS: Final = frozenset({200, 400, 413})
ANSWERS_TO_ODD_HTTP: Final = ANSWERS | {404, 408, 415}

_MUTATING: Final = f"POST {MUTATE_PATH} ".encode()
_VALIDATING: Final = tuple(
    f"POST {path} ".encode() for path in (VALIDATE_WORKLOADS_PATH, VALIDATE_OBJECTS_PATH)
)
_CHANGEABLE: Final = re.compile(
    r"/metadata(/annotations(/drawbridge\.internal~1(request|signature))?)?"
    r"|/spec/(initContainers|containers)/\d+/(env|resources)(/.*)?"
    r"|/spec/(resourceClaims(/\d+|/-)?|schedulerName)",
    re.DOTALL,
)
"""The fields in which a patch may write."""
_HALF_CHARACTER: Final = re.compile("[\ud800-\udfff]")
"""Go, and so the API server, reads U+FFFD for it."""


def complaints(call: Call, answer: Answer | None, log: Log) -> Iterator[str]:
    """Yield the faults of an answer."""
    yield from _log_complaints(log)
    if answer is None:
        if call.is_http:
            yield "no answer"
        return
    if answer.status not in (ANSWERS if call.is_http else ANSWERS_TO_ODD_HTTP):
        yield f"status {answer.status}: {answer.body[:200]!r}"
    elif answer.status != 200:
        if call.is_http and len(answer.body) > MAX_REFUSAL:
            yield f"a refusal of {len(answer.body)} bytes"
    elif call.head.startswith((_MUTATING, *_VALIDATING)):
        yield from _review_complaints(call, answer.body)


def limits_of(call: Call) -> Cost:
    """Return the limits of an answer's cost."""
    return LIMITS if len(call.body) <= LARGE_BYTES else LIMITS_OF_LARGE


def cost_complaints(call: Call, cost: Cost, slow_by: float = 1.0) -> Iterator[str]:
    """Yield the excessive costs of an answer.

    Args:
        call: The call.
        cost: The cost of its answer.
        slow_by: This machine's CPU time for the same work, in times of a usual machine.
    """
    limits = limits_of(call).times(slow_by)
    for name, text in (
        ("cpu_s", "took {} ms of CPU"),
        ("wall_s", "took {} ms by the clock"),
        ("hold_s", "held the event loop for {} ms of CPU"),
        ("stall_s", "stalled the event loop for {} ms by the clock"),
    ):
        if getattr(cost, name) > getattr(limits, name):
            yield text.format(round(getattr(cost, name) * 1000))


def _log_complaints(log: Log) -> Iterator[str]:
    for line in log.lines:
        text = msgspec.json.encode(line, enc_hook=str)
        if "exception" in line:
            yield f"logged a bug: {text.decode()}"
        if len(text) > MAX_LINE:
            yield f"logged {len(text)} bytes: {text[:200]!r}"
    for record in log.records:
        fault = record.exc_info[1] if record.exc_info else None
        # What is wrong with HTTP itself becomes a line without a traceback, see process.running.logs.
        if fault is not None and not isinstance(fault, HttpProcessingError):
            yield f"{record.name} logged {fault!r}"


def sent_request(body: bytes) -> Any:
    """Return the request of a review as a lenient parser reads it.

    Raises:
        ValueError: Not even that.
    """
    with _deep():
        review = json.loads(
            body.decode(errors="replace"),
            strict=False,
            parse_float=lambda text: max(-1e308, min(float(text), 1e308)),
            parse_constant=lambda _text: None,
        )
    return review["request"]


def reviewed_again(request_: Mapping[str, Any], document: Any) -> bytes:
    """Return the same request about another object."""
    request = {**request_, "object": document}
    review = {"apiVersion": API_VERSION, "kind": KIND, "request": request}
    with _deep():
        return json.dumps(review, check_circular=False).encode()


@contextmanager
def _deep() -> Iterator[None]:
    depth, digits = sys.getrecursionlimit(), sys.get_int_max_str_digits()
    sys.setrecursionlimit(max(depth, DEPTH * 4))
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.setrecursionlimit(depth)
        sys.set_int_max_str_digits(digits)


def response_of(answer: bytes) -> Mapping[str, Any]:
    """Return the response in an answer.

    Raises:
        ValueError: There is none.
    """
    review = json.loads(answer)
    if (review["apiVersion"], review["kind"]) != (API_VERSION, KIND):
        raise ValueError("no AdmissionReview")
    response: Mapping[str, Any] = review["response"]
    return response


def patched(document: Any, response: Mapping[str, Any]) -> Any:
    """Return the object as the API server has it after the patch.

    Raises:
        ValueError: There is no patch that could be read.
        jsonpatch.JsonPatchException: The patch does not apply.
    """
    if ("patch" in response) != (response.get("patchType") == "JSONPatch"):
        raise ValueError("patch and patchType do not belong together")
    if "patch" not in response:
        return document
    steps = json.loads(b64decode(response["patch"], validate=True))
    if not steps or not isinstance(steps, list):
        raise ValueError("the patch has no steps")
    with _deep():
        return jsonpatch.apply_patch(document, steps)


def _is_read_in_part(body: bytes) -> bool:
    """Return True if a review has parts that nobody parses: too many, or nested too deeply."""
    return body.count(b"[") + body.count(b"{") > MAX_PARTS or prune(body) != body


def _review_complaints(call: Call, body: bytes) -> Iterator[str]:
    sent_body = body_of(call)
    try:
        request_ = sent_request(sent_body)
    except ValueError as fault:
        if not _is_read_in_part(sent_body):
            yield f"answered what is no JSON: {fault}"
        return
    try:
        response = response_of(body)
        patched(request_.get("object"), response)
    except (ValueError, KeyError, jsonpatch.JsonPatchException) as fault:
        yield f"no valid answer: {type(fault).__name__} {fault}"
        return
    if response["uid"] != _HALF_CHARACTER.sub("\ufffd", request_["uid"]):
        yield "another uid"
    if "patch" in response and not call.head.startswith(_MUTATING):
        yield "a patch of what is only validated"
    yield from _faults_of_texts(response)
    yield from _faults_of_patch(response)
    if not response["allowed"]:
        yield from _refusal(response)
    elif "status" in response:
        yield "a status beside allowed"


def body_of(call: Call) -> bytes:
    """Return the body without the marks of its chunks."""
    if b"Transfer-Encoding: chunked" not in call.head:
        return call.body
    head, rest = b"", call.body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        if not length:
            break
        head, rest = head + rest[:length], rest[length + 2 :]
    return head


def _faults_of_texts(response: Mapping[str, Any]) -> Iterator[str]:
    warnings = response.get("warnings", [])
    if sum(map(len, warnings)) > MAX_WARNINGS_RUNES:
        yield "warnings beyond what the API server passes on"
    are_many = sum(map(len, warnings)) > WHOLE_WARNINGS_RUNES
    for text in warnings:
        if not text.isprintable() or (are_many and len(text) > 250):
            yield f"a warning that nobody sees: {text[:300]!r}"
    for text in response.get("auditAnnotations", {}).values():
        if not text.isprintable() or len(text) > 100:
            yield f"an audit annotation {text[:100]!r}"


def _faults_of_patch(response: Mapping[str, Any]) -> Iterator[str]:
    if "patch" in response:
        for step in json.loads(b64decode(response["patch"])):
            if not _CHANGEABLE.fullmatch(step["path"]):
                yield f"a patch of {step['path']!r}"


def _refusal(response: Mapping[str, Any]) -> Iterator[str]:
    status = response.get("status", {})
    causes = status.get("details", {}).get("causes", [])
    if status.get("code") != 422 or status.get("reason") != "Invalid":
        yield f"refused with {status.get('code')} {status.get('reason')}"
    if not causes:
        yield "refused without a cause"
    if "patch" in response:
        yield "refused with a patch"
    for text in (cause[part] for cause in causes for part in ("field", "message")):
        if not text or not text.isprintable():
            yield f"a cause that nobody can read: {text[:300]!r}"
    message = status.get("message", "")
    if len(message) > MAX_DENIAL or not message.replace("\n", "").isprintable():
        yield f"a message of {len(message)} that nobody can read: {message[:300]!r}"
