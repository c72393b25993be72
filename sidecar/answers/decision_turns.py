"""The pods to decide about now, such that a namespace delays those of others for a moment only.

The scheduler asks about one pod after the other. A namespace whose decisions took a second rests for four
while pods of others come, or are in the scheduler's queue behind its own; a pod that comes meanwhile is turned away
at once, and is named to the scheduler again when the rest is over. A pod whose decision did not end in the process before this one comes last.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from kube.api.core import Pod
from process.fairness.turns import Rests
from sidecar.model.rejections import Code, Rejection, unfinished, unresolvable

MIN_REST_S: Final = 0.25
"""Rests that are shorter are not taken: each costs an attempt of the scheduler."""
OTHERS_S: Final = 2.0
"""The time for which pods of other namespaces count as waiting after a question about one."""
EXPECTED_S: Final = 30.0
"""The time for which a pod counts as waiting that the scheduler is about to ask about."""
LAST_S: Final = 10.0
"""The time without a question about any other pod before a decision about one that comes last."""
AGAIN_S: Final = 600.0
"""The time for which a process leads before it decides about such a pod: if the decision does not
end again, nobody schedules until another leads."""
LATE_S: Final = 2.0
"""Seconds after its end from which the next leader should know of a decision, if this process ends."""
STUCK_S: Final = 10.0
"""Seconds after its end from which a decision counts as one that does not end."""
MAX_TIMES: Final = 2
"""Decisions about one pod that do not end."""
MAX_NAMESPACES: Final = 1024
POLL_S: Final = 0.1
"""The time between two questions of the scheduler for pods whose evaluations are under way."""

RESTING: Final = unfinished(
    "decisions about pods of this namespace took long, and pods of others are waiting; it is tried again"
)
LAST: Final = unfinished(
    "the decision about this pod did not end in another process; it is tried again in ten minutes, when no"
    " other pod waits"
)
GIVEN_UP: Final = unresolvable(
    Code.ATTEMPT_FAILED,
    "the decision about this pod did not end, in two processes; delete it, and see the sidecar's log",
)


DOES_NOT_END: Final = "a decision does not end"
ABANDONED: Final = unfinished(
    "the search for devices took too long; it goes on with the next attempt"
)


class Ready(NamedTuple):
    """The unfinished pods to try again, and the seconds until the next question for others."""

    pods: tuple[Pod, ...]
    next_s: float


class _ExpectedPods:
    """The pods that the scheduler is about to ask about; it says nothing about its queue itself."""

    def __init__(self) -> None:
        """Begin without a pod."""
        # UID to namespace and time, the oldest first.
        self._pods: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._counts = Counter[str]()

    def add(self, pod: Pod, now_s: float) -> None:
        """Expect a question about a pod."""
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        self.discard(uid)
        self._pods[uid] = (namespace, now_s)
        self._counts[namespace] += 1

    def discard(self, uid: str) -> None:
        """Expect no question about a pod."""
        if (expected := self._pods.pop(uid, None)) is not None:
            namespace, _ = expected
            self._counts[namespace] -= 1
            if not self._counts[namespace]:
                del self._counts[namespace]

    def has_others(self, namespace: str, now_s: float) -> bool:
        """Return True if a pod of another namespace is expected."""
        while self._pods:
            uid, (_, since_s) = next(iter(self._pods.items()))
            if now_s - since_s < EXPECTED_S:
                break
            self.discard(uid)
        return len(self._pods) > self._counts[namespace]


class DecisionTurns:
    """The rests of namespaces, and the pods that come last."""

    def __init__(
        self,
        undecided: Mapping[str, int] = MappingProxyType({}),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a decision.

        Args:
            undecided: UID of each pod whose decision did not end in another process, and how often.
            clock: Monotonic seconds.
        """
        self._clock = clock
        self._began_s = clock()
        self._rests = Rests()
        self._asked_s: OrderedDict[str, float] = OrderedDict()
        self._expected = _ExpectedPods()
        # By name: the profiles that asked. The scheduler has a few.
        self._schedulers: set[str] = set()
        self._undecided = dict(undecided)

    @property
    def undecided(self) -> dict[str, int]:
        """The UIDs of the pods with decisions that did not end, and the number of these."""
        return dict(self._undecided)

    def expect(self, *pods: Pod) -> None:
        """Take note that the scheduler is about to ask about pods: they are new, or are to be tried again.

        Pods of other schedulers, those behind scheduling gates, and those that are bound, are left out.
        """
        for pod in pods:
            is_tried = not (pod.spec.node_name or pod.spec.scheduling_gates)
            if is_tried and pod.spec.scheduler_name in self._schedulers:
                self._expected.add(pod, self._clock())

    def expect_no_more(self, pods: Iterable[Pod]) -> None:
        """Take note that the scheduler asks about pods that are decided about with another one."""
        for pod in pods:
            self._expected.discard(pod.metadata.uid)

    def turn_away(self, pod: Pod) -> Rejection | None:
        """Take note that the scheduler asks about a pod; return a rejection if it is not decided about now."""
        namespace, now_s = pod.metadata.namespace, self._clock()
        self._schedulers.add(pod.spec.scheduler_name)
        self._expected.discard(pod.metadata.uid)
        times = self._undecided.get(pod.metadata.uid, 0)
        if times >= MAX_TIMES:
            return GIVEN_UP
        if times and not self._has_time():
            return LAST
        if not times:
            self._asked_s[namespace] = now_s
            self._asked_s.move_to_end(namespace)
            if len(self._asked_s) > MAX_NAMESPACES:
                self._asked_s.popitem(last=False)
        if self._rest_s(namespace):
            return RESTING
        if not self._others_wait(namespace, now_s):
            self._rests.skip(namespace, now_s)
        return None

    def end(self, pod: Pod, took_s: float) -> None:
        """Take note that a decision about a pod ended, so that its namespace rests."""
        self._undecided.pop(pod.metadata.uid, None)
        self._rests.add(pod.metadata.namespace, took_s, self._clock())

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        self._undecided.pop(uid, None)
        self._expected.discard(uid)

    def begin(self, uids: Collection[str]) -> None:
        """Forget the pods of the process before that are gone.

        Args:
            uids: The UIDs of all existing pods.
        """
        for uid in self._undecided.keys() - set(uids):
            del self._undecided[uid]

    def has_stuck(self, uid: str) -> None:
        """Take note that a decision about a pod does not end."""
        self._undecided[uid] = min(self._undecided.get(uid, 0) + 1, MAX_TIMES)

    def ready(self, pods: Iterable[Pod], is_pending: Callable[[str], bool]) -> Ready:
        """Return the pods to try again now, of each namespace one.

        Args:
            pods: The pods without an answer, the oldest first.
            is_pending: Returns True if a pod of a UID waits for evaluations.
        """
        ready: dict[str, Pod] = {}
        next_s = OTHERS_S
        for pod in pods:
            namespace = pod.metadata.namespace
            if namespace in ready or is_pending(pod.metadata.uid):
                next_s = min(next_s, POLL_S)
            elif self._undecided.get(pod.metadata.uid) and not self._has_time():
                continue
            elif rest_s := self._rest_s(namespace):
                next_s = min(next_s, rest_s)
            else:
                ready[namespace] = pod
        return Ready(tuple(ready.values()), next_s)

    def _rest_s(self, namespace: str) -> float:
        """Return the time that a namespace rests; 0 if it does not, or no other waits."""
        now_s = self._clock()
        rest_s = self._rests.left_s(namespace, now_s)
        if rest_s < MIN_REST_S:
            return 0.0
        return rest_s if self._others_wait(namespace, now_s) else 0.0

    def _others_wait(self, namespace: str, now_s: float) -> bool:
        """Return True if pods of other namespaces come, or are in the scheduler's queue."""
        return self._expected.has_others(namespace, now_s) or any(
            other != namespace and now_s - asked_s < OTHERS_S
            for other, asked_s in islice(reversed(self._asked_s.items()), 2)
        )

    def _has_time(self) -> bool:
        """Return True if a pod may be decided about that comes last."""
        now_s = self._clock()
        last_s = next(reversed(self._asked_s.values()), None)
        is_quiet = last_s is None or now_s - last_s >= LAST_S
        return is_quiet and now_s - self._began_s >= AGAIN_S
