"""What is promised and held back, for people: the debug endpoint of the socket."""

from sidecar.plan.reservations import Reservations
from sidecar.protocol import HoldView, ReservationsView
from sidecar.state import ClusterState


def reservations_view(reservations: Reservations, state: ClusterState) -> ReservationsView:
    """Return what is promised and not yet seen in the API, and what is held back."""
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
