"""Promised, held and kept devices, for people: the debug endpoint of the socket."""

from collections.abc import Iterable

from sidecar.groups.kept import kept_devices
from sidecar.model.debug_views import HoldView, KeepView, ReservationsView
from sidecar.model.reservations import Reservations
from sidecar.plan.occupancy import Keep
from sidecar.state.state import ClusterState


def reservations_view(
    reservations: Reservations, state: ClusterState, keeps: Iterable[Keep]
) -> ReservationsView:
    """Return the promises that the API does not show yet, and the devices held back or kept for groups."""
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
        kept_for_groups=tuple(
            KeepView(
                group=f"{keep.namespace}/{keep.name}",
                since=keep.since,
                devices=tuple(kept_devices(keep)),
            )
            for keep in keeps
        ),
    )
