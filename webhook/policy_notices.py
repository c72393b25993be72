"""What is told in events about a DeviceCompatibilityPolicy: beside it, and beside claims that break it.

A claim is told names of its own namespace only, of others that there is one.

Source: research/allocator-features.md 3.5.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from allocator.core.rules import CompiledPolicy
from kube.api.policy import (
    API_VERSION,
    KIND,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicyStatus,
)
from kube.product import NAME
from webhook.policy_status import Clash, ConditionType

MAX_NAMED: Final = 5
"""Claims of the own namespace in one note."""
MAX_NOTE_BYTES: Final = 1024
"""Of an event (API limit)."""


class NoticeReason(StrEnum):
    """The reason of an event."""

    POLICY_INVALID = "PolicyInvalid"
    """Beside the policy: it is not valid."""
    DEVICE_INCOMPATIBLE = "DeviceIncompatible"
    """Beside a claim: it holds a device that the policy keeps apart from another in use."""


class Regarded(msgspec.Struct, frozen=True, kw_only=True):
    """The object that an event is about; the namespace of a policy is empty."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be told beside an object, once."""

    reason: NoticeReason
    regarding: Regarded
    note: str


def notice_of_policy(
    policy: DeviceCompatibilityPolicy, status: DeviceCompatibilityPolicyStatus
) -> Notice | None:
    """Return what to tell beside a policy; None where it is valid."""
    for one in status.conditions or ():
        if one.type == ConditionType.VALID and one.status == "False":
            metadata = policy.metadata
            return Notice(
                reason=NoticeReason.POLICY_INVALID,
                regarding=Regarded(
                    api_version=API_VERSION,
                    kind=KIND,
                    namespace="",
                    name=metadata.name,
                    uid=metadata.uid,
                ),
                note=one.message,
            )
    return None


def notices_of_claims(
    policy: CompiledPolicy,
    found: Iterable[Clash],
    uid: Callable[[tuple[str, str]], str],
    told: Collection[str],
) -> Iterator[Notice]:
    """Yield what to tell beside claims whose devices break a policy, each claim once.

    Args:
        uid: Of a claim, by namespace and name; empty for one that is not there any more.
        told: Uids of claims that were told before.
    """
    done = set(told)
    for clash in found:
        for device, holders in clash.holders.items():
            for claim in holders:
                known = uid(claim)
                if known and known not in done:
                    done.add(known)
                    yield _notice_of_claim(policy, clash, device, claim, known)


def _notice_of_claim(
    policy: CompiledPolicy, clash: Clash, device: str, claim: tuple[str, str], uid: str
) -> Notice:
    namespace, name = claim
    others = [each for each in clash.devices if each != device]
    held = {one for each in others for one in clash.holders[each]} - {claim}
    own = sorted(other for where_, other in held if where_ == namespace)
    who = [f"claim {other}" for other in own[:MAX_NAMED]]
    if any(where_ != namespace for where_, _ in held):
        who.append("a claim in another namespace")
    by = f" (held by {', '.join(who)})" if who else ""
    verb = "keeps apart" if policy.is_enforced else "would keep apart if it were enforced"
    return Notice(
        reason=NoticeReason.DEVICE_INCOMPATIBLE,
        regarding=Regarded(
            api_version="resource.k8s.io/v1",
            kind="ResourceClaim",
            namespace=namespace,
            name=name,
            uid=uid,
        ),
        note=f"Device {device} of pool {clash.pool.pool} is in use beside {', '.join(others)}{by}, "
        f"which {KIND} {policy.name} {verb}: {clash.reason}.",
    )


def event_of(notice: Notice, *, name: str, instance: str, time: str) -> Mapping[str, Any]:
    """Return the Event that tells a notice, within the API's limits.

    Args:
        name: Of the Event.
        instance: Which process tells it.
        time: An RFC 3339 time with microseconds.
    """
    regarding = notice.regarding
    about = {"apiVersion": regarding.api_version, "kind": regarding.kind}
    about |= {"namespace": regarding.namespace} if regarding.namespace else {}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        # Of what is in no namespace, events are in this one.
        "metadata": {"name": name, "namespace": regarding.namespace or "default"},
        "eventTime": time,
        "type": "Warning",
        "reason": notice.reason.value,
        "action": "Judge",
        "note": notice.note.encode()[:MAX_NOTE_BYTES].decode(errors="ignore"),
        "reportingController": f"{NAME}.controller",
        "reportingInstance": instance[:128],
        "regarding": {**about, "name": regarding.name, "uid": regarding.uid},
    }
