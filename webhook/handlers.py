"""HTTP in, a pure call, HTTP out: /mutate for pods, /validate for what makes them, /judge for DRA.

What is wrong with an object is an answer; what is wrong with the call is a 4xx; what is wrong with
us is a 500, so that the administrator's failurePolicy decides, never `allowed: false`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

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
from webhook.claims import Claim
from webhook.jsonpatch import apply
from webhook.judgement import (
    Workload,
    both,
    derived,
    is_settled,
    judge_late,
    judge_object,
    judge_workload,
    knowing,
    translated,
    where_asked,
)
from webhook.metrics import WebhookMetrics
from webhook.profile import Profile
from webhook.remembered import Remembered
from webhook.review import (
    JUDGED_RESOURCES,
    WORKLOADS,
    ReviewError,
    decode_review,
    encode_answer,
    judged_of,
    pod_of,
    workload_of,
)
from webhook.rules.context import Context
from webhook.rules.judge import Judged
from webhook.translation import translate
from webhook.world import Options, World, vocabularies

DEBUG: Final = 10
"""The level, as structlog and the standard library count."""
UID: Final = web.RequestKey("uid", str)
"""Of the review in a request, for the log of what goes wrong with it."""
MAX_LOGGED: Final = 256
"""Characters of a text that somebody else wrote; what is no name yet may be as long as a body."""

log = structlog.get_logger()

_Asked = TypeVar("_Asked", "Question", "WorkloadQuestion", "ObjectQuestion")

# --- who asks the rules ---------------------------------------------------------------------------


class Rules(Protocol):
    """Who knows what rules may know."""

    async def answered(self, question: Callable[[Context], Answer]) -> Answer:
        """Return the answer of the rules; TimeoutError where that takes too long."""

    def without_inventory(self) -> Context:
        """Return what rules may know at once."""


# --- pods -----------------------------------------------------------------------------------------


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


class _Reviewer:
    """What two endpoints share: what they know, and how they take a question.

    What they know of the cluster comes from `world`.
    """

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


class Mutation(_Reviewer):
    """The endpoint that translates pods."""

    async def mutate(self, request: web.Request) -> web.Response:
        """Answer one AdmissionReview of a pod.

        Raises:
            web.HTTPException: The body is too large, too slow, or not a review of pods.
        """
        found = await asked_in(request, question, self._read_timeout_s)

        answer = answered(found, self._world(), self._options, self._translation)

        self._metrics.count(found.asked.operation, answer)
        _tell(
            "pod.reviewed",
            found.asked,
            answer,
            pod=found.name[:MAX_LOGGED],
            subresource=found.asked.sub_resource,
            operations=len(answer.operations),
        )
        return _response(found.asked, answer)


# --- workloads ------------------------------------------------------------------------------------


class WorkloadQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A review with the workload that it is about.

    Attributes:
        workload: None where the review is about nothing that we answer for.
        old: What it was before; None when it is made.
    """

    asked: AdmissionRequest
    workload: Workload | None = None
    old: Workload | None = None

    @property
    def is_settled(self) -> bool:
        """Whether its pods are what they were, or somebody else's to judge."""
        if self.workload is None or self.workload.is_controlled:
            return True
        return self.old is not None and self.old.template == self.workload.template

    @property
    def name(self) -> str:
        """What to call the workload in a log."""
        name = self.asked.name
        if not name and self.workload is not None:
            name = f"{self.workload.metadata.generate_name}*"
        return f"{self.asked.kind.kind}/{self.asked.namespace}/{name}"


def workload_question(body: bytes) -> WorkloadQuestion:
    """Return the question in a body.

    Raises:
        ReviewError: The body is not a review of workloads.
    """
    asked = decode_review(body, WORKLOADS)
    match asked.operation, asked.sub_resource:
        case "CREATE", "":
            return WorkloadQuestion(asked=asked, workload=workload_of(asked, asked.object))
        case "UPDATE", "":
            return WorkloadQuestion(
                asked=asked,
                workload=workload_of(asked, asked.object),
                old=workload_of(asked, asked.old_object),
            )
        case _:
            return WorkloadQuestion(asked=asked)


class Validation(_Reviewer):
    """The endpoint that judges workloads."""

    def __init__(
        self,
        world: Callable[[], World],
        rules: Rules,
        options: Options,
        metrics: WebhookMetrics,
        *,
        read_timeout_s: float,
    ) -> None:
        super().__init__(world, options, metrics, read_timeout_s=read_timeout_s)
        self._rules = rules

    async def validate(self, request: web.Request) -> web.Response:
        """Answer one AdmissionReview of a workload; nothing is ever changed.

        Raises:
            web.HTTPException: The body is too large, too slow, or not a review of workloads.
        """
        found = await asked_in(request, workload_question, self._read_timeout_s)

        if found.workload is None:
            return _response(found.asked, UNTOUCHED)
        answer = judge_workload(
            found.workload,
            found.old,
            namespace=found.asked.namespace,
            world=self._world(),
            options=self._options,
            translation=self._translation,
        )

        if answer.allowed and not found.is_settled:
            answer = both(answer, await self._fits(found, found.workload, answer.claims))

        self._metrics.count_judgement(found.asked.kind.kind, found.asked.operation, answer)
        _tell("workload.reviewed", found.asked, answer, workload=found.name[:MAX_LOGGED])
        return _response(found.asked, answer)

    async def _fits(
        self, found: WorkloadQuestion, workload: Workload, claims: Sequence[Claim]
    ) -> Answer:
        """Return what rules say of the pods that a workload will make."""
        judged = translated(workload, found.asked.namespace, claims)
        answer = await _answered(self._rules, judged, claims, self._metrics)
        return where_asked(answer, workload, claims) if claims else answer


