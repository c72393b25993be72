"""The answers to the scheduler plugin: reservations first, then the decision, then what follows of it.

Decisions are made one after the other, long ones on a thread, so that the event loop goes on renewing
the Lease and reading watches. Whatever changes the devices in use waits for the next decision.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil
from typing import Final, TypeVar

from allocator.model.usage import gather_usage
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from kube.cel.engine import SelectorEngine
from kube.logs import get_logger
from sidecar.binder import Binder, PodReference
from sidecar.debug_view import reservations_view
from sidecar.decision_maker import DecisionMaker, ReservedPod
from sidecar.metrics import SidecarMetrics
from sidecar.plan.decisions import Fits, NoDevicesNeeded, find_nodes
from sidecar.plan.drift import differs
from sidecar.plan.node_limits import limits_nodes
from sidecar.plan.placement import Placement
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.preemption import DryRunBudget, awaited_claims, fits_with
from sidecar.plan.rejections import Code, Rejection, failed_rejection
from sidecar.plan.reservations import Difference, Reservations, accept, finish, greet
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.waiting import WaitingPods
from sidecar.plan.waking import Woken, find_placeable
from sidecar.plan.writes import consumers
from sidecar.protocol import (
    FilterAnswer,
    FilterRequest,
    HelloAnswer,
    HelloRequest,
    PostFilterRequest,
    PreBindRequest,
    PreFilterAnswer,
    PreFilterRequest,
    Request,
    Reservation,
    ReservationsView,
    UnreserveRequest,
    Verdict,
    VerdictAnswer,
    WakeAnswer,
    WakeRequest,
)
from sidecar.seen_claims import SeenClaims
from sidecar.state import ClusterState

MAX_PODS: Final = 4096
"""Pods that PreFilter saw, remembered with all their fields."""

UNKNOWN_POD: Final = failed_rejection(Code.POD_UNKNOWN, "the pod is not known")
FIND_NODES: Final = "find_nodes"
REST_PER_PLAN: Final = 4
"""Times as long as a plan of the waiting pods took is the rest after it: pods that are scheduled wait for
plans. What happens meanwhile is planned together."""
MAX_REST_S: Final = 1.0

T = TypeVar("T")

log = get_logger()


class UnknownScheduler(Exception):
    """The request is of a scheduler, or to an instance, that must say hello first."""


class Service:
    """Answers one scheduler while this process leads.

    Attributes:
        instance: Random text of this service.
        reservations: Those in force.
        greetings: How often a scheduler has said hello.
    """

    def __init__(
        self,
        state: ClusterState,
        binder: Binder,
        seen_claims: SeenClaims,
        *,
        instance: str,
        metrics: SidecarMetrics,
        engine: SelectorEngine | None = None,
        on_answer: Callable[[Pod, Rejection | None], None] = lambda _pod, _rejection: None,
        on_end: Callable[[str], None] = lambda _uid: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a scheduler.

        Args:
            seen_claims: Waits for what the scheduler has seen.
            engine: Evaluates selectors; None evaluates them here.
            on_answer: Called with each answer of PreFilter: why the pod is rejected, None if not.
            on_end: Called with the UID of each pod that was bound or deleted.
            clock: Monotonic seconds.
        """
        self.instance: Final = instance
        self.reservations = Reservations()
        self.greetings = 0
        self._state = state
        self._binder = binder
        self._seen_claims = seen_claims
        self._metrics = metrics
        self._decisions = DecisionMaker(state, metrics, engine)
        self._on_answer = on_answer
        self._on_end = on_end
        self._turn = asyncio.Lock()
        # Reservations have arrived whose devices are not chosen yet.
        self._promising = False
        self._pods: OrderedDict[str, Pod] = OrderedDict()
        # Reservations whose devices were not free any more when they arrived.
        self._rejected: dict[str, Rejection] = {}
        # Pods whose claims were written: a Binding without an answer may be made after later attempts, too.
        self._written: set[str] = set()
        self._waiting = WaitingPods(clock)
        # The pod of the attempt that is under way, and what a dry run of it may cost: one pod is scheduled
        # at a time.
        self._dry_run = ("", DryRunBudget())
        self._clock = clock
        state.on_end = self._forget

    async def prepare(self) -> None:
        """Build the view of the devices, so that the first pod need not wait for it."""
        async with self._turn:
            await self._decisions.decide("", lambda _snapshot: None)

    async def rebuild(self) -> None:
        """Begin the view of the devices anew, which may be wrong after a bug."""
        async with self._turn:
            self._state.rebuild()

    # --- extension points -------------------------------------------------------------------------

    async def hello(self, request: HelloRequest) -> HelloAnswer:
        """Take over the reservations of a scheduler."""
        self.greetings += 1
        problem = self._state.check()
        self._state.count_drivers()
        is_known = request.scheduler == self.reservations.scheduler
        has_news = not is_known or accept(self.reservations, request)[0] is not self.reservations
        if has_news and not problem:
            async with self._turn:
                self.reservations, difference = greet(self.reservations, request)
                await self._apply(difference)
                if not is_known:
                    self._waiting.begin(self._state.consumers.pods.values())
        return HelloAnswer(
            instance=self.instance,
            acknowledged=self.reservations.acknowledged,
            leads=True,
            ready=not problem,
            message=problem,
            wakeups=self._state.wakeups,
            drivers=tuple(sorted(self._state.drivers)),
        )

    async def prefilter(self, request: PreFilterRequest) -> PreFilterAnswer:
        """Return the nodes that have devices for a pod."""
        pod = request.pod
        self._remember(pod)
        self._dry_run = (pod.metadata.uid, DryRunBudget())
        outcome: Fits | NoDevicesNeeded | Rejection | None = await self._seen_claims.wait(request)
        async with self._turn:
            if outcome is None:
                decide = partial(find_nodes, pod, all_nodes=request.all)
                about = None if request.all else pod
                outcome = await self._accept_and_decide(request, FIND_NODES, decide, about=about)
            else:
                await self._accept(request)
        acknowledged_number = self.reservations.acknowledged
        if pod.metadata.uid in self._pods:  # It was not bound or deleted meanwhile.
            self._waiting.take(pod, outcome)
            self._on_answer(pod, outcome if isinstance(outcome, Rejection) else None)
        if isinstance(outcome, Fits):
            return PreFilterAnswer(
                instance=self.instance,
                acknowledged=acknowledged_number,
                verdict=Verdict.FITS,
                nodes=outcome.nodes,
                complete=outcome.complete,
            )
        if isinstance(outcome, NoDevicesNeeded):
            return PreFilterAnswer(
                instance=self.instance, acknowledged=acknowledged_number, verdict=Verdict.SKIP
            )
        self._metrics.count_rejection(outcome.code)
        return PreFilterAnswer(
            instance=self.instance,
            acknowledged=acknowledged_number,
            verdict=outcome.verdict,
            code=outcome.code,
            message=outcome.message,
        )

    async def filter(self, request: FilterRequest) -> FilterAnswer:
        """Return whether a pod fits on a node with other pods than there are."""
        pod = self._find_pod(request.pod_uid)
        async with self._turn:
            outcome: Placement | Rejection = UNKNOWN_POD
            if pod is None:
                await self._accept(request)
            else:
                outcome = await self._accept_and_decide(
                    request,
                    "fits_with",
                    partial(
                        fits_with,
                        pod,
                        request.node,
                        removed_pods=request.removed,
                        added_pods=request.added,
                        dry_run=self._dry_run_of(request.pod_uid),
                    ),
                )
        rejection = outcome if isinstance(outcome, Rejection) else None
        return FilterAnswer(
            instance=self.instance,
            acknowledged=self.reservations.acknowledged,
            fits=rejection is None,
            unresolvable=rejection is not None and rejection.verdict is Verdict.UNRESOLVABLE,
            code=rejection.code if rejection else "",
            message=rejection.message if rejection else "",
        )

    async def wake(self, request: WakeRequest) -> WakeAnswer:
        """Return the waiting pods that could be placed now."""
        if len(self._waiting):
            await self._seen_claims.wait_newest(request.newest_claim_version)
        woken, rest_s = Woken((), more=False), 0.0
        async with self._turn:
            await self._accept(request)
            waiting = self._waiting.due(self._state.version)
            if waiting:
                began = self._clock()
                woken = await self._decisions.decide("wake", partial(find_placeable, waiting))
                self._waiting.wake(woken.pods, more=woken.more)
                rest_s = min(REST_PER_PLAN * (self._clock() - began), MAX_REST_S)
        return WakeAnswer(
            instance=self.instance,
            acknowledged=self.reservations.acknowledged,
            pods=tuple(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in woken.pods),
            more=woken.more,
            rest_millis=ceil(rest_s * 1000),
        )

    async def prebind(self, request: PreBindRequest) -> VerdictAnswer:
        """Write the allocations of a reserved pod."""
        await self._accept_in_turn(request)
        rejection = await self._bind(request)
        if rejection is not None:
            return self._answer(rejection.verdict, rejection.code, rejection.message)
        if request.pod_uid in self.reservations.by_pod:
            self._written.add(request.pod_uid)
        return self._answer(Verdict.OK)

    async def unreserve(self, request: UnreserveRequest) -> VerdictAnswer:
        """Take back what was promised and written for a pod."""
        await self._accept_in_turn(request)
        reservation = self.reservations.by_pod.get(request.pod_uid)
        if reservation is not None:
            if request.number and reservation.number > request.number:
                return self._answer(Verdict.OK)  # The pod was tried again since.
            self.reservations, difference = accept(
                self.reservations, Request(unreserved=(reservation.number,))
            )
            self._end(difference)
        pod = self._find_pod(request.pod_uid)
        if pod is not None and not self._is_bound(request.pod_uid):
            reference = PodReference(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name)
            # A pod whose PreBind succeeded may be bound, whatever the scheduler was told.
            deallocate = request.pod_uid not in self._written
            for name in claim_names(pod):
                claim = self._state.claims.store.get(name)
                if claim is not None:
                    await self._binder.release(
                        reference, name, claim.metadata.uid, deallocate=deallocate
                    )
        return self._answer(Verdict.OK)

    async def postfilter(self, request: PostFilterRequest) -> VerdictAnswer:
        """Release a claim of the pod's own that keeps it from nodes, or wait for a release that helps it."""
        await self._accept_in_turn(request)
        pod = self._find_pod(request.pod_uid)
        if pod is None:
            return self._answer(Verdict.CONTINUE)
        reference = PodReference(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name)
        for claim in self._releasable(pod):
            name = (claim.metadata.namespace, claim.metadata.name)
            if await self._binder.release(reference, name, claim.metadata.uid, deallocate=True):
                return self._answer(
                    Verdict.RELEASED, message=f"deallocated ResourceClaim {name[1]}"
                )
        if await self._awaits_release(pod):
            return self._answer(
                Verdict.WAIT, message="devices of pods that are gone are being released"
            )
        return self._answer(Verdict.CONTINUE)

    async def _awaits_release(self, pod: Pod) -> bool:
        """Return whether a pod is to wait for a release; then it is tried again after it."""
        if not (self._state.consumers.releasing or self._state.consumers.terminating):
            return False
        async with self._turn:
            claims = await self._decisions.decide("await_release", partial(awaited_claims, pod))
            if claims:
                self._waiting.await_release(pod, claims)
            return bool(claims)

    async def check_drift(self) -> bool:
        """Count the devices in use anew; return whether they were counted wrongly before."""
        async with self._turn:
            claims = self._state.claims_in_use()
            features = self._state.features
            has_drifted = await self._decisions.decide(
                "drift_check",
                lambda snapshot: differs(snapshot.cluster.usage, gather_usage(claims, features)),
            )
            if has_drifted:
                log.error("usage.drifted")
                self._metrics.count_drift()
                self._state.rebuild()
                self._state.wakeups += 1
        return has_drifted

    def show(self) -> ReservationsView:
        """Return the promises that the API does not show yet."""
        return reservations_view(self.reservations, self._state)

    # --- reservations -----------------------------------------------------------------------------

    async def _accept_in_turn(self, request: Request) -> None:
        self._check(request)
        has_news = accept(self.reservations, request)[0] is not self.reservations
        if not has_news and not self._promising:
            return
        async with self._turn:
            await self._accept(request)

    async def _accept(self, request: Request) -> None:
        """Take the reservations of a request; called in turn."""
        self._check(request)
        self.reservations, difference = accept(self.reservations, request)
        await self._apply(difference)

    async def _accept_and_decide(
        self,
        request: Request,
        kind: str,
        decide: Callable[[Snapshot], T],
        *,
        about: Pod | None = None,
    ) -> T:
        """Take the reservations of a request, then make a decision; called in turn.

        Args:
            about: The pod whose requests tell how long the decision takes; None if they do not.
        """
        self._check(request)
        self.reservations, difference = accept(self.reservations, request)
        with self._promises(difference) as reserved_pods:
            return await self._decisions.place_and_decide(
                reserved_pods, self._hold_claims, kind, decide, about=about
            )

    def _check(self, request: Request) -> None:
        if (request.instance, request.scheduler) != (self.instance, self.reservations.scheduler):
            raise UnknownScheduler

    async def _apply(self, difference: Difference) -> None:
        """Take back and make promises."""
        with self._promises(difference) as reserved_pods:
            await self._decisions.place(reserved_pods, self._hold_claims)

    @contextmanager
    def _promises(self, difference: Difference) -> Iterator[Sequence[ReservedPod]]:
        """Take back what ended; yield the pods whose devices have to be chosen in the block."""
        self._end(difference)
        reserved_pods = [
            ReservedPod(reservation, pod)
            for reservation in difference.begun
            if (pod := self._reserved_pod(reservation)) is not None
        ]
        self._promising = bool(reserved_pods)
        try:
            yield reserved_pods
        finally:
            self._promising = False

    def _end(self, difference: Difference) -> None:
        for reservation in difference.ended:
            self._state.unreserve(reservation.pod_uid)
            self._rejected.pop(reservation.pod_uid, None)

    def _reserved_pod(self, reservation: Reservation) -> Pod | None:
        """Return the pod of a reservation that begins; None if it is not known."""
        uid = reservation.pod_uid
        self._waiting.end(uid)
        pod = self._find_pod(uid) or self._state.pod(
            reservation.pod_namespace, reservation.pod_name
        )
        if pod is None or pod.metadata.uid != uid:
            self._rejected[uid] = UNKNOWN_POD
            return None
        return pod

    def _hold_claims(self, reserved_pod: ReservedPod, placement: Placement | Rejection) -> None:
        """Promise the devices that a pod gets on its node."""
        reservation, pod = reserved_pod
        uid = reservation.pod_uid
        if isinstance(placement, Rejection):
            self._rejected[uid] = placement
            log.info("reservation.rejected", pod=uid, node=reservation.node, code=placement.code)
            return
        for claim, allocation in placement.allocations:
            self._state.reserve(claim, allocation, uid)
        for name in claim_names(pod):
            stored_claim = self._state.claims.store.get(name)
            if stored_claim is not None:
                self._state.join(stored_claim, uid)

    # --- writing ----------------------------------------------------------------------------------

    async def _bind(self, request: PreBindRequest) -> Rejection | None:
        uid = request.pod_uid
        rejection = self._rejected.get(uid)
        if rejection is not None:
            return rejection
        pod = self._find_pod(uid)
        node = self._state.node(request.node)
        if pod is None or node is None or uid not in self.reservations.by_pod:
            return failed_rejection(Code.POD_UNKNOWN, "the pod has no reservation")
        claims = [
            (name, claim.metadata.uid)
            for name in claim_names(pod)
            if (claim := self._state.claims.store.get(name)) is not None
        ]
        reference = PodReference(uid, request.pod_namespace, request.pod_name)
        return await self._binder.bind(reference, node, claims)

    def _releasable(self, pod: Pod) -> list[ResourceClaim]:
        """Return the claims that only this pod has and that keep it from some node."""
        return [
            claim
            for name in claim_names(pod)
            if (claim := self._state.claims.store.get(name)) is not None
            and all(consumer.uid == pod.metadata.uid for consumer in consumers(claim))
            and limits_nodes(claim, self._state.nodes.values(), cutoff=self._state.binding_cutoff)
            and self._state.owns(claim)
        ]

    # --- pods -------------------------------------------------------------------------------------

    def _remember(self, pod: Pod) -> None:
        self._pods[pod.metadata.uid] = pod
        self._pods.move_to_end(pod.metadata.uid)
        if len(self._pods) > MAX_PODS:
            self._pods.popitem(last=False)

    def _is_bound(self, uid: str) -> bool:
        pod = self._state.consumers.pods.get(uid)
        return pod is not None and bool(pod.spec.node_name)

    def _forget(self, uid: str) -> None:
        """Forget a pod that was bound or deleted."""
        self.reservations = finish(self.reservations, uid)
        self._state.unreserve(uid)
        self._pods.pop(uid, None)
        self._rejected.pop(uid, None)
        self._waiting.end(uid)
        self._written.discard(uid)
        self._on_end(uid)

    def _dry_run_of(self, uid: str) -> DryRunBudget:
        """Return the budget of the attempt of a pod."""
        if self._dry_run[0] != uid:  # Its PreFilter was answered by the process before this one.
            self._dry_run = (uid, DryRunBudget())
        return self._dry_run[1]

    def _find_pod(self, uid: str) -> Pod | None:
        return self._pods.get(uid) or self._state.consumers.pods.get(uid)

    def _answer(self, verdict: Verdict, code: str = "", message: str = "") -> VerdictAnswer:
        return VerdictAnswer(
            instance=self.instance,
            acknowledged=self.reservations.acknowledged,
            verdict=verdict,
            code=code,
            message=message,
        )
