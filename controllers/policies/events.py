"""The events of a DeviceCompatibilityPolicy: about it, and about claims whose devices break it.

An event names objects of its own namespace only, of others that there is one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import Final

from allocator.compatibility.compile import CompiledPolicy
from controllers.policies.clashes import Clash
from controllers.policies.status import ConditionType
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


class EventReason(StrEnum):
    """The reason of an event."""

    POLICY_INVALID = "PolicyInvalid"
    """About the policy: it is not valid."""
    DEVICE_INCOMPATIBLE = "DeviceIncompatible"
    """About a claim: the policy keeps its device apart from another one in use."""
    CONFLICTING_SHARING_CONFIG = "ConflictingSharingConfig"
    """About a claim: another claim shares its device with a contradicting configuration."""


def policy_event(
    policy: DeviceCompatibilityPolicy, status: DeviceCompatibilityPolicyStatus
) -> Event | None:
    """Return the event about a policy; None where it is valid."""
    for condition in status.conditions or ():
        if condition.type == ConditionType.VALID and condition.status == "False":
            return Event(
                regarding=ObjectReference.of(API_VERSION, KIND, policy.metadata),
                reason=EventReason.POLICY_INVALID,
                action=ACTION,
                note=condition.message,
            )
    return None


def claim_events(
    policy: CompiledPolicy,
    clashes: Iterable[Clash],
    uid: Callable[[tuple[str, str]], str],
    recorded: Collection[str],
) -> Iterator[Event]:
    """Yield the events about claims whose devices break a policy, one per claim.

    Args:
        uid: Of a claim, by namespace and name; empty for one that is gone.
        recorded: Uids of claims that had their event before.
    """
    done = set(recorded)
    for clash in clashes:
        for device, holders in clash.holders.items():
            for claim in holders:
                claim_uid = uid(claim)
                if claim_uid and claim_uid not in done:
                    done.add(claim_uid)
                    yield _claim_event(policy, clash, device, claim, claim_uid)


def _claim_event(
    policy: CompiledPolicy, clash: Clash, device: str, claim: tuple[str, str], uid: str
) -> Event:
    namespace, name = claim
    others = [other for other in clash.devices if other != device]
    consumers = {consumer for other in others or (device,) for consumer in clash.holders[other]}
    consumers -= {claim}
    own = sorted(other for other_namespace, other in consumers if other_namespace == namespace)
    named = [f"claim {other}" for other in own[:MAX_NAMED]]
    if any(other_namespace != namespace for other_namespace, _ in consumers):
        named.append("a claim in another namespace")
    if not others:
        reason = EventReason.CONFLICTING_SHARING_CONFIG
        by = f" with {', '.join(named)}" if named else ""
        note = f"Device {device} of pool {clash.pool.pool} is shared{by}: {clash.reason}."
    else:
        reason = EventReason.DEVICE_INCOMPATIBLE
        by = f" (held by {', '.join(named)})" if named else ""
        verb = "keeps apart" if policy.is_enforced else "would keep apart if it were enforced"
        note = (
            f"Device {device} of pool {clash.pool.pool} is in use beside {', '.join(others)}{by}, "
            f"which {KIND} {policy.name} {verb}: {clash.reason}."
        )
    return Event(
        regarding=ObjectReference(
            api_version="resource.k8s.io/v1",
            kind="ResourceClaim",
            namespace=namespace,
            name=name,
            uid=uid,
        ),
        reason=reason,
        action=ACTION,
        note=note,
    )
