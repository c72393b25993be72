"""The scheduler's reservations in force, independent of its requests' order of arrival.

Each request carries every reservation that is not acknowledged, so the highest number that arrived
says which have: a number at or below it that comes again is old news, also if it was given up since.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from sidecar.model.protocol import HelloRequest, Request, Reservation


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """The reservations of one scheduler process.

    Attributes:
        scheduler: Its random text; empty before the first hello.
        acknowledged: The highest number that has arrived.
        by_pod: UID of a pod to its reservation.
    """

    scheduler: str = ""
    acknowledged: int = 0
    by_pod: Mapping[str, Reservation] = {}


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The changes by a request.

    Attributes:
        ended: The reservations given up, or replaced by a newer one of the same pod.
        begun: The reservations that begin, in order of their numbers.
        is_first: They are the first of a scheduler, which another sidecar may have answered before.
    """

    ended: tuple[Reservation, ...] = ()
    begun: tuple[Reservation, ...] = ()
    is_first: bool = False


def greet(before: Reservations, request: HelloRequest) -> tuple[Reservations, Difference]:
    """Return the reservations after a hello; a new scheduler's replace those of the one before."""
    if request.scheduler == before.scheduler:
        return accept(before, request)
    fresh, difference = accept(Reservations(scheduler=request.scheduler), request)
    kept_uids = {
        reservation.pod_uid
        for reservation in difference.begun
        if _is_same(before.by_pod.get(reservation.pod_uid), reservation)
    }
    return fresh, Difference(
        ended=tuple(old for pod, old in before.by_pod.items() if pod not in kept_uids),
        begun=tuple(new for new in difference.begun if new.pod_uid not in kept_uids),
        is_first=True,
    )


def accept(before: Reservations, request: Request) -> tuple[Reservations, Difference]:
    """Return the reservations after a request, and the difference; the same if it brings no news."""
    given_up = frozenset(request.unreserved)
    new = sorted(
        (
            reservation
            for reservation in request.reservations
            if reservation.number > before.acknowledged
        ),
        key=lambda reservation: reservation.number,
    )
    highest = max(
        (before.acknowledged, *request.unreserved, *(reservation.number for reservation in new))
    )
    if highest == before.acknowledged and not given_up:
        return before, Difference()
    latest = {reservation.pod_uid: reservation for reservation in new}
    begun_reservations = tuple(
        reservation for reservation in latest.values() if reservation.number not in given_up
    )
    # Hundreds are in force while few come and go, so all are looked at only where numbers say which end.
    ended_uids = {pod for pod in latest if pod in before.by_pod}
    if given_up:
        ended_uids |= {pod for pod, old in before.by_pod.items() if old.number in given_up}
    by_pod = dict(before.by_pod)
    ended_reservations = tuple(by_pod.pop(pod) for pod in sorted(ended_uids))
    by_pod |= {reservation.pod_uid: reservation for reservation in begun_reservations}
    return (
        replace(before, acknowledged=highest, by_pod=by_pod),
        Difference(ended=ended_reservations, begun=begun_reservations),
    )


def finish(before: Reservations, pod_uid: str) -> Reservations:
    """Return the reservations without that of a pod that is bound."""
    if pod_uid not in before.by_pod:
        return before
    by_pod = dict(before.by_pod)
    del by_pod[pod_uid]
    return replace(before, by_pod=by_pod)


def _is_same(old: Reservation | None, new: Reservation) -> bool:
    return old is not None and old.node == new.node
