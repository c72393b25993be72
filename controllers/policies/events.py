"""The events of a DeviceCompatibilityPolicy: about it, and about claims and pods that violate it.

An event names objects of its own namespace only.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import Final

from allocator.compatibility.conflicts_in_use import ClaimName, ConflictInUse, describe_conflict
from allocator.compatibility.enforcement import EnforcementReason, PolicyEnforcement
from controllers.policies.conditions import ConditionType
from kube.api.events import Event, ObjectReference
from kube.api.policy import (
    API_VERSION,
    KIND,
    Condition,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicyStatus,
)

ACTION: Final = "Validate"


class EventReason(StrEnum):
    """The reason of an event."""

    POLICY_INVALID = "PolicyInvalid"
    """The policy is not valid; an event about the policy."""
    POLICY_NOT_ENFORCED = "PolicyNotEnforced"
    """No scheduler enforces the policy, although it says so; an event about the policy."""
    DEVICE_INCOMPATIBLE = "DeviceIncompatible"
    """The policy keeps the device apart from another one in use; an event about a claim or a
    pod."""
    CONFLICTING_SHARING_CONFIG = "ConflictingSharingConfig"
    """Another claim shares the device with a contradicting configuration; an event about a claim or
    a pod."""


def policy_events(
    policy: DeviceCompatibilityPolicy, status: DeviceCompatibilityPolicyStatus
) -> Iterator[Event]:
    """Yield the events about a policy that is not valid, or that nothing enforces.

    The numbers of devices and pools in their notes change all the time, so the identity of an event has none.
    """
    for condition in status.conditions or ():
        is_false = condition.status == "False"
        if is_false and condition.type == ConditionType.VALID:
            yield _policy_event(policy, EventReason.POLICY_INVALID, condition)
        elif is_false and condition.reason == EnforcementReason.NO_POLICY_AWARE_SCHEDULER:
            yield _policy_event(policy, EventReason.POLICY_NOT_ENFORCED, condition)


def _policy_event(
    policy: DeviceCompatibilityPolicy, reason: EventReason, condition: Condition
) -> Event:
    return Event(
        regarding=ObjectReference.of(API_VERSION, KIND, policy.metadata),
        reason=reason,
        action=ACTION,
        note=condition.message,
        identity=f"{reason}/{condition.reason}/{policy.metadata.generation}",
    )


def conflict_events(
    conflicts: Iterable[ConflictInUse],
    enforcement: PolicyEnforcement,
    objects_of: Callable[[ClaimName], Iterable[ObjectReference]],
    recorded_pods: Collection[str],
) -> Iterator[Event]:
    """Yield the events about claims with devices that violate a policy, and about their pods.

    Args:
        conflicts: Devices in use that violate the policy.
        enforcement: The policy's enforcement.
        objects_of: The claim and the pods that it is reserved for; none if it is gone.
        recorded_pods: Uids of objects that had their event before.
    """
    reported_pods = set(recorded_pods)
    for conflict in conflicts:
        for device, holders in conflict.holders.items():
            for claim in holders:
                reason, note = _reason_and_note(conflict, enforcement, device, claim)
                for regarding in objects_of(claim):
                    if regarding.uid not in reported_pods:
                        reported_pods.add(regarding.uid)
                        yield Event(regarding=regarding, reason=reason, action=ACTION, note=note)


def _reason_and_note(
    conflict: ConflictInUse, enforcement: PolicyEnforcement, device: str, claim: ClaimName
) -> tuple[EventReason, str]:
    note = describe_conflict(conflict, device, claim)
    if not conflict.policy:
        return EventReason.CONFLICTING_SHARING_CONFIG, note
    if not enforcement.is_enforced:
        note += f" The policy is not enforced: {enforcement.message}."
    return EventReason.DEVICE_INCOMPATIBLE, note
