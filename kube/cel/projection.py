"""The part of a device that an expression can read, as bytes.

Expressions cannot tell devices apart whose bytes are equal, so an engine elsewhere is asked once for all
of them, and is given no more of a device than the expression reads.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from kube.api.resource import Device, DeviceAttribute, DeviceCapacity
from kube.cel.device import DeviceView, device_view
from kube.cel.semver import Semver
from kube.quantity import Quantity

_WELL_FORMED: Final = 1024


class DeviceProjection(msgspec.Struct, frozen=True, array_like=True):
    """A device without its name, and without the fields that the expression cannot read.

    Attributes:
        driver: The driver's name.
        is_shareable: True if the device allows multiple allocations.
        attributes: The attributes by name, as published.
        capacity: The capacities by name, as published.
    """

    driver: str
    is_shareable: bool
    attributes: Mapping[str, DeviceAttribute]
    capacity: Mapping[str, str]

    def view(self) -> DeviceView:
        """Return the device as an expression reads it."""
        return device_view(
            self.driver,
            Device(
                name="",
                attributes=self.attributes,
                capacity={
                    name: DeviceCapacity(value=Quantity(amount))
                    for name, amount in self.capacity.items()
                },
                allow_multiple_allocations=self.is_shareable,
            ),
        )


_encode: Final = msgspec.msgpack.Encoder().encode
_DECODER: Final = msgspec.msgpack.Decoder(DeviceProjection)


def encode_projection(
    driver: str,
    device: Device,
    attributes: Iterable[tuple[str, str]] | None,
    capacities: Iterable[tuple[str, str]] | None,
) -> bytes:
    """Return the part of a device that an expression can read.

    Args:
        driver: The driver's name.
        device: The device as published.
        attributes: Domain and identifier of those that the expression reads, in a fixed order; None if
            it may read any.
        capacities: Domain and identifier of the capacities that the expression reads, in a fixed
            order; None if it may read any.
    """
    values, amounts = _readable(driver, device, attributes, capacities)
    if values is device.attributes:
        values = dict(sorted(values.items()))
    if amounts is device.capacity:
        amounts = dict(sorted(amounts.items()))
    texts = {name: str(amount.value) for name, amount in amounts.items()}
    shareable = device.allow_multiple_allocations or False
    return _encode((driver, shareable, values, texts))


def project_device(
    driver: str,
    device: Device,
    attributes: Iterable[tuple[str, str]] | None,
    capacities: Iterable[tuple[str, str]] | None,
) -> Device:
    """Return a device with no more than an expression reads; see `encode_projection`."""
    values, amounts = _readable(driver, device, attributes, capacities)
    return msgspec.structs.replace(device, attributes=values, capacity=amounts)


def decode_projection(data: bytes) -> DeviceProjection:
    """Return the projection that was encoded.

    Raises:
        msgspec.DecodeError: It is none.
    """
    projection: DeviceProjection = _DECODER.decode(data)
    return projection


def attribute_fault(device: Device) -> frozenset[Any]:
    """Return the attributes that make every expression fail, even one that does not read them.

    That is all attributes where one of them is malformed; else nothing.
    """
    for attribute in (device.attributes or {}).values():
        text = attribute.string
        if text is not None:
            if "\0" in text:
                return frozenset((device.attributes or {}).items())
        elif attribute.int_ is None and attribute.bool_ is None and not _is_well_formed(attribute):
            return frozenset((device.attributes or {}).items())
    return frozenset()


@lru_cache(maxsize=_WELL_FORMED)
def _is_well_formed(attribute: DeviceAttribute) -> bool:
    """Return True if expressions can be evaluated on a device with this version or list."""
    texts = attribute.strings or ()
    if any("\0" in text for text in texts):
        return False
    versions = attribute.versions or (() if attribute.version is None else (attribute.version,))
    try:
        for version in versions:
            Semver.parse(version)
    except ValueError:
        return False
    return bool(versions or texts or attribute.ints or attribute.bools)


def _readable(
    driver: str,
    device: Device,
    attributes: Iterable[tuple[str, str]] | None,
    capacities: Iterable[tuple[str, str]] | None,
) -> tuple[Mapping[str, DeviceAttribute], Mapping[str, DeviceCapacity]]:
    """Return the attributes and capacities that an expression can read, unchanged if it reads all."""
    values: Mapping[str, DeviceAttribute] = device.attributes or {}
    amounts: Mapping[str, DeviceCapacity] = device.capacity or {}
    if attributes is not None and not attribute_fault(device):
        values = _select(driver, values, attributes)
    if capacities is not None:
        amounts = _select(driver, amounts, capacities)
    return values, amounts


def _select(
    driver: str, values: Mapping[str, Any], names: Iterable[tuple[str, str]]
) -> dict[str, Any]:
    """Return the values of some names; one of the driver's domain may be published without it."""
    selected = {}
    for domain, identifier in names:
        qualified = f"{domain}/{identifier}"
        if qualified in values:
            selected[qualified] = values[qualified]
        if domain == driver and identifier in values:
            selected[identifier] = values[identifier]
    return selected
