"""An upper bound on the amount that claims placed together take of the devices of one node."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from allocator.model.devices import DeviceId
from kube.cel.device import qualify_name
from kube.quantity import Quantity


class Counted(StrEnum):
    """The number of times that a device counts if a claim gets it several times, or beside others."""

    EACH_TIME = "eachTime"
    ONCE_PER_DEVICE = "oncePerDevice"
    ONCE_PER_CLAIM = "oncePerClaim"


class AmountBound(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A bound on the sum of an amount. All amounts are in nano-units.

    It belongs to one search and not to the request: equal requests may have different bounds, so nothing
    that is cached for a request may depend on it.

    Attributes:
        amounts: Device to the amount of it, not negative; other devices count nothing. With
            `ONCE_PER_CLAIM` all amounts are equal.
        capacity: Domain and identifier of the capacity of which a share counts what it consumes; None
            where a share counts as much as its device.
        driver: The driver whose domain a name without one is in.
        classes: The classes whose requests count; all without any.
        counted: The number of times that a device counts in one claim.
        total: The largest sum.
        per_request: The largest sum of one request; None for no bound.
        per_device: The largest sum of one claim on a device; None for no bound.
    """

    amounts: Mapping[DeviceId, int]
    capacity: tuple[str, str] | None = None
    driver: str
    classes: frozenset[str] = frozenset()
    counted: Counted = Counted.EACH_TIME
    total: int
    per_request: int | None = None
    per_device: int | None = None


def capacity_amount(amounts: Mapping[str, Quantity], capacity: tuple[str, str], driver: str) -> int:
    """Return the amount of a capacity in nano-units, by either form of its name; 0 without one.

    Args:
        capacity: Domain and identifier.
        driver: The domain of a name without one.
    """
    return max(
        (
            amount.nanos
            for name, amount in amounts.items()
            if qualify_name(name, driver) == capacity
        ),
        default=0,
    )
