"""The published devices of a cluster with their state and attributes. Pure."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.devices import PublishedDevice
from allocator.model.usage import Usage
from kube.api.resource import DeviceAttribute
from kube.quantity import Quantity

_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})

Value = str | int | bool | tuple[str | int | bool, ...]


class DeviceState(StrEnum):
    """The state of a device: how much of it can be allocated."""

    FREE = "free"
    ALLOCATED = "allocated"
    """A claim has all of it."""
    SHARED = "shared"
    """Claims have shares of it."""
    TAINTED = "tainted"
    """Not in use, and only for requests with a toleration."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A published device.

    Attributes:
        node: The node that it is attached to; None where several nodes can reach it.
        attributes: As published; names without a domain are in the driver's.
        capacity: As published.
    """

    driver: str
    pool: str
    name: str
    node: str | None
    state: DeviceState
    attributes: Mapping[str, Value]
    capacity: Mapping[str, Quantity]


def published_devices(cluster: Cluster) -> tuple[PublishedDevice, ...]:
    """Return every device that some node can be given, each once, sorted."""
    by_id = {
        device.id: device for name in cluster.nodes for device in cluster.node_devices(name).devices
    }
    return tuple(by_id[device] for device in sorted(by_id))


def list_devices(devices: Iterable[PublishedDevice], usage: Usage) -> tuple[Device, ...]:
    """Return devices with what a DeviceClass can select them by, in the same order."""
    return tuple(
        Device(
            driver=device.id.driver,
            pool=device.id.pool,
            name=device.id.device,
            node=device.slice.spec.node_name or device.device.node_name,
            state=device_state(device, usage),
            attributes={
                name: value
                for name, attribute in sorted((device.device.attributes or {}).items())
                if (value := attribute_value(attribute)) is not None
            },
            capacity={
                name: capacity.value
                for name, capacity in sorted((device.device.capacity or {}).items())
            },
        )
        for device in devices
    )


def device_state(published_device: PublishedDevice, usage: Usage) -> DeviceState:
    """Return how much of a device can be allocated."""
    use = usage.of(published_device.id)
    if use is None:
        return DeviceState.TAINTED if is_tainted(published_device) else DeviceState.FREE
    return DeviceState.ALLOCATED if use.exclusive else DeviceState.SHARED


def is_tainted(published_device: PublishedDevice) -> bool:
    """Return whether a taint keeps requests without a toleration from a device."""
    return any(taint.effect in _BLOCKING for taint in published_device.device.taints or ())


def attribute_value(attribute: DeviceAttribute) -> Value | None:
    """Return the one value that an attribute has."""
    values = (
        attribute.string,
        attribute.int_,
        attribute.bool_,
        attribute.version,
        attribute.strings,
        attribute.ints,
        attribute.bools,
        attribute.versions,
    )
    return next((value for value in values if value is not None), None)


def text_attribute(published_device: PublishedDevice, name: str) -> str:
    """Return a string attribute in the driver's domain; empty where there is none."""
    attributes = published_device.device.attributes or {}
    attribute = attributes.get(name) or attributes.get(f"{published_device.id.driver}/{name}")
    return (attribute.string or "") if attribute is not None else ""
