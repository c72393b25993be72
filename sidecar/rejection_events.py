"""The events of pods that get no devices."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from kube.api.core import Pod
from kube.api.events import Event, ObjectReference
from sidecar.plan.rejections import Rejection

REASON: Final = "DevicesMissing"
ACTION: Final = "Scheduling"
MAX_REMEMBERED: Final = 4096
"""Events that are known to have been recorded; an older one is recorded as if it were new."""


class RejectionEvents:
    """Records each reason of a pod once, however often the scheduler tries it."""

    def __init__(self, record: Callable[[Event], None]) -> None:
        self._record = record
        self._recorded: OrderedDict[tuple[str, str], None] = OrderedDict()

    def record_rejection(self, pod: Pod, rejection: Rejection) -> None:
        """Record why a pod gets no devices, unless it was told that before."""
        event = rejection_event(pod, rejection)
        key = (pod.metadata.uid, event.identity)
        is_new = key not in self._recorded
        self._recorded[key] = None
        self._recorded.move_to_end(key)
        if is_new:
            self._record(event)
        if len(self._recorded) > MAX_REMEMBERED:
            self._recorded.popitem(last=False)


def rejection_event(pod: Pod, rejection: Rejection) -> Event:
    """Return the event that says why a pod gets no devices; the same for the same reason."""
    return Event(
        regarding=ObjectReference.of("v1", "Pod", pod.metadata),
        reason=REASON,
        action=ACTION,
        note=rejection.message,
        identity=rejection.code,
    )
