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
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicyStatus,
)

ACTION: Final = "Validate"


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
    conflicts: Iterable[ConflictInUse],
    enforcement: PolicyEnforcement,
    objects_of: Callable[[ClaimName], Iterable[ObjectReference]],
    recorded_pods: Collection[str],
) -> Iterator[Event]:
    """Yield the events about claims whose devices violate a policy, and about their pods.

    Args:
        conflicts: Devices in use that violate the policy.
        enforcement: Of the policy.
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
