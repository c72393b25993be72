"""The promises to pods that the scheduler reserved nodes for: devices that are chosen and not written yet."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from msgspec.structs import replace

from allocator.pods.claims import Name
from kube.api.core import Pod
from kube.api.resource import ResourceClaimConsumerReference
from kube.logs import get_logger
from sidecar.model.protocol import HelloRequest, Request, Reservation, UnreserveRequest
from sidecar.model.rejections import Code, Rejection, failed_rejection
from sidecar.model.reservations import Difference, Reservations, accept, finish, greet
from sidecar.plan.group_claims import (
    NO_PROMISED_ENTRIES,
    PromisedEntries,
    entries_by_claim,
    with_promised,
)
from sidecar.plan.placement import Placement
from sidecar.plan.pod_claims import claim_names
from sidecar.state.state import ClusterState
from sidecar.writes.group_commits import GroupCommits

UNKNOWN_POD: Final = failed_rejection(Code.POD_UNKNOWN, "the pod is not known")

log = get_logger()


class ReservedPod(NamedTuple):
    """A pod and the node that the scheduler reserved for it."""

    reservation: Reservation
    pod: Pod


class ReservedEntries:
    """The entries of reserved pods in their claims; each takes a place, also before it is written.

    Attributes:
        by_claim: The entries as a value, which a decision on a thread may read.
    """

    def __init__(self) -> None:
        """Begin without a reserved pod."""
        self.by_claim: PromisedEntries = NO_PROMISED_ENTRIES
        self._by_pod: dict[str, Mapping[Name, ResourceClaimConsumerReference]] = {}
        self._pods: dict[Name, set[str]] = {}

    def add(self, uid: str, entries: Mapping[Name, ResourceClaimConsumerReference]) -> None:
        """Take the entries of a pod."""
        self.remove(uid)
        if not entries:
            return
        self._by_pod[uid] = entries
        for name in entries:
            self._pods.setdefault(name, set()).add(uid)
        self.by_claim = with_promised(self.by_claim, entries)

    def remove(self, uid: str) -> bool:
        """Forget the entries of a pod, but for those of its PodGroup that others have, too; return True if it had any."""
        entries = self._by_pod.pop(uid, None)
        if entries is None:
            return False
        by_claim = dict(self.by_claim)
        for name in entries:
            pods = self._pods[name]
            pods.remove(uid)
            remaining = [self._by_pod[other][name] for other in pods]
            by_claim[name] = {entry.uid: entry for entry in remaining}
            if not pods:
                del self._pods[name], by_claim[name]
        self.by_claim = by_claim
        return True


class Promises:
    """The reservations in force, and the devices promised for them.

    Attributes:
        reservations: The reservations in force.
        is_promising: Reservations have arrived whose devices are not chosen yet.
    """

    def __init__(
        self, state: ClusterState, find_pod: Callable[[str], Pod | None], groups: GroupCommits
    ) -> None:
        """Begin without a reservation.

        Args:
            find_pod: Returns the pod of a UID; None if it is not known.
            groups: Wait for the pods of a group that are reserved.
        """
        self.reservations = Reservations()
        self.is_promising = False
        self._state = state
        self._find_pod = find_pod
        self._groups = groups
        self._entries = ReservedEntries()
        # Reservations whose devices were not free any more when they arrived.
        self._rejected: dict[str, Rejection] = {}

    @property
    def entries(self) -> PromisedEntries:
        """The entries in claims of the pods that are reserved."""
        return self._entries.by_claim

    def rejection(self, uid: str) -> Rejection | None:
        """Return the reason that a reserved pod got no devices; None if it got some."""
        return self._rejected.get(uid)

    def has_news(self, request: Request) -> bool:
        """Return True if a request has reservations that have not arrived before."""
        return accept(self.reservations, request)[0] is not self.reservations

    def was_tried_again(self, request: UnreserveRequest) -> bool:
        """Return True if a later reservation of the pod is in force than the one that is given up."""
        reservation = self.reservations.by_pod.get(request.pod_uid)
        return bool(reservation and request.number and reservation.number > request.number)

    def greet(self, request: HelloRequest) -> Difference:
        """Take over the reservations of a scheduler."""
        self.reservations, difference = greet(self.reservations, request)
        return difference

    def accept(self, request: Request) -> Difference:
        """Take the reservations of a request."""
        self.reservations, difference = accept(self.reservations, request)
        return difference

    @contextmanager
    def begin(self, difference: Difference) -> Iterator[Sequence[ReservedPod]]:
        """Take back ended reservations; yield the pods that need devices chosen in the block."""
        self.end(difference)
        self._groups.change(replace(difference, ended=()))
        reserved_pods = [
            ReservedPod(reservation, pod)
            for reservation in difference.begun
            if (pod := self._reserved_pod(reservation)) is not None
        ]
        self.is_promising = bool(reserved_pods)
        try:
            yield reserved_pods
        finally:
            self.is_promising = False

    def end(self, difference: Difference) -> None:
        """Take back ended reservations."""
        self._groups.change(replace(difference, begun=()))
        for reservation in difference.ended:
            self._unreserve(reservation.pod_uid)
            self._rejected.pop(reservation.pod_uid, None)

    def hold_claims(self, reserved_pod: ReservedPod, placement: Placement | Rejection) -> None:
        """Promise the devices that a pod gets on its node."""
        reservation, pod = reserved_pod
        uid = reservation.pod_uid
        current = self.reservations.by_pod.get(uid)
        is_in_force = current is not None and current.number == reservation.number
        if isinstance(placement, Rejection):
            if is_in_force:
                self._rejected[uid] = placement
            log.info("reservation.rejected", pod=uid, node=reservation.node, code=placement.code)
            return
        for claim, allocation in placement.allocations:
            self._state.reserve(claim, allocation, uid)
        for name in claim_names(pod):
            stored_claim = self._state.claims.store.get(name)
            if stored_claim is not None:
                self._state.join(stored_claim, uid)
        self._entries.add(uid, entries_by_claim(pod, self._state.groups.pod_group(pod)))
        if not is_in_force:
            # The pod ended while its devices were chosen, and the view of the devices has them in use.
            self._unreserve(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that was bound or deleted."""
        self.reservations = finish(self.reservations, uid)
        self._groups.forget(uid)
        self._unreserve(uid)
        self._rejected.pop(uid, None)

    def _unreserve(self, uid: str) -> None:
        """Take back the devices and the entries promised to a pod."""
        self._state.unreserve(uid)
        if self._entries.remove(uid):
            self._state.version += 1  # Pods that wait for a place in a claim are planned anew.

    def _reserved_pod(self, reservation: Reservation) -> Pod | None:
        """Return the pod of a reservation that begins; None if it is not known."""
        uid = reservation.pod_uid
        pod = self._find_pod(uid) or self._state.pod(
            reservation.pod_namespace, reservation.pod_name
        )
        if pod is None or pod.metadata.uid != uid:
            self._rejected[uid] = UNKNOWN_POD
            return None
        return pod
