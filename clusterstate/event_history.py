"""The pending pods to explain, the time to do so, and the events that they get.

A pod gets an event once, another one when something else is in the way, and rarely one in which only
numbers have changed or nothing has. Clock, network and log belong to the caller.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from allocator.pods.claims import Name
from allocator.simulation.pending_pod import Explanation
from kube.api.core import Pod, is_gated, is_unschedulable
from kube.api.events import Event, ObjectReference
from kube.collections.backoff import Backoff

MAX_EVENTS: Final = 16
"""The number of remembered events of one pod; an older one is recorded as if it were new."""


class HistorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals of evaluations and events of pending pods, in seconds.

    Attributes:
        action: The action of the events.
        initial_delay: The time before the first evaluation of a pod.
        reevaluation_period: The time between evaluations of one pod.
        reminder_interval: The time after which an event that is still true counts one more.
        numbers_event_interval: The time before an event in which only numbers have changed.
        backoff: The time between different events of one pod.
    """

    action: str
    initial_delay: float = 2.0
    reevaluation_period: float = 10.0
    reminder_interval: float = 2700.0
    numbers_event_interval: float = 900.0
    backoff: Backoff = Backoff(initial_s=60.0, max_s=1800.0)


class _Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The note of an event, and the number of its records."""

    note: str
    count: int = 0


class _WaitingPod:
    """The history of one pending pod.

    Attributes:
        is_new: It was not evaluated yet.
        evaluated_version: The version of the cluster that it was last evaluated against.
        reevaluate_at_s: The time of the next evaluation even if nothing changes; infinite for
            never.
        explanation: The explanation in its last event; None before the first.
        reasons: The reasons of the last evaluation.
        changes: The number of its events that differ from the one before.
        events: Identity of an event to what was recorded, of the latest ones.
    """

    def __init__(self, pod: Pod, now_s: float) -> None:
        self.pod = pod
        self.since_s = now_s
        self.is_new = True
        self.evaluated_s = float("-inf")
        self.evaluated_version = -1
        self.reevaluate_at_s = float("inf")
        self.explanation: Explanation | None = None
        self.reasons: tuple[str, ...] = ()
        self.changes = 0
        self.recorded_s = float("-inf")
        self.events: dict[str, _Recorded] = {}


class EventHistory:
    """Waiting pods, their events, and when to evaluate them again.

    Attributes:
        suppressed: The number of explanations that became no event, since they said nothing new or
            came too soon.
    """

    def __init__(self, settings: HistorySettings) -> None:
        self.suppressed = 0
        self._settings = settings
        self._backoff = settings.backoff
        self._waiting: dict[Name, _WaitingPod] = {}

    def __len__(self) -> int:
        """Return the number of pending pods."""
        return len(self._waiting)

    def pod(self, name: Name) -> Pod | None:
        """Return a waiting pod; None when it does not wait any more."""
        waiting = self._waiting.get(name)
        return waiting.pod if waiting is not None else None

    def is_new(self, name: Name) -> bool:
        """Return True if a waiting pod was never evaluated."""
        waiting = self._waiting.get(name)
        return waiting is not None and waiting.is_new

    def is_waiting(self, name: Name, uid: str) -> bool:
        """Return True if this very pod still waits."""
        pod = self.pod(name)
        return pod is not None and pod.metadata.uid == uid

    def replace(self, name: Name, pod: Pod | None, now_s: float) -> None:
        """Replace a pod; None removes it."""
        waiting = self._waiting.get(name)
        if pod is None or is_gated(pod):
            self._waiting.pop(name, None)
        elif waiting is None or waiting.pod.metadata.uid != pod.metadata.uid:
            self._waiting[name] = _WaitingPod(pod, now_s)
        else:
            if is_unschedulable(pod) != is_unschedulable(waiting.pod):
                waiting.evaluated_version, waiting.evaluated_s = -1, float("-inf")
            waiting.pod = pod

    def due(self, version: int, now_s: float) -> list[Name]:
        """Return the pods to evaluate, those with the oldest evaluation first."""
        due = [
            (waiting.evaluated_s, name)
            for name, waiting in self._waiting.items()
            if self._due_at(waiting, version) <= now_s
        ]
        return [name for _, name in sorted(due)]

    def next_due_s(self, version: int) -> float:
        """Return the next pod's due time; infinite if none is due unless something changes."""
        due = (self._due_at(waiting, version) for waiting in self._waiting.values())
        return min(due, default=float("inf"))

    def _due_at(self, waiting: _WaitingPod, version: int) -> float:
        settled_s = waiting.since_s + self._settings.initial_delay
        if waiting.evaluated_version == version:
            return max(settled_s, waiting.reevaluate_at_s)
        return max(settled_s, waiting.evaluated_s + self._settings.reevaluation_period)

    def record_evaluation(
        self, name: Name, explanation: Explanation | None, version: int, now_s: float
    ) -> Event | None:
        """Remember an evaluation, and return the event that it calls for, if any.

        Args:
            explanation: None when the pod does not wait for devices.
            version: The version of the cluster that it was evaluated against.
        """
        waiting = self._waiting.get(name)
        if waiting is None:
            return None
        waiting.evaluated_s, waiting.evaluated_version = now_s, version
        waiting.reevaluate_at_s = float("inf")
        waiting.is_new = False
        waiting.reasons = explanation.reasons if explanation is not None else ()
        if explanation is None:
            return None
        pause_s = self._pause_s(waiting, explanation)
        if now_s < waiting.recorded_s + pause_s:
            self.suppressed += 1
            waiting.reevaluate_at_s = waiting.recorded_s + pause_s
            return None
        waiting.reevaluate_at_s = now_s + self._settings.reminder_interval
        return self._event(waiting, explanation, now_s)

    def _pause_s(self, waiting: _WaitingPod, explanation: Explanation) -> float:
        """Return the time between a pod's last event and an event with this explanation."""
        last = waiting.explanation
        if last is None:
            return 0.0
        if last.note == explanation.note:
            return self._settings.reminder_interval
        pause_s = self._backoff.delay_s(max(waiting.changes, 1))
        if last.kind == explanation.kind:
            return max(pause_s, self._settings.numbers_event_interval)
        return pause_s

    def forget_events(self, name: Name) -> None:
        """Forget a pod's events, one of them not written; its next explanation becomes an event."""
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.explanation, waiting.evaluated_version = None, -1
            waiting.events.clear()

    def pods_by_reason(self) -> Mapping[str, int]:
        """Return the number of pending pods with each reason."""
        counts: dict[str, int] = {}
        for waiting in self._waiting.values():
            for reason in waiting.reasons:
                counts[reason] = counts.get(reason, 0) + 1
        return counts

    def _event(self, waiting: _WaitingPod, explanation: Explanation, now_s: float) -> Event:
        # Numbers are left out of the identity, so that a restart finds the event again.
        identity = explanation.kind
        if waiting.events.get(identity, _Recorded(note=explanation.note)).note != explanation.note:
            identity = f"{explanation.kind}{explanation.note}"
        before = waiting.events.pop(identity, _Recorded(note=explanation.note))
        if len(waiting.events) >= MAX_EVENTS:
            del waiting.events[next(iter(waiting.events))]
        count = before.count + 1
        waiting.events[identity] = _Recorded(note=explanation.note, count=count)
        is_first = waiting.changes == 0
        waiting.changes += (
            waiting.explanation is None or waiting.explanation.note != explanation.note
        )
        waiting.explanation, waiting.recorded_s = explanation, now_s
        return Event(
            regarding=ObjectReference.of("v1", "Pod", waiting.pod.metadata),
            reason=explanation.cause,
            action=self._settings.action,
            note=explanation.note,
            identity=identity,
            # What the process before this one recorded first stands; later explanations are news again.
            series_count=1 if is_first else max(2, count),
        )