# --- objects of DRA -------------------------------------------------------------------------------


class ObjectQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A review with the object of DRA that it is about.

    Attributes:
        judged: None where the review is about nothing that we answer for.
        old: What it was before; None when it is made.
    """

    asked: AdmissionRequest
    judged: Judged | None = None
    old: Judged | None = None

    @property
    def name(self) -> str:
        """What to call the object in a log."""
        return f"{self.asked.kind.kind}/{self.asked.namespace}/{self.asked.name}"


def object_question(body: bytes) -> ObjectQuestion:
    """Return the question in a body.

    Raises:
        ReviewError: The body is not a review of an object of DRA that is judged.
    """
    asked = decode_review(body, JUDGED_RESOURCES)
    match asked.operation, asked.sub_resource:
        case "CREATE", "":
            return ObjectQuestion(asked=asked, judged=judged_of(asked, asked.object))
        case "UPDATE", "":
            return ObjectQuestion(
                asked=asked,
                judged=judged_of(asked, asked.object),
                old=judged_of(asked, asked.old_object),
            )
        case _:
            return ObjectQuestion(asked=asked)


class Judgement:
    """The endpoint that judges objects of DRA, and what uses them."""

    def __init__(
        self,
        rules: Rules,
        profiles: Mapping[str, Profile],
        metrics: WebhookMetrics,
        *,
        read_timeout_s: float,
    ) -> None:
        """Remember whom to ask.

        Args:
            profiles: By which pods were translated, driver name to profile.
        """
        self._rules = rules
        self._profiles = profiles
        self._metrics = metrics
        self._read_timeout_s = read_timeout_s

    async def judge(self, request: web.Request) -> web.Response:
        """Answer one AdmissionReview; nothing is ever changed.

        Raises:
            web.HTTPException: The body is too large, too slow, or not a review of such an object.
        """
        found = await asked_in(request, object_question, self._read_timeout_s)

        if found.judged is None:
            return _response(found.asked, UNTOUCHED)
        answer = await self._answer(found.judged, found.old)

        self._metrics.count_judgement(found.asked.kind.kind, found.asked.operation, answer)
        _tell("object.reviewed", found.asked, answer, object=found.name[:MAX_LOGGED])
        return _response(found.asked, answer)

    async def _answer(self, judged: Judged, old: Judged | None) -> Answer:
        if is_settled(judged, old):
            return UNTOUCHED
        claims = derived(judged, self._profiles)
        return await _answered(self._rules, judged, claims, self._metrics)


async def _answered(
    rules: Rules, judged: Judged, claims: Sequence[Claim], metrics: WebhookMetrics
) -> Answer:
    """Return what rules say of an object.

    Args:
        claims: Whose templates may not be there yet.
    """

    def answer(context: Context) -> Answer:
        return judge_object(judged, knowing(context, judged.namespace, claims))

    try:
        return await rules.answered(answer)
    except TimeoutError:
        metrics.late.inc()
        return judge_late(judged, rules.without_inventory())


# --- all -----------------------------------------------------------------------------------------


async def asked_in(
    request: web.Request, read: Callable[[bytes], _Asked], timeout_s: float
) -> _Asked:
    """Return the question in a call.

    Raises:
        web.HTTPException: The body is too large, too slow, or not a review of this endpoint.
    """
    try:
        found = read(await body_of(request, timeout_s))
    except ReviewError as fault:
        raise web.HTTPBadRequest(text=str(fault)) from fault
    request[UID] = found.asked.uid[:MAX_LOGGED]
    return found


async def body_of(request: web.Request, timeout_s: float) -> bytes:
    """Return the body of a call.

    Raises:
        web.HTTPException: It is too large, too slow, or of another type.
    """
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="want application/json")
    if request.content.is_eof():  # All of it is here already, as nearly always.
        return await request.read()
    try:
        async with asyncio.timeout(timeout_s):
            return await request.read()
    except TimeoutError as fault:
        raise web.HTTPRequestTimeout(text="the body did not come in time") from fault


def _response(asked: AdmissionRequest, answer: Answer) -> web.Response:
    return web.Response(body=encode_answer(asked, answer), content_type="application/json")


def _tell(event: str, asked: AdmissionRequest, answer: Answer, **more: object) -> None:
    if answer.decision is Decision.UNTOUCHED and not log.is_enabled_for(DEBUG):
        return
    say = log.debug if answer.decision is Decision.UNTOUCHED else log.info
    say(
        event,
        uid=asked.uid[:MAX_LOGGED],
        operation=asked.operation,
        user=asked.user_info.username[:MAX_LOGGED],
        dry_run=bool(asked.dry_run),
        decision=answer.decision.value,
        findings=list(dict.fromkeys(finding.code.value for finding in answer.findings)),
        templates=[claim.template for claim in answer.claims],
        **more,
    )
