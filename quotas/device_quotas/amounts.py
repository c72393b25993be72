"""The amount that a limit counts of a device, or of a share of it."""

from collections.abc import Mapping
from typing import Final

from allocator.model.amount_bound import capacity_amount
from allocator.model.devices import PublishedDevice
from kube.quantity import Quantity
from quotas.device_quotas.limits import Measure, Measured

ONE: Final = 10**9
"""A device, or a claim, in nano-units."""


def amount_of(device: PublishedDevice, consumed: Mapping[str, Quantity], limit: Measured) -> int:
    """Return the charge for a device, or for a share with this consumption.

    Args:
        consumed: The consumption; empty for all of the device.
    """
    match limit.measure:
        case Measure.DEVICES | Measure.CLAIMS:
            return ONE
        case Measure.CAPACITY:
            if consumed and device.device.allow_multiple_allocations:
                return capacity_of(consumed, limit)
            capacity = device.device.capacity or {}
            return capacity_of({name: amount.value for name, amount in capacity.items()}, limit)
        case Measure.COUNTER:
            return sum(
                max(0, counter.value.nanos)
                for consumption in device.device.consumes_counters or ()
                for name, counter in (consumption.counters or {}).items()
                if name == limit.counter
            )


def capacity_of(amounts: Mapping[str, Quantity], limit: Measured) -> int:
    """Return the amount of the limit's capacity, by either form of its name; 0 without one."""
    return capacity_amount(amounts, limit.capacity, limit.driver)
