"""`POST /validate/workloads` and `POST /validate/objects`: rules answer, and nothing is changed."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from admission.objects import (
    answer_timeout,
    answer_unevaluated,
    check_misspelt_keys,
    is_settled,
    merge_answers,
    quotas_of,
    recorded_translation,
    translation_of,
    unvalidated,
    validate_object,
    validate_profile,
)
from admission.pods import UNTOUCHED, Answer, Decision
from admission.review import (
    VALIDATED_RESOURCES,
    WORKLOADS,
    UnreadableObjectError,
    decode_review,
    decode_target,
    decode_workloads,
)
from admission.settled_fixes import settle_workload
from admission.translation_cache import TranslationCache
from admission.workloads import Workload, validate_workload, workload_target
from kube.api.admission import AdmissionRequest
from kube.api.core import ResourceQuota
from kube.api.translation_profile import DeviceTranslationProfile
from rules.engine.engine import Target
from translation.cluster.snapshot import Mode, TranslationOptions, TranslationSnapshot
from translation.compiling.claims import Claim
from translation.pipeline.translate import translate
from translation.record.recorded_translation import RecordedTranslation, derive_claims
from webhook.evaluator import Evaluator
from webhook.metrics import WebhookMetrics
from webhook.reviews import (
    MAX_LOGGED,
    ReviewRunner,
    TooBusy,
    finish_review,
    respond,
    respond_unreadable,
)
from webhook.settled_denials import settle_denial

MAX_EVALUATED: Final = 8
"""Pod templates of one workload whose claims rules validate; their keys are validated in all."""


async def evaluate_rules(
    evaluator: Evaluator,
    target: Target,
    claims: Sequence[Claim],
    metrics: WebhookMetrics,
    charge: Callable[[float], None],
    *,
    translation: RecordedTranslation | None,
    quotas: tuple[ResourceQuota, ...] = (),
) -> Answer:
    """Validate an object: without the inventory if that takes too long, or not at all.

    Args:
        claims: The translated claims of its pod, whose templates may not exist yet.
        charge: Takes the CPU seconds that it took.
        translation: The translation that made the claims; None without claims.
        quotas: The ResourceQuotas on devices in the namespace.
    """
    try:
        return await evaluator.evaluate(
            lambda context: validate_object(
                target,
                msgspec.structs.replace(context, resource_quotas=quotas),
                claims,
                translation,
            ),
            tenant=target.namespace,
            charge=charge,
        )
    except TimeoutError:
        metrics.validation_timeouts.inc()
    try:
        return await evaluator.evaluate_without_inventory(
            lambda context: answer_timeout(target, context, claims),
            tenant=target.namespace,
            charge=charge,
        )
    except TimeoutError:
        return answer_unevaluated(target)


# --- workloads ------------------------------------------------------------------------------------


class WorkloadReview(msgspec.Struct, frozen=True, kw_only=True):
    """A review of a workload.

    Attributes:
        workloads: The workload, once for each of its pod templates; empty where the operation needs no
            answer.
        old: The same before the update; empty on creation.
    """

    request: AdmissionRequest
    workloads: tuple[Workload, ...] = ()
    old: tuple[Workload, ...] = ()

    def old_of(self, workload: Workload) -> Workload | None:
        """Return the workload with the pod template at the same path before the update."""
        return next((old for old in self.old if old.path == workload.path), None)

    def needs_rules(self, workload: Workload) -> bool:
        """Return True if a pod template has claims, is new, and was not validated with its owner."""
        if workload.is_controlled or not workload.has_claims:
            return False
        old = self.old_of(workload)
        return old is None or old.template != workload.template

    @property
    def counted_kind(self) -> str:
        """The kind of the workload, for metrics; empty without one, since nobody has checked it then."""
        return self.request.kind.kind if self.workloads else ""

    @property
    def name(self) -> str:
        """Kind, namespace and name, for logs."""
        name = self.request.name
        if not name and self.workloads:
            name = f"{self.workloads[0].metadata.generate_name}*"
        return f"{self.request.kind.kind}/{self.request.namespace}/{name}"


def decode_workload_review(body: bytes) -> WorkloadReview:
    """Decode the review in a body.

    Raises:
        UnreadableObjectError: The workload cannot be read.
        ReviewError: It is not a review of a workload.
    """
    request = decode_review(body, WORKLOADS)
    match request.operation, request.sub_resource:
        case "CREATE", "":
            return WorkloadReview(
                request=request, workloads=decode_workloads(request, request.object)
            )
        case "UPDATE", "":
            return WorkloadReview(
                request=request,
                workloads=decode_workloads(request, request.object),
                old=decode_workloads(request, request.old_object),
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
        runner: ReviewRunner,
    ) -> None:
        self._snapshot = snapshot
        self._evaluator = evaluator
        self._options = options
        self._metrics = metrics
        self._runner = runner
        self._translator = TranslationCache()

    async def handle(self, http_request: web.BaseRequest) -> web.Response:
        """Answer a review of a workload.

        Raises:
            web.HTTPException: The body is not such a review.
        """
        runner = self._runner
        # As the cluster was when the review came.
        snapshot = self._snapshot()
        try:
            review = await runner.decode(http_request, decode_workload_review)
            async with runner.deadline(http_request, review):
                answer = await self._answer(http_request, review, snapshot)
        except UnreadableObjectError as fault:
            return respond_unreadable(fault, unvalidated(str(fault)))
        except TooBusy as busy:
            return runner.respond_busy(busy, unvalidated(busy.reason))
        if not review.workloads:
            return respond(review.request, UNTOUCHED)

        return finish_review(
            review.request.kind.kind,
            "workload.reviewed",
            review.request,
            answer,
            self._metrics,
            shadows=self._options.mode is Mode.SHADOW,
            workload=review.name[:MAX_LOGGED],
        )

    async def _answer(
        self, http_request: web.BaseRequest, review: WorkloadReview, snapshot: TranslationSnapshot
    ) -> Answer:
        runner, request = self._runner, review.request
        # The cache belongs to the event loop.
        translator = translate if runner.is_large(http_request) else self._translator
        answer = UNTOUCHED
        evaluated_count = 0
        for workload in review.workloads:
            of_pods = await runner.compute(
                http_request,
                review,
                validate_workload,
                workload,
                review.old_of(workload),
                namespace=request.namespace,
                snapshot=snapshot,
                options=self._options,
                translator=translator,
            )
            if not of_pods.allowed and evaluated_count < MAX_EVALUATED:
                evaluated_count += 1
                settle = partial(
                    settle_workload,
                    of_pods,
                    workload,
                    namespace=request.namespace,
                    snapshot=snapshot,
                    options=self._options,
                )
                of_pods = await settle_denial(
                    http_request, review, of_pods, settle, runner=runner, evaluator=self._evaluator
                )
            if (
                of_pods.allowed
                and evaluated_count < MAX_EVALUATED
                and await runner.compute(http_request, review, review.needs_rules, workload)
            ):
                evaluated_count += 1
                old = review.old_of(workload)
                target = workload_target(
                    workload, request.namespace, of_pods.claims, is_new=old is None
                )
                evaluated = await evaluate_rules(
                    self._evaluator,
                    target,
                    of_pods.claims,
                    self._metrics,
                    partial(runner.charge, request),
                    translation=translation_of(
                        of_pods.record, workload.pod, snapshot, self._options
                    )
                    if of_pods.record is not None
                    else None,
                    quotas=quotas_of(target, snapshot, is_new=old is None),
                )
                of_pods = merge_answers(of_pods, evaluated)
            answer = _join(answer, of_pods)
        return answer


def _join(answer: Answer, other: Answer) -> Answer:
    """Return one answer about several pods of a workload; their patches are empty."""
    if other.decision is Decision.UNTOUCHED and not other.findings:
        return answer
    joined = merge_answers(other, answer)
    return msgspec.structs.replace(
        joined,
        findings=(*answer.findings, *other.findings),
        drivers=tuple(dict.fromkeys((*answer.drivers, *other.drivers))),
    )


# --- objects of DRA -------------------------------------------------------------------------------


class ObjectReview(msgspec.Struct, frozen=True, kw_only=True):
    """A review of an object of DRA, or of a pod that uses claims.

    Attributes:
        target: None where the operation needs no answer.
        old: The object before the update; None on creation.
    """

    request: AdmissionRequest
    target: Target | None = None
    old: Target | None = None

    @property
    def counted_kind(self) -> str:
        """The kind of the object, for metrics; empty without one, since nobody has checked it then."""
        return self.request.kind.kind if self.target is not None else ""

    @property
    def name(self) -> str:
        """Kind, namespace and name, for logs."""
        return f"{self.request.kind.kind}/{self.request.namespace}/{self.request.name}"


def decode_object_review(body: bytes) -> ObjectReview:
    """Decode the review in a body.

    Raises:
        UnreadableObjectError: The object cannot be read.
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
        snapshot: Callable[[], TranslationSnapshot],
        metrics: WebhookMetrics,
        runner: ReviewRunner,
        *,
        options: TranslationOptions = TranslationOptions(),  # noqa: B008 - a frozen value
        shipped_drivers: frozenset[str] = frozenset(),
    ) -> None:
        """Answer with an evaluator.

        Args:
            shipped_drivers: The drivers with a profile in the package.
            snapshot: Returns the present state, with the profiles by which pods are translated.
        """
        self._evaluator = evaluator
        self._snapshot = snapshot
        self._metrics = metrics
        self._runner = runner
        self._options = options
        self._shipped_drivers = shipped_drivers

    async def handle(self, http_request: web.BaseRequest) -> web.Response:
        """Answer a review of an object.

        Raises:
            web.HTTPException: The body is not such a review.
        """
        runner = self._runner
        try:
            review = await runner.decode(http_request, decode_object_review)
            if review.target is None:
                return respond(review.request, UNTOUCHED)
            async with runner.deadline(http_request, review):
                answer = await self._answer(http_request, review, review.target)
        except UnreadableObjectError as fault:
            return respond_unreadable(fault, unvalidated(str(fault)))
        except TooBusy as busy:
            return runner.respond_busy(busy, unvalidated(busy.reason))

        return finish_review(
            review.request.kind.kind,
            "object.reviewed",
            review.request,
            answer,
            self._metrics,
            shadows=self._options.mode is Mode.SHADOW,
            object=review.name[:MAX_LOGGED],
        )

    async def _answer(
        self, http_request: web.BaseRequest, review: ObjectReview, target: Target
    ) -> Answer:
        runner = self._runner
        if await runner.compute(http_request, review, is_settled, target, review.old):
            return UNTOUCHED
        snapshot = self._snapshot()
        if isinstance(target.view, DeviceTranslationProfile):
            return await runner.compute(
                http_request,
                review,
                validate_profile,
                target.view,
                snapshot,
                self._options,
                self._shipped_drivers,
            )
        translation = await runner.compute(
            http_request, review, recorded_translation, target, snapshot, self._options
        )
        claims = (
            await runner.compute(http_request, review, derive_claims, translation)
            if translation is not None
            else ()
        )
        charge = partial(runner.charge, review.request)
        answer = await evaluate_rules(
            self._evaluator,
            target,
            claims,
            self._metrics,
            charge,
            translation=translation,
            quotas=quotas_of(target, snapshot, is_new=review.old is None),
        )
        misspelt = await runner.compute(
            http_request, review, check_misspelt_keys, target, snapshot, self._options
        )
        answer = merge_answers(answer, misspelt)
        if translation is None or review.old is not None:
            return answer
        return msgspec.structs.replace(answer, drivers=translation.drivers)
