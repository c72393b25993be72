"""`POST /route`: pods with claims of owned drivers, and of their groups, get the bridge's scheduler."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol

from aiohttp import web

from admission.group_routing import Groups, is_group_unknown, route_member
from admission.objects import recorded_claims, unreadable
from admission.pods import UNTOUCHED, Answer, postponed
from admission.review import UnreadableObjectError
from admission.routing import Bridge, is_missing_claims, missing_claims
from kube.api.admission import AdmissionRequest
from kube.api.core import Pod, PodResourceClaim
from kube.errors import KubeError
from rules.context.context import Context
from rules.engine.engine import Target
from translation.cluster.snapshot import TranslationSnapshot
from translation.compiling.claims import Claim
from webhook.metrics import WebhookMetrics
from webhook.mutate import POD
from webhook.reviews import (
    BUSY,
    DEADLINE_S,
    MAX_LOGGED,
    ReviewRunner,
    TooBusy,
    log_review,
    respond,
    respond_unreadable,
)
from webhook.validate import decode_object_review

RETRIES_S: Final = (0.2, 0.8)
"""Pauses before a pod is looked at again whose claims or group are not known: a template that is applied together
with its pod may come to the caches a moment later."""
MAX_WAITING: Final = 32
"""Reviews that wait so at a time; less than a third of those that may be in flight. A further one waits for none, so
that pods whose templates never come keep no others from being reviewed. As many may ask the API server at a time."""
MAX_WAITING_OF_NAMESPACE: Final = 8
"""The same for the pods of one namespace."""
NOT_READY: Final = "it is not known yet which drivers the bridge owns"
GROUPS_NOT_READY: Final = "the PodGroups of the cluster are not known yet"
ANSWER_S: Final = 0.2
"""Time for the answer, once it is certain that there is none."""


class OwnershipEvaluator(Protocol):
    """Evaluates against the cluster, once the owned drivers are known."""

    @property
    def knows_ownership(self) -> bool:
        """Return True if owned drivers, claims and devices are known."""
        ...

    async def evaluate(
        self,
        rules: Callable[[Context], Answer],
        *,
        tenant: str,
        charge: Callable[[float], None],
        timeout_s: float,
    ) -> Answer:
        """Evaluate with the present cluster; see `RuleEvaluator.evaluate`.

        Raises:
            TimeoutError: It takes too long.
        """
        ...


class GroupSource(Protocol):
    """The PodGroups of the cluster."""

    def groups(self) -> Groups | None:
        """Return the known PodGroups; None before their first list."""
        ...


class ClaimFinder(Protocol):
    """Finds the claims and templates that the caches do not have yet."""

    async def has_any(self, namespace: str, entries: Iterable[PodResourceClaim]) -> bool:
        """Return True if the API server has one of the claims and templates of a pod, a new one.

        Raises:
            KubeError: The API server does not answer.
        """
        ...


class _Places:
    """The reviews that wait for something at a time, of all namespaces and of each."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    @contextmanager
    def take(self, namespace: str) -> Iterator[bool]:
        """Take a place for a review; yield False if there is none."""
        counts = self._taken
        is_full = counts.total() >= MAX_WAITING or counts[namespace] >= MAX_WAITING_OF_NAMESPACE
        if is_full:
            yield False
            return
        counts[namespace] += 1
        try:
            yield True
        finally:
            counts[namespace] -= 1
            if not counts[namespace]:
                del counts[namespace]


