"""`POST /mutate`: pods are translated."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from admission.answer_cache import AnswerCache, without_identity
from admission.objects import unreadable
from admission.pods import (
    UNTOUCHED,
    Answer,
    Decision,
    admit_created,
    first_findings,
    postponed,
)
from admission.review import (
    InvalidPodError,
    ReviewError,
    UnreadableObjectError,
    decode_pod_document,
    decode_review,
    view_pod,
)
from admission.settled_fixes import settle_pod
from admission.signing import Signing, UnsignedAnswer, sign_answer, unsigned_answer
from admission.updated_pods import admit_updated
from kube.api.admission import AdmissionRequest
from kube.jsonpatch import apply
from translation.cluster.snapshot import (
    Mode,
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.reading.untranslated_keys import check_untranslated_requests
from webhook.evaluator import Evaluator
from webhook.metrics import WebhookMetrics
from webhook.reviews import MAX_LOGGED, ReviewRunner, TooBusy, finish_review
from webhook.settled_denials import settle_denial

POD: Final = "Pod"


class PodReview(msgspec.Struct, frozen=True, kw_only=True):
    """A review of a pod.

    Attributes:
        document: The pod as parsed, without what distinguishes it from other replicas; None where the
            operation needs no answer.
        old: The pod before the update; None on creation.
    """

    request: AdmissionRequest
    document: dict[str, Any] | None = None
    old: dict[str, Any] | None = None

    @property
    def counted_kind(self) -> str:
        """The kind of the object, for metrics."""
        return POD

    @property
    def name(self) -> str:
        """Namespace and name, for logs."""
        name = self.request.name
        if not name and self.document is not None:
            metadata = self.document.get("metadata")
            name = f"{metadata.get('generateName', '') if isinstance(metadata, dict) else ''}*"
        return f"{self.request.namespace}/{name}"


def decode_pod_review(body: bytes) -> PodReview:
    """Decode the review in a body.

    Raises:
        UnreadableObjectError: The pod cannot be read.
        ReviewError: It is not a review of a pod.
    """
    request = decode_review(body)
    match request.operation, request.sub_resource:
        case "CREATE", "":
            document = decode_pod_document(request, request.object)
            return PodReview(request=request, document=without_identity(document))
        case "UPDATE", ("" | "status"):
            document = decode_pod_document(request, request.object)
            old = decode_pod_document(request, request.old_object)
            return PodReview(request=request, document=document, old=old)
        case _:
            return PodReview(request=request)


def answer_pod_review(
    review: PodReview,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    signing: Signing,
    cache: AnswerCache | None = None,
) -> Answer:
    """Answer a review, and apply the patch to its document as a proof that it applies.

    A dry run is answered alike.

    Args:
        cache: The cache of answers to creations.
    """
    document, namespace = review.document, review.request.namespace
    if document is None:
        return UNTOUCHED
    if review.old is not None:
        return _answer_update(document, review.old, namespace, snapshot, options)

    def compute(snapshot: TranslationSnapshot) -> UnsignedAnswer:
        return _answer_creation(document, namespace, snapshot, options)

    if cache is None:
        return sign_answer(compute(snapshot), signing)
    computed_answer = cache.find_or_compute(
        document, namespace=namespace, snapshot=snapshot, options=options, compute=compute
    )
    return sign_answer(computed_answer, signing)


def _answer_creation(
    document: dict[str, Any],
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> UnsignedAnswer:
    try:
        pod = view_pod(document)
    except ReviewError as fault:
        return UnsignedAnswer(answer=_refuse_faults(fault))
    answer = admit_created(document, pod, namespace=namespace, snapshot=snapshot, options=options)
    if not answer.allowed:
        # The API server would reject the pod for these at the next try.
        faulty_requests = check_untranslated_requests(
            pod, vocabularies_in_force(options, snapshot.profiles)
        )
        answer = msgspec.structs.replace(
            answer, findings=first_findings(answer.findings, tuple(faulty_requests))
        )
    return unsigned_answer(answer, apply(document, answer.operations), namespace)


def _answer_update(
    document: dict[str, Any],
    old: dict[str, Any],
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Answer:
    try:
        answer = admit_updated(
            document,
            view_pod(document),
            view_pod(old),
            snapshot=snapshot,
            options=options,
            # In mode OptIn a translated pod had the label, which may be gone by now, as may that of a
            # pod whose namespace leaves it to its pods.
            opted_in=options.mode is Mode.OPT_IN or snapshot.is_taking_part(namespace),
        )
    except ReviewError as fault:
        return _refuse_faults(fault)
    # A patch that does not apply would fail the request even under failurePolicy Ignore.
    apply(document, answer.operations)
    return answer


def _refuse_faults(fault: ReviewError) -> Answer:
    # Whoever wrote the pod would be told of an internal error otherwise.
    if isinstance(fault, InvalidPodError):
        return Answer(decision=Decision.REFUSED, findings=fault.findings)
    return unreadable(str(fault))


class PodReviewHandler:
    """Answers reviews of pods."""

    def __init__(
        self,
        snapshot: Callable[[], TranslationSnapshot],
        options: TranslationOptions,
        metrics: WebhookMetrics,
        runner: ReviewRunner,
        *,
        signing: Callable[[], Signing],
        evaluator: Evaluator,
    ) -> None:
        """Answer with the state of a cluster.

        Args:
            snapshot: Returns the present state.
            signing: Returns the keys and the time to sign with.
            evaluator: Evaluates whether the amount in the fix of a denial fits.
            runner: Reads reviews and answers them within the budgets of their users.
        """
        self._snapshot = snapshot
        self._signing = signing
        self._evaluator = evaluator
        self._options = options
        self._metrics = metrics
        self._runner = runner
        self._answers = AnswerCache()

    async def handle(self, http_request: web.BaseRequest) -> web.Response:
        """Answer a review of a pod.

        Raises:
            web.HTTPException: The body is not such a review.
        """
        runner = self._runner
        # As the cluster was when the review came.
        snapshot, signing = self._snapshot(), self._signing()
        try:
            review = await runner.decode(http_request, decode_pod_review)
            # The cache belongs to the event loop.
            cache = None if runner.is_large(http_request) else self._answers
            answer = await runner.compute(
                http_request,
                review,
                answer_pod_review,
                review,
                snapshot,
                self._options,
                signing,
                cache,
            )
            if not answer.allowed and review.document is not None and review.old is None:
                settle = partial(
                    settle_pod,
                    answer,
                    review.document,
                    namespace=review.request.namespace,
                    snapshot=snapshot,
                    options=self._options,
                )
                answer = await settle_denial(
                    http_request, review, answer, settle, runner=runner, evaluator=self._evaluator
                )
        except UnreadableObjectError as fault:
            review, answer = PodReview(request=fault.request), unreadable(str(fault))
        except TooBusy as busy:
            return runner.respond_busy(busy, self._answer_busy(busy.reason))

        return finish_review(
            POD,
            "pod.reviewed",
            review.request,
            answer,
            self._metrics,
            # Pods that were translated before stay so, and their updates work.
            shadows=self._options.mode is Mode.SHADOW and review.old is None,
            pod=review.name[:MAX_LOGGED],
            subresource=review.request.sub_resource,
            operations=len(answer.operations),
        )

    def _answer_busy(self, reason: str) -> Answer:
        """Return the answer to a review without time for it: mode Shadow rejects nothing."""
        return UNTOUCHED if self._options.mode is Mode.SHADOW else postponed(reason)
