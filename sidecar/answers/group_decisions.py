"""Makes the decisions of `sidecar.groups`, in turn with those about single pods."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from allocator.pods.claims import Name
from kube.cel.scope import AnswerInterrupted
from sidecar.answers.decision_maker import AWAIT_RELEASE, Attempt, DecisionMaker
from sidecar.answers.decision_turns import ABANDONED
from sidecar.answers.promises import ReservedPod
from sidecar.groups.decide import ATTEMPT_BUDGET, decide
from sidecar.groups.decide import Attempt as GroupAttempt
from sidecar.groups.dry_run import TOO_MANY_VICTIMS, GroupDryRun
from sidecar.groups.memory import GroupMemory
from sidecar.groups.places import GroupOutcome, Places
from sidecar.groups.releases import find_awaited_claims
from sidecar.groups.sparing import find_sparing, found_places, with_pods
from sidecar.groups.starvation import find_keep, keep_without_devices
from sidecar.model.protocol import GroupRequest
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.waiting import representative
from sidecar.state.state import ClusterState

FIND_PLACES: Final = "find_places"
FIND_PLACES_WITH: Final = "find_places_with"
FIND_KEEP: Final = "find_keep"


class GroupDecisions:
    """Makes decisions about groups on the cluster as it is; the caller sees to it that it is one at a time.

    Attributes:
        memory: The places of groups.
    """

    def __init__(
        self,
        decisions: DecisionMaker,
        state: ClusterState,
        memory: GroupMemory,
        *,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Begin without a decision.

        Args:
            cpu_clock: CPU seconds of the thread.
        """
        self.memory: Final = memory
        self.decisions: Final = decisions
        self._state = state
        self._cpu_clock = cpu_clock
        # The group of the cycle that is under way, and what its dry runs may cost.
        self._dry_run = GroupDryRun("")

    async def find_places(
        self, request: GroupRequest, reserved_pods: Sequence[ReservedPod], attempt: Attempt
    ) -> GroupOutcome:
        """Find the places of a group, on the devices that reserved pods leave.

        Returns:
            `ABANDONED` if nobody waits for it any more.
        """
        self._dry_run = GroupDryRun(request.group.uid)

        def decide_about(snapshot: Snapshot) -> GroupOutcome:
            return decide(
                request,
                snapshot,
                GroupAttempt(
                    version=self._state.version,
                    searches=self.memory.searches,
                    budget=ATTEMPT_BUDGET,
                ),
            )

        try:
            return await self.decisions.place_and_decide(
                reserved_pods, FIND_PLACES, decide_about, about=None, attempt=attempt
            )
        except AnswerInterrupted:
            return ABANDONED

    def with_pods(self, request: GroupRequest) -> GroupRequest | None:
        """Return a dry run with its pods, by default those of the one before; None if unknown."""
        known_places = self._dry_run.found if self._dry_run.uid == request.group.uid else None
        return with_pods(request, known_places)

    async def find_places_with(
        self, request: GroupRequest, reserved_pods: Sequence[ReservedPod], attempt: Attempt
    ) -> GroupOutcome:
        """Find the places of a group while some pods are taken to be gone, and remember nothing.

        Returns:
            `ABANDONED` if nobody waits for it any more.
        """
        if (
            self._dry_run.uid != request.group.uid
        ):  # The process before this one answered the cycle.
            self._dry_run = GroupDryRun(request.group.uid)
        dry_run = self._dry_run
        if dry_run.is_spent:
            return TOO_MANY_VICTIMS

        def decide_about(snapshot: Snapshot) -> GroupOutcome:
            costs, budget = snapshot.cluster.costs, dry_run.next_budget
            before, before_s = costs.steps, self._cpu_clock()
            outcome: GroupOutcome | None = None
            try:
                if dry_run.found is not None:
                    outcome = find_sparing(request, snapshot, dry_run.found, budget)
                if outcome is None:
                    outcome = decide(request, snapshot, GroupAttempt(budget=budget))
            finally:
                dry_run.spend(costs.steps - before, self._cpu_clock() - before_s)
            if isinstance(outcome, Places):
                dry_run.found = found_places(request, outcome, dry_run.found)
            return dry_run.concluded(outcome)

        try:
            return await self.decisions.place_and_decide(
                reserved_pods, FIND_PLACES_WITH, decide_about, about=None, attempt=attempt
            )
        except AnswerInterrupted:
            return ABANDONED

    async def keep_devices(self, request: GroupRequest, attempt: Attempt) -> bool:
        """Have a group that has waited for long keep devices; return true if that changes anything."""
        uid = request.group.uid
        memory, earlier = self.memory, self.memory.keep_of(uid)
        if not memory.may_keep(keep_without_devices(request)):
            return memory.replace_keep(uid, None)
        try:
            keep = await self.decisions.decide(
                FIND_KEEP,
                lambda snapshot: find_keep(request, snapshot, earlier, memory.infeasible),
                attempt,
            )
        except AnswerInterrupted:
            return False
        return memory.replace_keep(uid, keep)

    async def awaited_claims(self, request: GroupRequest) -> frozenset[Name]:
        """Return claims that make a group fit by their release; empty if none do, or without an answer."""
        attempt = self.decisions.attempt(representative(request.pods))
        try:
            return await self.decisions.decide(
                AWAIT_RELEASE, lambda snapshot: find_awaited_claims(request, snapshot), attempt
            )
        except AnswerInterrupted:
            return frozenset()
