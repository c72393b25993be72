"""Promised and held devices, for people: the debug endpoint of the socket."""

from sidecar.model.debug_views import HoldView, ReservationsView
from sidecar.model.reservations import Reservations
from sidecar.state.state import ClusterState


def reservations_view(reservations: Reservations, state: ClusterState) -> ReservationsView:
    """Return the promises that the API does not show yet, and the devices that are held back."""
    return ReservationsView(
        scheduler=reservations.scheduler,
        reservations=tuple(
            sorted(reservations.by_pod.values(), key=lambda reservation: reservation.number)
        ),
        holds=tuple(
            HoldView(
                claim="/".join(hold.name),
                step=hold.step,
                devices=tuple(
                    f"{result.driver}/{result.pool}/{result.device}"
                    for result in hold.allocation.devices.results or ()
                ),
                pods=tuple(sorted(hold.pods)),
            )
            for hold in sorted(state.holds.values(), key=lambda hold: hold.name)
        ),
        held_back=tuple(
            f"{device.driver}/{device.pool}/{device.device}"
            for held_claim in state.held_back.claims.values()
            for device in held_claim.devices
        ),
    )
