"""The answers to the scheduler plugin: reservations first, then the decision, then its effects.

Decisions are made one after the other, long ones on a thread, so that the event loop goes on renewing
the Lease and reading watches. Whatever changes the devices in use waits for the next decision.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from kube.api.core import Pod
from kube.logs import get_logger
from process.selectors.engine import WorkerEngine
from sidecar.answers.decision_maker import DecisionMaker
from sidecar.answers.decision_reader import DecisionReader
from sidecar.answers.decision_turns import DOES_NOT_END, LATE_S, STUCK_S, DecisionTurns
from sidecar.answers.evaluations import EVALUATION_WAIT_S, Evaluations
from sidecar.answers.group_decisions import GroupDecisions
from sidecar.answers.groups import Callers, Groups, group_answer
from sidecar.answers.intake import Intake
from sidecar.answers.known_pods import KnownPods
from sidecar.answers.promises import UNKNOWN_POD, Promises
from sidecar.answers.seen_claims import SeenClaims
from sidecar.groups.memory import GroupMemory
from sidecar.model.debug_views import ReservationsView
from sidecar.model.protocol import (
    FilterAnswer,
    FilterRequest,
    GroupAnswer,
    GroupRequest,
    HelloAnswer,
    HelloRequest,
    PostFilterRequest,
    PreBindRequest,
    PreFilterAnswer,
    PreFilterRequest,
    Request,
    Reservation,
    UnreserveRequest,
    Verdict,
    VerdictAnswer,
    WakeAnswer,
    WakeRequest,
)
from sidecar.model.rejections import Code, Rejection, failed_rejection
from sidecar.model.reservations import Reservations
from sidecar.model.settings import UsualPod
from sidecar.plan.decisions import Fits, NoDevicesNeeded, Outcome
from sidecar.plan.occupancy import Keep
from sidecar.plan.placement import Placement
from sidecar.plan.preemption import DryRunBudget
from sidecar.plan.waiting import WaitingPods
from sidecar.plan.waking import Woken
from sidecar.reports.debug_view import reservations_view
from sidecar.reports.metrics import SidecarMetrics
from sidecar.state.pod_room import PodRoom
from sidecar.state.state import ClusterState
from sidecar.writes.binder import Binder
from sidecar.writes.group_commits import GroupCommits
from sidecar.writes.group_waits import Member, StillWaiting

REST_PER_PLAN: Final = 4
"""Times as long as a plan of the waiting pods took is the rest after it: pods that are scheduled wait for
plans. What happens meanwhile is planned together."""
MAX_REST_S: Final = 1.0

log = get_logger()


class Service:
    """Answers one scheduler while this process leads.

    Attributes:
        instance: Random text of this service.
        greetings: The number of hellos from schedulers.
        commits: Bind the pods of a group together.
        obstacle: The reason why no pod is served yet, although the cluster was read; empty if it is.
        turns: The turns of pods to be decided about.
        decisions: The log of decisions.
    """

    def __init__(
        self,
        state: ClusterState,
        binder: Binder,
        seen_claims: SeenClaims,
        *,
        instance: str,
        metrics: SidecarMetrics,
        engine: WorkerEngine | None = None,
        undecided: Mapping[str, int] = MappingProxyType({}),
        usual_pods: Sequence[UsualPod] = (),
        keep_for_group_after_s: float = 600.0,
        on_answer: Callable[[Pod, Rejection | None], None] = lambda _pod, _rejection: None,
        on_end: Callable[[str], None] = lambda _uid: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a scheduler.

        Args:
            seen_claims: Waits for what the scheduler has seen.
            engine: Evaluates selectors; None evaluates them here.
            undecided: The argument of `DecisionTurns`.
            usual_pods: The kinds of pods that usually come; empty to learn them.
            keep_for_group_after_s: Seconds of waiting after which a group keeps devices.
            on_answer: Called with each answer of PreFilter: why the pod is rejected, None if not.
            on_end: Called with the UID of each pod that was bound or deleted.
            clock: Monotonic seconds.
        """
        self.instance: Final = instance
        self._pods = KnownPods(state)
        self.commits: Final = GroupCommits(
            state, binder, observe=metrics.observe_group_commit, clock=clock
        )
        self._promises = Promises(state, self._pods.find, self.commits)
        self.greetings = 0
        self.obstacle = ""
        self._state = state
        self._binder = binder
        self._seen_claims = seen_claims
        self._metrics = metrics
        self.turns: Final = DecisionTurns(undecided, clock=clock)
        self._room = PodRoom(usual_pods)
        memory = GroupMemory()
        self._decisions = DecisionMaker(
            state,
            metrics,
            engine,
            self._promises,
            self._room,
            groups=memory,
            on_decision=self.turns.end,
            clock=clock,
        )
        self._evaluations = Evaluations(engine, self._pods)
        self._on_answer = on_answer
        self._on_end = on_end
        self._intake = Intake(
            self._promises,
            self._room,
            self._decisions,
            instance=instance,
            on_reservation=self._note_reservation,
        )
        self.decisions: Final = DecisionReader(self._decisions, self._intake, instance)
        # Pods whose claims were written: a Binding without an answer may be made after later attempts, too.
        self._written: set[str] = set()
        self._waiting = WaitingPods(clock)
        # The pod of the attempt that is under way, and what a dry run of it may cost: one pod is scheduled
        # at a time.
        self._dry_run: tuple[str, DryRunBudget] | None = None
        self._clock = clock
        self._groups = Groups(
            state,
            self._intake,
            GroupDecisions(self._decisions, state, memory),
            Callers(self.turns, self._waiting, self._evaluations, seen_claims),
            pods=self._pods,
            commits=self.commits,
            metrics=metrics,
            keep_after_s=keep_for_group_after_s,
            clock=clock,
        )
        state.on_begin = self.turns.expect
        state.on_end = state.groups.on_end = self._forget

    async def prepare(self) -> None:
        """Build the view of the devices, so that the first pod need not wait for it."""
        async with self._intake.turn:
            await self._decisions.apply_changes()

    async def rebuild(self) -> None:
        """Begin the view of the devices anew, since it may be wrong after a bug."""
        async with self._intake.turn:
            self._state.rebuild()
            self._decisions.log.end()

    # --- extension points -------------------------------------------------------------------------

    async def hello(self, request: HelloRequest) -> HelloAnswer:
        """Take over the reservations of a scheduler."""
        self.greetings += 1
        is_stuck = self.stuck_pod() is not None
        problem = self._state.check() or (DOES_NOT_END if is_stuck else self.obstacle)
        self._state.count_drivers()
        is_known = request.scheduler == self.reservations.scheduler
        has_news = not is_known or self._promises.has_news(request)
        if has_news and not problem:
            deadline_s = self._decisions.deadline_s(request)
            async with self._intake.turn:
                with self._intake.begin(self._promises.greet(request)) as reserved_pods:
                    await self._decisions.place(reserved_pods, deadline_s)
                if not is_known:
                    self._room.forget_nodes()
                    if not self._room.kinds:
                        await self._decisions.learn_kinds()
                    self._waiting.begin(self._state.consumers.pods.values())
                    self.turns.begin(self._state.consumers.pods.keys())
        # A greeting is not to wait for a decision: it says that this process lives.
        elif self._room.told.has_begun and not problem and not self._intake.turn.locked():
            async with self._intake.turn:
                await self._decisions.look_at_slots()
        return HelloAnswer(
            instance=self.instance,
            acknowledged=self.reservations.acknowledged,
            leads=True,
            ready=not problem,
            message=problem,
            wakeups=self._state.wakeups,
            drivers=tuple(sorted(self._state.drivers)),
            usual_pods=self._room.told.changes(request.usual_pods),
        )

    async def prefilter(self, request: PreFilterRequest) -> PreFilterAnswer:
        """Return the nodes that have devices for a pod."""
        pod, deadline_s = request.pod, self._decisions.deadline_s(request)
        self._pods.add(pod)
        self._dry_run = None
        outcome: Outcome | None = self.turns.turn_away(pod)
        if outcome is None:
            outcome = await self._seen_claims.wait(request)
        if outcome is None:
            outcome = await self._decide_about(request, deadline_s)
        else:
            async with self._intake.turn:
                await self._intake.accept_and_place(request, deadline_s)
        if not (isinstance(outcome, Rejection) and outcome.is_unfinished):
            self._evaluations.forget(pod.metadata.uid)
        acknowledged_number = self.reservations.acknowledged
        if pod.metadata.uid in self._pods:  # It was not bound or deleted meanwhile.
            self._waiting.take(pod, outcome)
            self._on_answer(pod, outcome if isinstance(outcome, Rejection) else None)
        answer = PreFilterAnswer(
            instance=self.instance,
            acknowledged=acknowledged_number,
            verdict=Verdict.SKIP,
            headroom=self._room.number,
            usual_pods=self._room.told.changes(request.usual_pods),
        )
        # What a decision depends on beside the cluster.
        log.debug(
            "pod.answered",
            pod=pod.metadata.uid,
            kinds=self._room.kinds_hash,
            headroom=self._room.number,
        )
        match outcome:
            case Fits(nodes=nodes, complete=is_complete):
                return replace(answer, verdict=Verdict.FITS, nodes=nodes, complete=is_complete)
            case Rejection(verdict=verdict, code=code, message=message, is_unfinished=unfinished):
                self._metrics.count_rejection(code)
                return replace(
                    answer, verdict=verdict, code=code, message=message, unfinished=unfinished
                )
            case NoDevicesNeeded():
                return answer

    async def _decide_about(self, request: PreFilterRequest, deadline_s: float) -> Outcome:
        """Find the nodes for a pod; wait for a moment for necessary evaluations first."""
        pod, uid = request.pod, request.pod.metadata.uid
        until_s = min(deadline_s, self._clock() + EVALUATION_WAIT_S)
        while True:
            attempt = self._decisions.attempt(
                pod, deadline_s=deadline_s, keeps_verdicts=self._evaluations.has(uid)
            )
            async with self._intake.turn:
                with self._intake.accept(request) as reserved_pods:
                    outcome = await self._decisions.find_nodes(request, reserved_pods, attempt)
            if not isinstance(outcome, Rejection) or not outcome.is_unfinished:
                return outcome
            if attempt.engine is None or not await self._evaluations.ask(
                uid, pod.metadata.namespace, attempt.engine.demand, until_s - self._clock()
            ):
                return outcome

    async def group(self, request: GroupRequest) -> GroupAnswer:
        """Return the places of the pods of a group."""
        if not request.what_if:
            placed = frozenset(member.pod_uid for member in request.placed)
            self.commits.note_placed(request.group, placed)
        outcome = await self._groups.answer(request)
        return replace(
            group_answer(request, outcome),
            instance=self.instance,
            acknowledged=self.reservations.acknowledged,
            headroom=self._room.number,
        )

    async def filter(self, request: FilterRequest) -> FilterAnswer:
        """Decide if a pod fits on a node with other pods than there are."""
        pod, deadline_s = self._pods.find(request.pod_uid), self._decisions.deadline_s(request)
        outcome: Placement | Rejection = UNKNOWN_POD
        async with self._intake.turn:
            if pod is None:
                await self._intake.accept_and_place(request, deadline_s)
            else:
                with self._intake.accept(request) as reserved_pods:
                    outcome = await self._decisions.fits_with(
                        pod,
                        request,
                        reserved_pods,
                        self._decisions.attempt(pod, deadline_s=deadline_s),
                        self._dry_run_of(request.pod_uid),
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
        deadline_s = self._decisions.deadline_s(request)
        if len(self._waiting):
            await self._seen_claims.wait_newest(request.newest_claim_version)
        woken, rest_s = Woken((), more=False), 0.0
        async with self._intake.turn:
            await self._intake.accept_and_place(request, deadline_s)
            unfinished_pods = self._waiting.unfinished()
            ready = self.turns.ready(unfinished_pods, self._evaluations.is_pending)
            ready_entries = self._waiting.find(ready.pods)
            self._waiting.wake(ready_entries, is_complete=True)
            self._groups.end_keeps()
            waiting = self._waiting.due(self._state.version)
            if waiting:
                began = self._clock()
                woken = await self._decisions.find_placeable(waiting)
                is_complete = not (woken.more or woken.is_partial)
                self._waiting.wake(woken.entries, is_complete=is_complete)
                rest_s = min(REST_PER_PLAN * (self._clock() - began), MAX_REST_S)
        entries = (*ready_entries, *woken.entries)
        self.turns.expect(*(entry.pod for entry in entries))
        return WakeAnswer(
            instance=self.instance,
            acknowledged=self.reservations.acknowledged,
            pods=tuple(name for entry in entries for name in entry.names),
            more=woken.more,
            rest_millis=ceil(rest_s * 1000),
            next_millis=ceil(ready.next_s * 1000) if unfinished_pods else 0,
        )

    async def prebind(self, request: PreBindRequest) -> VerdictAnswer:
        """Write the allocations of a reserved pod, or say that it waits for others of its group."""
        await self._intake.accept_in_turn(request)
        rejection = await self._bind(request)
        if isinstance(rejection, StillWaiting):
            return replace(self._answer(Verdict.WAIT), retry_millis=rejection.pause_millis)
        if rejection is not None:
            return self._answer(rejection.verdict, rejection.code, rejection.message)
        if request.pod_uid in self.reservations.by_pod:
            self._written.add(request.pod_uid)
        return self._answer(Verdict.OK)

    async def unreserve(self, request: UnreserveRequest) -> VerdictAnswer:
        """Take back a pod's promise and the writes for it."""
        await self._intake.accept_in_turn(request)
        if self._promises.was_tried_again(request):
            return self._answer(Verdict.OK)
        reservation = self.reservations.by_pod.get(request.pod_uid)
        if reservation is not None:
            given_up = Request(unreserved=(reservation.number,))
            self._promises.end(self._promises.accept(given_up))
        await self.commits.commit_ended(request.pod_uid)
        pod = self._pods.find(request.pod_uid)
        is_over = self._promises.was_tried_again(request) or self._pods.is_bound(request.pod_uid)
        if pod is not None and not is_over:
            # A pod whose PreBind succeeded may be bound, whatever the scheduler was told.
            deallocate = request.pod_uid not in self._written
            for claim in self._pods.claims_of(pod):
                await self.commits.release(request.pod_uid, claim, deallocate=deallocate)
        return self._answer(Verdict.OK)

    async def postfilter(self, request: PostFilterRequest) -> VerdictAnswer:
        """Release a claim of the pod's own that keeps it from nodes, or wait for a release that helps it."""
        await self._intake.accept_in_turn(request)
        if request.group is not None:
            help_ = await self._groups.help(request.group)
            return self._answer(help_.verdict, message=help_.message)
        pod = self._pods.find(request.pod_uid)
        if pod is None:
            return self._answer(Verdict.CONTINUE)
        for claim in self._pods.releasable_claims(pod):
            if await self.commits.release(request.pod_uid, claim, deallocate=True):
                message = f"deallocated ResourceClaim {claim.name[1]}"
                return self._answer(Verdict.RELEASED, message=message)
        if await self._awaits_release(pod):
            message = "devices of pods that are gone are being released"
            return self._answer(Verdict.WAIT, message=message)
        return self._answer(Verdict.CONTINUE)

    async def _awaits_release(self, pod: Pod) -> bool:
        """Return True if a pod is to wait for a release; then it is tried again after it."""
        if not (self._state.consumers.releasing or self._state.consumers.terminating):
            return False
        async with self._intake.turn:
            claims = await self._decisions.awaited_claims(pod)
            if claims and pod.metadata.uid in self._pods:
                self._waiting.await_release(pod, claims)
            return bool(claims)

    async def check_drift(self) -> bool:
        """Count the devices in use anew; return True if they were counted wrongly before."""
        async with self._intake.turn:
            has_drifted = await self._decisions.has_drifted()
            if has_drifted:
                log.error("usage.drifted")
                self._metrics.count_drift()
                self._state.rebuild()
                self._decisions.log.end()
                self._state.wakeups += 1
        return has_drifted

    def show(self) -> ReservationsView:
        """Return the promises that the API does not show yet."""
        return reservations_view(self.reservations, self._state, self.keeps)

    @property
    def keeps(self) -> Sequence[Keep]:
        """The devices that are kept for groups."""
        return self._groups.keeps

    def count_waiting(self, code: Code) -> int:
        """Return the number of waiting pods that were turned away for a reason."""
        return self._waiting.count(code)

    # --- reservations -----------------------------------------------------------------------------

    @property
    def reservations(self) -> Reservations:
        """The reservations in force."""
        return self._promises.reservations

    # --- decisions --------------------------------------------------------------------------------

    def stuck_pod(self) -> str | None:
        """Return the UID of the pod with a stuck decision, empty for one about all; None if none is."""
        return self._decisions.overdue_pod(STUCK_S)

    def undecided(self) -> Mapping[str, int]:
        """Return the pods with decisions that did not end, or are too late, and the number of these."""
        late_uid = self._decisions.overdue_pod(LATE_S)
        return {**({late_uid: 1} if late_uid else {}), **self.turns.undecided}

    # --- writing ----------------------------------------------------------------------------------

    async def _bind(self, request: PreBindRequest) -> Rejection | StillWaiting | None:
        uid = request.pod_uid
        if self.commits.has_begun(uid):
            return await self.commits.result(uid)
        if (rejection := self._promises.rejection(uid)) is not None:
            return rejection
        pod = self._pods.find(uid)
        node = self._state.node(request.node)
        reservation = self.reservations.by_pod.get(uid)
        if pod is None or node is None or reservation is None:
            return failed_rejection(Code.POD_UNKNOWN, "the pod has no reservation")
        claims = tuple(self._pods.claims_of(pod))
        if reservation.group is not None:
            self.commits.begin(Member(uid, request.node, claims))
            return await self.commits.result(uid)
        return await self._binder.bind(uid, node, claims)

    # --- pods -------------------------------------------------------------------------------------

    def _note_reservation(self, reservation: Reservation) -> None:
        """Take note that a pod waits no more."""
        self._waiting.end(reservation.pod_uid)

    def _forget(self, uid: str) -> None:
        """Forget a pod that was bound or deleted."""
        self._promises.forget(uid)
        self._pods.forget(uid)
        self._waiting.end(uid)
        self._written.discard(uid)
        self._evaluations.forget(uid)
        self.turns.forget(uid)
        self._on_end(uid)

    def _dry_run_of(self, uid: str) -> DryRunBudget:
        """Return the budget of the attempt of a pod."""
        if self._dry_run is None or self._dry_run[0] != uid:
            self._dry_run = (uid, DryRunBudget())
        return self._dry_run[1]

    def _answer(self, verdict: Verdict, code: str = "", message: str = "") -> VerdictAnswer:
        return VerdictAnswer(
            instance=self.instance,
            acknowledged=self.reservations.acknowledged,
            verdict=verdict,
            code=code,
            message=message,
        )