class RoutingReviewHandler:
    """Answers reviews of pods with claims or in a group.

    Without an answer in time the creation of the pod is postponed: the pod would get a scheduler that cannot
    allocate its devices, and could not be given another one. So it is where the API server has a claim of it that
    the caches do not have yet.
    """

    def __init__(
        self,
        evaluator: OwnershipEvaluator,
        snapshot: Callable[[], TranslationSnapshot],
        metrics: WebhookMetrics,
        runner: ReviewRunner,
        *,
        bridge: Bridge,
        groups: GroupSource,
        claims: ClaimFinder,
        retries_s: Sequence[float] = RETRIES_S,
    ) -> None:
        """Answer with an evaluator.

        Args:
            snapshot: Returns the present state, with the profiles by which pods are translated.
            bridge: The additions to pods that the bridge schedules.
            groups: The PodGroups, which decide about all of their pods.
            claims: Finds claims that the evaluator does not know yet.
            retries_s: The delays in `RETRIES_S`.
        """
        self._evaluator = evaluator
        self._snapshot = snapshot
        self._metrics = metrics
        self._runner = runner
        self._bridge = bridge
        self._groups = groups
        self._claims = claims
        self._retries_s = tuple(retries_s)
        self._waiting, self._asking = _Places(), _Places()

    async def handle(self, http_request: web.BaseRequest) -> web.Response:
        """Answer a review of a pod.

        Raises:
            web.HTTPException: The body is not such a review.
        """
        runner = self._runner
        try:
            review = await runner.decode(http_request, decode_object_review)
            request, target = review.request, review.target
            if target is None or review.old is not None or not isinstance(target.view, Pod):
                return respond(request, UNTOUCHED)
            async with runner.deadline(http_request, review):
                snapshot = self._snapshot()
                claims = await runner.compute(
                    http_request, review, recorded_claims, target, snapshot
                )
                answer = await self._route(
                    request, target, target.view, claims, http_request[DEADLINE_S]
                )
        except UnreadableObjectError as fault:
            return respond_unreadable(fault, unreadable(str(fault)))
        except TooBusy as busy:
            return runner.respond_busy(busy, postponed(busy.reason))

        self._metrics.count_review(POD, request.operation, answer)
        log_review("pod.routed", request, answer, pod=review.name[:MAX_LOGGED])
        return respond(request, answer)

    async def _route(
        self,
        request: AdmissionRequest,
        target: Target,
        pod: Pod,
        claims: Sequence[Claim],
        deadline_s: float,
    ) -> Answer:
        derived = {claim.template: claim.drivers for claim in claims}

        def route(context: Context, groups: Groups) -> Answer:
            return route_member(
                pod, target.namespace, context, self._bridge, groups=groups, derived=derived
            )

        namespace = target.namespace
        try:
            answer = await self._evaluate(request, namespace, route, deadline_s)
            for pause_s in self._retries_s:
                is_incomplete = is_missing_claims(answer) or is_group_unknown(answer)
                if not is_incomplete or not await self._pause(namespace, pause_s):
                    break
                answer = await self._evaluate(request, namespace, route, deadline_s)
            if is_missing_claims(answer):
                async with asyncio.timeout_at(deadline_s - ANSWER_S):
                    if await self._may_come(namespace, missing_claims(pod, answer)):
                        return postponed(BUSY)
        except TimeoutError:
            self._metrics.validation_timeouts.inc()
            return postponed(BUSY)
        return answer

    async def _pause(self, namespace: str, pause_s: float) -> bool:
        """Wait for claims of a pod; return False without a wait if too many wait already."""
        with self._waiting.take(namespace) as is_taken:
            if is_taken:
                await asyncio.sleep(pause_s)
            return is_taken

    async def _may_come(self, namespace: str, entries: Sequence[PodResourceClaim]) -> bool:
        """Return True if the caches may have one of the claims a moment later: the API server has it, or does not say."""
        with self._asking.take(namespace) as is_taken:
            if not is_taken:
                return True
            try:
                return await self._claims.has_any(namespace, entries)
            except KubeError:
                return True

    async def _evaluate(
        self,
        request: AdmissionRequest,
        namespace: str,
        route: Callable[[Context, Groups], Answer],
        deadline_s: float,
    ) -> Answer:
        if not self._evaluator.knows_ownership:
            return postponed(NOT_READY)
        groups = self._groups.groups()
        if groups is None:
            return postponed(GROUPS_NOT_READY)
        left_s = deadline_s - ANSWER_S - asyncio.get_running_loop().time()
        return await self._evaluator.evaluate(
            lambda context: route(context, groups),
            tenant=namespace,
            charge=partial(self._runner.charge, request),
            timeout_s=max(0.0, left_s),
        )
