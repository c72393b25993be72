"""The pods that were turned away, until they are reserved, bound or deleted."""

from collections.abc import Callable, Iterable
from typing import Final

from allocator.pods.claims import Name
from kube.api.core import Pod
from sidecar.model.protocol import Verdict
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.decisions import Fits, NoDevicesNeeded
from sidecar.plan.waking import WaitingPod

WAKE_AGAIN_S: Final = 30.0
"""The time after which a pod that was woken, and not tried since, may be woken again, in seconds.
"""

MAX_WAITING: Final = 65_536
"""Pods that are remembered; the scheduler tries all again after minutes."""


class WaitingPods:
    """The pods that wait for devices, and those of them that were woken."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin without pods.

        Args:
            clock: Monotonic seconds.
        """
        self._clock = clock
        self._entries: dict[str, WaitingPod] = {}
        self._number = 0
        self._version = -1

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, pods: Iterable[Pod]) -> None:
        """Take the pods that are not bound for waiting: a scheduler may have been told so before us.

        When they were turned away last is not known, so the oldest counts as waiting for longest.
        """
        self._version = -1
        for pod in sorted(pods, key=_created):
            if not pod.spec.node_name and pod.metadata.uid not in self._entries:
                self._add(pod)

    def take(self, pod: Pod, outcome: Fits | NoDevicesNeeded | Rejection) -> None:
        """Take the answer about a pod. One that fits may be turned away for another reason."""
        uid = pod.metadata.uid
        self._entries.pop(uid, None)
        if isinstance(outcome, Fits):
            if outcome.complete:
                self._add(pod, frozenset(node.name for node in outcome.nodes))
        elif isinstance(outcome, Rejection) and outcome.verdict is not Verdict.ERROR:
            self._add(pod, is_unfinished=outcome.is_unfinished, code=outcome.code)

    def await_release(self, pod: Pod, claims: frozenset[Name]) -> None:
        """Have a pod tried again at the latest when none of these claims is being released."""
        uid = pod.metadata.uid
        if uid not in self._entries:
            self._add(pod)
        self._entries[uid] = self._entries[uid]._replace(awaited=claims)

    def end(self, uid: str) -> None:
        """Forget a pod: it does not wait any more."""
        self._entries.pop(uid, None)

    def unfinished(self) -> tuple[Pod, ...]:
        """Return the pods about which there was no answer yet and that were not woken since, oldest first."""
        return tuple(
            entry.pod
            for entry in self._entries.values()
            if entry.is_unfinished and entry.woken_s is None
        )

    def due(self, version: int) -> tuple[WaitingPod, ...]:
        """Return all waiting pods with an answer; none if nothing has changed since the last call.

        Args:
            version: The cluster's version.
        """
        now = self._clock()
        expired = [
            uid
            for uid, entry in self._entries.items()
            if entry.woken_s is not None and now - entry.woken_s >= WAKE_AGAIN_S
        ]
        for uid in expired:
            self._entries[uid] = self._entries[uid]._replace(woken_s=None)
        if version == self._version and not expired:
            return ()
        self._version = version
        return tuple(entry for entry in self._entries.values() if not entry.is_unfinished)

    def wake(self, pods: Iterable[Pod], *, more: bool) -> None:
        """Take note of pods that the scheduler is told to try again.

        Args:
            more: True if not all of them were told.
        """
        if more:
            self._version = -1
        for pod in pods:
            entry = self._entries.get(pod.metadata.uid)
            if entry is not None:
                self._entries[pod.metadata.uid] = entry._replace(woken_s=self._clock())

    def count(self, code: Code) -> int:
        """Return the number of pods that were turned away for a reason."""
        return sum(entry.code is code for entry in self._entries.values())

    def _add(
        self,
        pod: Pod,
        tried: frozenset[str] = frozenset(),
        *,
        is_unfinished: bool = False,
        code: Code | None = None,
    ) -> None:
        self._number += 1
        if len(self._entries) >= MAX_WAITING:
            del self._entries[next(iter(self._entries))]
        self._entries[pod.metadata.uid] = WaitingPod(
            pod, self._number, tried, is_unfinished=is_unfinished, code=code
        )


def _created(pod: Pod) -> tuple[str, str, str]:
    metadata = pod.metadata
    return metadata.creation_timestamp or "", metadata.namespace, metadata.name
