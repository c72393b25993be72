"""A simulator of the commits of groups: seeded schedules against an API server that misbehaves.

The API server and the sidecars are those of `testing.sidecar.world`, and the decisions those of
`sidecar.commit.group_barrier` and `group_steps`. Two gangs share devices that do not suffice for both; one has a
claim that its pods share. Pods come late or never, are unreserved or deleted in the middle of a commit, Bindings
fail, and sidecars freeze, are killed, or hand over. With odd seeds the shared claim is reserved for the gang, and not
for its pods. Pods are deleted while others wait, and others come; a gang's minimum is raised or lowered, and a node
is lost between a Reserve and the Binding. With every fourth seed the volumes of some pods take long, and the others
wait for these. After each event no device belongs to two claims, no claim was taken from a pod that runs, and the history rule holds: before its first complete commit a gang has 0 pods
whose claims are all allocated, or as many as it needs at least, outside the commit window. What counts
is the minimum that the leader has seen. The window is that of a commit under way, or what is left of one: while there is a leader that serves, it has to know of it.
A pod that is reserved for the second time has the devices of the first, and what preemption asks promises nothing.

A seed is a schedule: `python -m testing.sidecar.group_chaos --first 7 --seeds 1` plays it again. `--fault` plants
a fault, which has to be found: `no-commit` writes the claims of each pod by itself, `no-take-back` leaves what
was written before a write was refused, `no-look-back` has a new leader serve at once, `hasty-take-back` does
not settle an unknown write first, `no-parking` gives devices up between the two Reserves of a pod,
`what-if-holds` promises what preemption only asked about, `first-takes-all` takes a gang's entry out of a claim with
the first pod that leaves, `old-minimum` goes by the minimum of the reservations, `deleted-counts` lets the rest of a
commit go whoever has left it, `lost-node` does not look at the nodes again, and `hasty-give-up` does not wait for
volumes.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of
from kube.api.core import Node
from kube.api.resource import ResourceClaim, ResourceClaimConsumerReference
from sidecar.commit import group_barrier, group_steps, ledger, steps
from sidecar.commit.group_barrier import Barrier, Commit, GiveUp, Wait
from sidecar.commit.group_steps import GroupPod, MemberClaims, TakeBack
from sidecar.commit.steps import Candidate, ClaimWrite, ConsumedClaim, Kind
from sidecar.commit.writes import Consumer, Outcome, consumers
from sidecar.model.rejections import Rejection
from testing.sidecar.gangs import GANGS, NODES, Gang, GangObjects, gang_of
from testing.sidecar.world import (
    BrokenPromise,
    ClaimKey,
    Process,
    World,
    allocation_with,
    consumer,
    devices_of,
    written_claim,
)

DEVICES: Final = 4
DRIVERS: Final = frozenset({"gpu.example.com"})
BINDING_FAILS: Final = 0.2
"""Share of the Bindings that are refused."""
FORGOTTEN: Final = 0.15
"""Share of the reservations after which a pod of the gang never comes."""
LATE: Final = 0.2
"""Share of the pods of a new gang that come later."""
VOLUMES_S: Final = 20.0
"""The longest time for the volumes of a pod."""
HASTY_S: Final = 2.0
"""The wait for pods that are reserved, with the fault `hasty-give-up`."""
SLOW: Final = 0.3
"""Share of the pods with volumes that take long."""


class Fault(StrEnum):
    """A fault that is planted."""

    NONE = "none"
    NO_COMMIT = "no-commit"
    NO_TAKE_BACK = "no-take-back"
    NO_LOOK_BACK = "no-look-back"
    HASTY_TAKE_BACK = "hasty-take-back"
    NO_PARKING = "no-parking"
    WHAT_IF_HOLDS = "what-if-holds"
    FIRST_TAKES_ALL = "first-takes-all"
    OLD_MINIMUM = "old-minimum"
    DELETED_COUNTS = "deleted-counts"
    LOST_NODE = "lost-node"
    HASTY_GIVE_UP = "hasty-give-up"


class Running:
    """A commit under way.

    Attributes:
        min_count: The gang's minimum, as it was seen at the beginning.
        written: Pods whose claims are all written.
        is_rejected: A claim cannot be written, so that all are taken back.
    """

    def __init__(
        self, pods: frozenset[str], min_count: int, take_backs: Iterable[TakeBack]
    ) -> None:
        self.pods = pods
        self.min_count = min_count
        self.take_backs = {take_back.uid: take_back for take_back in take_backs}
        self.written: set[str] = set()
        self.is_rejected = False


class GroupProcess(Process):
    """A sidecar and its scheduler, with the gangs that are being bound.

    Attributes:
        take_backs: The writes that could not be taken back at once, by UID of the claim.
        bound: The pods that are seen bound.
        minimums: Gang to its minimum, as it was seen.
        nodes: The nodes that are seen.
        node_of: The node that was reserved for each pod.
        volumes_until_s: Pod to the time at which its volumes are bound, by the process's clock.
        may_take_until_s: Pod to the latest such time.
        parked: The pods of each gang whose run is over, which are to be reserved for the second time, with the
            versions of their claims.
        is_looking_back: It leads, and does not serve before what the leader before left is taken back.
    """

    def begin(self) -> None:
        """Begin anew: nothing that was known before counts."""
        super().begin()
        self.barriers = {gang.name: Barrier(min_count=gang.min_count) for gang in GANGS}
        self.commits: dict[str, Running] = {}
        self.take_backs: dict[str, TakeBack] = {}
        self.bound: frozenset[str] = frozenset()
        self.minimums = {gang.name: gang.min_count for gang in GANGS}
        self.nodes = frozenset(NODES)
        self.node_of: dict[str, str] = {}
        self.volumes_until_s: dict[str, float] = {}
        self.may_take_until_s: dict[str, float] = {}
        self.parked: dict[str, dict[str, list[str]]] = {}
        self.is_looking_back = True

    @property
    def serves(self) -> bool:
        """Return True if it answers its scheduler."""
        return self.leads and not self.is_looking_back


class GroupWorld(World[GroupProcess]):
    """A schedule of two gangs.

    Attributes:
        windows_s: The times that a gang was partially allocated.
    """

    claim_names = tuple(
        sorted({name for gang in GANGS for place in gang.pods for name in gang.claims(place)})
    )

    events = 3000
    stir_s = 0.1

    def __init__(self, seed: int, fault: Fault = Fault.NONE) -> None:
        super().__init__(seed)
        self._planted = fault
        self._has_group_entries = bool(seed % 2)
        self._has_volumes = seed % 4 == 2
        self._objects = GangObjects()
        self._running: dict[str, tuple[ClaimKey, ...]] = {}
        self._complete: set[tuple[str, int]] = set()
        self._partial_since: dict[str, float] = {}
        self.windows_s: list[float] = []

    def _new_process(self, name: str, offset: float, rate: float) -> GroupProcess:
        return GroupProcess(name, offset, rate)

    def _actions(self) -> Sequence[tuple[int, Callable[[GroupProcess], None]]]:
        return (
            (30, self._look_back),
            (60, self._reserve),
            (150, self._resume),
            (15, self._ask_what_if),
            (90, self._arrive),
            (90, self._advance),
            (160, self._write),
            (40, self._bind),
            (14, self._unreserve),
            (30, self._make_take_backs),
            (30, self._settle),
            (100, self._watch),
            (2, self._break_watch),
            (2, self._end_gang),
            (3, self._delete_pod),
            (8, self._create_pod),
            (3, self._change_minimum),
            (3, self._lose_node),
            (1, self._freeze),
            (1, self._kill),
            (1, self._resign),
        )

    # --- the rules --------------------------------------------------------------------------------

    def _stir(self) -> None:
        super()._stir()
        self._remove_stale_entries()
        self._check()

    def _check(self) -> None:
        owners: dict[str, Name] = {}
        for name, claim in self._server.claims.items():
            for device in devices_of(claim):
                if device in owners:
                    self._fail(f"{device} belongs to {owners[device]} and {name}")
                owners[device] = name
        for pod, keys in self._running.items():
            for key in keys:
                if not self._is_reserved(pod, key):
                    self._fail(f"{pod} runs, and {key.name[1]} was taken from it")
        for gang in GANGS:
            self._check_gang(gang)

    def _check_gang(self, gang: Gang) -> None:
        claims, whole = self._server.claims, self._whole_pods(gang)
        is_begun = bool(whole) and not self._is_complete(gang)
        if not is_begun or len(whole) >= self._objects.minimums[gang.name]:
            began_s = self._partial_since.pop(gang.name, None)
            if began_s is not None:
                self.windows_s.append(self._now - began_s)
        else:
            self._partial_since.setdefault(gang.name, self._now)
        uids = {claims[name].metadata.uid for pod in whole for name in gang.claims(pod)}
        for process in self._processes if is_begun else ():
            needed = process.minimums[gang.name]
            is_serving = process.serves and self._server.holder == process.identity
            if (
                is_serving
                and len(whole) < needed
                and gang.name not in process.commits
                and uids.isdisjoint(process.take_backs)
            ):
                self._fail(f"{', '.join(whole)} of {gang.name} have devices, {needed} need them")

    def _whole_pods(self, gang: Gang) -> list[str]:
        """Return the pods with claims that are all allocated."""
        claims = self._server.claims
        return [
            pod
            for pod in self._pods(gang)
            if all(allocation_of(claims[name]) is not None for name in gang.claims(pod))
        ]

    def _note_commit(self, gang: Gang, needed: int, unseen: Collection[str] = ()) -> None:
        """Take note of the end of a commit, if it was complete.

        Args:
            needed: The gang's minimum, as the leader has seen it.
            unseen: Pods of the commit that were deleted, which the leader has not seen.
        """
        if len(self._whole_pods(gang)) + len(unseen) >= needed:
            self._complete.add((gang.name, self._objects.generations[gang.name]))

    @property
    def commits(self) -> int:
        """The number of times that the pods of a gang were let go for the first time."""
        return len(self._complete)

    def _is_complete(self, gang: Gang) -> bool:
        return (gang.name, self._objects.generations[gang.name]) in self._complete

    def _pods(self, gang: Gang) -> list[str]:
        """Return the gang's pods that exist."""
        return self._objects.pods(gang)

    def _is_reserved(self, pod: str, key: ClaimKey) -> bool:
        return self._server.is_reserved(self._entry(gang_of(pod), pod, key.name).uid, key)

    def _entry(self, gang: Gang, pod: str, name: Name) -> ResourceClaimConsumerReference:
        """Return the entry of a pod in a claim."""
        if self._has_group_entries and name[1] == gang.shared:
            return consumer(f"{gang.name}.{self._objects.generations[gang.name]}")
        return consumer(pod)

    def _used(
        self, process: GroupProcess, gang: Gang, name: Name, leaving: Iterable[str]
    ) -> frozenset[str]:
        """Return UIDs of the entries in a claim of other pods, bound or about to be."""
        if self._planted is Fault.FIRST_TAKES_ALL:
            return frozenset()
        barrier = process.barriers[gang.name]
        pods = (barrier.passed | barrier.committing | process.bound).intersection(self._pods(gang))
        return frozenset(
            self._entry(gang, pod, name).uid
            for pod in pods.difference(leaving)
            if name in gang.claims(pod)
        )

    # --- a new leader -----------------------------------------------------------------------------

    def _list(self, process: GroupProcess, term: int) -> None:
        super()._list(process, term)
        self._see_objects(process)

    def _look_back(self, process: GroupProcess) -> None:
        """Take back the writes of the leader before for gangs that are not complete."""
        if not process.leads or not process.is_looking_back:
            return
        take_backs = [take_back for gang in GANGS for take_back in self._incomplete(process, gang)]
        if not take_backs or self._planted is Fault.NO_LOOK_BACK:
            self.trace.append(f"         {process.name} serves")
            process.is_looking_back = False
            for gang in GANGS:
                # Of the leader before, which was complete.
                self._note_commit(gang, process.minimums[gang.name])
            return
        self._take_back(process, self._random.choice(take_backs))

    def _incomplete(self, process: GroupProcess, gang: Gang) -> tuple[TakeBack, ...]:
        members = [
            MemberClaims(
                pod,
                pod in process.bound,
                tuple(
                    (process.seen.get(name), self._entry(gang, pod, name))
                    for name in gang.claims(pod)
                ),
            )
            for pod in self._pods(gang)
        ]
        shared = process.seen.get(("default", gang.shared))
        users = () if shared is None or self._has_group_entries else consumers(shared)
        gone = {user.uid for user in users}.difference(self._pods(gang))
        return group_steps.incomplete_commit(process.minimums[gang.name], members, gone)

    # --- reservations -----------------------------------------------------------------------------

    def _reserve(self, process: GroupProcess) -> None:
        """Reserve nodes for the pods of a gang that fit, if they are enough, and revert it as the end of a run does.

        The runs over both gangs overlap, which those of a scheduler do not.
        """
        if not process.serves:
            return
        gang = self._random.choice(GANGS)
        if gang.name in process.parked:
            return
        # Pods that the scheduler knows to be gone count no more, before the sidecar sees it.
        self._forget(process, gang, process.barriers[gang.name].passed - set(self._pods(gang)))
        barrier = process.barriers[gang.name]
        free = sorted({f"gpu-{n}" for n in range(DEVICES)} - process.devices_in_use())
        chosen, holds = self._choose(process, gang, free)
        placed = self._placed(process, gang)
        if not chosen or len(placed) + len(chosen) < process.minimums[gang.name]:
            return
        nodes = sorted(process.nodes)
        process.node_of |= {pod: self._random.choice(nodes) for pod in chosen}
        process.parked[gang.name] = {pod: self._versions(process, gang, pod) for pod in chosen}
        if self._planted is Fault.NO_PARKING:
            return
        process.holds.clear()
        process.holds.update(holds)
        for pod in chosen:
            barrier = group_barrier.reserve(barrier, pod, process.clock(self._now))
        process.barriers[gang.name] = barrier
        self.trace.append(f"         {process.name} reserves nodes for {', '.join(chosen)}")
        for pod in chosen if self._has_volumes else ():
            now_s, is_slow = process.clock(self._now), self._random.random() < SLOW
            process.volumes_until_s[pod] = now_s + self._random.uniform(0, VOLUMES_S * is_slow)
            process.may_take_until_s[pod] = now_s + VOLUMES_S

    def _resume(self, process: GroupProcess) -> None:
        """Reserve the nodes of a run for the second time; this has to find the devices of the first."""
        if not process.serves or not process.parked:
            return
        gang = self._random.choice([gang for gang in GANGS if gang.name in process.parked])
        parked = process.parked.pop(gang.name)
        pods = [pod for pod in parked if pod in self._pods(gang)]
        for pod in pods:
            if self._planted is Fault.NO_PARKING:
                self._reserve_anew(process, gang, pod)
            # Of a claim that was written or deleted meanwhile nothing is known.
            is_same = self._versions(process, gang, pod) == parked[pod]
            if is_same and not self._has_devices(process, gang, pod):
                self._fail(f"{pod} has lost its devices between the two Reserves")
        if pods and self._random.random() < FORGOTTEN:
            self._forget(process, gang, [self._random.choice(pods)])

    def _reserve_anew(self, process: GroupProcess, gang: Gang, pod: str) -> None:
        free = sorted({f"gpu-{n}" for n in range(DEVICES)} - process.devices_in_use())
        claims = [process.seen.get(name) for name in gang.claims(pod)]
        _hold(pod, claims, process.holds, free)
        process.barriers[gang.name] = group_barrier.reserve(
            process.barriers[gang.name], pod, process.clock(self._now)
        )

    def _versions(self, process: GroupProcess, gang: Gang, pod: str) -> list[str]:
        claims = [process.seen.get(name) for name in gang.claims(pod)]
        return ["" if claim is None else claim.metadata.resource_version or "" for claim in claims]

    def _has_devices(self, process: GroupProcess, gang: Gang, pod: str) -> bool:
        """Return True if each claim of a pod has devices, or is promised some; one that is gone needs none."""
        claims = [process.seen.get(name) for name in gang.claims(pod)]
        return all(
            claim is None or allocation_of(claim) is not None or claim.metadata.uid in process.holds
            for claim in claims
        )

    def _ask_what_if(self, process: GroupProcess) -> None:
        """Ask for places of a gang without the pods of the other one, as preemption does: nothing comes of it."""
        if not process.serves:
            return
        gang, other = self._random.sample(GANGS, 2)
        freed = {
            device
            for pod in self._pods(other)
            for name in other.claims(pod)
            if (claim := process.seen.get(name)) is not None
            for device in devices_of(claim)
        }
        free = {f"gpu-{n}" for n in range(DEVICES)} - (process.devices_in_use() - freed)
        _, holds = self._choose(process, gang, sorted(free))
        if self._planted is Fault.WHAT_IF_HOLDS:
            process.holds.update(holds)

    def _choose(
        self, process: GroupProcess, gang: Gang, free: list[str]
    ) -> tuple[list[str], dict[str, ledger.Hold]]:
        """Return the further pods of a gang that get devices, and the promises then.

        Args:
            free: The free devices, of which those that are given are taken out.
        """
        placed, holds = self._placed(process, gang), dict(process.holds)
        chosen: list[str] = []
        for pod in self._pods(gang):
            if pod not in placed:
                claims = [process.seen.get(name) for name in gang.claims(pod)]
                if None not in claims and _hold(pod, claims, holds, free):
                    chosen.append(pod)
        return chosen, holds

    def _placed(self, process: GroupProcess, gang: Gang) -> list[str]:
        """Return the pods of a gang that are bound, or on the way to it."""
        barrier = process.barriers[gang.name]
        return [pod for pod in self._pods(gang) if pod in process.bound or pod in barrier]

    def _arrive(self, process: GroupProcess) -> None:
        """Begin the Binding of a pod."""
        gang = self._random.choice(GANGS)
        barrier, now_s = process.barriers[gang.name], process.clock(self._now)
        reserved = {
            pod
            for pod in barrier.reserved.difference(process.parked.get(gang.name, ()))
            if process.volumes_until_s.get(pod, now_s) <= now_s
        }
        if process.serves and reserved:
            pod = self._random.choice(sorted(reserved))
            process.barriers[gang.name] = group_barrier.arrive(barrier, pod, now_s)

    def _unreserve(self, process: GroupProcess) -> None:
        """Give up a pod, perhaps while its claims are being written."""
        gang = self._random.choice(GANGS)
        barrier = process.barriers[gang.name]
        pods = sorted(
            (barrier.reserved | barrier.arrived | barrier.committing).difference(
                process.parked.get(gang.name, ())
            )
        )
        if not process.serves or not pods:
            return
        pod = self._random.choice(pods)
        self._forget(process, gang, [pod])
        commit = process.commits.get(gang.name)
        if commit is None or pod not in commit.pods:
            self._release(process, gang, pod, deallocate=True)

    def _forget(self, process: GroupProcess, gang: Gang, pods: Collection[str]) -> None:
        """End reservations of pods; their writes stay."""
        for pod in pods:
            for uid in tuple(process.holds):
                process.change(uid, partial(ledger.unreserve, pod=pod))
        process.barriers[gang.name] = group_barrier.leave(
            process.barriers[gang.name], pods, process.clock(self._now)
        )

    def _release(self, process: GroupProcess, gang: Gang, pod: str, *, deallocate: bool) -> None:
        for name in gang.claims(pod):
            claim = process.seen.get(name)
            if claim is not None and claim.metadata.uid not in process.busy:
                pods = [Consumer(pod, self._entry(gang, pod, name))]
                used = self._used(process, gang, name, [pod])
                entries = group_steps.leaving_entries(pods, used)
                write = entries and steps.next_release_step(
                    claim, claim.metadata.uid, entries, deallocate=deallocate
                )
                if write:
                    self._send(process, write)

    # --- commits ----------------------------------------------------------------------------------

    def _advance(self, process: GroupProcess) -> None:
        """Decide about a pod that waits."""
        gang = self._random.choice(GANGS)
        barrier = self._current(process, gang)
        if not process.serves or not barrier.arrived or gang.name in process.commits:
            return
        pod = self._random.choice(sorted(barrier.arrived))
        bound, now_s = process.bound.intersection(self._pods(gang)), process.clock(self._now)
        is_hasty = self._planted is Fault.HASTY_GIVE_UP
        max_prebind_s = HASTY_S - group_barrier.WAIT_S if is_hasty else VOLUMES_S
        step = group_barrier.decide(barrier, pod, bound, now_s, max_prebind_s=max_prebind_s)
        if self._planted is Fault.NO_COMMIT:
            step = Commit(pods=frozenset({pod}))
        match step:
            case Commit(pods=pods):
                self._begin_commit(process, gang, pods)
            case GiveUp(pods=pods):
                self.trace.append(f"         {', '.join(sorted(pods))} give up")
                self._check_give_up(process, barrier, now_s)
                self._forget(process, gang, pods)
            case Wait():
                pass

    def _check_give_up(self, process: GroupProcess, barrier: Barrier, now_s: float) -> None:
        """Look for pods that were reserved with those that give up, and may come yet."""
        for pod in barrier.reserved - process.bound:
            may_take_until_s = process.may_take_until_s.get(pod, now_s)
            was_first = may_take_until_s - VOLUMES_S <= barrier.arrived_s
            if was_first and now_s < may_take_until_s:
                self._fail(f"the volumes of {pod} may be bound yet, and the others gave up")

    def _current(self, process: GroupProcess, gang: Gang) -> Barrier:
        """Return the barrier of a gang with its present minimum."""
        barrier = process.barriers[gang.name]
        if self._planted is Fault.OLD_MINIMUM:
            return barrier
        return replace(barrier, min_count=process.minimums[gang.name])

    def _node(self, process: GroupProcess, pod: str) -> Node | None:
        """Return the node that was reserved for a pod; None once it is seen to be gone."""
        name = process.node_of[pod]
        is_there = name in process.nodes or self._planted is Fault.LOST_NODE
        return NODES[name] if is_there else None

    def _begin_commit(self, process: GroupProcess, gang: Gang, pods: frozenset[str]) -> None:
        members = [
            GroupPod(
                pod,
                self._node(process, pod),
                tuple(
                    ConsumedClaim(name, claim.metadata.uid, self._entry(gang, pod, name))
                    for name in gang.claims(pod)
                    if (claim := process.seen.get(name)) is not None
                ),
            )
            for pod in sorted(pods)
        ]
        rejections = group_steps.rejections_of(members, process.seen, process.holds, DRIVERS)
        if rejections:
            self._forget(process, gang, rejections)
            return
        for pod in sorted(pods):
            if process.node_of[pod] not in process.nodes:
                self._fail(f"{pod} is to be bound to {process.node_of[pod]}, which is gone")
        take_backs = group_steps.take_backs_of(members, process.seen, process.take_backs)
        process.commits[gang.name] = Running(pods, process.minimums[gang.name], take_backs)
        process.barriers[gang.name] = group_barrier.begin(process.barriers[gang.name], pods)
        self.trace.append(f"         {process.name} begins the commit of {', '.join(sorted(pods))}")

    def _write(self, process: GroupProcess) -> None:
        """Write a claim of a commit, or take one back."""
        gang = self._random.choice(GANGS)
        commit = process.commits.get(gang.name)
        if not process.serves or commit is None:
            return
        if commit.is_rejected:
            self._undo(process, gang, commit)
        elif commit.written == commit.pods:
            self._finish(process, gang, commit)
        else:
            pod = self._random.choice(sorted(commit.pods - commit.written))
            self._write_pod(process, gang, commit, pod)

    def _write_pod(self, process: GroupProcess, gang: Gang, commit: Running, pod: str) -> None:
        for name in gang.claims(pod):
            claim = process.seen.get(name)
            uid = "" if claim is None else claim.metadata.uid
            if uid in process.busy:
                return
            step = steps.next_bind_step(
                claim,
                uid,
                process.holds.get(uid),
                Candidate(Consumer(pod, self._entry(gang, pod, name)), NODES[process.node_of[pod]]),
                drivers=DRIVERS,
                is_unsettled=claim is not None and process.unsettled.may_change(claim),
                others=[
                    Candidate(
                        Consumer(other, self._entry(gang, other, name)),
                        NODES[process.node_of[other]],
                    )
                    for other in sorted(commit.pods)
                    if name in gang.claims(other)
                ],
            )
            if isinstance(step, Rejection):
                commit.is_rejected = True
            elif step is not None:
                self._send(process, step)
            if step is not None:
                return
        commit.written.add(pod)

    def _finish(self, process: GroupProcess, gang: Gang, commit: Running) -> None:
        """Let the pods of a commit be bound, unless too many have left."""
        barrier = self._current(process, gang)
        left = commit.pods - barrier.committing
        bound = process.bound.intersection(self._pods(gang))
        remaining = commit.pods - left
        is_short = group_barrier.is_short(barrier, remaining, bound)
        if left and is_short and self._planted is not Fault.DELETED_COUNTS:
            commit.is_rejected = True
            return
        process.barriers[gang.name] = group_barrier.let_go(barrier, remaining)
        del process.commits[gang.name]
        for take_back in tuple(process.take_backs.values()):
            self._leave(process, take_back, remaining)
        for take_back in commit.take_backs.values():
            _, not_let_go = group_steps.split(take_back, remaining)
            if not_let_go is not None:
                self._take_back_later(process, not_let_go)
        if remaining:
            self.trace.append(f"         {process.name} lets {', '.join(sorted(remaining))} go")
            needed = min(commit.min_count, process.minimums[gang.name])
            self._note_commit(gang, needed, remaining.difference(self._pods(gang)))

    def _undo(self, process: GroupProcess, gang: Gang, commit: Running) -> None:
        """Take back the writes of a commit."""
        if self._planted is Fault.NO_TAKE_BACK:
            commit.take_backs.clear()
        for take_back in tuple(commit.take_backs.values()):
            if take_back.uid in process.busy:
                return
            if self._take_back(process, take_back):
                del commit.take_backs[take_back.uid]
                if take_back.uid in process.take_backs:
                    uids = {pod.pod_uid for pod in take_back.pods}
                    self._leave(process, process.take_backs[take_back.uid], uids)
            elif take_back.uid in process.busy:
                return
            else:
                self._take_back_later(process, commit.take_backs.pop(take_back.uid))
        del process.commits[gang.name]
        self._forget(process, gang, commit.pods & process.barriers[gang.name].committing)

    def _take_back_later(self, process: GroupProcess, take_back: TakeBack) -> None:
        before = process.take_backs.get(take_back.uid)
        process.take_backs[take_back.uid] = group_steps.joined(before, take_back)

    def _leave(self, process: GroupProcess, take_back: TakeBack, uids: Collection[str]) -> None:
        """Have the pods of a pending one no more to be taken out."""
        _, of_others = group_steps.split(take_back, uids)
        if of_others is None:
            del process.take_backs[take_back.uid]
        else:
            process.take_backs[take_back.uid] = of_others

    def _take_back(self, process: GroupProcess, take_back: TakeBack) -> bool:
        """Make the next write that takes a claim back; return True if nothing is left to do."""
        if take_back.uid in process.busy:
            return False
        claim = process.seen.get(take_back.name)
        gang = next(gang for gang in GANGS if take_back.name[1].startswith(gang.name))
        step = group_steps.next_take_back_step(
            take_back,
            claim,
            process.holds.get(take_back.uid),
            used=self._used(process, gang, take_back.name, [pod.pod_uid for pod in take_back.pods]),
            is_unsettled=claim is not None and process.unsettled.may_change(claim),
        )
        if isinstance(step, ClaimWrite):
            self._send(process, step)
            return False
        return step or self._planted is Fault.HASTY_TAKE_BACK

    def _make_take_backs(self, process: GroupProcess) -> None:
        """Repeat failed attempts to take back writes."""
        if not process.serves:
            return
        for take_back in tuple(process.take_backs.values()):
            is_active = any(
                pod.pod_uid in barrier
                for pod in take_back.pods
                for barrier in process.barriers.values()
            )
            if not is_active and self._take_back(process, take_back):
                del process.take_backs[take_back.uid]

    def _end(
        self, process: GroupProcess, write: ClaimWrite, result: ResourceClaim | Outcome
    ) -> None:
        super()._end(process, write, result)
        is_of_binding = write.kind not in {Kind.DEALLOCATE, Kind.LEAVE}
        if is_of_binding and result in {Outcome.REFUSED, Outcome.GONE}:
            for commit in process.commits.values():
                commit.is_rejected |= write.claim.metadata.uid in commit.take_backs

    # --- pods -------------------------------------------------------------------------------------

    def _bind(self, process: GroupProcess) -> None:
        """Bind a pod that was let go."""
        gang = self._random.choice(GANGS)
        passed = process.barriers[gang.name].passed
        if not process.serves or not passed or self._server.holder != process.identity:
            return
        pod = self._random.choice(sorted(passed))
        self._forget(process, gang, [pod])
        if pod not in self._pods(gang):
            return  # It was deleted.
        keys = tuple(
            ClaimKey(name, self._server.claims[name].metadata.uid) for name in gang.claims(pod)
        )
        if self._random.random() < BINDING_FAILS:
            self._release(process, gang, pod, deallocate=False)
        elif all(self._is_reserved(pod, key) for key in keys):
            self.trace.append(f"         {process.name} binds {pod}")
            self._running[pod] = keys
            process.bound |= {pod}

    def _watch(self, process: GroupProcess) -> None:
        super()._watch(process)
        if process.leads and not process.is_listing:
            self._see_objects(process)
            for gang in GANGS:
                barrier, pods = process.barriers[gang.name], self._pods(gang)
                present = barrier.reserved | barrier.arrived | barrier.committing | barrier.passed
                self._forget(process, gang, sorted(present.difference(pods)))

    def _see_objects(self, process: GroupProcess) -> None:
        process.bound = frozenset(self._running)
        process.minimums = dict(self._objects.minimums)
        process.nodes = self._objects.nodes

    # --- the cluster ------------------------------------------------------------------------------

    def _end_gang(self, _process: GroupProcess) -> None:
        """Delete the pods of a gang with their claims, and create them anew, some of them later."""
        gang = self._random.choice(GANGS)
        for pod in self._pods(gang):
            self._running.pop(pod, None)
        late = [place for place in gang.pods if self._random.random() < LATE]
        self._objects.renew(gang, late)
        self._partial_since.pop(gang.name, None)
        for name in sorted({name for place in gang.pods for name in gang.claims(place)}):
            self._server.release(name, None)
        present = [gang.claims(pod) for pod in self._pods(gang)]
        for name in sorted(
            {("default", gang.shared), *(name for names in present for name in names)}
        ):
            if name[1]:
                self._server.create(name)

    def _delete_pod(self, _process: GroupProcess) -> None:
        """Delete a pod with its claims, but not the last one of a gang.

        What a lost leader wrote for a PodGroup without any pod stays until that is deleted.
        """
        gang = self._random.choice(GANGS)
        pods = self._pods(gang)
        if len(pods) < 2:
            return
        pod = self._random.choice(pods)
        self.trace.append(f"         {pod} is deleted")
        self._running.pop(pod, None)
        for name in self._objects.delete(pod):
            self._server.release(name, None)

    def _remove_stale_entries(self) -> None:
        """Remove entries of pods that are gone from shared claims, as kube-controller-manager does."""
        for gang in GANGS:
            name = ("default", gang.shared)
            shared = self._server.claims.get(name)
            if shared is None or self._has_group_entries:
                continue
            pods = self._pods(gang)
            stale = tuple(entry for entry in consumers(shared) if entry.uid not in pods)
            if stale:
                write = ClaimWrite(kind=Kind.DEALLOCATE, claim=shared, entries=stale)
                self._server.put(name, written_claim(shared, write))

    def _create_pod(self, _process: GroupProcess) -> None:
        """Create a pod of a gang in the place of one that was deleted, or that comes late."""
        gang = self._random.choice(GANGS)
        absent = self._objects.absent(gang)
        if absent:
            place = self._random.choice(absent)
            for name in self._objects.create(place):
                self._server.create(name)
            self.trace.append(f"         a pod comes as {place}")

    def _change_minimum(self, _process: GroupProcess) -> None:
        """Raise or lower the minimum of a gang.

        Nobody lowers it in the seconds in which a new leader looks back: what is half taken back would be complete.
        """
        gang = self._random.choice(GANGS)
        minimum = self._random.randint(2, len(gang.pods))
        is_looked_at = any(process.leads and process.is_looking_back for process in self._processes)
        if is_looked_at and minimum < self._objects.minimums[gang.name]:
            return
        self._objects.minimums[gang.name] = minimum
        self.trace.append(f"         {gang.name} needs {minimum} pods now")

    def _lose_node(self, _process: GroupProcess) -> None:
        """Lose a node, or have it come back."""
        if len(self._objects.nodes) < len(NODES):
            self._objects.nodes = frozenset(NODES)
        else:
            name = self._random.choice(sorted(NODES))
            self._objects.nodes -= {name}
            self.trace.append(f"         {name} is lost")

    def _kill(self, process: GroupProcess) -> None:
        """End a process at once; its sent calls arrive nevertheless, and its Lease expires."""
        process.term += 1
        process.identity = f"{process.name}-{process.term}-new"
        process.begin()
        process.frozen_until = self._now + 1.0
        self.trace.append(f"         {process.name} is killed")


