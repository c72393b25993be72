"""Brings the allocations of a reserved pod into the API, and takes them back.

Each step is decided on the claim as it is at that moment, so that a step that somebody else made, or
that was made twice, does no harm.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, Protocol

import structlog

from allocator.pods.claims import Name, allocation_of
from allocator.pods.node_eligibility import is_for
from kube.api.core import Node
from kube.api.resource import ResourceClaim, ResourceClaimConsumerReference
from kube.api.timestamps import rfc3339
from kube.errors import KubeError, NotFound
from sidecar.plan import ledger, writes
from sidecar.plan.binding import Binding, binding_state
from sidecar.plan.ledger import Hold, Step
from sidecar.plan.rejections import Code, Rejection, failed, unschedulable
from sidecar.plan.writes import Outcome, Patch
from sidecar.state import ClusterState

MAX_CONFLICTS: Final = 10
RETRY_S: Final = 0.25
"""Before a write that got no answer is repeated."""
SETTLE_INTERVAL_S: Final = 1.0

log = structlog.get_logger()


class Writer(Protocol):
    """How claims are written and read."""

    async def patch(self, name: Name, patch: Patch, *, status: bool) -> bytes:
        """Patch a claim and return it as stored."""
        ...

    async def read(self, name: Name) -> bytes:
        """Return a claim as stored."""
        ...


class BinderSettings(NamedTuple):
    """How long a binding takes at most, in seconds.

    Attributes:
        write_deadline_s: For the writes of one claim.
        binding_timeout_s: For the binding conditions of all devices.
    """

    write_deadline_s: float
    binding_timeout_s: float


class PodReference(NamedTuple):
    """A pod that claims are reserved for."""

    uid: str
    namespace: str
    name: str

    def consumer(self) -> ResourceClaimConsumerReference:
        """Return the entry of `status.reservedFor`."""
        return ResourceClaimConsumerReference(resource="pods", name=self.name, uid=self.uid)


class Binder:
    """Writes what was reserved."""

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
        self._settings = settings
        self._now = now
        self._count = count
        self._turns: dict[str, _Turn] = {}
        self._settled = 0

    async def bind(
        self, pod: PodReference, node: Node, claims: Sequence[tuple[Name, str]]
    ) -> Rejection | None:
        """Allocate claims and reserve them for a pod; return why that is not possible.

        Args:
            node: That the pod will be bound to.
            claims: Name and UID of each.
        """
        for name, uid in claims:
            async with self._locked(uid):
                rejection = await self._bind_claim(pod, node, name, uid)
            if rejection is not None:
                return rejection
        return await self._wait_ready([name for name, _ in claims])

    async def release(self, pod: PodReference, name: Name, uid: str, *, deallocate: bool) -> bool:
        """Take a pod out of a claim that was written for it; return whether that was done.

        Args:
            deallocate: The pod was never bound, so the devices are free if nobody else uses them.
        """
        async with self._locked(uid):
            for _ in range(MAX_CONFLICTS):
                claim = self._state.claims.store.get(name)
                if claim is None or claim.metadata.uid != uid or allocation_of(claim) is None:
                    return False
                is_reserved = writes.is_reserved_for(claim, pod.uid)
                others = [one for one in writes.consumers(claim) if one.uid != pod.uid]
                if not is_reserved and (others or not deallocate):
                    return False
                patch = (
                    writes.release_patch(claim, pod.uid)
                    if deallocate
                    else writes.leave_patch(claim, pod.uid)
                )
                outcome = await self._write(claim, patch, status=True)
                if outcome is None:
                    return True
                if outcome is not Outcome.CONFLICT:
                    return False
            return False

    async def run(self) -> None:
        """Settle writes that got no answer, until cancelled."""
        while True:
            await asyncio.sleep(SETTLE_INTERVAL_S)
            for hold in self._state.holds_in(Step.UNKNOWN):
                async with self._locked(hold.uid):
                    await self._settle(hold.uid)

    # --- one claim --------------------------------------------------------------------------------

    async def _bind_claim(
        self, pod: PodReference, node: Node, name: Name, uid: str
    ) -> Rejection | None:
        try:
            async with asyncio.timeout(self._settings.write_deadline_s):
                for _ in range(MAX_CONFLICTS):
                    step = self._next_step(pod, node, name, uid)
                    if step is None or isinstance(step, Rejection):
                        return step
                    rejection = await self._make(step, uid)
                    if rejection is not None:
                        return rejection
        except TimeoutError:
            return failed(Code.WRITE_UNKNOWN, "a write of a ResourceClaim got no answer in time")
        return failed(Code.WRITE_REFUSED, "a ResourceClaim changes faster than it can be written")

    def _next_step(
        self, pod: PodReference, node: Node, name: Name, uid: str
    ) -> "_Write | Rejection | None":
        """Return what to write next; None when nothing is left to do."""
        claim = self._state.claims.store.get(name)
        if claim is None or claim.metadata.uid != uid:
            return unschedulable(Code.CLAIM_NOT_FOUND, f"ResourceClaim {name[1]} not found")
        if claim.metadata.deletion_timestamp is not None:
            return unschedulable(Code.CLAIM_DELETED, f"ResourceClaim {name[1]} is being deleted")
        allocation = allocation_of(claim)
        if allocation is not None:
            if allocation.node_selector is not None and not is_for(allocation.node_selector, node):
                return unschedulable(
                    Code.CLAIM_NOT_AVAILABLE, f"ResourceClaim {name[1]} is allocated elsewhere"
                )
            if writes.is_reserved_for(claim, pod.uid):
                return None
            return _Write(claim, writes.reservation_patch(claim, pod.consumer()), is_status=True)
        hold = self._state.hold_of(claim)
        if hold is None or pod.uid not in hold.pods:
            return unschedulable(Code.DEVICES_GONE, "the reserved devices are not free any more")
        if not writes.has_finalizer(claim):
            return _Write(claim, writes.finalizer_patch(claim), is_status=False)
        now = rfc3339(self._now())
        patch = writes.allocation_patch(claim, hold.allocation, pod.consumer(), now)
        return _Write(claim, patch, is_status=True, allocates=True)

    async def _make(self, step: "_Write", uid: str) -> Rejection | None:
        """Make a write; return why nothing more can be tried."""
        if step.allocates:
            base = step.claim.metadata.resource_version
            self._state.change(uid, partial(ledger.begin, base=base))
        try:
            outcome = await self._write(step.claim, step.patch, status=step.is_status)
        except BaseException:  # Cancelled: the write may be made nevertheless.
            self._state.change(uid, ledger.unanswered)
            raise
        if outcome is Outcome.REFUSED or outcome is Outcome.GONE:
            self._state.change(uid, ledger.refused)
            return failed(Code.WRITE_REFUSED, "the API server refused to write a ResourceClaim")
        if outcome is Outcome.UNKNOWN:
            self._state.change(uid, ledger.unanswered)
            await asyncio.sleep(RETRY_S)
        return None

    async def _write(self, claim: ResourceClaim, patch: Patch, *, status: bool) -> Outcome | None:
        """Make a write and take its result; return what its failure proves, None if it was made."""
        name = (claim.metadata.namespace, claim.metadata.name)
        try:
            stored = await self._writer.patch(name, patch, status=status)
        except KubeError as error:
            outcome = writes.outcome_of(error)
            self._count(outcome)
            log.warning(
                "claim.write_failed", claim="/".join(name), outcome=outcome, error=str(error)
            )
            if outcome is Outcome.CONFLICT:
                await self._refresh(name)
            return outcome
        self._count(None)
        self._state.claims.put(stored)
        return None

    async def _refresh(self, name: Name) -> None:
        """Read a claim, so that the next step is decided on what it has become."""
        try:
            self._state.claims.put(await self._writer.read(name))
        except NotFound:
            await asyncio.sleep(RETRY_S)  # Its deletion is on its way to us.
        except KubeError as error:
            log.warning("claim.read_failed", claim="/".join(name), error=str(error))
            await asyncio.sleep(RETRY_S)

    async def _settle(self, uid: str) -> None:
        """Change the version of a claim, so that no earlier write of ours can land."""
        hold: Hold | None = self._state.holds.get(uid)
        if hold is None or hold.step is not Step.UNKNOWN:
            return
        claim = self._state.claims.store.get(hold.name)
        if claim is None or claim.metadata.uid != uid:
            return
        self._settled += 1
        await self._write(claim, writes.settling_patch(claim, self._settled), status=False)

    # --- waiting ----------------------------------------------------------------------------------

    async def _wait_ready(self, names: Sequence[Name]) -> Rejection | None:
        """Wait for the binding conditions of all devices."""
        try:
            async with asyncio.timeout(self._settings.binding_timeout_s):
                while True:
                    claims = [self._state.claims.store.get(name) for name in names]
                    state = binding_state(claim for claim in claims if claim is not None)
                    if state is Binding.READY:
                        return None
                    if state is Binding.FAILED:
                        return unschedulable(
                            Code.BINDING_FAILED, "a driver could not make a device ready"
                        )
                    await self._state.claims.wait_change()
        except TimeoutError:
            return unschedulable(
                Code.BINDING_FAILED, "a driver did not make a device ready in time"
            )

    @asynccontextmanager
    async def _locked(self, uid: str) -> AsyncIterator[None]:
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


class _Turn:
    """The right to write one claim, and how many tasks have it or wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class _Write(NamedTuple):
    """A patch of a claim, and whether it allocates."""

    claim: ResourceClaim
    patch: Patch
    is_status: bool
    allocates: bool = False
