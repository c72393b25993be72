"""A world for schedules of the allocation protocol: an API server that misbehaves, and sidecars beside it.

Two sidecars and one API server, in one thread. The steps of the sidecars are those of `sidecar.commit`; what
surrounds them is played by a `World`: requests that arrive late, twice or never, answers that are lost, watches
that lag or break and hide what happened meanwhile, leaders that freeze and go on, clocks that run at different
rates. `testing.sidecar.chaos` has the schedules of pods, `testing.sidecar.group_chaos` those of groups.

Not simulated: a Binding by a scheduler whose Lease is over. Nothing fences it, as with kube-scheduler; the
kubelet starts no pod whose claims are not reserved for it.
"""

import heapq
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.core import Node
from kube.api.meta import ObjectMeta, version_number
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kube.runtime import leader
from kube.runtime.leader import Lease, LeaseSpec
from sidecar.commit import ledger, steps
from sidecar.commit.ledger import Hold, Step
from sidecar.commit.pending_writes import PendingWrites, version_of
from sidecar.commit.steps import Candidate, ClaimWrite, Kind
from sidecar.commit.unsettled import UnsettledWrites
from sidecar.commit.writes import FINALIZER, Consumer, Outcome, consumers, is_reserved_for

DRIVER: Final = "gpu.example.com"
EVENTS: Final = 800
LEASE_S: Final = 15
RENEW_DEADLINE_S: Final = 10.0
WRITE_TIMEOUT_S: Final = 5.0
"""The time until the client gives up, and the server, from the arrival of the request."""
FENCE_LAG_S: Final = 1.0
"""The policy of the API server learns of a new holder within this time."""
WAIT_S: Final = WRITE_TIMEOUT_S + FENCE_LAG_S + 0.1
CLOCK_SKEW: Final = 0.01
"""The share by which the clock of a process is fast or slow. NTP corrects a clock by 0.0005 at most."""
STALE_VERSIONS: Final = 12
"""The most versions that a cache of the API server is behind."""
EARLY_END: Final = 0.2
"""Share of the leaders that end within the time for which they wait."""
CLIENT_S: Final = WRITE_TIMEOUT_S + 0.5
NODE: Final = Node(metadata=ObjectMeta(name="node"))


class Fault(StrEnum):
    """A fault that is planted."""

    NONE = "none"
    NO_FENCE = "no-fence"
    UNFENCED_CONSUMERS = "unfenced-consumers"
    NO_WAIT = "no-wait"
    SETTLED_BY_READING = "settled-by-reading"
    SAME_IDENTITY = "same-identity"
    NO_DRAIN = "no-drain"
    NO_WAIT_BEFORE = "no-wait-before"
    UNSETTLED_RELEASE = "unsettled-release"
    STALE_LIST = "stale-list"
    PROMISED_IS_FORGOTTEN = "promised-is-forgotten"


class BrokenPromise(Exception):
    """A device belongs to two claims, was taken from a pod that runs, or is beyond a quota.

    The message has the schedule.
    """


class ClaimKey(NamedTuple):
    """A claim that may be deleted and created again under its name."""

    name: Name
    uid: str


class Server:
    """Claims, their history, the Lease, and the pods that run; refuses as an API server does.

    Attributes:
        history: The change that led to each version, from 1 on.
        running: UID of a pod to its claim.
        renewals: The renewals of the Lease.
    """

    def __init__(self) -> None:
        self.claims: dict[Name, ResourceClaim] = {}
        self.version = 0
        self.history: list[tuple[Name, ResourceClaim | None, int]] = []
        self.running: dict[str, ClaimKey] = {}
        self.holder = ""
        self.renewals = 0
        self.is_handed_over = False
        self.fence_holder = ""
        self._uids = 0

    def create(self, name: Name) -> None:
        """Create a claim, under a new uid."""
        self._uids += 1
        metadata = ObjectMeta(namespace=name[0], name=name[1], uid=f"claim-{self._uids}")
        self.put(name, ResourceClaim(metadata=metadata))

    def put(self, name: Name, claim: ResourceClaim | None) -> None:
        """Store a claim as its next version; None deletes it."""
        self.version += 1
        if claim is None:
            self.claims.pop(name, None)
        else:
            metadata = replace(claim.metadata, resource_version=str(self.version))
            claim = self.claims[name] = replace(claim, metadata=metadata)
        self.history.append((name, claim, self.version))

    def past(self, version: int) -> dict[Name, ResourceClaim]:
        """Return the claims as of an earlier version."""
        claims: dict[Name, ResourceClaim] = {}
        for name, claim, _ in self.history[:version]:
            claims.pop(name, None)
            if claim is not None:
                claims[name] = claim
        return claims

    def release(self, name: Name, claim: ResourceClaim | None) -> None:
        """Store a claim as it is when its pods are gone; None deletes it."""
        self.running = {pod: key for pod, key in self.running.items() if key.name != name}
        self.put(name, claim)

    def start(self, pod: str, key: ClaimKey) -> None:
        """Run a pod, as a kubelet does if the claim is allocated and reserved for it."""
        if self.is_reserved(pod, key):
            self.running[pod] = key

    def is_reserved(self, pod: str, key: ClaimKey) -> bool:
        """Return True if a claim is allocated and reserved for a pod."""
        claim = self.claims.get(key.name)
        return (
            claim is not None
            and claim.metadata.uid == key.uid
            and allocation_of(claim) is not None
            and is_reserved_for(claim, pod)
        )

    def commit(self, write: ClaimWrite) -> ResourceClaim | Outcome:
        """Make a write, if the claim is still the one that it was decided on."""
        name = claim_name(write.claim)
        stored_claim = self.claims.get(name)
        if stored_claim is None:
            return Outcome.GONE
        if stored_claim.metadata != write.claim.metadata:
            return Outcome.CONFLICT
        self.put(name, written_claim(stored_claim, write))
        return self.claims[name]


