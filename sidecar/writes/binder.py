"""Brings the allocations of a reserved pod into the API, and takes them back.

`commit.steps` decides what to write next; here the writes are made, one at a time for each claim. A claim is
reserved by one write for all pods that are being bound with it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from math import ceil
from typing import Final, NamedTuple, Protocol

from allocator.pods.claims import Name, claim_name
from kube.api.core import Node
from kube.api.meta import rfc3339
from kube.api.resource import ResourceClaim
from kube.errors import KubeError, NotFound
from kube.logs import get_logger
from process.fairness.turns import Turns
from sidecar.commit import steps, writes
from sidecar.commit.binding import Binding, binding_rejection, binding_state
from sidecar.commit.group_steps import GroupPod, TakeBack, leaving_entries, next_take_back_step
from sidecar.commit.ledger import Step
from sidecar.commit.steps import Candidate, ClaimWrite, ConsumedClaim
from sidecar.commit.unsettled import UnsettledWrites
from sidecar.commit.writes import Consumer, Outcome, Patch
from sidecar.model.rejections import Code, Rejection, failed_rejection
from sidecar.state.state import ClusterState

MAX_CONFLICTS: Final = 10
CONDITION_PERIOD_S: Final = 5.0
"""The time between two looks at the clock while devices are made ready. Source:
dynamicresources.go, PreBind."""
RETRY_S: Final = 0.25
"""The delay before a write that got no answer is repeated."""
SETTLE_INTERVAL_S: Final = 1.0

log = get_logger()


class Writer(Protocol):
    """The port that writes and reads claims."""

    async def patch(self, name: Name, patch: Patch, *, status: bool) -> bytes:
        """Patch a claim and return it as stored."""
        ...

    async def read(self, name: Name) -> bytes:
        """Return a claim as stored."""
        ...


class BinderSettings(NamedTuple):
    """The time limits of a binding, in seconds.

    Attributes:
        write_deadline_s: The time for the writes of one claim, once it has its turn.
        max_claims: The number of claims that are written at a time; half of them for one namespace. Further ones
            wait for their turn outside the deadline, so that what has begun ends however many wait.
        binding_timeout_s: The time for the binding conditions of all devices, from their
            allocation, and for the volumes of a pod that others of its group wait for.
    """

    write_deadline_s: float
    max_claims: int
    binding_timeout_s: float


class Binder:
    """Writes reserved devices to the API.

    Attributes:
        settings: The time limits of a binding.
    """

    def __init__(
        self,
        state: ClusterState,
        writer: Writer,
        settings: BinderSettings,
        *,
        now: Callable[[], datetime],
        count: Callable[[Outcome | None], None] = lambda _: None,
    ) -> None:
        """Begin without a write.

        Args:
            now: The wall clock.
            count: Called with the outcome of each write, None for success.
        """
        self._state = state
        self._writer = writer
        self.settings: Final = settings
        self._now = now
        self._count = count
        self._places = Turns(settings.max_claims, per_tenant=ceil(settings.max_claims / 2))
        self._turns: dict[str, _Turn] = {}
        # UID of a claim to the pods that are being bound with it, by UID.
        self._candidates: dict[str, dict[str, Candidate]] = {}
        self._unsettled = UnsettledWrites()
        self._number = 0

    async def bind(
        self, pod_uid: str, node: Node, claims: Sequence[ConsumedClaim]
    ) -> Rejection | None:
        """Allocate claims and reserve them for a pod; return a rejection if that is not possible.

        Args:
            node: The node that the pod will be bound to.
        """
        with self._candidate(pod_uid, node, claims):
            for claim in claims:
                async with self._lock_claim(claim.uid):
                    rejection = await self._bind_claim(pod_uid, node, claim)
                if rejection is not None:
                    return rejection
        return await self._wait_ready([claim.name for claim in claims])

    async def bind_together(self, members: Sequence[GroupPod]) -> Rejection | None:
        """Allocate and reserve the claims of all pods of a group; return a rejection if that is not possible.

        After the first rejection no further write begins; what was written is the caller's to take back.
        """
        rejections: list[Rejection] = []

        async def write(member: GroupPod, node: Node) -> None:
            for claim in member.claims:
                async with self._lock_claim(claim.uid):
                    rejection = await self._bind_claim(member.uid, node, claim, others=rejections)
                if rejection is not None:
                    rejections.append(rejection)

        with ExitStack() as candidates:
            placed = [(member, node) for member in members if (node := member.node) is not None]
            for member, node in placed:
                candidates.enter_context(self._candidate(member.uid, node, member.claims))
            async with asyncio.TaskGroup() as group:
                for member, node in placed:
                    group.create_task(write(member, node))
        if rejections:
            return rejections[0]
        names = dict.fromkeys(claim.name for member in members for claim in member.claims)
        return await self._wait_ready(tuple(names))

    async def take_back(
        self, take_back: TakeBack, find_used: Callable[[], Collection[str]]
    ) -> bool:
        """Take pods out of a claim that was written for them; return True if nothing is left to do.

        Args:
            find_used: Returns UIDs of the entries by which other pods use the claim, before each write.
        """
        uid = take_back.uid
        async with self._lock_claim(uid):
            for _ in range(MAX_CONFLICTS):
                claim = self._state.claims.store.get(take_back.name)
                step = next_take_back_step(
                    take_back,
                    claim,
                    self._state.holds.get(uid),
                    used=find_used(),
                    is_unsettled=self._is_unsettled(claim),
                )
                if isinstance(step, bool):
                    return step
                if await self._make(step) not in {None, Outcome.CONFLICT}:
                    return False
        return False

    async def release(
        self,
        pod: Consumer,
        consumed: ConsumedClaim,
        *,
        deallocate: bool,
        find_used: Callable[[], Collection[str]],
    ) -> bool:
        """Take a pod out of a claim that was written for it; return True if that was done.

        Args:
            deallocate: The pod was never bound, so the devices are free if nobody else uses them.
            find_used: Returns UIDs of the entries by which other pods use the claim, before each write.
        """
        async with self._lock_claim(consumed.uid):
            for _ in range(MAX_CONFLICTS):
                entries = leaving_entries((pod,), find_used())
                if not entries:
                    return False
                claim = self._state.claims.store.get(consumed.name)
                write = steps.next_release_step(claim, consumed.uid, entries, deallocate=deallocate)
                if write is None:
                    return False
                outcome = await self._make(write)
                if outcome is None:
                    return True
                if outcome is not Outcome.CONFLICT:
                    return False
            return False

    async def run(self) -> None:
        """Settle writes that got no answer, until cancelled."""
        while True:
            await asyncio.sleep(SETTLE_INTERVAL_S)
            self._unsettled.forget_settled(self._state.claims.store)
            for name, uid in self._unsettled_claims():
                if uid in self._turns:
                    continue  # Its write is under way, or tried again.
                async with self._lock_claim(uid):
                    claim, hold = self._state.claims.store.get(name), self._state.holds.get(uid)
                    write = steps.next_settle_step(
                        claim, uid, hold, is_unsettled=self._is_unsettled(claim)
                    )
                    if write is not None:
                        await self._make(write)

    def _unsettled_claims(self) -> tuple[tuple[Name, str], ...]:
        """Return name and UID of each claim that a write of ours may yet change."""
        holds = (*self._state.holds_in(Step.UNKNOWN), *self._state.holds_in(Step.WRITING))
        promised = ((hold.name, hold.uid) for hold in holds)
        return tuple(dict.fromkeys((*promised, *self._unsettled.claims)))

    def _is_unsettled(self, claim: ResourceClaim | None) -> bool:
        return claim is not None and self._unsettled.may_change(claim)

    # --- one claim --------------------------------------------------------------------------------

    async def _bind_claim(
        self,
        pod_uid: str,
        node: Node,
        consumed: ConsumedClaim,
        *,
        others: Sequence[Rejection] = (),
    ) -> Rejection | None:
        """Write a claim for a pod.

        Args:
            others: Rejections of the pod's group; after one no further write begins.
        """
        uid = consumed.uid
        candidate = Candidate(Consumer(pod_uid, consumed.entry), node)
        try:
            async with (
                self._places.take(consumed.name[0]),
                asyncio.timeout(self.settings.write_deadline_s),
            ):
                for _ in range(MAX_CONFLICTS):
                    if others:
                        return None
                    claim = self._state.claims.store.get(consumed.name)
                    step = steps.next_bind_step(
                        claim,
                        uid,
                        self._state.holds.get(uid),
                        candidate,
                        drivers=self._state.drivers,
                        is_unsettled=self._is_unsettled(claim),
                        others=tuple(self._candidates.get(uid, {}).values()),
                    )
                    if step is None or isinstance(step, Rejection):
                        return step
                    outcome = await self._make(step)
                    if outcome in {Outcome.REFUSED, Outcome.GONE, Outcome.NOT_SENT}:
                        return failed_rejection(
                            Code.WRITE_REFUSED, "the API server refused to write a ResourceClaim"
                        )
                    if outcome is Outcome.UNKNOWN:
                        await asyncio.sleep(RETRY_S)
        except TimeoutError:
            return failed_rejection(
                Code.WRITE_UNKNOWN, "a write of a ResourceClaim got no answer in time"
            )
        return failed_rejection(
            Code.WRITE_REFUSED, "a ResourceClaim changes faster than it can be written"
        )

    async def _make(self, write: ClaimWrite) -> Outcome | None:
        """Make a write and take its result; return the outcome proved by its failure, or None."""
        uid = write.claim.metadata.uid
        self._state.change(uid, partial(steps.before, write=write))
        try:
            outcome = await self._patch(write)
        except BaseException:  # Cancelled: the write may be made nevertheless.
            self._take_failure(write, Outcome.UNKNOWN)
            raise
        if outcome is not None:
            self._take_failure(write, outcome)
        return outcome

    def _take_failure(self, write: ClaimWrite, outcome: Outcome) -> None:
        self._unsettled.end(write, outcome)
        self._state.change(
            write.claim.metadata.uid, partial(steps.after, write=write, outcome=outcome)
        )

    async def _patch(self, write: ClaimWrite) -> Outcome | None:
        name = claim_name(write.claim)
        self._number += 1
        patch = steps.patch_of(write, now=rfc3339(self._now()), number=self._number)
        try:
            stored_claim = await self._writer.patch(name, patch, status=write.is_of_status)
        except KubeError as error:
            outcome = writes.outcome_of(error)
            self._count(outcome)
            log.warning(
                "claim.write_failed",
                claim="/".join(name),
                kind=write.kind,
                outcome=outcome,
                error=str(error),
            )
            if outcome is Outcome.CONFLICT:
                await self._refresh(name)
            return outcome
        self._count(None)
        self._state.claims.put(stored_claim)
        return None

    async def _refresh(self, name: Name) -> None:
        """Read a claim, so that the next step is decided on its present state."""
        try:
            self._state.claims.put(await self._writer.read(name))
        except NotFound:
            await asyncio.sleep(RETRY_S)  # Its deletion is on its way to us.
        except KubeError as error:
            log.warning("claim.read_failed", claim="/".join(name), error=str(error))
            await asyncio.sleep(RETRY_S)

    # --- waiting ----------------------------------------------------------------------------------

    async def _wait_ready(self, names: Sequence[Name]) -> Rejection | None:
        """Wait for the binding conditions of all devices."""
        timeout_s = self.settings.binding_timeout_s
        state = Binding.PENDING
        try:
            async with asyncio.timeout(timeout_s):
                while state is Binding.PENDING:
                    state = binding_state(
                        (self._state.claims.store.get(name) for name in names),
                        cutoff=self._now() - timedelta(seconds=timeout_s),
                    )
                    if state is Binding.PENDING:
                        await self._wait_change()
        except TimeoutError:
            state = Binding.TIMED_OUT
        return binding_rejection(state)

    async def _wait_change(self) -> None:
        """Wait until a claim changes, or it is time to look at the clock."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CONDITION_PERIOD_S):
                await self._state.claims.wait_change()

    @asynccontextmanager
    async def _lock_claim(self, uid: str) -> AsyncIterator[None]:
        """Let one task at a time write a claim."""
        turn = self._turns.setdefault(uid, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[uid]

    @contextmanager
    def _candidate(
        self, pod_uid: str, node: Node, claims: Sequence[ConsumedClaim]
    ) -> Iterator[None]:
        """Have the writes of other pods reserve these claims for a pod, too, while it is being bound.

        Who gives up afterwards is taken out of its claims by `release`, whoever wrote it there.
        """
        for claim in claims:
            candidate = Candidate(Consumer(pod_uid, claim.entry), node)
            self._candidates.setdefault(claim.uid, {})[pod_uid] = candidate
        try:
            yield
        finally:
            for claim in claims:
                of_claim = self._candidates.get(claim.uid, {})
                of_claim.pop(pod_uid, None)
                if not of_claim:
                    self._candidates.pop(claim.uid, None)


class _Turn:
    """The right to write one claim, and the number of tasks that have it or wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
