"""Makes the decisions of `sidecar.plan`, one after the other: quick ones on the event loop, others on a thread.

During a decision on a thread the event loop goes on renewing the Lease and reading watches. A hop to a
thread and back costs more than most decisions, so a decision is made on the event loop where those
about the same requests were quick before. One that takes long there after all delays the event loop once.

A decision waits for nothing. What it needs of the worker that evaluates selectors is in its attempt
afterwards.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from allocator.cluster.canonical_requests import encode_requests
from allocator.model.usage import gather_usage
from allocator.pods.claims import Name, claim_name
from clusterstate.kinds import Kind
from kube.api.core import Pod
from kube.cel.scope import AnswerInterrupted, Meter, evaluating
from kube.collections.least_recently_used import LeastRecentlyUsed
from process.selectors.deferring import DeferringEngine
from process.selectors.engine import WorkerEngine
from sidecar.answers.decision_turns import ABANDONED
from sidecar.answers.promises import Promises, ReservedPod
from sidecar.groups.memory import GroupMemory
from sidecar.groups.placing import place_member
from sidecar.groups.waking import find_placeable
from sidecar.model.protocol import FilterRequest, PreFilterRequest, Request
from sidecar.model.rejections import Code, Rejection, failed_rejection
from sidecar.ownership.drift import differs
from sidecar.plan.decisions import Outcome, find_nodes
from sidecar.plan.group_claims import entries_by_claim, group_of, with_promised
from sidecar.plan.nominations import place_beside_rivals
from sidecar.plan.placement import Placement, with_allocation
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.preemption import DryRunBudget, awaited_claims, fits_with
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.waking import WaitingPod, Woken
from sidecar.reports.metrics import SidecarMetrics
from sidecar.state.decision_log import DecisionLog
from sidecar.state.pod_room import PodRoom
from sidecar.state.state import ClusterState

FIND_NODES: Final = "find_nodes"
FITS_WITH: Final = "fits_with"
PLACE: Final = "place"
WAKE: Final = "wake"
AWAIT_RELEASE: Final = "await_release"
DRIFT_CHECK: Final = "drift_check"
NEW: Final = "_new"
"""The suffix of a decision's kind for requests that are not remembered, which takes longer."""
QUICK_S: Final = 0.005
"""Time of a quick decision, with the changes that are applied for it."""
QUICK_AGAIN: Final = 16
"""Quick decisions after a long one about the same requests, until they are made on the event loop again:
whoever writes pods chooses which decisions are long."""
MAX_CPU_S: Final = 0.5
"""CPU time of a decision, whatever its steps are, and of the choice of a reserved pod's devices."""
MAX_DECISION_S: Final = 3.0
"""Time of a decision, however slow the machine is."""
ANSWER_S: Final = 0.1
"""Time for an answer to reach the plugin."""
MAX_PLACED: Final = 8
"""Reserved pods whose devices are chosen with a quick decision."""
MAX_REMEMBERED: Final = 4096
"""Requests of which is known whether decisions about them are quick."""

NO_TIME: Final = failed_rejection(
    Code.BUDGET_EXHAUSTED,
    "the call ended before the devices of the reserved pod were chosen; it is tried again",
)

T = TypeVar("T")


class Attempt(NamedTuple):
    """One attempt to decide about a pod.

    Attributes:
        pod: The pod; None for a decision about all of them.
        engine: Takes note of what has to be evaluated first; None evaluates everything in place.
        deadline_s: The time, by the clock, from which nobody waits for the decision any more.
        keeps_verdicts: There was no answer about the pod yet, so that what was evaluated is kept.
    """

    pod: Pod | None
    engine: DeferringEngine | None
    deadline_s: float = math.inf
    keeps_verdicts: bool = False

    @property
    def tenant(self) -> str:
        """The namespace that the decision is made for; empty for all."""
        return "" if self.pod is None else self.pod.metadata.namespace

    @property
    def question(self) -> str | None:
        """The unfinished question that verdicts are kept for; None if there is none."""
        return self.pod.metadata.uid if self.pod is not None and self.keeps_verdicts else None


class UnderWay(NamedTuple):
    """A decision that has begun.

    Attributes:
        uid: The UID of the decision's pod; empty for all.
        ends_s: The time, by the clock, by which it has to have ended.
    """

    uid: str
    ends_s: float


