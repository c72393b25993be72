"""The laws of answers find their faults: each fault that a law is there for, once."""

import json
import logging
from base64 import b64encode
from typing import Any, NamedTuple

import pytest
from aiohttp.http_exceptions import BadHttpMessage

from admission.review import MAX_PARTS
from admission.webhook_configuration import VALIDATE_OBJECTS_PATH
from testing.builders import gpus, pod
from testing.documents import Document
from testing.fuzz.answer_laws import LIMITS, complaints, cost_complaints
from testing.fuzz.calls import Call, post_call
from testing.fuzz.endpoint import Answer, Log
from testing.fuzz.measures import Cost
from testing.fuzz.reviews import review

UID = review(None)["request"]["uid"]
CALL = post_call(json.dumps(review(pod(gpus(1)))).encode(), "a pod")
STEP = {"op": "add", "path": "/spec/schedulerName", "value": "a"}
CAUSE = {"field": "spec", "message": "wrong", "reason": "FieldValueInvalid"}
REFUSED: Document = {
    "allowed": False,
    "status": {"code": 422, "reason": "Invalid", "details": {"causes": [CAUSE]}},
}


def answer(code: int = 200, body: bytes | None = None, **fields: Any) -> Answer:
    response = {"uid": UID, "allowed": True} | fields
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    content = json.dumps(review).encode() if body is None else body
    return Answer(status=code, closes=False, body=content, cost=Cost())


def patching(*steps: object, kind: str = "JSONPatch") -> Document:
    return {"patch": b64encode(json.dumps(steps).encode()).decode(), "patchType": kind}


def refused(**status: Any) -> Document:
    return REFUSED | {"status": REFUSED["status"] | status}


def line(event: str, **fields: Any) -> Document:
    return {"event": event, "log_level": "info", **fields}


def record(fault: Exception) -> logging.LogRecord:
    return logging.LogRecord("a", logging.ERROR, "", 0, "m", (), (type(fault), fault, None))


class Right(NamedTuple):
    name: str
    answer: Answer | None
    call: Call = CALL
    log: Log = Log([], [])


class Wrong(NamedTuple):
    name: str
    complaint: str
    answer: Answer | None
    call: Call = CALL
    log: Log = Log([], [])


