"""The barrier of a group: its pods are bound together, or none is.

kube-scheduler reserves the pods of a group one after the other, and binds them in parallel. So the pods of
a gang wait here, each before its Binding, until their claims can be written together:

    reserved -- arrive --> arrived -- begin --> committing -- let_go --> passed -- seen bound --> gone from here
    any -- unreserved, deleted, failed --> gone from here

Bound pods count for the minimum, and so do those that passed. What comes after that goes singly.

Between Reserve and Binding a pod waits in Permit, which has let all reserved pods go when the first one
arrives, and in PreBind for its volumes, for minutes. Then it arrives here, or is unreserved: the scheduler
sees to that. So who is reserved is waited for, as long as volumes may take.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/schedule_one_podgroup.go, submitPodGroupAlgorithmResult;
plugins/gangscheduling/gangscheduling.go, Permit; plugins/volumebinding/binder.go, BindPodVolumes.
"""

from collections.abc import Collection
from typing import Final

import msgspec
from msgspec.structs import replace

WAIT_S: Final = 30.0
"""The wait for further pods of a group, after the last reserved one could arrive, or was unreserved."""


class Barrier(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of a group from their reservation until they are bound; all sets are of UIDs.

    Attributes:
        min_count: The number of pods that are bound together, those that are bound already among them.
        is_gang: False if each pod is bound by itself.
        reserved: Pods whose Binding has not begun.
        arrived: Pods that wait here.
        committing: Pods whose claims are being written.
        passed: Pods that may be bound, and have not been seen bound.
        changed_s: The last beginning or end of a reservation of the group, in monotonic seconds.
        arrived_s: The arrival of the first of `arrived`.
    """

    min_count: int
    is_gang: bool = True
    reserved: frozenset[str] = frozenset()
    arrived: frozenset[str] = frozenset()
    committing: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    changed_s: float = 0.0
    arrived_s: float = 0.0

    def __contains__(self, uid: object) -> bool:
        """Return True if a pod is between its reservation and its Binding."""
        return any(uid in uids for uids in self._sets)

    @property
    def is_empty(self) -> bool:
        """Return True if no pod is left."""
        return not any(self._sets)

    @property
    def _sets(self) -> tuple[frozenset[str], ...]:
        return (self.reserved, self.arrived, self.committing, self.passed)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A pod waits for others.

    Attributes:
        until_s: The latest time to decide again, in monotonic seconds; None if only a change decides.
    """

    until_s: float | None


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of these pods are written now, together."""

    pods: frozenset[str]


class GiveUp(msgspec.Struct, frozen=True, kw_only=True):
    """These pods have waited in vain."""

    pods: frozenset[str]


def decide(
    barrier: Barrier, uid: str, bound: Collection[str], now_s: float, *, max_prebind_s: float
) -> Wait | Commit | GiveUp:
    """Return the next step for a pod that has arrived.

    Args:
        bound: UIDs of the group's pods that are seen bound, and have not ended.
        now_s: Monotonic seconds.
        max_prebind_s: The longest time that a pod spends in PreBind.
    """
    placed = (barrier.passed | frozenset(bound)) - barrier.arrived
    if not barrier.is_gang or len(placed) >= barrier.min_count:
        return Commit(pods=frozenset({uid}))
    if barrier.committing:
        return Wait(until_s=None)  # If it fails, it counts for nobody.
    is_enough = len(placed) + len(barrier.arrived) >= barrier.min_count
    is_somebody_late = bool(barrier.reserved - placed)
    if is_enough and not is_somebody_late:
        return Commit(pods=barrier.arrived)
    # From the first arrival, so that neither a lost pod nor pods that come and go are waited for longer.
    until_s = barrier.arrived_s + max_prebind_s + WAIT_S
    if not is_somebody_late:
        until_s = min(until_s, max(barrier.changed_s, barrier.arrived_s) + WAIT_S)
    if now_s < until_s:
        return Wait(until_s=until_s)
    return Commit(pods=barrier.arrived) if is_enough else GiveUp(pods=barrier.arrived)


def reserve(barrier: Barrier, uid: str, now_s: float) -> Barrier:
    """Return the barrier after a node was reserved for a pod; an earlier attempt of the pod ends."""
    others = _without(barrier, {uid})
    return replace(others, reserved=others.reserved | {uid}, changed_s=now_s)


def arrive(barrier: Barrier, uid: str, now_s: float) -> Barrier:
    """Return the barrier after the Binding of a pod began."""
    others = _without(barrier, {uid})
    return replace(
        others,
        arrived=others.arrived | {uid},
        arrived_s=others.arrived_s if others.arrived else now_s,
    )


def leave(barrier: Barrier, uids: Collection[str], now_s: float) -> Barrier:
    """Return the barrier without pods that were unreserved, were deleted, or cannot be bound."""
    others = _without(barrier, uids)
    return barrier if others == barrier else replace(others, changed_s=now_s)


def begin(barrier: Barrier, uids: Collection[str]) -> Barrier:
    """Return the barrier while the claims of pods are being written."""
    others = _without(barrier, uids)
    return replace(others, committing=others.committing | frozenset(uids))


def let_go(barrier: Barrier, uids: Collection[str]) -> Barrier:
    """Return the barrier after the claims of pods were written, so that they are bound."""
    others = _without(barrier, uids)
    return replace(others, passed=others.passed | frozenset(uids))


def is_short(barrier: Barrier, committed: Collection[str], bound: Collection[str]) -> bool:
    """Return True if the pods with written claims are too few, since others left meanwhile."""
    placed = barrier.passed | frozenset(bound) | frozenset(committed)
    return barrier.is_gang and len(placed) < barrier.min_count


def _without(barrier: Barrier, uids: Collection[str]) -> Barrier:
    return replace(
        barrier,
        reserved=barrier.reserved.difference(uids),
        arrived=barrier.arrived.difference(uids),
        committing=barrier.committing.difference(uids),
        passed=barrier.passed.difference(uids),
    )
