"""Writes to a claim, as patches, and the conclusions from their answers.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources, bindClaim;
pkg/registry/resource/resourceclaim/strategy.go: the status endpoint drops the finalizer silently, so
that allocation and finalizer need two writes.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from kube.api.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kube.errors import KubeError
from kube.names import GROUP

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Source: k8s.io/api v0.37.1, resource/v1, Finalizer."""
SETTLED_ANNOTATION: Final = f"{GROUP}/settled"
"""Changes the version of a claim, so that no earlier write can land any more."""
LOCKED: Final = 423
"""The status of a write that was not sent, since this process may not write any more."""
MAX_CONSUMERS: Final = 256
"""Source: k8s.io/api v0.37.1, resource/v1, ResourceClaimReservedForMaxSize."""

Patch = Mapping[str, Any]


class Consumer(NamedTuple):
    """A pod with its entry in `status.reservedFor` of a claim.

    Attributes:
        pod_uid: The pod's UID.
        entry: Its own entry, or that of its PodGroup, which all pods of the group use.
    """

    pod_uid: str
    entry: ResourceClaimConsumerReference


class Outcome(StrEnum):
    """The conclusion from a failed write."""

    CONFLICT = "conflict"
    """The write was not made: the claim has changed."""
    GONE = "gone"
    """The write was not made: the claim does not exist."""
    NOT_SENT = "notSent"
    """The write was not made: this process may not write any more."""
    REFUSED = "refused"
    """The write was not made, but a copy of it that is on its way may be: an API server whose fence
    did not know the holder yet refuses what it admits a moment later."""
    UNKNOWN = "unknown"
    """It may have been made, or may be made later."""


def outcome_of(error: KubeError) -> Outcome:
    """Return the conclusion from an error about the write that ended with it."""
    match error.status:
        case 409:
            return Outcome.CONFLICT
        case 404:
            return Outcome.GONE
        case 408:
            return Outcome.UNKNOWN
        case status if status == LOCKED:
            return Outcome.NOT_SENT
        case status if 400 <= status < 500:
            return Outcome.REFUSED
        case _:
            return Outcome.UNKNOWN


def finalizer_patch(claim: ResourceClaim) -> Patch:
    """Return the patch that protects a claim from deletion while it is allocated."""
    finalizers = [*(claim.metadata.finalizers or ()), FINALIZER]
    return _on(claim, finalizers=finalizers)


def settling_patch(claim: ResourceClaim, number: int) -> Patch:
    """Return a patch that changes nothing but the version."""
    return _on(claim, annotations={SETTLED_ANNOTATION: str(number)})


def has_finalizer(claim: ResourceClaim) -> bool:
    """Return True if a claim is protected from deletion."""
    return FINALIZER in (claim.metadata.finalizers or ())


def allocation_patch(
    claim: ResourceClaim,
    allocation: AllocationResult,
    entries: Sequence[ResourceClaimConsumerReference],
    timestamp: str,
) -> Patch:
    """Return the patch of the status that allocates a claim and reserves it for consumers.

    Args:
        timestamp: Now, as the API writes it.
    """
    dated_allocation = replace(allocation, allocation_timestamp=timestamp)
    return _on(claim) | {
        "status": {"allocation": dated_allocation, "reservedFor": _with(claim, entries)}
    }


def reservation_patch(
    claim: ResourceClaim, entries: Sequence[ResourceClaimConsumerReference]
) -> Patch:
    """Return the patch of the status that reserves an allocated claim for further consumers."""
    return _on(claim) | {"status": {"reservedFor": _with(claim, entries)}}


def release_patch(claim: ResourceClaim, uids: Collection[str]) -> Patch:
    """Return the patch of the status that takes consumers out, and the allocation with the last one."""
    remaining_consumers = _without(claim, uids)
    if remaining_consumers:
        return _on(claim) | {"status": {"reservedFor": remaining_consumers}}
    return _on(claim) | {"status": {"allocation": None, "reservedFor": None, "devices": None}}


def leave_patch(claim: ResourceClaim, uids: Collection[str]) -> Patch:
    """Return the patch of the status that takes consumers out, and leaves the allocation."""
    return _on(claim) | {"status": {"reservedFor": _without(claim, uids) or None}}


def full_claim_message(name: str) -> str:
    """Return that a claim has no place for the entry of a further pod.

    Args:
        name: The claim's name, without its namespace.
    """
    return (
        f"ResourceClaim {name} is reserved for {MAX_CONSUMERS} pods, and for no more at a time; the pod waits "
        "until one of them ends; give it a claim that fewer pods share"
    )


def consumers(claim: ResourceClaim) -> tuple[ResourceClaimConsumerReference, ...]:
    """Return the consumers of a claim."""
    return (claim.status.reserved_for if claim.status is not None else None) or ()


def is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    """Return True if a claim is reserved for the pod or the PodGroup of a UID."""
    return any(consumer.uid == uid for consumer in consumers(claim))


def _with(
    claim: ResourceClaim, entries: Sequence[ResourceClaimConsumerReference]
) -> list[ResourceClaimConsumerReference]:
    return [*_without(claim, {entry.uid for entry in entries}), *entries]


def _without(claim: ResourceClaim, uids: Collection[str]) -> list[ResourceClaimConsumerReference]:
    return [consumer for consumer in consumers(claim) if consumer.uid not in uids]


def _on(claim: ResourceClaim, **metadata: object) -> dict[str, Any]:
    """Return a patch that is conditional on this very version of this very claim."""
    return {
        "metadata": {
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
            **metadata,
        }
    }
