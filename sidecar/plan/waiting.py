"""The pods and groups that were turned away, until they are reserved, bound or deleted."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from allocator.pods.claims import Name
from kube.api.core import Pod
from sidecar.model.protocol import GroupRequest, Verdict
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
        # Of a group there is one entry, by the UID of the group.
        self._entries: dict[str, WaitingPod] = {}
        self._group_of: dict[str, str] = {}
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
            # Which pods are scheduled together, only the scheduler says.
            is_alone = not pod.spec.scheduling_group and pod.metadata.uid not in self._entries
            if not pod.spec.node_name and is_alone:
                self._add(pod.metadata.uid, pod)

    def take(self, pod: Pod, outcome: Fits | NoDevicesNeeded | Rejection) -> None:
        """Take the answer about a pod. One that fits may be turned away for another reason."""
        uid = pod.metadata.uid
        self._entries.pop(uid, None)
        if isinstance(outcome, Fits):
            if outcome.complete:
                self._add(uid, pod, frozenset(node.name for node in outcome.nodes))
        elif isinstance(outcome, Rejection) and outcome.verdict is not Verdict.ERROR:
            self._add(uid, pod, is_unfinished=outcome.is_unfinished, code=outcome.code)

    def take_group(self, request: GroupRequest, rejection: Rejection | None) -> None:
        """Take the answer about a group; a request without pods ends its wait.

        Args:
            request: The group with the pods that wait.
            rejection: The reason why they do; None if the others of the group have places.
        """
        uid = request.group.uid
        self._end_group(uid)
        if not request.pods or (rejection is not None and rejection.verdict is Verdict.ERROR):
            return
        for pod in request.pods:
            self._entries.pop(pod.metadata.uid, None)
            self._group_of[pod.metadata.uid] = uid
        self._add(
            uid,
            representative(request.pods),
            group=request,
            is_unfinished=rejection is not None and rejection.is_unfinished,
            code=Code.GROUP_NOT_NEEDED if rejection is None else rejection.code,
        )

    def group(self, uid: str) -> GroupRequest | None:
        """Return a group that waits, with its pods that do; None if it does not wait."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.group

    def await_release(self, pod: Pod, claims: frozenset[Name]) -> None:
        """Have a pod, or the group of it, tried again at the latest when none of these claims is being released."""
        uid = self._group_of.get(pod.metadata.uid, pod.metadata.uid)
        if uid not in self._entries:
            self._add(uid, pod)
        self._entries[uid] = self._entries[uid]._replace(awaited=claims)

    def end(self, uid: str) -> None:
        """Forget a pod: it does not wait any more. The others of its group go on waiting."""
        self._entries.pop(uid, None)
        group_uid = self._group_of.pop(uid, None)
        entry = None if group_uid is None else self._entries.get(group_uid)
        if group_uid is None or entry is None or entry.group is None:
            return
        pods = tuple(pod for pod in entry.group.pods if pod.metadata.uid != uid)
        if pods:
            group = replace(entry.group, pods=pods)
            self._entries[group_uid] = entry._replace(group=group, pod=representative(pods))
        else:
            del self._entries[group_uid]

    def find(self, pods: Iterable[Pod]) -> tuple[WaitingPod, ...]:
        """Return the entries of pods that wait, each once."""
        uids = {self._group_of.get(pod.metadata.uid, pod.metadata.uid): None for pod in pods}
        return tuple(self._entries[uid] for uid in uids if uid in self._entries)

    def unfinished(self) -> tuple[Pod, ...]:
        """Return the pods without an answer yet that were not woken since, oldest first.

        Of a group it is one pod.
        """
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

    def wake(self, woken: Iterable[WaitingPod], *, is_complete: bool) -> None:
        """Take note of entries that the scheduler is told to try again.

        Args:
            is_complete: False if there may be more of them: all are due again, though nothing changes.
        """
        if not is_complete:
            self._version = -1
        for entry in woken:
            uid = entry.uid
            if uid in self._entries:
                self._entries[uid] = self._entries[uid]._replace(woken_s=self._clock())

    def count(self, code: Code) -> int:
        """Return the number of pods that were turned away for a reason."""
        return sum(len(entry.names) for entry in self._entries.values() if entry.code is code)

    def _end_group(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        for pod in entry.group.pods if entry is not None and entry.group is not None else ():
            self._group_of.pop(pod.metadata.uid, None)

    def _add(
        self,
        uid: str,
        pod: Pod,
        tried: frozenset[str] = frozenset(),
        *,
        is_unfinished: bool = False,
        code: Code | None = None,
        group: GroupRequest | None = None,
    ) -> None:
        self._number += 1
        if len(self._entries) >= MAX_WAITING:
            self._end_group(next(iter(self._entries)))
        self._entries[uid] = WaitingPod(
            pod, self._number, tried, is_unfinished=is_unfinished, code=code, group=group
        )


def representative(pods: Sequence[Pod]) -> Pod:
    """Return the pod that stands for a group in questions about one pod: one with claims, always the same."""
    return min(pods, key=lambda pod: (not pod.spec.resource_claims, pod.metadata.uid))


def _created(pod: Pod) -> tuple[str, str, str]:
    metadata = pod.metadata
    return metadata.creation_timestamp or "", metadata.namespace, metadata.name
