"""Laws of devices that are held back: change by change as if all were read anew, and held until the latest end."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.core import Pod, PodSpec
from kube.api.meta import ObjectMeta, rfc3339
from kube.api.resource import DeviceRequestAllocationResult, ResourceClaim
from sidecar.commit import ledger
from sidecar.commit.ledger import Hold
from sidecar.ownership.held_back import Share, held_name, share_of
from sidecar.state.effective_claims import EffectiveClaims
from sidecar.state.held_back import HeldBackDevices, HeldBackLimits
from testing.allocation.builders import allocated_claim, claim, result

TIMEOUT = timedelta(seconds=300)
ALLOCATIONS: tuple[tuple[DeviceRequestAllocationResult, ...], ...] = (
    (),
    (result("gpu-0"),),
    (result("gpu-0"), result("gpu-1")),
    (result("gpu-1"), result("gpu-2", share="1")),
    (result("gpu-2", share="1"), result("gpu-2", share="2")),
    (result("gpu-0", admin_access=True),),
)
CLAIMS = ("shared", "other")
SLOTS = 6

claims = st.sampled_from((*CLAIMS[:1] * 3, *CLAIMS[1:]))
slots = st.integers(0, SLOTS - 1)
allocations = st.integers(0, len(ALLOCATIONS) - 1)


class Allocate(NamedTuple):
    """A claim gets these devices in the API, in the place of others."""

    claim: str
    allocation: int


class Promise(NamedTuple):
    """A claim is promised these devices; none ends the promise."""

    claim: str
    allocation: int


class Leave(NamedTuple):
    """A claim is reserved for a pod no longer; the pod runs on."""

    slot: int
    claim: str


class Kill(NamedTuple):
    """A pod is deleted by force, and another comes in its place."""

    slot: int
    claim: str
    is_hidden: bool


class End(NamedTuple):
    """The containers of a pod end in good order, and another comes in its place."""

    slot: int


class Pass(NamedTuple):
    """Time passes."""

    seconds: int


Event = Allocate | Promise | Leave | Kill | End | Pass
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Allocate, claims, allocations),
    st.builds(Promise, claims, allocations),
    st.builds(Leave, slots, claims),
    st.builds(Kill, slots, claims, st.booleans()),
    st.builds(Kill, slots, st.just(CLAIMS[0]), st.just(False)),
    st.builds(End, slots),
    st.builds(Pass, st.sampled_from((1, 40, 149, 301))),
)


class Part(NamedTuple):
    """The devices of a claim for a pod, and their end."""

    node: str
    shares: frozenset[Share]
    until: datetime


class Naive:
    """The parts of all pods, each read at each event."""

    def __init__(self) -> None:
        self.parts: dict[tuple[str, str], Part] = {}

    def hold(self, pod: Pod, held: ResourceClaim, now: datetime) -> None:
        allocation = allocation_of(held)
        results = (allocation.devices.results if allocation is not None else None) or ()
        shares = frozenset(share_of(used) for used in results if not used.admin_access)
        if shares:
            key = held.metadata.uid, pod.metadata.uid
            self.parts[key] = Part(pod.spec.node_name, shares, now + TIMEOUT)

    def kill(self, pod: Pod, held: ResourceClaim, now: datetime, *, is_hidden: bool) -> None:
        self._end_after(pod, now + TIMEOUT)
        self.hold(pod, held, now)
        if is_hidden:
            self._end_after(pod, now + timedelta(seconds=30))

    def end(self, pod: Pod) -> None:
        self.parts = {key: part for key, part in self.parts.items() if key[1] != pod.metadata.uid}

    def expire(self, pods: Mapping[str, Pod], now: datetime) -> None:
        for key, part in list(self.parts.items()):
            if key[1] in pods:
                if now + TIMEOUT / 2 >= part.until:
                    self.parts[key] = part._replace(until=now + TIMEOUT)
            elif now >= part.until:
                del self.parts[key]

    def ends(self) -> dict[tuple[str, str, Share], str]:
        """Return the latest end of each share of a claim on a node."""
        latest: dict[tuple[str, str, Share], str] = {}
        for (uid, _), part in self.parts.items():
            for share in part.shares:
                key = uid, part.node, share
                latest[key] = max(latest.get(key, ""), rfc3339(part.until))
        return latest

    def _end_after(self, pod: Pod, until: datetime) -> None:
        for key, part in self.parts.items():
            if key[1] == pod.metadata.uid:
                self.parts[key] = part._replace(until=until)


class Scene:
    """Devices held back with their changes, as the sidecar has them, beside the naive ones."""

    def __init__(self) -> None:
        self.now = datetime(2026, 12, 1, tzinfo=UTC)
        self.naive = Naive()
        self.pods: dict[str, Pod] = {}
        self.claims: dict[Name, ResourceClaim] = {}
        self.holds: dict[str, Hold] = {}
        self.view: dict[Name, ResourceClaim | None] = {}
        self.held_back = HeldBackDevices(
            self.pods,
            now=lambda: self.now,
            limits=HeldBackLimits(TIMEOUT.total_seconds(), 8),
            on_change=lambda part: self.view.update(self.effective.change_held(part)),
        )
        self.effective = EffectiveClaims(self.claims, self.holds, self.held_back)
        self._slots = [self._pod(slot, 0) for slot in range(SLOTS)]
        self._count = 0
        for name in CLAIMS:
            self.allocate(name, 0)

    def apply(self, event: Event) -> None:
        match event:
            case Allocate():
                self.allocate(event.claim, event.allocation)
            case Promise():
                self.promise(self._claim(event.claim), event.allocation)
            case Leave():
                pod, left = self._slots[event.slot], self._claim(event.claim)
                self.naive.hold(pod, left, self.now)
                self.held_back.hold(pod, left, ())
            case Kill():
                pod, used = self._slots[event.slot], self._claim(event.claim)
                self.naive.kill(pod, used, self.now, is_hidden=event.is_hidden)
                self.held_back.pod_gone(pod, [used], (), is_hidden=event.is_hidden)
                self._replace(event.slot)
            case End():
                pod = self._slots[event.slot]
                self.naive.end(pod)
                self.held_back.pod_ended(pod.metadata.uid)
                self._replace(event.slot)
            case Pass():
                self.now += timedelta(seconds=event.seconds)
                self.naive.expire(self.pods, self.now)
                self.held_back.expire()

    def allocate(self, name: str, allocation: int) -> None:
        old = self.claims.get(claim_name(claim(name=name)))
        results = ALLOCATIONS[allocation]
        new = allocated_claim(*results, name=name) if results else claim(name=name)
        self.claims[claim_name(new)] = new
        for seen, is_there in ((old, False), (new, True)):
            if seen is not None:
                self.effective.note(seen, is_there=is_there)
                self.view.update(self.effective.change_held_of(seen.metadata.uid))

    def promise(self, promised: ResourceClaim, allocation: int) -> None:
        uid = promised.metadata.uid
        self.holds.pop(uid, None)
        if ALLOCATIONS[allocation]:
            devices = allocation_of(allocated_claim(*ALLOCATIONS[allocation]))
            assert devices is not None
            self.holds[uid] = ledger.reserve(None, promised, devices, "pod")
        self.view.update(self.effective.change_held_of(uid))

    def own_shares(self, uid: str) -> frozenset[Share]:
        """Return the shares that a claim has itself, or is promised without an allocation."""
        (own_claim,) = (own for own in self.claims.values() if own.metadata.uid == uid)
        allocation = allocation_of(own_claim)
        if allocation is None and uid in self.holds:
            allocation = self.holds[uid].allocation
        results = (allocation.devices.results if allocation is not None else None) or ()
        return frozenset(share_of(used) for used in results if not used.admin_access)

    def _claim(self, name: str) -> ResourceClaim:
        return self.claims[claim_name(claim(name=name))]

    def _replace(self, slot: int) -> None:
        self._count += 1
        del self.pods[self._slots[slot].metadata.uid]
        self._slots[slot] = self._pod(slot, self._count)

    def _pod(self, slot: int, number: int) -> Pod:
        metadata = ObjectMeta(namespace="default", name=f"{slot}", uid=f"uid-{slot}-{number}")
        pod = Pod(metadata=metadata, spec=PodSpec(node_name=f"node-{slot % 2}"))
        self.pods[metadata.uid] = pod
        return pod


@given(st.lists(events, max_size=40))
@settings(max_examples=150, deadline=None)
def test_devices_are_held_until_the_latest_end_of_any_pod_and_count_once(
    happened: list[Event],
) -> None:
    scene = Scene()
    for event in happened:
        scene.apply(event)

        ends = scene.naive.ends()
        latest: dict[tuple[str, str, Share], str] = {}
        for part in scene.held_back.claims.values():
            for share in map(share_of, part.devices):
                key = part.claim_uid, part.node, share
                latest[key] = max(latest.get(key, ""), part.until)
        assert ends == latest, event
        counted_shares = Counter(
            (counted.metadata.uid, share_of(used))
            for counted in scene.view.values()
            if counted is not None and (allocation := allocation_of(counted)) is not None
            for used in allocation.devices.results or ()
        )
        assert counted_shares == {
            (uid, share): 1 for uid, _, share in ends if share not in scene.own_shares(uid)
        }, event
        anew = scene.effective.all()
        names = {held_name(key) for key in scene.held_back.claims}
        assert {name: counted for name, counted in scene.view.items() if counted is not None} == {
            name: anew[name] for name in names if anew[name] is not None
        }, event
