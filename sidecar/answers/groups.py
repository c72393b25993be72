"""The answers about groups of pods: their turn, the decision, and the wait after it."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from kube.api.core import Pod
from sidecar.answers.decision_turns import DecisionTurns
from sidecar.answers.evaluations import EVALUATION_WAIT_S, Evaluations
from sidecar.answers.group_decisions import GroupDecisions
from sidecar.answers.intake import Intake
from sidecar.answers.known_pods import KnownPods
from sidecar.answers.seen_claims import SeenClaims
from sidecar.groups.places import GroupOutcome, Places
from sidecar.groups.starvation import has_waited, waits_for_devices
from sidecar.model.protocol import (
    GroupAnswer,
    GroupReference,
    GroupRequest,
    MemberAnswer,
    PlacedMember,
    Verdict,
)
from sidecar.model.rejections import Rejection, unfinished
from sidecar.plan.decisions import NoDevicesNeeded
from sidecar.plan.occupancy import Keep
from sidecar.plan.waiting import WaitingPods, representative
from sidecar.reports.metrics import SidecarMetrics
from sidecar.state.state import ClusterState
from sidecar.writes.group_commits import GroupCommits


class Callers(NamedTuple):
    """All waiters: for a turn, for devices, for evaluations, for news of claims."""

    turns: DecisionTurns
    waiting: WaitingPods
    evaluations: Evaluations
    seen_claims: SeenClaims


class Help(NamedTuple):
    """The answer to PodGroupPostFilter."""

    verdict: Verdict
    message: str = ""


UNKNOWN_PODS: Final = unfinished("the pods of the group are not known; they are asked about anew")
_NO_HELP: Final = Help(Verdict.CONTINUE)


class Groups:
    """Answers the calls about groups."""

    def __init__(
        self,
        state: ClusterState,
        intake: Intake,
        decisions: GroupDecisions,
        callers: Callers,
        *,
        pods: KnownPods,
        commits: GroupCommits,
        metrics: SidecarMetrics,
        keep_after_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a group.

        Args:
            pods: Pods that the scheduler asked about.
            commits: Releases claims.
            keep_after_s: Seconds of waiting after which a group keeps the devices that it can use.
            clock: Monotonic seconds.
        """
        self._state = state
        self._pods = pods
        self._intake = intake
        self._decisions = decisions
        self._callers = callers
        self._commits = commits
        self._metrics = metrics
        self._keep_after = timedelta(seconds=keep_after_s)
        self._clock = clock

    async def answer(self, request: GroupRequest) -> GroupOutcome:
        """Return the places of a group."""
        deadline_s = self._decisions.decisions.deadline_s(request)
        if request.what_if:
            return await self._answer_what_if(request, deadline_s)
        if not request.pods:
            await self._intake.accept_in_turn(request)
            return NoDevicesNeeded()
        for pod in request.pods:
            self._pods.add(pod)
        # What a group costs is one pod's, always the same: its namespace pays, and it comes last if it hangs.
        pod = representative(request.pods)
        self._callers.turns.expect_no_more(request.pods)
        outcome: GroupOutcome | None = self._callers.turns.turn_away(pod)
        if outcome is None:
            outcome = await self._callers.seen_claims.wait(request)
        if outcome is None:
            outcome = await self._decide(request, pod, deadline_s)
        else:
            async with self._intake.turn:
                await self._intake.accept_and_place(request, deadline_s)
        if not (isinstance(outcome, Rejection) and outcome.is_unfinished):
            self._callers.evaluations.forget(pod.metadata.uid)
        self._decisions.memory.take(request.group.uid, outcome)
        self._wait(request, outcome)
        await self._keep_devices(request, outcome, pod, deadline_s)
        self._count(outcome)
        return outcome

    @property
    def keeps(self) -> Sequence[Keep]:
        """The devices that are kept for groups."""
        return self._decisions.memory.keeps

    def end_keeps(self) -> None:
        """Keep nothing for groups that are gone, were placed, or have too few pods; called in turn."""
        if self._decisions.memory.end_keeps(self._is_waiting):
            self._state.version += 1  # Pods that were turned away for them are planned anew.

    async def help(self, group: GroupReference) -> Help:
        """Release a claim that keeps a group from nodes, or wait for a release that helps it."""
        if self._decisions.memory.places(group.uid) is not None:
            return Help(Verdict.RETRY, "other filters turned down its nodes, and others are tried")
        request = self._callers.waiting.group(group.uid)
        if request is None:
            return _NO_HELP
        uids = frozenset(pod.metadata.uid for pod in request.pods)
        for pod in request.pods:
            for claim in self._pods.releasable_claims(pod, uids):
                if await self._commits.release(pod.metadata.uid, claim, deallocate=True):
                    return Help(Verdict.RELEASED, f"deallocated ResourceClaim {claim.name[1]}")
        if await self._awaits_release(request):
            return Help(Verdict.WAIT, "devices of pods that are gone are being released")
        return _NO_HELP

    async def _decide(self, request: GroupRequest, pod: Pod, deadline_s: float) -> GroupOutcome:
        """Find the places of a group; wait for a moment for necessary evaluations first."""
        uid, evaluations = pod.metadata.uid, self._callers.evaluations
        until_s = min(deadline_s, self._clock() + EVALUATION_WAIT_S)
        while True:
            attempt = self._decisions.decisions.attempt(
                pod, deadline_s=deadline_s, keeps_verdicts=evaluations.has(uid)
            )
            async with self._intake.turn:
                with self._intake.accept(request) as reserved_pods:
                    outcome = await self._decisions.find_places(request, reserved_pods, attempt)
            if not isinstance(outcome, Rejection) or not outcome.is_unfinished:
                return outcome
            if attempt.engine is None or not await evaluations.ask(
                uid, pod.metadata.namespace, attempt.engine.demand, until_s - self._clock()
            ):
                return outcome

    async def _keep_devices(
        self, request: GroupRequest, outcome: GroupOutcome, pod: Pod, deadline_s: float
    ) -> None:
        """Have a group keep devices if it has waited for long, and none if it waits for something else."""
        uid, memory = request.group.uid, self._decisions.memory
        if isinstance(outcome, Rejection) and outcome.is_transient:
            return
        is_changed = False
        if not waits_for_devices(outcome):
            is_changed = memory.replace_keep(uid, None)
        elif has_waited(request, self._keep_after, self._state.now()):
            attempt = self._decisions.decisions.attempt(pod, deadline_s=deadline_s)
            async with self._intake.turn:
                is_changed = await self._decisions.keep_devices(request, attempt)
        self._state.version += is_changed

    def _is_waiting(self, uid: str) -> bool:
        """Check that a group waits, with as many pods as it needs."""
        request = self._callers.waiting.group(uid)
        if request is None:
            return False
        group, groups = request.group, self._state.groups
        is_gone = (
            groups.groups.is_available
            and groups.min_count((group.namespace, group.name), uid) is None
        )
        return not is_gone and len(request.pods) + len(request.placed) >= group.min_count

    async def _answer_what_if(self, request: GroupRequest, deadline_s: float) -> GroupOutcome:
        with_pods = self._decisions.with_pods(request)
        if with_pods is None:
            await self._intake.accept_in_turn(request)
            return UNKNOWN_PODS
        request = with_pods
        attempt = self._decisions.decisions.attempt(
            representative(request.pods), deadline_s=deadline_s
        )
        async with self._intake.turn:
            with self._intake.accept(request) as reserved_pods:
                return await self._decisions.find_places_with(request, reserved_pods, attempt)

    def _wait(self, request: GroupRequest, outcome: GroupOutcome) -> None:
        """Have the pods without a place wait that were not bound or deleted meanwhile."""
        pods = [pod for pod in request.pods if pod.metadata.uid in self._pods]
        placed = request.placed
        rejection = outcome if isinstance(outcome, Rejection) else None
        match outcome:
            case NoDevicesNeeded():
                pods = []
            case Places(nodes=nodes):
                pods = [pod for pod in pods if pod.metadata.uid not in nodes]
                placed += tuple(PlacedMember(pod_uid=uid, node=node) for uid, node in nodes.items())
            case Rejection():
                pass  # All of them wait.
        waiting_request = replace(
            request,
            pods=tuple(pods),
            placed=placed,
            headroom=None,
            reservations=(),
            unreserved=(),
        )
        self._callers.waiting.take_group(waiting_request, rejection)

    async def _awaits_release(self, request: GroupRequest) -> bool:
        """Return True if a group is to wait for a release; then it is tried again after it."""
        if not (self._state.consumers.releasing or self._state.consumers.terminating):
            return False
        async with self._intake.turn:
            claims = await self._decisions.awaited_claims(request)
            if claims and self._callers.waiting.group(request.group.uid) is not None:
                self._callers.waiting.await_release(request.pods[0], claims)
            return bool(claims)

    def _count(self, outcome: GroupOutcome) -> None:
        if isinstance(outcome, Rejection):
            self._metrics.count_rejection(outcome.code)


def group_answer(request: GroupRequest, outcome: GroupOutcome) -> GroupAnswer:
    """Return the answer to the scheduler, without the fields of all answers."""
    match outcome:
        case NoDevicesNeeded():
            return GroupAnswer(verdict=Verdict.SKIP)
        case Rejection(verdict=verdict, code=code, message=message, is_unfinished=unfinished):
            return GroupAnswer(verdict=verdict, code=code, message=message, unfinished=unfinished)
        case Places(nodes=nodes, rejections=rejections):
            members = {uid: MemberAnswer(node=node) for uid, node in nodes.items()}
            for uid, rejection in rejections.items():
                members[uid] = MemberAnswer(code=rejection.code, message=rejection.message)
            # A what-if may leave its pods out.
            uids = [pod.metadata.uid for pod in request.pods] or [*members]
            ordered = {uid: members[uid] for uid in uids if uid in members}
            return GroupAnswer(verdict=Verdict.FITS, members=ordered)
