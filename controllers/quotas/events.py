"""Events about pods that wait for a DeviceQuota: the missing amounts, and the users of the rest."""

from collections.abc import Iterator
from typing import Final

from kube.api.events import Event, ObjectReference
from quotas.gates.admission_order import Waiting
from quotas.gates.usage import QuotaUsage
from quotas.gates.waiting_note import waiting_note

REASON: Final = "WaitingForDeviceQuota"
ACTION: Final = "LetThrough"


def waiting_events(waiting: Waiting, usage: QuotaUsage) -> Iterator[Event]:
    """Yield the event of each pod of a unit that waits; one for each kind of reason in the life of a pod."""
    note = waiting_note(waiting, usage.book.ledger)
    for key in waiting.unit.pods:
        pod = usage.pods.get(key)
        if pod is not None:
            yield Event(
                regarding=ObjectReference.of("v1", "Pod", pod.metadata),
                reason=REASON,
                action=ACTION,
                note=note,
                type="Normal",
                # A pod whose claim comes after all may have to wait for its group then, or for the quota.
                identity=_identity(waiting),
            )


def _identity(waiting: Waiting) -> str:
    if waiting.lack is not None:
        return f"{REASON}/{waiting.lack.kind}"
    return f"{REASON}/missing" if waiting.missing else REASON