class DecisionMaker:
    """Makes decisions on the cluster as it is; the caller sees to it that it is one at a time.

    Attributes:
        under_way: The decision that has begun and not ended; None without one.
        log: The inputs and outcomes of decisions, while somebody reads them.
    """

    def __init__(
        self,
        state: ClusterState,
        metrics: SidecarMetrics,
        engine: WorkerEngine | None,
        promises: Promises,
        room: PodRoom,
        *,
        groups: GroupMemory,
        on_decision: Callable[[Pod, float], None] = lambda _pod, _took_s: None,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Begin without a decision.

        Args:
            engine: Evaluates selectors; None evaluates them in place.
            promises: Take the devices that are chosen for reserved pods.
            room: The resources left on nodes, and the pods that usually come.
            groups: The places of groups, which their reserved pods get.
            on_decision: Called on the event loop after each decision about a pod, with the seconds that
                it took.
            clock: Monotonic seconds.
            cpu_clock: CPU seconds of the thread.
        """
        self.under_way: UnderWay | None = None
        self.log: Final = DecisionLog(clock)
        self._on_decision = on_decision
        self._decided: list[tuple[Pod, float]] = []
        self._state = state
        self._metrics = metrics
        self._engine = engine
        self._promises = promises
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._room = room
        self._groups = groups
        # How many quick decisions are missing, by hash of the requests; a collision costs time, and
        # changes no decision.
        self._missing_quick = LeastRecentlyUsed[int, int](MAX_REMEMBERED)

    def deadline_s(self, request: Request) -> float:
        """Return the end of the plugin's wait for the answer to a request, by the clock."""
        wait_s = request.deadline_millis / 1000 or MAX_DECISION_S
        return self._clock() + max(0.0, wait_s - ANSWER_S)

    def overdue_pod(self, by_s: float) -> str | None:
        """Return the UID of the pod with a decision that should have ended so many seconds ago.

        Returns:
            Empty for a decision about all pods; None without such a decision.
        """
        under_way = self.under_way
        if under_way is None or self._clock() < under_way.ends_s + by_s:
            return None
        return under_way.uid

    def attempt(
        self,
        pod: Pod | None = None,
        *,
        deadline_s: float = math.inf,
        keeps_verdicts: bool = False,
    ) -> Attempt:
        """Return a new attempt to decide about a pod, or about all of them."""
        engine = None if self._engine is None else self._engine.deferring()
        return Attempt(pod, engine, deadline_s, keeps_verdicts)

    # --- the decisions ----------------------------------------------------------------------------

    async def find_nodes(
        self, request: PreFilterRequest, reserved_pods: Sequence[ReservedPod], attempt: Attempt
    ) -> Outcome:
        """Find the nodes for a pod, on the devices that reserved pods leave; count its kind.

        Args:
            request: The pod.
            reserved_pods: The pods whose devices are chosen first.
            attempt: The attempt to decide about the pod.

        Returns:
            `ABANDONED` if nobody waits for it any more, or it takes too much time.
        """
        pod, requests = request.pod, request.requests

        def decide(snapshot: Snapshot) -> Outcome:
            self._room.learn(pod, snapshot, requests=requests, at_s=self._now_s)
            outcome = find_nodes(pod, snapshot, all_nodes=request.all, requests=requests)
            if self.log.is_followed:
                self.log.note_decided(request, outcome, snapshot)
            self._room.look(snapshot)
            return outcome

        # The requests do not tell how long it takes to look at all nodes.
        about = None if request.all else pod
        try:
            return await self.place_and_decide(
                reserved_pods, FIND_NODES, decide, about=about, attempt=attempt
            )
        except AnswerInterrupted:
            return ABANDONED

    async def fits_with(
        self,
        pod: Pod,
        request: FilterRequest,
        reserved_pods: Sequence[ReservedPod],
        attempt: Attempt,
        dry_run: DryRunBudget,
    ) -> Placement | Rejection:
        """Choose the devices of a pod on a node with other pods than there are.

        Args:
            request: The node, and the pods that are taken to be gone or there.
            reserved_pods: The pods whose devices are chosen first.
            attempt: The attempt to decide about the pod.
            dry_run: The budget of all such decisions about the pod.

        Returns:
            `ABANDONED` if nobody waits for it any more, or it takes too much time.
        """

        def decide(snapshot: Snapshot) -> Placement | Rejection:
            return fits_with(
                pod,
                request.node,
                snapshot,
                removed_pods=request.removed,
                added_pods=request.added,
                dry_run=dry_run,
            )

        try:
            return await self.place_and_decide(
                reserved_pods, FITS_WITH, decide, about=None, attempt=attempt
            )
        except AnswerInterrupted:
            return ABANDONED

    async def find_placeable(self, waiting_pods: Sequence[WaitingPod]) -> Woken:
        """Return those of the waiting pods that could be placed now, together; none without an answer."""

        def plan(snapshot: Snapshot) -> Woken:
            unplaceable = self._groups.unplaceable.at(self._state.version, waiting_pods)
            return find_placeable(waiting_pods, snapshot, unplaceable=unplaceable)

        with suppress(AnswerInterrupted):
            return await self.decide(WAKE, plan, self.attempt())
        return Woken((), more=False)

    async def awaited_claims(self, pod: Pod) -> frozenset[Name]:
        """Return claims that make a pod fit by their release; empty if none do, or without an answer."""
        with suppress(AnswerInterrupted):
            return await self.decide(
                AWAIT_RELEASE, lambda snapshot: awaited_claims(pod, snapshot), self.attempt(pod)
            )
        return frozenset()

    async def has_drifted(self) -> bool:
        """Return True if the devices in use were counted wrongly, change by change.

        Raises:
            AnswerInterrupted: It takes too much time.
        """
        claims, features = self._state.claims_in_use(), self._state.features
        return await self.decide(
            DRIFT_CHECK,
            lambda snapshot: differs(snapshot.cluster.usage, gather_usage(claims, features)),
            self.attempt(),
        )

    async def look_at_slots(self) -> None:
        """Take in the news about the usual pods for the scheduler; nothing without the time for it."""
        with suppress(AnswerInterrupted):
            await self.decide("", self._room.look, self.attempt())

    async def learn_kinds(self) -> None:
        """Learn the kinds of pods that usually come from those in the cluster."""
        await self.decide(
            "", lambda snapshot: self._room.relearn(snapshot, self._now_s), self.attempt()
        )

    async def begin_log(self) -> None:
        """Log decisions from now on, beginning with the state of the next one."""
        self._room.on_headroom = self.log.note_headroom
        await self.decide("", lambda snapshot: self.log.begin(snapshot, self._room), self.attempt())

    async def apply_changes(self) -> None:
        """Build the view of the devices, or apply pending changes, so that no pod waits for it."""
        await self.decide("", lambda _snapshot: None, self.attempt())

    async def place(self, reserved_pods: Sequence[ReservedPod], deadline_s: float) -> None:
        """Choose the devices of reserved pods, each from those that earlier ones leave.

        Args:
            deadline_s: The time, by the clock, from which nobody waits any more.
        """
        if reserved_pods:
            await self.place_and_decide(
                reserved_pods,
                "",
                lambda _snapshot: None,
                about=reserved_pods[0].pod,
                attempt=self.attempt(deadline_s=deadline_s),
            )

    # --- making one -------------------------------------------------------------------------------

    async def decide(self, kind: str, decide: Callable[[Snapshot], T], attempt: Attempt) -> T:
        """Make a decision on a thread.

        Args:
            kind: The kind as in metrics; empty for one that is not measured.

        Raises:
            AnswerInterrupted: It was not made, for the reason that the class of the error says.
        """
        circumstances = self._circumstances(attempt)

        def measured(snapshot: Snapshot) -> T:
            with self._metrics.measuring(kind, self._clock), circumstances:
                return decide(snapshot)

        return await self._run(measured)

    async def place_and_decide(
        self,
        reserved_pods: Sequence[ReservedPod],
        kind: str,
        decide: Callable[[Snapshot], T],
        *,
        about: Pod | None,
        attempt: Attempt,
    ) -> T:
        """Choose the devices of reserved pods, then make a decision on the remaining ones.

        The devices are promised on the event loop, also if the decision fails.

        Args:
            kind: The kind as in metrics, with `NEW` behind it there if the requests are new.
            about: The pod whose requests tell how long the decision takes; None if they do not.
            attempt: The attempt that `decide` takes. Its deadline is also that of the placements:
                a pod whose devices are not chosen by then gets none.

        Raises:
            AnswerInterrupted: As in `decide`.
        """
        placements: list[tuple[ReservedPod, Placement | Rejection]] = []
        requests: set[int] = set()
        if about is not None:
            about_requests = self._requests(about)
            if kind and self._missing_quick.get(about_requests) is None:
                kind += NEW
            if len(reserved_pods) <= MAX_PLACED:
                requests = {about_requests, *(self._requests(pod) for _, pod in reserved_pods)}

        def place_then_decide(snapshot: Snapshot) -> T:
            for reserved_pod in reserved_pods:
                placement = self._place_one(reserved_pod, snapshot, attempt.deadline_s)
                placements.append((reserved_pod, placement))
                if self.log.is_followed:
                    self.log.note_placed(reserved_pod.reservation, placement, snapshot)
                if isinstance(placement, Placement):
                    snapshot = self._with_placement(reserved_pod.pod, placement, snapshot)
            with self._metrics.measuring(kind, self._clock), self._circumstances(attempt):
                return decide(snapshot)

        try:
            return await self._run(place_then_decide, requests)
        finally:
            for reserved_pod, placement in placements:
                self._promises.hold_claims(reserved_pod, placement)

    def _place_one(
        self, reserved_pod: ReservedPod, snapshot: Snapshot, deadline_s: float
    ) -> Placement | Rejection:
        """Choose the devices of a reserved pod; a search of a few steps is not ended by the deadline."""
        reservation, pod = reserved_pod
        attempt = self.attempt(pod, deadline_s=deadline_s)
        with self._metrics.measuring(PLACE, self._clock), self._circumstances(attempt):
            try:
                if reservation.group is None:
                    return place_beside_rivals(pod, reservation.node, snapshot)
                places = self._groups.places(reservation.group.uid)
                return place_member(pod, reservation.node, snapshot, places)
            except AnswerInterrupted:
                return NO_TIME

    def _with_placement(self, pod: Pod, placement: Placement, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with a pod's devices and entries; its promise is queued as a change, too."""
        entries = entries_by_claim(pod, snapshot.pod_groups.get(group_of(pod)))
        promised_entries = with_promised(snapshot.promised_entries, entries)
        promised_claims = {
            claim_name(claim): with_allocation(claim, allocation)
            for claim, allocation in placement.allocations
        }
        if promised_claims:
            snapshot = self._with_room(self._state.snapshot_with(promised_claims))
        return replace(snapshot, promised_entries=promised_entries)

    def _with_room(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with the resources left on nodes, the devices kept for groups, and promised entries."""
        room = self._room.view(snapshot.cluster, snapshot.weights)
        entries = self._promises.entries
        return replace(snapshot, room=room, keeps=self._groups.keeps, promised_entries=entries)

    @property
    def _now_s(self) -> float:
        """Seconds since 1970."""
        return self._state.now().timestamp()

    def _requests(self, pod: Pod) -> int:
        """Return a hash of the requests in a pod's claims, independent of their names."""
        claims = map(self._state.claims.store.get, claim_names(pod))
        known_claims = [claim for claim in claims if claim is not None]
        return hash(encode_requests(known_claims, self._state.allocator_options))

    async def _run(
        self, decide: Callable[[Snapshot], T], requests: Collection[int] = frozenset()
    ) -> T:
        changes = self._state.take_changes()
        if self.log.is_followed:
            self.log.note_kinds(self._room)
            self.log.note_claims(changes.devices.get(Kind.CLAIM, {}))

        def run() -> T:
            began = self._clock()
            try:
                snapshot = self._with_room(self._state.snapshot(changes))
                with self._metrics.counting(snapshot.cluster.costs):
                    return decide(snapshot)
            finally:
                was_quick = self._clock() - began <= QUICK_S
                for key in requests:
                    missing = self._missing_quick.get(key) or 1
                    self._missing_quick[key] = max(missing - 1, 0) if was_quick else QUICK_AGAIN

        try:
            is_quick = bool(requests) and all(self._missing_quick.get(key) == 0 for key in requests)
            if is_quick and self._state.is_cheap(changes):
                return run()
            return await asyncio.to_thread(run)
        except AnswerInterrupted:
            raise  # The changes were applied, and a search leaves nothing behind.
        except Exception:
            self._state.rebuild()  # A change may have been applied in part.
            self.log.end()
            raise
        finally:
            decided, self._decided = self._decided, []
            for pod, took_s in decided:
                self._on_decision(pod, took_s)

    @contextmanager
    def _circumstances(self, attempt: Attempt) -> Iterator[None]:
        """Evaluate selectors for an attempt, within the time that a decision may take."""
        began_s, cpu_ends_s = self._clock(), self._cpu_clock() + MAX_CPU_S
        pod = attempt.pod
        uid = "" if pod is None else pod.metadata.uid
        self.under_way = UnderWay(uid, min(attempt.deadline_s, began_s + MAX_DECISION_S))
        try:
            with evaluating(
                engine=attempt.engine,
                tenant=attempt.tenant,
                question=attempt.question,
                meter=Meter(is_over=lambda: self._cpu_clock() > cpu_ends_s),
                is_wanted=lambda: self._clock() < attempt.deadline_s,
            ):
                yield
        finally:
            self.under_way = None
            if pod is not None:
                self._decided.append((pod, self._clock() - began_s))
