"""The log of decisions that somebody follows: their inputs beside the objects of the API, and their outcomes.

Nothing is logged until the log is read. It ends when it is full, as when its reader went away, and begins anew with
the next reading. Its bounds are in devices and nodes, so that its memory is bounded whatever claims say.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of, claim_name
from allocator.strategies.pod_kinds import PodKind
from kube.api.resource import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from sidecar.model.logged_decisions import (
    Beginning,
    ClaimDevices,
    ClaimsChanged,
    Decided,
    DecisionsView,
    Entry,
    HeadroomChanged,
    KindsChanged,
    LoggedEntry,
    Placed,
    digest_nodes,
)
from sidecar.model.protocol import HeadroomChanges, NodeHeadroom, PreFilterRequest, Reservation
from sidecar.model.rejections import Rejection
from sidecar.plan.decisions import Fits, Outcome
from sidecar.plan.placement import Placement
from sidecar.plan.snapshot import Snapshot
from sidecar.state.pod_room import PodRoom

MAX_WEIGHT: Final = 100_000
"""Entries, devices and nodes in the log, beside those that it begins with; up to 40 MB."""
READ_WEIGHT: Final = 5_000
"""The same in an answer, which is encoded on the event loop, in some 10 ms."""
CHUNK: Final = 500
"""Claims, and nodes, in an entry of those that the log begins with."""

_Devices = tuple[DeviceRequestAllocationResult, ...]


class _Numbered(NamedTuple):
    number: int
    at_s: float
    weight: int
    entry: Entry


class DecisionLog:
    """The entries that the reader does not have yet.

    Entries are added by one at a time, whoever has the turn to decide; reading may happen meanwhile. Whoever adds
    them looks first whether the log is followed, so that otherwise nothing is done.

    Attributes:
        is_followed: Somebody reads the log, so decisions are logged.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without a reader.

        Args:
            clock: Monotonic seconds.
        """
        self.is_followed = False
        self._clock = clock
        self._entries: list[_Numbered] = []
        self._number = 0
        # Two counts, since reading may happen while an entry is written.
        self._written = self._read = 0
        self._in_use: dict[Name, _Devices] = {}
        self._kinds: tuple[PodKind, ...] = ()

    # --- reading ----------------------------------------------------------------------------------

    def has(self, number: int) -> bool:
        """Return True if all entries after a number are in the log; 0 is before the first."""
        if not self.is_followed or number <= 0:
            return False
        first_number = self._entries[0].number if self._entries else self._number + 1
        return first_number - 1 <= number <= self._number

    def read(self, instance: str, number: int) -> DecisionsView:
        """Return entries after a number, and forget those up to it.

        Args:
            instance: Random text of the service.
            number: The number of the last entry that the reader has.
        """
        count = sum(1 for entry in self._entries if entry.number <= number)
        self._read += sum(entry.weight for entry in self._entries[:count])
        del self._entries[:count]
        now_s, weight = self._clock(), 0
        answered: list[LoggedEntry] = []
        for entry in tuple(self._entries):
            weight += entry.weight
            if answered and weight > READ_WEIGHT:
                break
            answered.append(
                LoggedEntry(
                    number=entry.number, age_s=round(now_s - entry.at_s, 3), entry=entry.entry
                )
            )
        return DecisionsView(
            instance=instance,
            entries=tuple(answered),
            more=len(answered) < len(self._entries),
        )

    # --- writing ----------------------------------------------------------------------------------

    def begin(self, snapshot: Snapshot, room: PodRoom) -> None:
        """Log from now on, beginning with the state of the next decision.

        Args:
            snapshot: The cluster, with all that is promised.
            room: The resources left on nodes, and the kinds of pods.
        """
        self.end()
        self.is_followed = True
        self._in_use = dict(_in_use(snapshot.claims))
        # Those that it begins with are beside the bound.
        self._written = -sum(1 + len(devices) for devices in self._in_use.values())
        self._written -= len(room.headroom)
        options = snapshot.cluster.options
        self._add(
            Beginning(
                drivers=tuple(sorted(snapshot.drivers)),
                default_strategy=snapshot.default_strategy,
                features=options.features,
                uniform_config_drivers=tuple(sorted(options.uniform_config_drivers)),
                claims=len(self._in_use),
            )
        )
        claims = (_claim_devices(name, devices) for name, devices in self._in_use.items())
        for claim_chunk in _chunks(claims):
            self._add_claims(claim_chunk)
        nodes = (
            # The scheduler names all three.
            NodeHeadroom(
                name=name,
                cpu_milli=left.cpu_milli or 0,
                memory=left.memory or 0,
                pods=left.pods or 0,
            )
            for name, left in room.headroom.items()
        )
        self._add(HeadroomChanged(changes=HeadroomChanges()))
        for number, node_chunk in enumerate(_chunks(nodes), start=1):
            self._add_headroom(HeadroomChanges(number=number, since=number, nodes=node_chunk))
        self._kinds = room.kinds
        self._add(KindsChanged(kinds=room.kinds, digest=room.kinds_hash))

    def end(self) -> None:
        """Log no more, and forget all entries."""
        self.is_followed = False
        self._entries = []
        self._written = self._read = 0
        self._in_use, self._kinds = {}, ()

    def note_headroom(self, changes: HeadroomChanges) -> None:
        """Log the changes of nodes that the scheduler sent."""
        if self.is_followed:
            self._add_headroom(changes)

    def note_kinds(self, room: PodRoom) -> None:
        """Log the kinds of pods that decisions depend on from now on, if they are others."""
        if room.kinds is not self._kinds:
            self._kinds = room.kinds
            self._add(
                KindsChanged(kinds=room.kinds, digest=room.kinds_hash), weight=1 + len(room.kinds)
            )

    def note_claims(self, claims: Mapping[Name, ResourceClaim | None]) -> None:
        """Log the claims with other devices than before, of those that changed.

        Args:
            claims: Name to claim, with what is promised to it; None for one that is gone.
        """
        changed = []
        for name, claim in claims.items():
            devices = _devices_of(None if claim is None else allocation_of(claim))
            if devices != self._in_use.get(name, ()):
                self._use(name, devices)
                changed.append(_claim_devices(name, devices))
        if changed:
            self._add_claims(changed)

    def note_placed(
        self, reservation: Reservation, placement: Placement | Rejection, snapshot: Snapshot
    ) -> None:
        """Log the devices chosen for a reserved pod, or the reason that it gets none."""
        code, claims = "", []
        if isinstance(placement, Rejection):
            code = placement.code
        else:
            for claim, allocation in placement.allocations:
                devices = _devices_of(allocation)
                self._use(claim_name(claim), devices)
                claims.append(_claim_devices(claim_name(claim), devices))
        group = () if reservation.group is None else ("group",)
        self._add(
            Placed(
                pod=reservation.pod_uid,
                node=reservation.node,
                code=code,
                claims=tuple(claims),
                beside=tuple(sorted((*group, *_beside(snapshot)))),
            ),
            weight=1 + sum(len(claim.devices) for claim in claims),
        )

    def note_decided(self, request: PreFilterRequest, outcome: Outcome, snapshot: Snapshot) -> None:
        """Log the answer to PreFilter; not one that the search goes on for."""
        if isinstance(outcome, Rejection) and outcome.is_unfinished:
            return
        decided = Decided(
            pod=request.pod.metadata.uid,
            every=request.all,
            requests=request.requests,
            beside=tuple(sorted(_beside(snapshot))),
        )
        self._add(describe_outcome(decided, outcome))

    def _use(self, name: Name, devices: _Devices) -> None:
        if devices:
            self._in_use[name] = devices
        else:
            self._in_use.pop(name, None)

    def _add_claims(self, claims: Iterable[ClaimDevices]) -> None:
        entry = ClaimsChanged(claims=tuple(claims))
        self._add(entry, weight=sum(1 + len(claim.devices) for claim in entry.claims))

    def _add_headroom(self, changes: HeadroomChanges) -> None:
        weight = 1 + len(changes.nodes) + len(changes.removed)
        self._add(HeadroomChanged(changes=changes), weight=weight)

    def _add(self, entry: Entry, weight: int = 1) -> None:
        self._written += weight
        if self._written - self._read > MAX_WEIGHT:
            self.end()
            return
        self._number += 1
        self._entries.append(_Numbered(self._number, self._clock(), weight, entry))


def describe_outcome(decided: Decided, outcome: Outcome) -> Decided:
    """Return an entry with the outcome of its decision."""
    match outcome:
        case Fits(nodes=nodes):
            return replace(
                decided,
                nodes=len(nodes),
                digest=digest_nodes(nodes),
                first=nodes[0].name if nodes else "",
                complete=outcome.complete,
                settled=outcome.is_settled,
            )
        case Rejection():
            return replace(decided, code=outcome.code)
        case _:
            return decided


def _beside(snapshot: Snapshot) -> Iterator[str]:
    """Yield the parts of a state that the log does not have."""
    if snapshot.quotas is not None:
        yield "deviceQuotas"
    if snapshot.keeps:
        yield "keptForGroups"
    if snapshot.nominated:
        yield "nominatedPods"


def _in_use(claims: Mapping[Name, ResourceClaim]) -> Iterator[tuple[Name, _Devices]]:
    for name, claim in claims.items():
        devices = _devices_of(allocation_of(claim))
        if devices:
            yield name, devices


def _devices_of(allocation: AllocationResult | None) -> _Devices:
    return (None if allocation is None else allocation.devices.results) or ()


def _claim_devices(name: Name, devices: _Devices) -> ClaimDevices:
    return ClaimDevices(namespace=name[0], name=name[1], devices=devices)


def _chunks(values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    left = iter(values)
    while chunk := tuple(islice(left, CHUNK)):
        yield chunk
