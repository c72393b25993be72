"""A simulator of the allocation protocol: seeded schedules against an API server that misbehaves.

Two sidecars and one API server, in one thread and without a clock of their own. The steps of the
sidecars are those of `sidecar.plan`; what surrounds them is played by `World`: requests that arrive
late, twice or never, answers that are lost, watches that lag, leaders that freeze and go on, claims
that are deleted, recreated and deallocated. After each event no device may belong to two claims.

A seed is a schedule: `python -m testing.sidecar.chaos --first 7 --seeds 1` plays it again. `--fault`
plants a fault, which has to be found: `no-fence` lets any process write allocations, `no-wait` lets a
new leader begin at once, `settled-by-reading` frees devices when the old version was read again,
`same-identity` lets a process that lost the Lease lead again under its old name, `no-drain` lets one
that ends in good order say that its writes have ended when they have not, and `no-wait-before` lets one say so
that has not waited for those of the leader before it.
"""

import argparse
import heapq
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.core import Node
from kube.api.meta import ObjectMeta
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kube.api.versions import version_number
from sidecar.plan import ledger, steps
from sidecar.plan.ledger import Hold, Step
from sidecar.plan.pending_writes import PendingWrites
from sidecar.plan.steps import ClaimWrite, Kind
from sidecar.plan.writes import FINALIZER, Outcome, consumers

CLAIMS: Final = 3
DEVICES: Final = 1
EVENTS: Final = 800
LEASE_S: Final = 15.0
RENEW_DEADLINE_S: Final = 10.0
WRITE_TIMEOUT_S: Final = 5.0
"""After which the client gives up, and the server, from when the request arrived."""
FENCE_LAG_S: Final = 1.0
"""The policy of the API server learns of a new holder within this time."""
WAIT_S: Final = WRITE_TIMEOUT_S + FENCE_LAG_S + 0.1
EARLY_END: Final = 0.2
"""Share of the leaders that end within the time for which they wait."""
CLIENT_S: Final = WRITE_TIMEOUT_S + 0.5
NODE: Final = Node(metadata=ObjectMeta(name="node"))


class Fault(StrEnum):
    """A fault that is planted."""

    NONE = "none"
    NO_FENCE = "no-fence"
    NO_WAIT = "no-wait"
    SETTLED_BY_READING = "settled-by-reading"
    SAME_IDENTITY = "same-identity"
    NO_DRAIN = "no-drain"
    NO_WAIT_BEFORE = "no-wait-before"


class DoubleAllocation(Exception):
    """A device belongs to two claims; the message has the schedule."""


class Server:
    """Claims, their history, and the holder of the Lease; refuses as an API server does."""

    def __init__(self) -> None:
        self.claims: dict[Name, ResourceClaim] = {}
        self.version = 0
        self.history: list[tuple[Name, ResourceClaim | None, int]] = []
        self.holder = ""
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

    def commit(self, write: ClaimWrite) -> ResourceClaim | Outcome:
        """Make a write, if the claim is still what it was decided on."""
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
    pod = write.pod or ResourceClaimConsumerReference()
    others = tuple(consumer for consumer in consumers(claim) if consumer.uid != pod.uid)
    match write.kind:
        case Kind.PROTECT:
            return replace(claim, metadata=replace(claim.metadata, finalizers=(FINALIZER,)))
        case Kind.ALLOCATE:
            status = replace(status, allocation=write.allocation, reserved_for=(*others, pod))
        case Kind.RESERVE:
            status = replace(status, reserved_for=(*others, pod))
        case Kind.LEAVE:
            status = replace(status, reserved_for=others or None)
        case Kind.DEALLOCATE:
            allocation = status.allocation if others else None
            status = replace(status, allocation=allocation, reserved_for=others or None)
        case Kind.SETTLE:
            return claim
    return replace(claim, status=status)


