"""The events of a DeviceCompatibilityPolicy: about it, and about claims and pods that violate it.

An event names objects of its own namespace only.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import Final

from allocator.compatibility.compile import CompiledPolicy
from allocator.compatibility.enforcement import EnforcementReason, PolicyEnforcement
from controllers.policies.clashes import Clash
from controllers.policies.conditions import ConditionType
from kube.api.events import Event, ObjectReference
from kube.api.policy import (
    API_VERSION,
    KIND,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicyStatus,
)

ACTION: Final = "Validate"
MAX_NAMED: Final = 5
"""Claims of the same namespace in one note."""

ClaimName = tuple[str, str]
"""Namespace and name."""


class EventReason(StrEnum):
    """The reason of an event."""

    POLICY_INVALID = "PolicyInvalid"
    """About the policy: it is not valid."""
    POLICY_NOT_ENFORCED = "PolicyNotEnforced"
    """About the policy: no scheduler enforces it, although it says so."""
    DEVICE_INCOMPATIBLE = "DeviceIncompatible"
    """About a claim or a pod: the policy keeps its device apart from another one in use."""
    CONFLICTING_SHARING_CONFIG = "ConflictingSharingConfig"
    """About a claim or a pod: another claim shares its device with a contradicting configuration."""


def policy_events(
    policy: DeviceCompatibilityPolicy, status: DeviceCompatibilityPolicyStatus
) -> Iterator[Event]:
    """Yield the events about a policy that is not valid, or that nothing enforces."""
    for condition in status.conditions or ():
        is_false = condition.status == "False"
        if is_false and condition.type == ConditionType.VALID:
            yield _policy_event(policy, EventReason.POLICY_INVALID, condition.message)
        elif is_false and condition.reason == EnforcementReason.NO_POLICY_AWARE_SCHEDULER:
            yield _policy_event(policy, EventReason.POLICY_NOT_ENFORCED, condition.message)


def _policy_event(policy: DeviceCompatibilityPolicy, reason: EventReason, note: str) -> Event:
    regarding = ObjectReference.of(API_VERSION, KIND, policy.metadata)
    return Event(regarding=regarding, reason=reason, action=ACTION, note=note)


def conflict_events(
    policy: CompiledPolicy,
    enforcement: PolicyEnforcement,
    clashes: Iterable[Clash],
    objects_of: Callable[[ClaimName], Iterable[ObjectReference]],
    recorded: Collection[str],
) -> Iterator[Event]:
    """Yield the events about claims whose devices violate a policy, and about their pods.

    Args:
        enforcement: Of the policy.
        objects_of: The claim and the pods that it is reserved for; none if it is gone.
        recorded: Uids of objects that had their event before.
    """
    done = set(recorded)
    for clash in clashes:
        for device, holders in clash.holders.items():
            for claim in holders:
                reason, note = _describe_clash(policy, enforcement, clash, device, claim)
                for regarding in objects_of(claim):
                    if regarding.uid not in done:
                        done.add(regarding.uid)
                        yield Event(regarding=regarding, reason=reason, action=ACTION, note=note)


def _describe_clash(
    policy: CompiledPolicy,
    enforcement: PolicyEnforcement,
    clash: Clash,
    device: str,
    claim: ClaimName,
) -> tuple[EventReason, str]:
    """Return reason and note of the event about a claim that holds a device."""
    others = [other for other in clash.devices if other != device]
    consumers = {consumer for other in others or (device,) for consumer in clash.holders[other]}
    named = _name_claims(consumers - {claim}, claim[0])
    place = f"Device {device} of pool {clash.pool.pool}"
    if not others:
        by = f" with {', '.join(named)}" if named else ""
        note = f"{place} is shared{by}: {clash.reason}."
        return EventReason.CONFLICTING_SHARING_CONFIG, note
    by = f" (held by {', '.join(named)})" if named else ""
    note = (
        f"{place} is in use beside {', '.join(others)}{by}, against {KIND} {policy.name}: "
        f"{clash.reason}."
    )
    if not enforcement.is_enforced:
        note += f" The policy is not enforced: {enforcement.message}."
    return EventReason.DEVICE_INCOMPATIBLE, note


def _name_claims(claims: Iterable[ClaimName], namespace: str) -> list[str]:
    """Return claims in words; those of other namespaces are not named."""
    names = sorted(claims)
    own = [f"claim {name}" for owner, name in names if owner == namespace][:MAX_NAMED]
    if any(owner != namespace for owner, _ in names):
        own.append("a claim in another namespace")
    return own
