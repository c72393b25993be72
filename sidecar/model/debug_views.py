"""The answers to GET /v1/debug: the sidecar's holds, for people."""

from sidecar.model.protocol import Message, Reservation


class HoldView(Message, frozen=True, kw_only=True):
    """The devices that are promised to one claim.

    Attributes:
        step: reserved, writing or unknown.
        devices: `driver/pool/device` of each.
        pods: UIDs of the pods that need it.
    """

    claim: str
    step: str
    devices: tuple[str, ...]
    pods: tuple[str, ...]


class ReservationsView(Message, frozen=True, kw_only=True):
    """GET /v1/debug/reservations: promises that are not yet seen in the API, for people.

    Attributes:
        held_back: `driver/pool/device` of devices of pods that were deleted by force.
    """

    scheduler: str
    reservations: tuple[Reservation, ...]
    holds: tuple[HoldView, ...]
    held_back: tuple[str, ...]