def _hold(
    pod: str, claims: Sequence[ResourceClaim | None], holds: dict[str, ledger.Hold], free: list[str]
) -> bool:
    """Promise devices to a pod's claims; return True if there are enough."""
    present = [claim for claim in claims if claim is not None]
    opened = [claim for claim in present if allocation_of(claim) is None]
    missing = [claim for claim in opened if claim.metadata.uid not in holds]
    if len(missing) > len(free):
        return False
    for claim in opened:
        hold = holds.get(claim.metadata.uid)
        allocation = allocation_with(free.pop(0)) if hold is None else hold.allocation
        holds[claim.metadata.uid] = ledger.reserve(hold, claim, allocation, pod)
    return True


class Played(NamedTuple):
    """The result of schedules.

    Attributes:
        broken: The seeds that broke a promise, with the stories.
        commits: The number of times that the pods of a gang were let go for the first time.
        windows_s: The times that a gang was partially allocated, in order of length.
    """

    broken: Mapping[int, str]
    commits: int
    windows_s: Sequence[float]


def play(seeds: range, fault: Fault = Fault.NONE) -> Played:
    """Play schedules."""
    texts: dict[int, str] = {}
    commits, windows_s = 0, [0.0]
    for seed in seeds:
        world = GroupWorld(seed, fault)
        try:
            world.run()
        except BrokenPromise as broken:
            texts[seed] = str(broken)
        commits += world.commits
        windows_s += world.windows_s
    return Played(texts, commits, sorted(windows_s))


def main(arguments: Sequence[str] | None = None) -> int:
    """Play schedules; return 1 if one of them broke the protocol, or a planted fault was not found."""
    parser = argparse.ArgumentParser(
        prog="python -m testing.sidecar.group_chaos", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--fault", type=Fault, default=Fault.NONE, choices=list(Fault))
    namespace = parser.parse_args(arguments)
    played = play(range(namespace.first, namespace.first + namespace.seeds), namespace.fault)
    sys.stdout.write(
        f"{namespace.seeds:,} schedules of groups, fault {namespace.fault}: {len(played.broken):,} broken; "
        f"{played.commits:,} commits, windows of {played.windows_s[len(played.windows_s) // 2]:.1f} s, "
        f"{played.windows_s[-1]:.1f} s at most\n"
    )
    for story in list(played.broken.values())[:1]:
        sys.stdout.write(f"{story}\n")
    return int(bool(played.broken) is (namespace.fault is Fault.NONE))


if __name__ == "__main__":
    sys.exit(main())
