"""HTTP in, a pure call, HTTP out: POST /mutate.

What is wrong with a pod is an answer; what is wrong with the call is a 4xx; what is wrong with us is
a 500, so that the administrator's failurePolicy decides, never `allowed: false`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from kube.api.admission import AdmissionRequest
from kube.api.core import Pod
from webhook.admission import (
    UNTOUCHED,
    Answer,
    Decision,
    Translation,
    admit_created,
    admit_updated,
)
from webhook.jsonpatch import apply
from webhook.metrics import WebhookMetrics
from webhook.remembered import Remembered
from webhook.review import ReviewError, decode_review, encode_answer, pod_of
from webhook.translation import translate
from webhook.world import Options, World, vocabularies

DEBUG: Final = 10
"""The level, as structlog and the standard library count."""
UID: Final = web.RequestKey("uid", str)
"""Of the review in a request, for the log of what goes wrong with it."""
MAX_LOGGED: Final = 256
"""Characters of a text that somebody else wrote; what is no name yet may be as long as a body."""

log = structlog.get_logger()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A review with what it is about.

    Attributes:
        document: The pod as it was parsed.
        pod: The typed view of it; None where the review is about nothing that we answer for.
        old: What it was before; None when it is made.
    """

    asked: AdmissionRequest
    document: Mapping[str, Any] = {}
    pod: Pod | None = None
    old: Pod | None = None

    @property
    def name(self) -> str:
        """What to call the pod in a log."""
        name = self.asked.name
        if not name and self.pod is not None:
            name = f"{self.pod.metadata.generate_name}*"
        return f"{self.asked.namespace}/{name}"


def question(body: bytes) -> Question:
    """Return the question in a body.

    Raises:
        ReviewError: The body is not a review of pods.
    """
    asked = decode_review(body)
    match asked.operation, asked.sub_resource:
        case "CREATE", "":
            document, pod = pod_of(asked.object)
            return Question(asked=asked, document=document, pod=pod)
        case "UPDATE", ("" | "status"):
            document, pod = pod_of(asked.object)
            _, old = pod_of(asked.old_object)
            return Question(asked=asked, document=document, pod=pod, old=old)
        case _:
            return Question(asked=asked)


def answered(
    found: Question, world: World, options: Options, translation: Translation = translate
) -> Answer:
    """Return the answer, whose patch was tried on the document; that is changed."""
    if found.pod is None:
        return UNTOUCHED
    if found.old is not None:
        speaking = vocabularies(options, world.profiles)
        answer = admit_updated(
            found.document, found.pod, found.old, options=options, speaking=speaking
        )
    else:
        answer = admit_created(
            found.document,
            found.pod,
            namespace=found.asked.namespace,
            world=world,
            options=options,
            translation=translation,
        )
    # A patch that does not apply would fail the request even under failurePolicy Ignore.
    apply(found.document, answer.operations)
    return answer


class Mutation:
    """The endpoint; what it knows of the cluster comes from `world`."""

    def __init__(
        self,
        world: Callable[[], World],
        options: Options,
        metrics: WebhookMetrics,
        *,
        read_timeout_s: float,
    ) -> None:
        self._world = world
        self._options = options
        self._metrics = metrics
        self._read_timeout_s = read_timeout_s
        self._translation = Remembered()

    async def mutate(self, request: web.Request) -> web.Response:
        """Answer one AdmissionReview of a pod.

        Raises:
            web.HTTPException: The body is too large, too slow, or not a review of pods.
        """
        body = await self._body(request)
        try:
            found = question(body)
        except ReviewError as fault:
            raise web.HTTPBadRequest(text=str(fault)) from fault
        request[UID] = found.asked.uid[:MAX_LOGGED]

        answer = answered(found, self._world(), self._options, self._translation)

        self._metrics.count(found.asked.operation, answer)
        _tell(found, answer)
        body = encode_answer(found.asked, answer)
        return web.Response(body=body, content_type="application/json")

    async def _body(self, request: web.Request) -> bytes:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="want application/json")
        if request.content.is_eof():  # All of it is here already, as nearly always.
            return await request.read()
        try:
            async with asyncio.timeout(self._read_timeout_s):
                return await request.read()
        except TimeoutError as fault:
            raise web.HTTPRequestTimeout(text="the body did not come in time") from fault


def _tell(found: Question, answer: Answer) -> None:
    if answer.decision is Decision.UNTOUCHED and not log.is_enabled_for(DEBUG):
        return
    say = log.debug if answer.decision is Decision.UNTOUCHED else log.info
    say(
        "pod.reviewed",
        uid=found.asked.uid[:MAX_LOGGED],
        pod=found.name[:MAX_LOGGED],
        operation=found.asked.operation,
        subresource=found.asked.sub_resource,
        user=found.asked.user_info.username[:MAX_LOGGED],
        dry_run=bool(found.asked.dry_run),
        decision=answer.decision.value,
        findings=list(dict.fromkeys(finding.code.value for finding in answer.findings)),
        operations=len(answer.operations),
        templates=[claim.template for claim in answer.claims],
    )
