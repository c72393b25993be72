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


class KeepView(Message, frozen=True, kw_only=True):
    """The devices that are kept for a group of pods that has waited for long.

    Attributes:
        group: `namespace/name` of the PodGroup.
        since: The time since which it waits.
        devices: `driver/pool/device` of each; others may be using them now.
    """

    group: str
    since: str
    devices: tuple[str, ...]


class ReservationsView(Message, frozen=True, kw_only=True):
    """GET /v1/debug/reservations: promises that are not yet seen in the API, for people.

    Attributes:
        held_back: `driver/pool/device` of devices of pods that were deleted by force.
        kept_for_groups: Devices that are kept for groups, the most important group first.
    """

    scheduler: str
    reservations: tuple[Reservation, ...]
    holds: tuple[HoldView, ...]
    held_back: tuple[str, ...]
    kept_for_groups: tuple[KeepView, ...]
