"""Devices that are promised and not yet seen in the API: a state machine per claim.

    reserved -- begin --> writing -- no answer, refused --> unknown -- begin --> writing, in doubt
       ^                    |                                  |                     |
       +----- not sent -----+                                  +----- not sent ------+
       +------- the version of the claim has changed ----------+---------------------+
    any -- the claim is seen allocated, deleted or recreated --> gone from here

A write that got no answer may still be made, however late: the API server goes on with what it has
received. One that was refused may have a copy on its way, which a proxy has sent again: a fence that
did not know the holder yet admits it a moment later. Each of our writes is conditional on the version
that it was decided on. So one thing settles it: the version of the claim changes, by ours or by any
other write. Merely reading the old version again proves nothing, and until then the devices stay
promised.

Source: k8s.io/apiserver v0.37.1, pkg/endpoints/handlers/finisher: a request that timed out goes on.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.meta import version_number
from kube.api.resource import AllocationResult, ResourceClaim, ResourceClaimStatus


class Step(StrEnum):
    """The progress of a hold on its way into the API."""

    RESERVED = "reserved"
    """Nothing was written."""
    WRITING = "writing"
    """A write is under way."""
    UNKNOWN = "unknown"
    """A write got no answer or was refused, and it or a copy may have been made or may be made later."""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that are promised to one claim.

    Attributes:
        uid: The UID of the claim, which may be deleted and created again under its name.
        pods: UIDs of the pods whose reservations need it. Empty: nobody needs it any more, and it
            ends as soon as no write of it can land.
        base: The resourceVersion on which the writes under way are conditional.
        in_doubt: An earlier write on the same version got no answer.
    """

    name: Name
    uid: str
    allocation: AllocationResult
    pods: frozenset[str]
    step: Step = Step.RESERVED
    base: str = ""
    in_doubt: bool = False


Ledger = Mapping[str, Hold]
"""UID of a claim to the devices that are promised to it."""


def reserve(
    hold: Hold | None, claim: ResourceClaim, allocation: AllocationResult, pod: str
) -> Hold:
    """Return the hold of a claim after a reservation for a pod.

    Args:
        hold: The present hold. Its allocation stays: pods that share a claim share its devices.
        pod: UID.
    """
    if hold is not None:
        # A search for a second pod may have chosen other devices, but a claim has one allocation.
        return replace(hold, pods=hold.pods | {pod})
    return Hold(
        name=claim_name(claim),
        uid=claim.metadata.uid,
        allocation=allocation,
        pods=frozenset({pod}),
    )


def unreserve(hold: Hold, pod: str) -> Hold | None:
    """Return the hold after a pod gave up; None if it is unused and no write of it can land."""
    return _unless_idle(replace(hold, pods=hold.pods - {pod}))


def begin(hold: Hold, base: str) -> Hold:
    """Return the hold while it is written.

    Args:
        base: The resourceVersion on which the write is conditional.
    """
    return replace(
        hold, step=Step.WRITING, base=base, in_doubt=hold.in_doubt or hold.step is Step.UNKNOWN
    )


def unmade_hold(hold: Hold) -> Hold | None:
    """Return the hold after a write that was not and cannot be made.

    That says nothing about an earlier one. Not for a conflict: what the claim has become decides.
    """
    if hold.step is not Step.WRITING:
        return hold
    if hold.in_doubt:
        # The failure proves nothing about the earlier write on the same version.
        return replace(hold, step=Step.UNKNOWN)
    return _unless_idle(_rested_hold(hold))


def unsettled_hold(hold: Hold) -> Hold:
    """Return the hold after a write that may be made yet: it got no answer, or was refused."""
    # The devices stay promised: a late write would allocate them to this claim.
    return replace(hold, step=Step.UNKNOWN) if hold.step is Step.WRITING else hold


def observe(hold: Hold, claim: ResourceClaim | None) -> Hold | None:
    """Return the hold once the claim was seen; None if the API now has everything it recorded.

    Args:
        claim: The claim as the API has it, never older than at the last call; None if it does not
            exist.
    """
    if claim is None or claim.metadata.uid != hold.uid or allocation_of(claim) is not None:
        # No write of ours can land on an object that is gone: it is conditional on its version.
        return None
    if hold.step is Step.RESERVED:
        return hold
    if version_number(claim.metadata.resource_version) > version_number(hold.base):
        # Our write was conditional on an older version: it was undone, or can never be made.
        return _unless_idle(_rested_hold(hold))
    return hold


def with_hold(claim: ResourceClaim, hold: Hold | None) -> ResourceClaim:
    """Return a claim with the devices that are promised to it, if any."""
    if hold is None or hold.uid != claim.metadata.uid or allocation_of(claim) is not None:
        return claim
    status = claim.status or ResourceClaimStatus()
    return replace(claim, status=replace(status, allocation=hold.allocation))


def _rested_hold(hold: Hold) -> Hold:
    return replace(hold, step=Step.RESERVED, base="", in_doubt=False)


def _unless_idle(hold: Hold) -> Hold | None:
    # A write under way or unknown keeps the hold, also without pods: it may still be made.
    return hold if hold.pods or hold.step is not Step.RESERVED else None