def written_claim(claim: ResourceClaim, write: ClaimWrite) -> ResourceClaim:
    """Return a claim after a write."""
    status = claim.status or ResourceClaimStatus()
    uids = {entry.uid for entry in write.entries}
    others = tuple(user for user in consumers(claim) if user.uid not in uids)
    match write.kind:
        case Kind.PROTECT:
            return replace(claim, metadata=replace(claim.metadata, finalizers=(FINALIZER,)))
        case Kind.ALLOCATE:
            status = replace(
                status, allocation=write.allocation, reserved_for=(*others, *write.entries)
            )
        case Kind.RESERVE:
            status = replace(status, reserved_for=(*others, *write.entries))
        case Kind.LEAVE:
            status = replace(status, reserved_for=others or None)
        case Kind.DEALLOCATE:
            allocation = status.allocation if others else None
            status = replace(status, allocation=allocation, reserved_for=others or None)
        case Kind.SETTLE:
            return claim
    return replace(claim, status=status)


class Process:
    """A sidecar and its scheduler: the state it has seen, its promises, and its lead.

    Attributes:
        rate: Seconds of its clock in a second.
        renewed_at: The time of the renewal by its clock.
        attempts: UID of a pod that is being scheduled to its claim.
        bindable: UIDs of the pods whose claims were written, so that they may have been bound.
        is_listing: The watch is broken.
    """

    def __init__(self, name: str, offset: float, rate: float) -> None:
        self.name = name
        self.identity = name
        self.term = 0
        self.leads = False
        self.frozen_until = 0.0
        self._offset = offset
        self.rate = rate
        self.renewed_at = 0.0
        self.renewals_seen = -1
        self.renewals_seen_at = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin anew: nothing that was known before counts."""
        self.leads = self.is_listing = False
        self.seen: dict[Name, ResourceClaim] = {}
        self.seen_version = 0
        self.floors: dict[Name, int] = {}
        self.holds: dict[str, Hold] = {}
        self.busy: set[str] = set()
        self.pending = PendingWrites()
        self.unsettled = UnsettledWrites()
        self.attempts: dict[str, ClaimKey] = {}
        self.bindable: set[str] = set()

    def clock(self, now: float) -> float:
        """Return the time that a process reads at a moment."""
        return self._offset + self.rate * now

    def unchanged_s(self, now: float, renewals: int) -> float:
        """Return the time that a process has watched this very version of the Lease, by its clock."""
        if renewals != self.renewals_seen:
            self.renewals_seen, self.renewals_seen_at = renewals, self.clock(now)
        return self.clock(now) - self.renewals_seen_at

    def observe(self, name: Name, claim: ResourceClaim | None) -> None:
        """Take a claim as it was seen."""
        before = self.seen.pop(name, None)
        if claim is not None:
            self.seen[name] = claim
        for uid in {item.metadata.uid for item in (before, claim) if item is not None}:
            self.change(uid, lambda hold: ledger.observe(hold, claim))

    def change(self, uid: str, transition: Callable[[Hold], Hold | None]) -> None:
        """Apply a transition of the ledger."""
        hold = self.holds.get(uid)
        if hold is None:
            return
        new = transition(hold)
        if new is None:
            del self.holds[uid]
        else:
            self.holds[uid] = new

    def devices_in_use(self) -> set[str]:
        """Return the devices that are allocated or promised."""
        used = {device for claim in self.seen.values() for device in devices_of(claim)}
        return used | {
            result.device
            for hold in self.holds.values()
            for result in hold.allocation.devices.results or ()
        }


def devices_of(claim: ResourceClaim) -> tuple[str, ...]:
    """Return the devices of a claim."""
    allocation = allocation_of(claim)
    results = (allocation.devices.results if allocation is not None else None) or ()
    return tuple(result.device for result in results)


def consumer(pod: str) -> ResourceClaimConsumerReference:
    """Return the entry of `status.reservedFor` of a pod."""
    return ResourceClaimConsumerReference(resource="pods", name=pod, uid=pod)


def candidate_of(pod: str) -> Candidate:
    """Return a pod that is to be bound, by its own entry."""
    return Candidate(Consumer(pod, consumer(pod)), NODE)


def allocation_with(device: str) -> AllocationResult:
    """Return the allocation of one device."""
    result = DeviceRequestAllocationResult(
        request="req-0", driver=DRIVER, pool="node", device=device
    )
    return AllocationResult(devices=DeviceAllocationResult(results=(result,)))


P = TypeVar("P", bound=Process)


class World(ABC, Generic[P]):
    """One schedule: events and their times, drawn from a seed.

    Attributes:
        claim_names: The claims that there are at the beginning.
        events: The number of events of a schedule.
        stir_s: The longest time from one act of somebody to the next.
        trace: The events so far.
    """

    claim_names: ClassVar[Sequence[Name]] = ()
    events: ClassVar[int] = EVENTS
    stir_s: ClassVar[float] = 0.4

    def __init__(self, seed: int, fault: Fault = Fault.NONE) -> None:
        self._random = random.Random(seed)
        self._fault = fault
        self._seed = seed
        self._now = 0.0
        self._events: list[tuple[float, int, str, Callable[[], None]]] = []
        self._order = 0
        self._processes = (self._process("one"), self._process("two"))
        self._server = Server()
        self._checked_version = 0
        self.trace: list[str] = []
        for name in self.claim_names:
            self._server.create(name)

    def _process(self, name: str) -> P:
        rate = 1.0 + self._random.uniform(-CLOCK_SKEW, CLOCK_SKEW)
        return self._new_process(name, self._random.uniform(0.0, 1000.0), rate)

    @abstractmethod
    def _new_process(self, name: str, offset: float, rate: float) -> P:
        """Return a sidecar that has not begun."""

    @abstractmethod
    def _actions(self) -> Sequence[tuple[int, Callable[[P], None]]]:
        """Return the possible actions of a process, with weights."""

    @abstractmethod
    def _check(self) -> None:
        """Look for broken promises, after each change at the API server."""

    def run(self) -> None:
        """Play the schedule.

        Raises:
            BrokenPromise: The schedule broke one.
        """
        self._at(0.0, "stir", self._stir)
        for process in self._processes:
            self._at(0.0, f"{process.name} stands", partial(self._stand, process))
        for _ in range(self.events):
            self._now, _, event, happen = heapq.heappop(self._events)
            self.trace.append(f"{self._now:8.3f} {event}")
            happen()
            if self._checked_version != self._server.version:
                self._checked_version = self._server.version
                self._check()

    def _at(self, when: float, event: str, happen: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, event, happen))

    def _later(self, least: float, most: float, event: str, happen: Callable[[], None]) -> None:
        self._at(self._now + self._random.uniform(least, most), event, happen)

    def _fail(self, fault: str) -> None:
        story = "\n".join(self.trace[-400:])
        raise BrokenPromise(f"seed {self._seed}: {fault}\n{story}")

    # --- the Lease --------------------------------------------------------------------------------

    def _stand(self, process: P) -> None:
        """Renew, take or wait for the Lease."""
        self._later(1.0, 3.0, f"{process.name} stands", lambda: self._stand(process))
        if process.frozen_until > self._now:
            return
        server = self._server
        lease = Lease(spec=LeaseSpec(holder_identity=server.holder))
        unchanged_s = process.unchanged_s(self._now, server.renewals)
        step = leader.next_step(lease, process.identity, unchanged_s, LEASE_S)
        is_late = process.clock(self._now) - process.renewed_at > RENEW_DEADLINE_S
        if step is leader.Step.RENEW and not is_late:
            self._renew(process)
        elif step is leader.Step.WAIT:
            process.leads = False
        else:
            process.leads = False
            self._take(process)

    def _renew(self, process: P) -> None:
        process.renewed_at = process.clock(self._now)
        self._server.renewals += 1

    def _take(self, process: P) -> None:
        # Who has lost the Lease ends, and is started again under another identity.
        process.term += 1
        if self._fault is not Fault.SAME_IDENTITY:
            process.identity = f"{process.name}-{process.term}"
        process.begin()
        is_successor = not self._server.holder and self._server.is_handed_over
        self._server.holder = process.identity
        self._renew(process)
        term = process.term
        lag = self._random.uniform(0.0, FENCE_LAG_S)
        self._at(self._now + lag, "the fence sees the holder", self._see_holder)
        wait = 0.0 if self._fault is Fault.NO_WAIT or is_successor else WAIT_S / process.rate
        self._at(self._now + wait, f"{process.name} lists", lambda: self._list(process, term))
        if self._random.random() < EARLY_END:
            self._later(0.0, WAIT_S, "an early end", lambda: self._end_early(process, term))

    def _end_early(self, process: P, term: int) -> None:
        """End a process soon after it took the Lease, as an upgrade of both replicas does."""
        if process.term == term and process.frozen_until <= self._now:
            self._resign(process)

    def _see_holder(self) -> None:
        self._server.fence_holder = self._server.holder

    def _list(self, process: P, term: int) -> None:
        """Read everything from a quorum, and begin."""
        if process.term != term or process.frozen_until > self._now:
            return
        process.seen = dict(self._server.claims)
        process.seen_version = self._server.version
        process.leads = self._server.holder == process.identity

    def _stir(self) -> None:
        """Let something happen to somebody."""
        self._later(0.02, self.stir_s, "stir", self._stir)
        leaders = [process for process in self._processes if process.leads]
        process = self._random.choice((*self._processes, *(leaders * 4)))
        if process.frozen_until > self._now:
            return
        actions = self._actions()
        weights = [weight for weight, _ in actions]
        (_, act), *_ = self._random.choices(actions, weights)
        act(process)

    def _settle(self, process: P) -> None:
        if not process.leads:
            return
        process.unsettled.forget_settled(process.seen)
        holds = [
            (hold.name, hold.uid)
            for hold in process.holds.values()
            if hold.step is not Step.RESERVED
        ]
        for name, uid in dict.fromkeys((*holds, *process.unsettled.claims)):
            if uid in process.busy:
                continue
            claim, hold = process.seen.get(name), process.holds.get(uid)
            if self._fault is Fault.SETTLED_BY_READING:
                stored_claim = self._server.claims.get(name)
                if stored_claim is not None and allocation_of(stored_claim) is None:
                    process.holds.pop(uid, None)
                continue
            is_unsettled = claim is not None and process.unsettled.may_change(claim)
            step = steps.next_settle_step(claim, uid, hold, is_unsettled=is_unsettled)
            if step is not None:
                self._send(process, step)

    def _freeze(self, process: P) -> None:
        process.frozen_until = self._now + self._random.choice((2.0, 30.0))
        self.trace.append(f"         {process.name} freezes until {process.frozen_until:.3f}")

    def _resign(self, process: P) -> None:
        """End in good order: the Lease is given back, and tells of requests under way."""
        if self._server.holder != process.identity:
            return
        process.pending.forget_settled(
            lambda name: version_of(process.seen[name]) if name in process.seen else None
        )
        has_drained = process.pending.are_over or self._fault is Fault.NO_DRAIN
        has_waited = process.leads or self._fault is Fault.NO_WAIT_BEFORE
        self._server.is_handed_over = has_drained and has_waited
        words = (
            "the last write has ended" if self._server.is_handed_over else "writes are under way"
        )
        self.trace.append(f"         {process.name} gives the Lease back and ends; {words}")
        process.term += 1
        process.begin()
        self._server.holder = ""
        process.frozen_until = self._now + 3.0

    # --- requests, answers and watches ------------------------------------------------------------

    def _send(self, process: P, write: ClaimWrite) -> None:
        """Send a write; it may arrive late, twice or never."""
        uid, term = write.claim.metadata.uid, process.term
        process.busy.add(uid)
        process.pending.begin((claim_name(write.claim), uid))
        process.change(uid, lambda hold: steps.before(hold, write))
        self.trace.append(
            f"         {process.name} sends {write.kind} of {claim_name(write.claim)[1]}"
        )
        ended: list[bool] = []
        sender = process.identity

        def end(result: ResourceClaim | Outcome) -> None:
            if ended or process.term != term:
                return
            if process.frozen_until > self._now:
                self._at(process.frozen_until, f"{process.name} reads", lambda: end(result))
                return
            ended.append(True)
            self._end(process, write, result)

        copies = self._random.choices((1, 2, 0), (8, 2, 1))[0]
        for _ in range(copies):
            slow = self._random.random() < 0.3
            delay = self._random.uniform(0.0, 40.0 if slow else 0.5)
            self._at(
                self._now + delay,
                f"{write.kind} of {sender} arrives",
                lambda: self._admit(sender, write, end),
            )
        self._at(
            self._now + CLIENT_S / process.rate,
            "a client gives up",
            lambda: end(Outcome.UNKNOWN),
        )

    def _admit(
        self, sender: str, write: ClaimWrite, end: Callable[[ResourceClaim | Outcome], None]
    ) -> None:
        """Check a write against the fence; an admitted one is committed later."""
        if self._is_fenced(write) and sender != self._server.fence_holder:
            self._answer(end, Outcome.REFUSED)
            return
        slow = self._random.random() < 0.3
        delay = self._random.uniform(0.0, WRITE_TIMEOUT_S if slow else 0.2)

        def commit() -> None:
            self._answer(end, self._server.commit(write))

        self._at(self._now + delay, f"{write.kind} of {sender} is committed", commit)

    def _is_fenced(self, write: ClaimWrite) -> bool:
        if self._fault is Fault.UNFENCED_CONSUMERS:
            return write.kind in {Kind.ALLOCATE, Kind.DEALLOCATE}
        return write.is_of_status and self._fault is not Fault.NO_FENCE

    def _answer(
        self, end: Callable[[ResourceClaim | Outcome], None], result: ResourceClaim | Outcome
    ) -> None:
        if self._random.random() < 0.8:
            self._later(0.0, 1.0, "an answer arrives", lambda: end(result))

    def _end(self, process: P, write: ClaimWrite, result: ResourceClaim | Outcome) -> None:
        uid = write.claim.metadata.uid
        process.busy.discard(uid)
        name = claim_name(write.claim)
        outcome = result if isinstance(result, Outcome) else None
        process.pending.end((name, uid), outcome, version_of(write.claim))
        if isinstance(result, ResourceClaim):
            self._put(process, name, result)
            return
        if self._fault is not Fault.UNSETTLED_RELEASE:
            process.unsettled.end(write, result)
        process.change(uid, lambda hold: steps.after(hold, write, result))
        stored_claim = self._server.claims.get(name)
        if result is Outcome.CONFLICT and stored_claim is not None:
            self._put(process, name, stored_claim)

    # What follows does as `kube.runtime.informers` does.

    def _put(self, process: P, name: Name, claim: ResourceClaim) -> None:
        """Store the object that a write returned."""
        version = version_number(claim.metadata.resource_version)
        if version > max(process.seen_version, process.floors.get(name, 0)):
            process.floors[name] = version
            process.observe(name, claim)

    def _watch(self, process: P) -> None:
        """Let some events arrive, in order."""
        if process.is_listing or not process.leads:
            return
        for _ in range(self._random.randint(1, 6)):
            if process.seen_version >= self._server.version:
                return
            name, claim, version = self._server.history[process.seen_version]
            process.seen_version = version
            if version >= process.floors.get(name, 0):
                process.floors.pop(name, None)
                process.observe(name, claim)

    def _break_watch(self, process: P) -> None:
        """Lose a watch. The events after it are compacted, so a list comes next, and hides them."""
        if not process.leads or process.is_listing:
            return
        self.trace.append(f"         the watch of {process.name} breaks")
        process.is_listing = True
        term = process.term
        self._later(
            0.0, 3.0, f"{process.name} asks for a list", lambda: self._relist(process, term)
        )

    def _relist(self, process: P, term: int) -> None:
        """Ask for a list; it shows the claims as they are at this moment and arrives later."""
        if process.term != term:
            return
        process.seen_version, process.floors = 0, {}
        version = self._server.version
        if self._fault is Fault.STALE_LIST:
            version = max(1, version - self._random.randint(0, STALE_VERSIONS))
        self._later(
            0.0, 2.0, f"a list for {process.name}", lambda: self._take_list(process, term, version)
        )

    def _take_list(self, process: P, term: int, version: int) -> None:
        if process.term != term:
            return
        if process.frozen_until > self._now:
            take_list = partial(self._take_list, process, term, version)
            self._at(process.frozen_until, f"{process.name} reads a list", take_list)
            return
        claims = self._server.past(version)
        for name, claim in claims.items():
            if version_number(claim.metadata.resource_version) >= process.floors.get(name, 0):
                process.floors.pop(name, None)
                process.observe(name, claim)
        for name in tuple(process.seen.keys() - claims.keys()):
            if process.floors.get(name, 0) <= version:
                process.observe(name, None)
        process.seen_version, process.is_listing = version, False
