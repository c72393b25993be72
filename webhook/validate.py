"""`POST /validate/workloads` and `POST /validate/objects`: rules answer, and nothing is changed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from aiohttp import web

from admission.objects import (
    answer_timeout,
    answer_unevaluated,
    is_settled,
    merge_answers,
    recorded_claims,
    validate_object,
)
from admission.pods import UNTOUCHED, Answer
from admission.review import (
    VALIDATED_RESOURCES,
    WORKLOADS,
    decode_review,
    decode_target,
    decode_workload,
)
from admission.translation_cache import TranslationCache
from admission.workloads import Workload, validate_workload, workload_target
from kube.api.admission import AdmissionRequest
from rules.context import Context
from rules.engine import Target
from translation.claims import Claim
from translation.profiles.profile import Profile
from translation.snapshot import TranslationOptions, TranslationSnapshot
from webhook.metrics import WebhookMetrics
from webhook.reviews import MAX_LOGGED, log_review, read_review, respond


class Evaluator(Protocol):
    """Evaluates rules against the cluster."""

    async def evaluate(self, rules: Callable[[Context], Answer]) -> Answer:
        """Evaluate rules.

        Raises:
            TimeoutError: It takes too long.
        """
        ...

    async def evaluate_without_inventory(self, rules: Callable[[Context], Answer]) -> Answer:
        """Evaluate rules in a context that is available at once.

        Raises:
            TimeoutError: It takes too long.
        """
        ...


async def evaluate_rules(
    evaluator: Evaluator, target: Target, claims: Sequence[Claim], metrics: WebhookMetrics
) -> Answer:
    """Validate an object: without the inventory where that takes too long, or not at all.

    Args:
        claims: The translated claims of its pod, whose templates may not exist yet.
    """
    try:
        return await evaluator.evaluate(lambda context: validate_object(target, context, claims))
    except TimeoutError:
        metrics.validation_timeouts.inc()
    try:
        return await evaluator.evaluate_without_inventory(
            lambda context: answer_timeout(target, context, claims)
        )
    except TimeoutError:
        return answer_unevaluated(target)


# --- workloads ------------------------------------------------------------------------------------


class WorkloadReview(msgspec.Struct, frozen=True, kw_only=True):
    """A review of a workload.

    Attributes:
        workload: None where the operation needs no answer.
        old: Before the update; None on creation.
    """

    request: AdmissionRequest
    workload: Workload | None = None
    old: Workload | None = None

    @property
    def is_settled(self) -> bool:
        """Whether its pod template is unchanged, or was validated with the workload's owner."""
        if self.workload is None or self.workload.is_controlled:
            return True
        return self.old is not None and self.old.template == self.workload.template

    @property
    def name(self) -> str:
        """Kind, namespace and name, for logs."""
        name = self.request.name
        if not name and self.workload is not None:
            name = f"{self.workload.metadata.generate_name}*"
        return f"{self.request.kind.kind}/{self.request.namespace}/{name}"


def decode_workload_review(body: bytes) -> WorkloadReview:
    """Decode the review in a body.

    Raises:
        ReviewError: It is not a review of a workload.
    """
    request = decode_review(body, WORKLOADS)
    match request.operation, request.sub_resource:
        case "CREATE", "":
            return WorkloadReview(
                request=request, workload=decode_workload(request, request.object)
            )
        case "UPDATE", "":
            return WorkloadReview(
                request=request,
                workload=decode_workload(request, request.object),
                old=decode_workload(request, request.old_object),
            )
        case _:
            return WorkloadReview(request=request)


class WorkloadReviewHandler:
    """Answers reviews of workloads."""

    def __init__(
        self,
        snapshot: Callable[[], TranslationSnapshot],
        evaluator: Evaluator,
        options: TranslationOptions,
        metrics: WebhookMetrics,
        *,
        read_timeout_s: float,
    ) -> None:
        self._snapshot = snapshot
        self._evaluator = evaluator
        self._options = options
        self._metrics = metrics
        self._read_timeout_s = read_timeout_s
        self._translator = TranslationCache()

    async def handle(self, http_request: web.Request) -> web.Response:
        """Answer a review of a workload.

        Raises:
            web.HTTPException: The body is too large, too slow, or not such a review.
        """
        review = await read_review(http_request, decode_workload_review, self._read_timeout_s)

        request = review.request
        if review.workload is None:
            return respond(request, UNTOUCHED)
        answer = validate_workload(
            review.workload,
            review.old,
            namespace=request.namespace,
            snapshot=self._snapshot(),
            options=self._options,
            translator=self._translator,
        )
        if answer.allowed and not review.is_settled:
            target = workload_target(review.workload, request.namespace, answer.claims)
            evaluated = await evaluate_rules(self._evaluator, target, answer.claims, self._metrics)
            answer = merge_answers(answer, evaluated)

        self._metrics.count_review(request.kind.kind, request.operation, answer)
        log_review("workload.reviewed", request, answer, workload=review.name[:MAX_LOGGED])
        return respond(request, answer)


# --- objects of DRA -------------------------------------------------------------------------------


class ObjectReview(msgspec.Struct, frozen=True, kw_only=True):
    """A review of an object of DRA, or of a pod that uses claims.

    Attributes:
        target: None where the operation needs no answer.
        old: Before the update; None on creation.
    """

    request: AdmissionRequest
    target: Target | None = None
    old: Target | None = None

    @property
    def name(self) -> str:
        """Kind, namespace and name, for logs."""
        return f"{self.request.kind.kind}/{self.request.namespace}/{self.request.name}"


def decode_object_review(body: bytes) -> ObjectReview:
    """Decode the review in a body.

    Raises:
        ReviewError: It is not a review of an object that rules validate.
    """
    request = decode_review(body, VALIDATED_RESOURCES)
    match request.operation, request.sub_resource:
        case "CREATE", "":
            return ObjectReview(request=request, target=decode_target(request, request.object))
        case "UPDATE", "":
            return ObjectReview(
                request=request,
                target=decode_target(request, request.object),
                old=decode_target(request, request.old_object),
            )
        case _:
            return ObjectReview(request=request)


class ObjectReviewHandler:
    """Answers reviews of objects of DRA, and of pods that use claims."""

    def __init__(
        self,
        evaluator: Evaluator,
        profiles: Mapping[str, Profile],
        metrics: WebhookMetrics,
        *,
        read_timeout_s: float,
    ) -> None:
        """Answer with an evaluator.

        Args:
            profiles: Driver name to the profile with which its pods are translated.
        """
        self._evaluator = evaluator
        self._profiles = profiles
        self._metrics = metrics
        self._read_timeout_s = read_timeout_s

    async def handle(self, http_request: web.Request) -> web.Response:
        """Answer a review of an object.

        Raises:
            web.HTTPException: The body is too large, too slow, or not such a review.
        """
        review = await read_review(http_request, decode_object_review, self._read_timeout_s)

        request = review.request
        if review.target is None:
            return respond(request, UNTOUCHED)
        answer = await self._answer(review.target, review.old)

        self._metrics.count_review(request.kind.kind, request.operation, answer)
        log_review("object.reviewed", request, answer, object=review.name[:MAX_LOGGED])
        return respond(request, answer)

    async def _answer(self, target: Target, old: Target | None) -> Answer:
        if is_settled(target, old):
            return UNTOUCHED
        claims = recorded_claims(target, self._profiles)
        return await evaluate_rules(self._evaluator, target, claims, self._metrics)
