"""`POST /mutate`: pods are translated."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from admission.pods import UNTOUCHED, Answer, Decision, Translator, admit_created, admit_updated
from admission.review import InvalidPodError, decode_pod, decode_review
from admission.signing import Signing, sign_answer
from admission.translation_cache import TranslationCache
from findings.finding import Finding
from kube.api.admission import AdmissionRequest
from kube.api.core import Pod
from kube.jsonpatch import apply
from translation.snapshot import TranslationOptions, TranslationSnapshot, vocabularies_in_force
from translation.translate import translate
from webhook.metrics import WebhookMetrics
from webhook.reviews import MAX_LOGGED, ReviewRunner, log_review, respond

POD: Final = "Pod"


class PodReview(msgspec.Struct, frozen=True, kw_only=True):
    """A review of a pod.

    Attributes:
        document: The pod as parsed.
        pod: Its typed view; None where the operation needs no answer.
        old: Before the update; None on creation.
        faults: Errors in amounts, because of which there is neither document nor pod.
    """

    request: AdmissionRequest
    document: Mapping[str, Any] = {}
    pod: Pod | None = None
    old: Pod | None = None
    faults: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """Namespace and name, for logs."""
        name = self.request.name
        if not name and self.pod is not None:
            name = f"{self.pod.metadata.generate_name}*"
        return f"{self.request.namespace}/{name}"


def decode_pod_review(body: bytes) -> PodReview:
    """Decode the review in a body.

    Raises:
        ReviewError: It is not a review of a pod.
    """
    request = decode_review(body)
    try:
        match request.operation, request.sub_resource:
            case "CREATE", "":
                document, pod = decode_pod(request.object)
                return PodReview(request=request, document=document, pod=pod)
            case "UPDATE", ("" | "status"):
                document, pod = decode_pod(request.object)
                _, old = decode_pod(request.old_object)
                return PodReview(request=request, document=document, pod=pod, old=old)
            case _:
                return PodReview(request=request)
    except InvalidPodError as fault:
        # A fault of whoever wrote the pod, who would be told of an internal error otherwise.
        return PodReview(request=request, faults=fault.findings)


def answer_pod_review(
    review: PodReview,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    signing: Signing,
    translator: Translator = translate,
) -> Answer:
    """Answer a review, and apply the patch to its document, which proves that it applies.

    A dry run is answered alike.
    """
    if review.faults:
        return Answer(decision=Decision.REFUSED, findings=review.faults)
    if review.pod is None:
        return UNTOUCHED
    if review.old is not None:
        answer = admit_updated(
            review.document,
            review.pod,
            review.old,
            options=options,
            vocabularies=vocabularies_in_force(options, snapshot.profiles),
        )
    else:
        answer = admit_created(
            review.document,
            review.pod,
            namespace=review.request.namespace,
            snapshot=snapshot,
            options=options,
            translator=translator,
        )
    # A patch that does not apply would fail the request even under failurePolicy Ignore.
    patched = apply(review.document, answer.operations)
    if review.old is None:
        return sign_answer(answer, patched, review.request.namespace, signing)
    return answer


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
    ) -> None:
        """Answer with the state of a cluster.

        Args:
            snapshot: Returns the present state.
            signing: Returns the keys and the time to sign with.
            runner: Reads reviews and answers them within the budgets of their users.
        """
        self._snapshot = snapshot
        self._signing = signing
        self._options = options
        self._metrics = metrics
        self._runner = runner
        self._translator = TranslationCache()

    async def handle(self, http_request: web.Request) -> web.Response:
        """Answer a review of a pod.

        Raises:
            web.HTTPException: The body is not such a review, or a budget is used up.
        """
        runner, snapshot = self._runner, self._snapshot()
        signing = self._signing()
        review = await runner.read(http_request, decode_pod_review)

        request = review.request
        # The cache belongs to the event loop.
        translator = translate if runner.is_large(http_request) else self._translator
        answer = await runner.answer(
            http_request,
            request,
            lambda: answer_pod_review(review, snapshot, self._options, signing, translator),
        )

        self._metrics.count_review(POD, request.operation, answer)
        log_review(
            "pod.reviewed",
            request,
            answer,
            pod=review.name[:MAX_LOGGED],
            subresource=request.sub_resource,
            operations=len(answer.operations),
        )
        return respond(request, answer)
