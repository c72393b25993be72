"""Events about pods that wait for a DeviceQuota: the missing amounts, and the users of the rest."""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from kube.api.events import Event, ObjectReference
from quotas.gates.admission_order import Waiting
from quotas.gates.usage import QuotaUsage
from quotas.gates.waiting_note import waiting_note

REASON: Final = "WaitingForDeviceQuota"
ACTION: Final = "LetThrough"


def waiting_events(
    waiting: Waiting, usage: QuotaUsage, is_new: Callable[[Event], bool]
) -> Iterator[Event]:
    """Yield the events of pods of a unit that waits, one for each kind of reason in the life of a pod.

    Args:
        is_new: Returns False for an event that was recorded before; its note does not matter.
    """
    note = ""
    for key in waiting.unit.pods:
        pod = usage.pods.get(key)
        if pod is not None:
            event = Event(
                regarding=ObjectReference.of("v1", "Pod", pod.metadata),
                reason=REASON,
                action=ACTION,
                note="",
                type="Normal",
                # A pod whose claim comes after all may have to wait for its group then, or for the quota.
                identity=_identity(waiting),
            )
            if is_new(event):
                # In most rounds everybody who waits was told before.
                note = note or waiting_note(waiting, usage.book.ledger)
                yield msgspec.structs.replace(event, note=note)


def _identity(waiting: Waiting) -> str:
    if waiting.lack is not None:
        return f"{REASON}/{waiting.lack.kind}"
    return f"{REASON}/missing" if waiting.missing else REASON