ODD = Call(kind="odd", head=b"POST /mutate HTTP/1.1\r\n\r\n", body=b"", is_http=False)
DEEP = CALL.body.replace(b'"spec"', b'"deep": ' + b"[" * 1500 + b"]" * 1500 + b', "spec"', 1)
RIGHT = (
    Right("allowed", answer()),
    Right("patched", answer(**patching(STEP))),
    Right(
        "patched, and deeper than copies of it may be by default",
        answer(**patching(STEP)),
        post_call(DEEP, "a deep pod"),
    ),
    Right("refused with a cause", answer(**REFUSED)),
    Right("a long warning", answer(warnings=["a" * 500])),
    Right(
        "what is nested too deeply is not read",
        answer(warnings=["not validated"]),
        post_call(b'{"a": ' + b"[" * 2000 + b"," + b"]" * 2000 + b"}", "deep"),
    ),
    Right(
        "of too many parts only the head is read",
        answer(warnings=["not validated"]),
        post_call(b'{"a": ' + b"[]" * (MAX_PARTS + 1) + b"}", "many parts"),
    ),
    Right("no review", answer(400, b"no")),
    Right("too large", answer(413, b"no")),
    Right("HTTP is wrong", answer(415, b"no"), ODD),
    Right("the caller went away", None, ODD),
    Right(
        "HTTP is wrong, and logged", answer(400, b"no"), ODD, Log([], [record(BadHttpMessage("a"))])
    ),
)
WRONG = (
    Wrong("none at all", "no answer", None),
    Wrong("a bug", "status 500", answer(500, b"internal error")),
    Wrong("a type that was right", "status 415", answer(415, b"no")),
    Wrong("a refusal as long as the body", "a refusal of", answer(400, b"x" * 5000)),
    Wrong("no JSON", "no valid answer", answer(body=b"{")),
    Wrong("no response", "no valid answer", answer(body=b"{}")),
    Wrong("of another kind", "no valid answer", answer(body=b'{"apiVersion":"v1","kind":"Pod"}')),
    Wrong("another uid", "another uid", answer(uid="b")),
    Wrong("a patch without its type", "no valid answer", answer(patch="W10=")),
    Wrong("a patch of another type", "no valid answer", answer(**patching(STEP, kind="JSON"))),
    Wrong("a patch without steps", "no valid answer", answer(**patching())),
    Wrong("a patch that is no base64", "no valid answer", answer(patch="*", patchType="JSONPatch")),
    Wrong(
        "a patch that does not apply",
        "no valid answer",
        answer(**patching({"op": "remove", "path": "/spec/containers/0/resources/claims"})),
    ),
    Wrong(
        "a patch of what is not ours",
        "a patch of '/metadata/labels'",
        answer(**patching({"op": "add", "path": "/metadata/labels", "value": {}})),
    ),
    Wrong("refused with a patch", "refused with a patch", answer(**REFUSED, **patching(STEP))),
    Wrong("refused without a cause", "without a cause", answer(**refused(details={}))),
    Wrong("refused as a fault of ours", "refused with 500", answer(**refused(code=500))),
    Wrong(
        "a cause that hides",
        "nobody can read",
        answer(**refused(details={"causes": [CAUSE | {"message": "a\x1b[2J"}]})),
    ),
    Wrong(
        "a message that hides",
        "nobody can read",
        answer(**refused(message="Pod\x1b[2J is wrong")),
    ),
    Wrong("a message as long as a body", "nobody can read", answer(**refused(message="a" * 2**17))),
    Wrong(
        "a patch of what is only validated",
        "only validated",
        answer(**patching(STEP)),
        post_call(CALL.body, "an object", VALIDATE_OBJECTS_PATH),
    ),
    Wrong("a warning of two lines", "nobody sees", answer(warnings=["a\nb"])),
    Wrong("long warnings", "nobody sees", answer(warnings=["a" * 251] * 9)),
    Wrong("many warnings", "beyond what the API server", answer(warnings=["a" * 250] * 17)),
    Wrong("a status beside allowed", "a status", answer(**REFUSED | {"allowed": True})),
    Wrong("what is no JSON", "answered what is no JSON", answer(), post_call(b"{", "no JSON")),
    Wrong("a traceback", "logged a bug", answer(), CALL, Log([line("a", exception="b")], [])),
    Wrong("a long line", "logged 5", answer(), CALL, Log([line("a", pod="b" * 5000)], [])),
    Wrong("a library's bug", "a logged KeyError", answer(), CALL, Log([], [record(KeyError(1))])),
)


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_nothing_is_wrong(case: Right) -> None:
    assert list(complaints(case.call, case.answer, case.log)) == []


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_what_is_wrong_is_reported(case: Wrong) -> None:
    assert case.complaint in "\n".join(complaints(case.call, case.answer, case.log))


@pytest.mark.parametrize(
    ("cost", "wrong"),
    [
        (Cost(cpu_s=0.2, wall_s=0.4, hold_s=0.02, stall_s=0.09), []),
        (Cost(cpu_s=0.3), ["took 300 ms of CPU"]),
        (Cost(wall_s=0.6), ["took 600 ms by the clock"]),
        (Cost(hold_s=0.03), ["held the event loop for 30 ms of CPU"]),
        (Cost(stall_s=0.2), ["stalled the event loop for 200 ms by the clock"]),
    ],
    ids=repr,
)
def test_what_costs_too_much_is_reported(cost: Cost, wrong: list[str]) -> None:
    assert list(cost_complaints(CALL, cost)) == wrong
    assert cost.exceeds(LIMITS) == bool(wrong)


def test_a_slow_machine_may_take_longer_in_proportion() -> None:
    cost = Cost(cpu_s=0.3, wall_s=0.6)

    assert list(cost_complaints(CALL, cost, slow_by=2.0)) == []
    assert list(cost_complaints(CALL, cost, slow_by=1.25)) == []
    assert list(cost_complaints(CALL, cost, slow_by=1.15)) != []
