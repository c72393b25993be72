"""The next write of a claim, and its effect on the claim's reservation.

Each step is decided on the claim as it is seen at that moment, so that a step that somebody else made,
or that was made twice, does no harm. The sidecar runs these steps against the API server, and the
simulator of `make chaos` against one that delays, doubles and loses.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from allocator.pods.claims import allocation_of
from allocator.pods.node_eligibility import is_for
from kube.api.core import Node
from kube.api.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from sidecar.commit import ledger, writes
from sidecar.commit.ledger import Hold, Step
from sidecar.commit.writes import Outcome, Patch
from sidecar.model.rejections import Code, Rejection, unschedulable


class Kind(StrEnum):
    """The effect of a write on a claim."""

    PROTECT = "protect"
    """Add the finalizer."""
    ALLOCATE = "allocate"
    """Give it devices, and reserve it for a pod."""
    RESERVE = "reserve"
    """Reserve it for one more pod."""
    DEALLOCATE = "deallocate"
    """Take pods out, and the devices back after the last one."""
    LEAVE = "leave"
    """Take pods out, and leave the devices."""
    SETTLE = "settle"
    """Change the version and nothing else, so that no earlier write can land."""


class Candidate(NamedTuple):
    """A pod that waits to be bound to a node with a claim that is being written."""

    pod: ResourceClaimConsumerReference
    node: Node


class ClaimWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write, conditional on the very version that it was decided on.

    Attributes:
        claim: The claim as it was read for the decision.
        pod: Whom it is about; None for PROTECT and SETTLE.
        others: Further pods that ALLOCATE and RESERVE reserve the claim for, and that DEALLOCATE and LEAVE
            take out.
        allocation: The allocation for ALLOCATE.
    """

    kind: Kind
    claim: ResourceClaim
    pod: ResourceClaimConsumerReference | None = None
    others: tuple[ResourceClaimConsumerReference, ...] = ()
    allocation: AllocationResult | None = None

    @property
    def is_of_status(self) -> bool:
        """Return True if the write goes to the status, an endpoint of its own."""
        return self.kind not in {Kind.PROTECT, Kind.SETTLE}


def next_bind_step(
    claim: ResourceClaim | None,
    uid: str,
    hold: Hold | None,
    pod: ResourceClaimConsumerReference,
    node: Node,
    *,
    is_unsettled: bool,
    candidates: Sequence[Candidate] = (),
) -> ClaimWrite | Rejection | None:
    """Return the next write on the way to a claim that is allocated and reserved for a pod.

    Args:
        claim: The claim as it is now; None if it does not exist.
        uid: The UID of the claim that was reserved.
        hold: The devices that are promised to the claim.
        node: The node that the pod will be bound to.
        is_unsettled: An earlier write, decided on this version of the claim, may be made yet.
        candidates: Other pods that wait to write the claim. One write reserves it for all that can have
            it, so that a claim with many pods is not written once for each.

    Returns:
        None when nothing is left to do.
    """
    if claim is None or claim.metadata.uid != uid:
        return unschedulable(Code.CLAIM_NOT_FOUND, "a ResourceClaim of the pod does not exist")
    name = claim.metadata.name
    if claim.metadata.deletion_timestamp is not None:
        return unschedulable(Code.CLAIM_DELETED, f"ResourceClaim {name} is being deleted")
    allocation = allocation_of(claim)
    if allocation is not None:
        if allocation.node_selector is not None and not is_for(allocation.node_selector, node):
            return unschedulable(
                Code.CLAIM_NOT_AVAILABLE, f"ResourceClaim {name} is allocated elsewhere"
            )
        if writes.is_reserved_for(claim, pod.uid):
            # An earlier release without an answer would take the devices from the pod while it runs.
            return ClaimWrite(kind=Kind.SETTLE, claim=claim) if is_unsettled else None
        others = _joining(candidates, claim, pod, allocation)
        return ClaimWrite(kind=Kind.RESERVE, claim=claim, pod=pod, others=others)
    if hold is None or pod.uid not in hold.pods:
        return unschedulable(Code.DEVICES_GONE, "the reserved devices are not free any more")
    # The finalizer is metadata, so it takes a write of its own before the one of the status.
    if not writes.has_finalizer(claim):
        return ClaimWrite(kind=Kind.PROTECT, claim=claim)
    promised = [candidate for candidate in candidates if candidate.pod.uid in hold.pods]
    others = _joining(promised, claim, pod, hold.allocation)
    return ClaimWrite(
        kind=Kind.ALLOCATE, claim=claim, pod=pod, others=others, allocation=hold.allocation
    )


