"""Binds the pods of a group together: their claims are written when all have come, or none is.

`commit.group_barrier` decides who waits, and `commit.group_steps` what is checked and taken back; here it is
done. The pod with which a group is complete has the claims of all written; the others wait for it. A pod
that waits holds neither a turn of decisions nor one of writes, and a call for it only for a moment: a pod waits
between the calls, too, until its reservation ends.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from allocator.pods.claims import Name
from kube.api.resource import ResourceClaimConsumerReference
from kube.logs import get_logger
from sidecar.commit import group_barrier
from sidecar.commit.group_barrier import Barrier, Commit, GiveUp, Wait
from sidecar.commit.group_steps import (
    GroupPod,
    TakeBack,
    rejections_of,
    split,
    take_backs_of,
)
from sidecar.commit.steps import ConsumedClaim
from sidecar.commit.writes import Consumer
from sidecar.model.protocol import GroupPolicy, GroupReference, Reservation, Verdict
from sidecar.model.rejections import Code, Rejection, failed_rejection, unschedulable
from sidecar.model.reservations import Difference
from sidecar.plan.group_claims import is_group_entry, is_reserved_for_pod
from sidecar.plan.pod_claims import claim_names
from sidecar.state.group_members import is_placed
from sidecar.state.state import ClusterState
from sidecar.writes.binder import Binder
from sidecar.writes.group_waits import Member, Place, StillWaiting, Waits
from sidecar.writes.take_backs import TakeBacks

TAKE_BACK_INTERVAL_S: Final = 1.0
"""The time between two attempts to take back what waits for an earlier write to be settled."""

NOT_COMPLETE: Final = unschedulable(
    Code.GROUP_NOT_COMPLETE,
    "too few pods of the group came to be bound in time; none is bound, and the group is tried again",
)
UNRESERVED: Final = failed_rejection(Code.POD_UNKNOWN, "the pod has no reservation any more")
INTERRUPTED: Final = failed_rejection(
    Code.ATTEMPT_FAILED, "the claims of the group could not be written; it is tried again"
)

log = get_logger()


class GroupCommits:
    """The groups with pods that are between their reservation and their Binding."""

    def __init__(
        self,
        state: ClusterState,
        binder: Binder,
        *,
        observe: Callable[[str, float], None] = lambda _code, _seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a group.

        Args:
            observe: Called with each commit: the code of its failure, empty for success, and its seconds.
            clock: Monotonic seconds.
        """
        self._state = state
        self._binder = binder
        self._observe = observe
        self._clock = clock
        # By UID of the group.
        self._barriers: dict[str, Barrier] = {}
        self._references: dict[str, GroupReference] = {}
        self._gone: dict[str, frozenset[str]] = {}
        # By UID of the pod.
        self._group_of: dict[str, str] = {}
        self._places: dict[str, Place] = {}
        self._commits: dict[str, asyncio.Event] = {}
        self._waits = Waits()
        self._take_backs = TakeBacks(
            binder, lambda take_back: self._used(take_back.name, take_back.pods)
        )
        state.groups.on_change = self._group_changed

    def is_waiting(self, uid: str) -> bool:
        """Return True if a pod waits for the others of its group."""
        group_uid = self._group_of.get(uid)
        return group_uid is not None and uid in self._barriers[group_uid].arrived

    # --- reservations -----------------------------------------------------------------------------

    def change(self, difference: Difference) -> None:
        """Take reservations that ended and began."""
        for reservation in difference.ended:
            self.forget(reservation.pod_uid)
        for reservation in difference.begun:
            if reservation.group is not None:
                self._reserve(reservation, reservation.group, is_first=difference.is_first)

    def note_placed(self, reference: GroupReference, placed: Collection[str]) -> None:
        """Take note of the pods of a group that the scheduler takes to be bound, or about to be.

        It may have seen a pod's end that we have not; such a pod counts no more for the group's minimum.

        Args:
            placed: UIDs, as of the decision about the group's other pods.
        """
        barrier = self._barriers.get(reference.uid, Barrier(min_count=1))
        counted = barrier.passed | self._state.groups.bound(_key(reference))
        gone = counted.difference(placed)
        if gone:
            self._gone[reference.uid] = gone
        else:
            self._gone.pop(reference.uid, None)

    def forget(self, uid: str) -> None:
        """Forget a pod that was unreserved, bound or deleted."""
        group_uid = self._group_of.get(uid)
        place = self._places.pop(uid, None)
        if place is not None:
            place.end(UNRESERVED)
        if group_uid is not None:
            self._drop(group_uid, {uid})
            self._wake(group_uid)

    def _reserve(self, reservation: Reservation, group: GroupReference, *, is_first: bool) -> None:
        uid = reservation.pod_uid
        self.forget(uid)
        self._group_of[uid] = group.uid
        self._references[group.uid] = group
        if uid in self._gone.get(group.uid, frozenset()):
            self._gone[group.uid] -= {uid}
        barrier = self._barriers.get(group.uid, Barrier(min_count=1))
        barrier = group_barrier.reserve(barrier, uid, self._clock())
        if is_first and self._is_written(uid):
            # The sidecar before us let it go, so it does not come again.
            barrier = group_barrier.let_go(barrier, {uid})
        self._put(group.uid, barrier)

    def _is_written(self, uid: str) -> bool:
        pod = self._state.groups.find(uid)
        if pod is None or not pod.spec.resource_claims:
            return False
        claims = [self._state.claims.store.get(name) for name in claim_names(pod)]
        return bool(claims) and all(claim and is_reserved_for_pod(claim, pod) for claim in claims)

    def _put(self, group_uid: str, barrier: Barrier) -> None:
        if barrier.is_empty:
            self._barriers.pop(group_uid, None)
            self._references.pop(group_uid, None)
            self._gone.pop(group_uid, None)
        else:
            self._barriers[group_uid] = barrier

    # --- binding ----------------------------------------------------------------------------------

    def begin(self, member: Member) -> None:
        """Begin to have the claims of a pod written together with those of its group; `result` has the end."""
        group_uid = self._group_of.get(member.uid)
        if group_uid is not None and member.uid not in self._places:
            place = Place(member, self._references[group_uid].namespace)
            self._places[member.uid] = place
            self._waits.begin(place, self._wait(group_uid, place))

    def has_begun(self, uid: str) -> bool:
        """Return True if a pod has begun for its present reservation, so that further calls are about that."""
        return uid in self._places

    async def result(self, uid: str) -> Rejection | StillWaiting | None:
        """Return the reason against binding a pod that has begun; None if it may be bound."""
        place = self._places.get(uid)
        return UNRESERVED if place is None else await self._waits.hold(place)

    async def _wait(self, group_uid: str, place: Place) -> None:
        """Take a pod through the barrier, and perhaps its group through the commit."""
        uid = place.member.uid
        try:
            # A scheduler that has just begun knows nothing of the commit of an attempt before.
            await self.commit_ended(uid)
            if not place.is_over:
                if uid not in self._group_of:
                    place.end(UNRESERVED)  # That commit failed, and took this reservation along.
                else:
                    barrier = self._barriers[group_uid]
                    self._put(group_uid, group_barrier.arrive(barrier, uid, self._clock()))
            while not place.is_over:
                await self._advance(group_uid, uid, place)
        except Exception:
            log.exception("group.failed", pod=uid)
            place.end(INTERRUPTED)
            if self._places.get(uid) is place and uid in self._group_of:
                self._drop(group_uid, {uid})
                self._wake(group_uid)

    async def _advance(self, group_uid: str, uid: str, place: Place) -> None:
        """Take the next action for a pod that has arrived, or wait until that may have changed."""
        reference = self._references[group_uid]
        barrier, bound = self._current(reference), self._bound(reference)
        match self._decide(barrier, uid, bound):
            case Commit(pods=pods):
                await self._commit(reference, pods)
            case GiveUp(pods=pods):
                log.info("group.not_complete", group=_text(reference), pods=len(pods))
                self._reject(group_uid, dict.fromkeys(pods, NOT_COMPLETE))
            case Wait(until_s=until_s):
                place.until_s = until_s
                wait_s = None if until_s is None else until_s - self._clock()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await place.wake.wait()
                place.wake.clear()

    def _decide(self, barrier: Barrier, uid: str, bound: frozenset[str]) -> Wait | Commit | GiveUp:
        max_prebind_s = self._binder.settings.binding_timeout_s
        return group_barrier.decide(barrier, uid, bound, self._clock(), max_prebind_s=max_prebind_s)

    def _current(self, reference: GroupReference) -> Barrier:
        """Return the barrier with the group's present minimum, since that may change while pods wait."""
        min_count = self._state.groups.min_count(_key(reference), reference.uid)
        barrier = self._barriers.get(reference.uid, Barrier(min_count=1))
        return replace(
            barrier,
            passed=barrier.passed - self._gone.get(reference.uid, frozenset()),
            min_count=reference.min_count if min_count is None else min_count,
            is_gang=reference.policy is GroupPolicy.GANG,
        )

    def _bound(self, reference: GroupReference) -> frozenset[str]:
        gone = self._gone.get(reference.uid, frozenset())
        return self._state.groups.bound(_key(reference)) - gone

    async def _commit(self, reference: GroupReference, pods: frozenset[str]) -> None:
        """Write the claims of pods together; then all may be bound, or none."""
        group_uid = reference.uid
        places = [self._places[uid] for uid in sorted(pods)]
        members = [self._group_pod(place.member) for place in places]
        claims, state = self._state.claims.store, self._state
        rejections = rejections_of(members, claims, state.holds, state.drivers)
        if rejections:
            # Whoever cannot be bound is tried again, and the others wait for it.
            self._reject(group_uid, rejections)
            return
        take_backs = take_backs_of(members, claims, self._take_backs.pending)
        self._put(group_uid, group_barrier.begin(self._barriers[group_uid], pods))
        ended, began_s = asyncio.Event(), self._clock()
        self._commits.update(dict.fromkeys(pods, ended))
        rejection: Rejection | None = INTERRUPTED
        try:
            rejection = await self._write(reference, members, take_backs)
        finally:
            if rejection is INTERRUPTED:
                self._take_backs.add(take_backs)
            self._end(group_uid, pods, is_written=rejection is None)
            for place in places:
                place.end(rejection)  # That of a pod that has left is over.
            for uid in pods:
                if self._commits.get(uid) is ended:
                    del self._commits[uid]
            ended.set()
            self._wake(group_uid)
        code, took_s = "" if rejection is None else rejection.code.value, self._clock() - began_s
        self._observe(code, took_s)
        log.info(
            "group.not_committed" if code else "group.committed",
            group=_text(reference),
            pods=len(pods),
            code=code,
            seconds=round(took_s, 3),
        )

    async def _write(
        self,
        reference: GroupReference,
        members: Sequence[GroupPod],
        take_backs: Sequence[TakeBack],
    ) -> Rejection | None:
        """Write the claims of pods, and take back writes in vain; return a rejection if no pod may be bound."""
        pods = frozenset(member.uid for member in members)
        rejection = await self._binder.bind_together(members)
        barrier = self._current(reference)
        left = pods - barrier.committing
        if rejection is not None:
            rejection = _of_all(rejection)
        elif left and group_barrier.is_short(barrier, pods - left, self._bound(reference)):
            rejection = NOT_COMPLETE
        if rejection is not None:
            await self._take_backs.make(take_backs)
            return rejection
        self._take_backs.drop(pods - left)
        if left:
            of_left = (split(take_back, left)[0] for take_back in take_backs)
            self._take_backs.add(take_back for take_back in of_left if take_back is not None)
            await self._take_backs.make_pending(self._group_of.keys())
        return None

    def _end(self, group_uid: str, pods: Collection[str], *, is_written: bool) -> None:
        """End the commit of those pods that have not left."""
        barrier = self._barriers.get(group_uid)
        remaining = frozenset() if barrier is None else barrier.committing.intersection(pods)
        if barrier is None or not remaining:
            return
        if is_written:
            self._put(group_uid, group_barrier.let_go(barrier, remaining))
        else:
            self._drop(group_uid, remaining)

    def _drop(self, group_uid: str, uids: Collection[str]) -> None:
        for uid in uids:
            self._group_of.pop(uid, None)
        barrier = self._barriers[group_uid]
        self._put(group_uid, group_barrier.leave(barrier, uids, self._clock()))

    def _reject(self, group_uid: str, rejections: Mapping[str, Rejection]) -> None:
        """End the wait of pods; the scheduler gives up their reservations then."""
        for uid, rejection in rejections.items():
            self._places[uid].end(rejection)
        self._drop(group_uid, rejections.keys())
        self._wake(group_uid)

    def _group_pod(self, member: Member) -> GroupPod:
        return GroupPod(member.uid, self._state.node(member.node), member.claims)

    async def release(self, pod_uid: str, claim: ConsumedClaim, *, deallocate: bool) -> bool:
        """Take a pod out of a claim that was written for it; return True if that was done.

        The entry of its PodGroup stays while another of its pods that is bound, or may be, uses the claim.

        Args:
            deallocate: The pod was never bound, so the devices are free if nobody else uses them.
        """
        pods = (Consumer(pod_uid, claim.entry),)
        return await self._binder.release(
            pods[0], claim, deallocate=deallocate, find_used=lambda: self._used(claim.name, pods)
        )

    def _used(self, claim: Name, pods: Collection[Consumer]) -> frozenset[str]:
        """Return UIDs of those entries of pods in a claim that are still used.

        Those of groups by others that are bound or about to be, and those of pods by pods that are bound after all.
        """
        leaving = frozenset(pod.pod_uid for pod in pods)
        entries = {pod.entry.uid: pod.entry for pod in pods if is_group_entry(pod.entry)}
        used = {uid for uid, entry in entries.items() if self._is_used(claim, entry, leaving)}
        for pod in pods:
            member = self._state.groups.find(pod.pod_uid)
            if pod.entry.uid not in entries and member is not None and is_placed(member):
                used.add(pod.entry.uid)
        return frozenset(used)

    def _is_used(
        self, claim: Name, group: ResourceClaimConsumerReference, leaving: frozenset[str]
    ) -> bool:
        members = self._state.groups.members((claim[0], group.name))
        barrier = self._barriers.get(group.uid, Barrier(min_count=1))
        bindable = (barrier.passed | barrier.committing) - leaving
        if bindable - members.keys():
            return True  # Its claims are not seen yet.
        return any(
            claim in claim_names(pod)
            for uid, pod in members.items()
            if uid in bindable or (pod.spec.node_name and uid not in leaving)
        )

    async def commit_ended(self, uid: str) -> None:
        """Return once the claims of a pod are not being written with those of its group."""
        while (commit := self._commits.get(uid)) is not None:
            await commit.wait()

    async def run(self) -> None:
        """Repeat failed attempts to take back writes, until cancelled."""
        while True:
            await asyncio.sleep(TAKE_BACK_INTERVAL_S)
            await self._take_backs.make_pending(self._group_of.keys())

    # --- waking -----------------------------------------------------------------------------------

    def _wake(self, group_uid: str) -> None:
        """Have the waiting pods of a group decide again, unless they go on waiting as they do.

        Whoever writes pods chooses how often a group changes, and how many pods it has.
        """
        barrier = self._barriers.get(group_uid)
        arrived = barrier.arrived if barrier is not None else ()
        places = [self._places[uid] for uid in arrived if uid in self._places]
        if not places:
            return
        reference = self._references[group_uid]
        # The step is the same for all that wait.
        step = self._decide(self._current(reference), places[0].member.uid, self._bound(reference))
        for place in places:
            if not isinstance(step, Wait) or _is_earlier(step.until_s, place.until_s):
                place.wake.set()

    def _group_changed(self, name: Name) -> None:
        for group_uid, reference in self._references.items():
            if _key(reference) == name:
                self._wake(group_uid)


def _is_earlier(until_s: float | None, than_s: float | None) -> bool:
    """Return True if a wait ends before another one; None is a wait without end."""
    return until_s is not None and (than_s is None or until_s < than_s)


def _key(reference: GroupReference) -> Name:
    return reference.namespace, reference.name


def _text(reference: GroupReference) -> str:
    return "/".join(_key(reference))


def _of_all(rejection: Rejection) -> Rejection:
    """Return the rejection of all pods of a group after that of one of them."""
    is_lasting = rejection.verdict is Verdict.UNSCHEDULABLE
    code = rejection.code if is_lasting else Code.DEVICES_GONE
    return unschedulable(code, f"no pod of the group is bound: {rejection.message}")
