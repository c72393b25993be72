"""The remaining amounts of limits, as bounds of a search for devices on one node."""

from collections.abc import Collection, Hashable, Mapping
from typing import Final, NamedTuple

from allocator.model.amount_bound import AmountBound, Counted
from allocator.model.devices import PublishedDevice
from quotas.device_quotas.limits import DeviceFilter, Limit, Measure, amount_of

_COUNTED: Final[Mapping[Measure, Counted]] = {
    Measure.DEVICES: Counted.EACH_TIME,
    Measure.CAPACITY: Counted.EACH_TIME,
    Measure.COUNTER: Counted.ONCE_PER_DEVICE,
    Measure.CLAIMS: Counted.ONCE_PER_CLAIM,
}
UNLIMITED: Final = 1 << 128
"""More nano-units than any sum."""
_NOT_COUNTED: Final = -1
_BY_SHARE: Final = -2


def amount_bound(limit: Limit, left: int, devices: Collection[PublishedDevice]) -> AmountBound:
    """Return the bound that keeps claims within a limit.

    Args:
        left: The amount that is left of the limit, in nano-units.
        devices: The devices of the node.

    Raises:
        AnswerInterrupted: The budget of the answer does not last to evaluate the limit's selectors.
    """
    return AmountBound(
        amounts={
            device.id: max(0, amount_of(device, {}, limit))
            for device in devices
            if device.id.driver == limit.driver and limit.devices.counts(device)
        },
        capacity=limit.capacity if limit.measure is Measure.CAPACITY else None,
        driver=limit.driver,
        classes=limit.classes,
        counted=_COUNTED[limit.measure],
        total=max(0, left),
        per_request=None if limit.per_request is None else limit.per_request.nanos,
        per_device=None if limit.per_device is None else limit.per_device.nanos,
    )


class ChargedProperties(NamedTuple):
    """The properties of a charge beside the devices; equal for limits that charge devices alike.

    Attributes:
        classes: The classes whose requests count; all without any.
        devices: The devices that count; None for all of the driver.
    """

    driver: str
    measure: Measure
    capacity: tuple[str, str]
    counter: str
    classes: frozenset[str]
    devices: DeviceFilter | None

    @property
    def is_constant(self) -> bool:
        """Return True if all devices are charged alike."""
        return self.devices is None and self.measure in {Measure.DEVICES, Measure.CLAIMS}


def charged_properties(limit: Limit) -> ChargedProperties:
    """Return the properties that charges to a limit depend on."""
    devices = None if limit.devices.counts_all else limit.devices
    return ChargedProperties(
        limit.driver, limit.measure, limit.capacity, limit.counter, limit.classes, devices
    )


def charge_form(device: PublishedDevice, properties: ChargedProperties) -> Hashable:
    """Return the properties that tell a device apart from others of its driver in a charge.

    What shares consume is no part of it, since requests and the capacities of shared devices decide it.

    Raises:
        AnswerInterrupted: As `amount_bound` does.
    """
    if properties.devices is not None and not properties.devices.counts(device):
        return _NOT_COUNTED
    amount = amount_of(device, {}, properties)
    if properties.measure is Measure.CAPACITY and device.device.allow_multiple_allocations:
        return _BY_SHARE, amount  # All of it counts where sharing is off.
    return amount
