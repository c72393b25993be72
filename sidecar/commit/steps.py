"""The next write of a claim, and its effect on the claim's reservation.

Each step is decided on the claim as it is seen at that moment, so that a step that somebody else made,
or that was made twice, does no harm. The sidecar runs these steps against the API server, and the
simulator of `make chaos` against one that delays, doubles and loses.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from allocator.pods.claims import Name, allocation_of
from allocator.pods.node_eligibility import is_for
from kube.api.core import Node
from kube.api.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from sidecar.commit import ledger, writes
from sidecar.commit.ledger import Hold, Step
from sidecar.commit.writes import Consumer, Outcome, Patch
from sidecar.model.rejections import Code, Rejection, failed_rejection, unschedulable


class Kind(StrEnum):
    """The effect of a write on a claim."""

    PROTECT = "protect"
    """Add the finalizer."""
    ALLOCATE = "allocate"
    """Give it devices, and reserve it for consumers."""
    RESERVE = "reserve"
    """Reserve it for further consumers."""
    DEALLOCATE = "deallocate"
    """Take consumers out, and the devices back after the last one."""
    LEAVE = "leave"
    """Take consumers out, and leave the devices."""
    SETTLE = "settle"
    """Change the version and nothing else, so that no earlier write can land."""


class ConsumedClaim(NamedTuple):
    """A claim of a pod that is to be bound.

    Attributes:
        entry: The entry of `status.reservedFor` by which the pod may use it.
    """

    name: Name
    uid: str
    entry: ResourceClaimConsumerReference


class Candidate(NamedTuple):
    """A pod that waits to be bound to a node with a claim that is being written."""

    consumer: Consumer
    node: Node


class ClaimWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write, conditional on the very version that it was decided on.

    Attributes:
        claim: The claim as it was read for the decision.
        entries: The entries of `status.reservedFor` that ALLOCATE and RESERVE add, and that DEALLOCATE and
            LEAVE take out.
        allocation: The allocation for ALLOCATE.
    """

    kind: Kind
    claim: ResourceClaim
    entries: tuple[ResourceClaimConsumerReference, ...] = ()
    allocation: AllocationResult | None = None

    @property
    def is_of_status(self) -> bool:
        """Return True if the write goes to the status, an endpoint of its own."""
        return self.kind not in {Kind.PROTECT, Kind.SETTLE}


def next_bind_step(
    claim: ResourceClaim | None,
    uid: str,
    hold: Hold | None,
    candidate: Candidate,
    *,
    drivers: Collection[str],
    is_unsettled: bool,
    others: Sequence[Candidate] = (),
) -> ClaimWrite | Rejection | None:
    """Return the next write on the way to a claim that is allocated and reserved for a pod.

    Args:
        claim: The claim as it is now; None if it does not exist.
        uid: The UID of the claim that was reserved.
        hold: The devices that are promised to the claim.
        candidate: The pod, with the node that it will be bound to.
        drivers: The drivers whose devices may be given now: the fence may have opened since the promise.
        is_unsettled: An earlier write, decided on this version of the claim, may be made yet.
        others: Other pods that wait to write the claim. One write reserves it for all that can have
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
        selector = allocation.node_selector
        if selector is not None and not is_for(selector, candidate.node):
            return unschedulable(
                Code.CLAIM_NOT_AVAILABLE, f"ResourceClaim {name} is allocated elsewhere"
            )
        if writes.is_reserved_for(claim, candidate.consumer.entry.uid):
            # An earlier release without an answer would take the devices from the pod while it runs.
            return ClaimWrite(kind=Kind.SETTLE, claim=claim) if is_unsettled else None
        if len(writes.consumers(claim)) >= writes.MAX_CONSUMERS:
            # Others have taken the last places. The pod is tried again, and waits for a place then.
            return failed_rejection(Code.TOO_MANY_CONSUMERS, writes.full_claim_message(name))
        entries = _joining_entries(claim, candidate, others, allocation)
        return ClaimWrite(kind=Kind.RESERVE, claim=claim, entries=entries)
    if hold is None or candidate.consumer.pod_uid not in hold.pods:
        return unschedulable(Code.DEVICES_GONE, "the reserved devices are not free any more")
    promised_drivers = {result.driver for result in hold.allocation.devices.results or ()}
    foreign_drivers = sorted(promised_drivers.difference(drivers))
    if foreign_drivers:
        return unschedulable(
            Code.DRIVER_NOT_OWNED, f"devices of {foreign_drivers[0]} are not given any more"
        )
    # The finalizer is metadata, so it takes a write of its own before the one of the status.
    if not writes.has_finalizer(claim):
        return ClaimWrite(kind=Kind.PROTECT, claim=claim)
    promised = [other for other in others if other.consumer.pod_uid in hold.pods]
    entries = _joining_entries(claim, candidate, promised, hold.allocation)
    return ClaimWrite(kind=Kind.ALLOCATE, claim=claim, entries=entries, allocation=hold.allocation)


def _joining_entries(
    claim: ResourceClaim,
    candidate: Candidate,
    others: Iterable[Candidate],
    allocation: AllocationResult,
) -> tuple[ResourceClaimConsumerReference, ...]:
    """Return the entries to add for a pod and for others that can have the claim too, as many as fit."""
    selector = allocation.node_selector
    entry = candidate.consumer.entry
    known_uids = {consumer.uid for consumer in writes.consumers(claim)} | {entry.uid}
    room = writes.MAX_CONSUMERS - len(known_uids)
    joining = {
        other.consumer.entry.uid: other.consumer.entry
        for other in others
        if other.consumer.entry.uid not in known_uids
        and (selector is None or is_for(selector, other.node))
    }
    return entry, *tuple(joining.values())[: max(0, room)]


def next_release_step(
    claim: ResourceClaim | None,
    uid: str,
    entries: Sequence[ResourceClaimConsumerReference],
    *,
    deallocate: bool,
) -> ClaimWrite | None:
    """Return the write that takes consumers out of a claim; None when nothing is left to do.

    Args:
        entries: The entries of `status.reservedFor` of pods that were not bound, one at least. That of a PodGroup is
            not among them while another of its pods uses the claim.
        deallocate: The pods were never bound, so the devices are free if nobody else uses them.
    """
    if claim is None or claim.metadata.uid != uid or allocation_of(claim) is None:
        return None
    uids = {entry.uid for entry in entries}
    others = any(consumer.uid not in uids for consumer in writes.consumers(claim))
    leaving = [entry for entry in entries if writes.is_reserved_for(claim, entry.uid)]
    if not leaving and (others or not deallocate):
        return None
    # A bound pod may have prepared devices, so only an unbound one may end the allocation.
    kind = Kind.DEALLOCATE if deallocate else Kind.LEAVE
    return ClaimWrite(kind=kind, claim=claim, entries=tuple(leaving or entries))


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
    claim, uids = write.claim, frozenset(entry.uid for entry in write.entries)
    match write.kind:
        case Kind.PROTECT:
            return writes.finalizer_patch(claim)
        case Kind.ALLOCATE:
            allocation = write.allocation or AllocationResult()
            return writes.allocation_patch(claim, allocation, write.entries, now)
        case Kind.RESERVE:
            return writes.reservation_patch(claim, write.entries)
        case Kind.DEALLOCATE:
            return writes.release_patch(claim, uids)
        case Kind.LEAVE:
            return writes.leave_patch(claim, uids)
        case Kind.SETTLE:
            return writes.settling_patch(claim, number)
