"""Caps of a limit: the largest request, and the largest amount of one device."""

from typing import NamedTuple

from kube.quantity import Quantity
from quotas.device_quotas.limits import Limit


class CapBreach(NamedTuple):
    """A request, or a device of it, that is larger than a limit allows for one.

    Attributes:
        amount: The amount in nano-units.
        per: `request` or `device`.
    """

    limit: Limit
    amount: int
    cap: Quantity
    per: str

    @property
    def message(self) -> str:
        """Return the breach in one phrase."""
        amount, cap = self.limit.in_words(self.amount), self.limit.in_words(self.cap.nanos)
        return f"DeviceQuota {self.limit.quota}, limit {self.limit.name}: {amount} for a {self.per}, at most {cap} allowed"


def cap_breaches(limit: Limit, request: int, device: int) -> list[CapBreach]:
    """Return the caps that the largest request, or the largest device of one, exceeds."""
    breaches = []
    if limit.per_request is not None and request > limit.per_request.nanos:
        breaches.append(CapBreach(limit, request, limit.per_request, "request"))
    if limit.per_device is not None and device > limit.per_device.nanos:
        breaches.append(CapBreach(limit, device, limit.per_device, "device"))
    return breaches