class Process:
    """A sidecar: what it has seen, what it has promised, and whether it leads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.identity = name
        self.term = 0
        self.leads = False
        self.frozen_until = 0.0
        self.renewed_at = 0.0
        self.seen: dict[Name, ResourceClaim] = {}
        self.seen_version = 0
        self.position = 0
        self.floors: dict[Name, int] = {}
        self.holds: dict[str, Hold] = {}
        self.busy: set[str] = set()
        self.pending = PendingWrites()

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


def allocation_with(device: str) -> AllocationResult:
    """Return the allocation of one device."""
    result = DeviceRequestAllocationResult(
        request="req-0", driver="gpu.example.com", pool="node", device=device
    )
    return AllocationResult(devices=DeviceAllocationResult(results=(result,)))


class World:
    """One schedule: what happens when, drawn from a seed."""

    def __init__(self, seed: int, fault: Fault = Fault.NONE) -> None:
        self._random = random.Random(seed)
        self._fault = fault
        self._seed = seed
        self._now = 0.0
        self._events: list[tuple[float, int, str, Callable[[], None]]] = []
        self._order = 0
        self._processes = (Process("one"), Process("two"))
        self._server = Server()
        self.trace: list[str] = []
        for number in range(CLAIMS):
            self._server.create(("default", f"claim-{number}"))

    def run(self) -> None:
        """Play the schedule.

        Raises:
            DoubleAllocation: A device belonged to two claims.
        """
        self._at(0.0, "stir", self._stir)
        for process in self._processes:
            self._at(0.0, f"{process.name} stands", partial(self._stand, process))
        for _ in range(EVENTS):
            self._now, _, event, happen = heapq.heappop(self._events)
            self.trace.append(f"{self._now:8.3f} {event}")
            happen()
            self._check()

    def _at(self, when: float, event: str, happen: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, event, happen))

    def _later(self, least: float, most: float, event: str, happen: Callable[[], None]) -> None:
        self._at(self._now + self._random.uniform(least, most), event, happen)

    def _check(self) -> None:
        owners: dict[str, Name] = {}
        for name, claim in self._server.claims.items():
            for device in devices_of(claim):
                if device in owners:
                    story = "\n".join(self.trace[-400:])
                    raise DoubleAllocation(
                        f"seed {self._seed}: {device} belongs to {owners[device]} and {name}\n{story}"
                    )
                owners[device] = name

    # --- the Lease --------------------------------------------------------------------------------

    def _stand(self, process: Process) -> None:
        """Renew, take or wait for the Lease."""
        self._later(1.0, 3.0, f"{process.name} stands", lambda: self._stand(process))
        if process.frozen_until > self._now:
            return
        server = self._server
        holder = next(
            (process for process in self._processes if process.identity == server.holder), None
        )
        is_late = self._now - process.renewed_at > RENEW_DEADLINE_S
        if server.holder == process.identity and not is_late:
            process.renewed_at = self._now
        elif server.holder == process.identity:
            self._take(process)
        elif holder is None or self._now - holder.renewed_at > LEASE_S:
            process.leads = False
            self._take(process)
        else:
            process.leads = False

    def _take(self, process: Process) -> None:
        # Who has lost the Lease ends, and is started again under another identity.
        process.term += 1
        if self._fault is not Fault.SAME_IDENTITY:
            process.identity = f"{process.name}-{process.term}"
        process.renewed_at = self._now
        process.holds, process.busy, process.leads = {}, set(), False
        process.pending = PendingWrites()
        is_successor = not self._server.holder and self._server.is_handed_over
        self._server.holder = process.identity
        term = process.term
        lag = self._random.uniform(0.0, FENCE_LAG_S)
        self._at(self._now + lag, "the fence sees the holder", self._see_holder)
        wait = 0.0 if self._fault is Fault.NO_WAIT or is_successor else WAIT_S
        self._at(self._now + wait, f"{process.name} lists", lambda: self._list(process, term))
        if self._random.random() < EARLY_END:
            self._later(0.0, WAIT_S, "an early end", lambda: self._end_early(process, term))

    def _end_early(self, process: Process, term: int) -> None:
        """End a process soon after it took the Lease, as an upgrade of both replicas does."""
        if process.term == term and process.frozen_until <= self._now:
            self._resign(process)

    def _see_holder(self) -> None:
        self._server.fence_holder = self._server.holder

    def _list(self, process: Process, term: int) -> None:
        """Read everything from a quorum, and begin."""
        if process.term != term or process.frozen_until > self._now:
            return
        process.seen = dict(self._server.claims)
        process.seen_version = self._server.version
        process.position = len(self._server.history)
        process.floors = {}
        process.leads = self._server.holder == process.identity

    # --- what a leader does -----------------------------------------------------------------------

    def _stir(self) -> None:
        """Let something happen to somebody."""
        self._later(0.02, 0.4, "stir", self._stir)
        leaders = [process for process in self._processes if process.leads]
        process = self._random.choice((*self._processes, *(leaders * 4)))
        if process.frozen_until > self._now:
            return
        actions: Sequence[tuple[int, Callable[[Process], None]]] = (
            (60, self._reserve),
            (120, self._bind),
            (10, self._unreserve),
            (30, self._settle),
            (100, self._watch),
            (15, self._deallocate),
            (3, self._recreate),
            (4, self._freeze),
            (6, self._resign),
        )
        weights = [weight for weight, _ in actions]
        (_, act), *_ = self._random.choices(actions, weights)
        act(process)

    def _reserve(self, process: Process) -> None:
        free = sorted({f"gpu-{n}" for n in range(DEVICES)} - process.devices_in_use())
        open_claims = [
            claim
            for claim in process.seen.values()
            if allocation_of(claim) is None and claim.metadata.uid not in process.holds
        ]
        if not process.leads or not free or not open_claims:
            return
        claim = self._random.choice(open_claims)
        device = self._random.choice(free)
        self.trace.append(f"         {process.name} reserves {device} for {claim_name(claim)[1]}")
        uid = claim.metadata.uid
        process.holds[uid] = ledger.reserve(None, claim, allocation_with(device), f"pod-{uid}")

    def _bind(self, process: Process) -> None:
        idle = [hold for hold in process.holds.values() if hold.uid not in process.busy]
        if not process.leads or not idle:
            return
        hold = self._random.choice(idle)
        pod = ResourceClaimConsumerReference(resource="pods", name="pod", uid=f"pod-{hold.uid}")
        claim = process.seen.get(hold.name)
        step = steps.next_bind_step(claim, hold.uid, hold, pod, NODE)
        if isinstance(step, ClaimWrite):
            self._send(process, step)

    def _unreserve(self, process: Process) -> None:
        for hold in tuple(process.holds.values())[:1]:
            process.change(hold.uid, lambda hold: ledger.unreserve(hold, f"pod-{hold.uid}"))

    def _settle(self, process: Process) -> None:
        if not process.leads:
            return
        for hold in tuple(process.holds.values()):
            if hold.uid in process.busy or hold.step is Step.RESERVED:
                continue
            claim = process.seen.get(hold.name)
            if self._fault is Fault.SETTLED_BY_READING:
                stored_claim = self._server.claims.get(hold.name)
                if stored_claim is not None and allocation_of(stored_claim) is None:
                    process.holds.pop(hold.uid)
                continue
            step = steps.next_settle_step(claim, hold)
            if step is not None:
                self._send(process, step)

    def _deallocate(self, _process: Process) -> None:
        """Release a claim, as kube-controller-manager does when its pods are gone."""
        in_use = [
            name for name, claim in self._server.claims.items() if allocation_of(claim) is not None
        ]
        if in_use:
            name = self._random.choice(sorted(in_use))
            self._server.put(name, replace(self._server.claims[name], status=None))

    def _recreate(self, _process: Process) -> None:
        name = self._random.choice(sorted(self._server.claims))
        self._server.put(name, None)
        self._server.create(name)

    def _freeze(self, process: Process) -> None:
        process.frozen_until = self._now + self._random.choice((2.0, 30.0))
        self.trace.append(f"         {process.name} freezes until {process.frozen_until:.3f}")

    def _resign(self, process: Process) -> None:
        """End in good order: the Lease is given back, and says whether requests are under way."""
        if self._server.holder != process.identity:
            return
        has_drained = process.pending.are_over or self._fault is Fault.NO_DRAIN
        has_waited = process.leads or self._fault is Fault.NO_WAIT_BEFORE
        self._server.is_handed_over = has_drained and has_waited
        words = (
            "the last write has ended" if self._server.is_handed_over else "writes are under way"
        )
        self.trace.append(f"         {process.name} gives the Lease back and ends; {words}")
        process.term += 1
        process.leads, process.holds, process.busy = False, {}, set()
        self._server.holder = ""
        process.frozen_until = self._now + 3.0

    # --- requests, answers and watches ------------------------------------------------------------

    def _send(self, process: Process, write: ClaimWrite) -> None:
        """Send a write, which may arrive late, twice or never."""
        uid, term = write.claim.metadata.uid, process.term
        process.busy.add(uid)
        process.pending.begin(claim_name(write.claim))
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
        self._at(self._now + CLIENT_S, "a client gives up", lambda: end(Outcome.UNKNOWN))

    def _admit(
        self, sender: str, write: ClaimWrite, end: Callable[[ResourceClaim | Outcome], None]
    ) -> None:
        """Check a write against the fence; what is admitted is committed later."""
        is_fenced = self._fault is not Fault.NO_FENCE and write.kind is not Kind.SETTLE
        if is_fenced and sender != self._server.fence_holder:
            self._answer(end, Outcome.REFUSED)
            return
        slow = self._random.random() < 0.3
        delay = self._random.uniform(0.0, WRITE_TIMEOUT_S if slow else 0.2)

        def commit() -> None:
            self._answer(end, self._server.commit(write))

        self._at(self._now + delay, f"{write.kind} of {sender} is committed", commit)

    def _answer(
        self, end: Callable[[ResourceClaim | Outcome], None], result: ResourceClaim | Outcome
    ) -> None:
        if self._random.random() < 0.8:
            self._later(0.0, 1.0, "an answer arrives", lambda: end(result))

    def _end(self, process: Process, write: ClaimWrite, result: ResourceClaim | Outcome) -> None:
        uid = write.claim.metadata.uid
        process.busy.discard(uid)
        name = claim_name(write.claim)
        process.pending.end(name, result if isinstance(result, Outcome) else None)
        if isinstance(result, ResourceClaim):
            self._put(process, name, result)
            return
        process.change(uid, lambda hold: steps.after(hold, write, result))
        stored_claim = self._server.claims.get(name)
        if result is Outcome.CONFLICT and stored_claim is not None:
            self._put(process, name, stored_claim)

    def _put(self, process: Process, name: Name, claim: ResourceClaim) -> None:
        """Store the object that a write returned, as the informer does."""
        version = version_number(claim.metadata.resource_version)
        if version > max(process.seen_version, process.floors.get(name, 0)):
            process.floors[name] = version
            process.observe(name, claim)

    def _watch(self, process: Process) -> None:
        """Let some events arrive, in order."""
        history = self._server.history
        for _ in range(self._random.randint(1, 6)):
            if process.position >= len(history):
                return
            name, claim, version = history[process.position]
            process.position += 1
            process.seen_version = version
            if version >= process.floors.get(name, 0):
                process.floors.pop(name, None)
                process.observe(name, claim)


def play(seeds: range, fault: Fault = Fault.NONE) -> Mapping[int, str]:
    """Return the seeds whose schedules gave a device to two claims, with the stories."""
    texts: dict[int, str] = {}
    for seed in seeds:
        try:
            World(seed, fault).run()
        except DoubleAllocation as broken:
            texts[seed] = str(broken)
    return texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Play schedules; return 1 if one of them broke the protocol, or a planted fault was not found."""
    parser = argparse.ArgumentParser(prog="python -m testing.sidecar.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--fault", type=Fault, default=Fault.NONE, choices=list(Fault))
    namespace = parser.parse_args(arguments)
    texts = play(range(namespace.first, namespace.first + namespace.seeds), namespace.fault)
    sys.stdout.write(
        f"{namespace.seeds:,} schedules, fault {namespace.fault}: {len(texts):,} broken\n"
    )
    for story in list(texts.values())[:1]:
        sys.stdout.write(f"{story}\n")
    return int(bool(texts) is (namespace.fault is Fault.NONE))


if __name__ == "__main__":
    sys.exit(main())