def _joining(
    candidates: Iterable[Candidate],
    claim: ResourceClaim,
    pod: ResourceClaimConsumerReference,
    allocation: AllocationResult,
) -> tuple[ResourceClaimConsumerReference, ...]:
    """Return the candidates that a claim is reserved for together with a pod, as many as it may have."""
    selector = allocation.node_selector
    known_uids = {consumer.uid for consumer in writes.consumers(claim)} | {pod.uid}
    room = writes.MAX_CONSUMERS - len(known_uids)
    joining = [
        candidate.pod
        for candidate in candidates
        if candidate.pod.uid not in known_uids
        and (selector is None or is_for(selector, candidate.node))
    ]
    return tuple(joining[: max(0, room)])


def next_release_step(
    claim: ResourceClaim | None,
    uid: str,
    pods: Sequence[ResourceClaimConsumerReference],
    *,
    deallocate: bool,
) -> ClaimWrite | None:
    """Return the write that takes pods out of a claim; None when nothing is left to do.

    Args:
        pods: One at least.
        deallocate: The pods were never bound, so the devices are free if nobody else uses them.
    """
    if claim is None or claim.metadata.uid != uid or allocation_of(claim) is None:
        return None
    uids = {pod.uid for pod in pods}
    others = any(consumer.uid not in uids for consumer in writes.consumers(claim))
    leaving = [pod for pod in pods if writes.is_reserved_for(claim, pod.uid)]
    if not leaving and (others or not deallocate):
        return None
    # A bound pod may have prepared devices, so only an unbound one may end the allocation.
    kind = Kind.DEALLOCATE if deallocate else Kind.LEAVE
    first, *rest = leaving or pods
    return ClaimWrite(kind=kind, claim=claim, pod=first, others=tuple(rest))


def next_settle_step(
    claim: ResourceClaim | None, uid: str, hold: Hold | None, *, is_unsettled: bool
) -> ClaimWrite | None:
    """Return the write that keeps earlier ones of a claim from landing; None when none is needed.

    Called while no write of the claim is under way, so one whose end was missed got no answer, too.

    Args:
        claim: The claim as it is now; None if it does not exist.
        uid: The UID of the claim that was written.
        hold: The devices that are promised to the claim.
        is_unsettled: An earlier write, decided on this version of the claim, may be made yet.
    """
    if claim is None or claim.metadata.uid != uid:
        return None  # Its deletion is seen, or will be.
    if is_unsettled or (hold is not None and hold.step is not Step.RESERVED):
        return ClaimWrite(kind=Kind.SETTLE, claim=claim)
    return None


def before(hold: Hold, write: ClaimWrite) -> Hold:
    """Return the hold while a write is under way."""
    if write.kind is not Kind.ALLOCATE:
        return hold
    return ledger.begin(hold, write.claim.metadata.resource_version)


def after(hold: Hold, write: ClaimWrite, outcome: Outcome) -> Hold | None:
    """Return the hold after a write failed; None when there is none any more.

    After a conflict nothing changes: what the claim has become decides, once it is seen.
    """
    if write.kind is not Kind.ALLOCATE:
        return hold
    match outcome:
        case Outcome.UNKNOWN | Outcome.REFUSED:
            return ledger.unsettled_hold(hold)
        case Outcome.GONE | Outcome.NOT_SENT:
            return ledger.unmade_hold(hold)
        case Outcome.CONFLICT:
            return hold


def patch_of(write: ClaimWrite, *, now: str, number: int) -> Patch:
    """Return the patch of a write.

    Args:
        now: The time, as the API writes it.
        number: Differs from that of every other settling write.
    """
    claim, pod = write.claim, write.pod or ResourceClaimConsumerReference()
    match write.kind:
        case Kind.PROTECT:
            return writes.finalizer_patch(claim)
        case Kind.ALLOCATE:
            allocation = write.allocation or AllocationResult()
            return writes.allocation_patch(claim, allocation, (pod, *write.others), now)
        case Kind.RESERVE:
            return writes.reservation_patch(claim, (pod, *write.others))
        case Kind.DEALLOCATE:
            return writes.release_patch(claim, _uids(write))
        case Kind.LEAVE:
            return writes.leave_patch(claim, _uids(write))
        case Kind.SETTLE:
            return writes.settling_patch(claim, number)


def _uids(write: ClaimWrite) -> frozenset[str]:
    return frozenset(pod.uid for pod in (write.pod, *write.others) if pod is not None)
