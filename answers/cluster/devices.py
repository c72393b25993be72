"""The published devices of a cluster with their state and attributes. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.devices import PublishedDevice
from allocator.model.usage import Usage
from kube.api.resource import DeviceAttribute, ResourceClaim
from kube.quantity import ZERO, Quantity

_NUMBER: Final = re.compile("([0-9]+)")
_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})

Value = str | int | bool | tuple[str | int | bool, ...]


class DeviceState(StrEnum):
    """The state of a device: the part of it that can be allocated."""

    FREE = "free"
    ALLOCATED = "allocated"
    """A claim has all of it."""
    SHARED = "shared"
    """Claims have shares of it."""
    TAINTED = "tainted"
    """Not in use, and only for requests with a toleration."""


class DeviceConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that uses a device or a share of it.

    Attributes:
        claim: `namespace/name`.
        pods: Names of the pods that it is reserved for.
        consumed: The share's consumption; null if the claim has all of the device, or the
            consumption is not recorded.
    """

    claim: str
    request: str
    pods: tuple[str, ...]
    consumed: Mapping[str, Quantity] | None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A published device.

    Attributes:
        node: The node that it is attached to; None where several nodes can reach it.
        attributes: The published attributes; names without a domain are in the driver's.
        capacity: The published capacity.
        free: The free rest of the capacity; nothing if the device is in use as a whole, or tainted.
        consumers: The claims that use it.
    """

    driver: str
    pool: str
    name: str
    node: str | None
    state: DeviceState
    attributes: Mapping[str, Value]
    capacity: Mapping[str, Quantity]
    free: Mapping[str, Quantity]
    consumers: tuple[DeviceConsumer, ...]


def published_devices(cluster: Cluster) -> tuple[PublishedDevice, ...]:
    """Return every device that some node can be given, each once, sorted as people count."""
    by_id = {
        device.id: device for name in cluster.nodes for device in cluster.node_devices(name).devices
    }
    order = sorted(by_id, key=lambda id_: (id_.driver, id_.pool, natural_key(id_.device)))
    return tuple(by_id[device] for device in order)


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts the numbers in names by their size.

    >>> sorted(("gpu-10", "gpu-2", "gpu", "gpu-2-mig-1"), key=natural_key)
    ['gpu', 'gpu-2', 'gpu-2-mig-1', 'gpu-10']
    """
    parts = _NUMBER.split(name)
    # Text and numbers alternate. A longer number without leading zeros is a larger one.
    return tuple(
        (len(part.lstrip("0")) if number % 2 else 0, part) for number, part in enumerate(parts)
    )


def list_devices(
    devices: Iterable[PublishedDevice],
    usage: Usage,
    claims: Mapping[tuple[str, str], ResourceClaim],
) -> tuple[Device, ...]:
    """Return devices with the attributes that classes select by and their consumers, in order.

    Args:
        devices: The published devices.
        usage: The usage by allocated claims.
        claims: The claims by namespace and name.
    """
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
            free=free_capacity(device, usage),
            consumers=tuple(_consumers(device, usage, claims)),
        )
        for device in devices
    )


def free_capacity(device: PublishedDevice, usage: Usage) -> dict[str, Quantity]:
    """Return the free amount of each capacity of a device."""
    state = device_state(device, usage)
    use = usage.of(device.id)
    consumed = (use.capacity or {}) if use is not None else {}
    return {
        name: max(capacity.value - consumed.get(name, ZERO), ZERO)
        if state in {DeviceState.FREE, DeviceState.SHARED} and not is_tainted(device)
        else ZERO
        for name, capacity in sorted((device.device.capacity or {}).items())
    }


def _consumers(
    device: PublishedDevice, usage: Usage, claims: Mapping[tuple[str, str], ResourceClaim]
) -> Iterator[DeviceConsumer]:
    use = usage.of(device.id)
    for consumer in use.consumers if use is not None else ():
        claim = claims.get((consumer.namespace, consumer.claim))
        status = claim.status if claim is not None else None
        references = (status.reserved_for or ()) if status is not None else ()
        yield DeviceConsumer(
            claim=f"{consumer.namespace}/{consumer.claim}",
            request=consumer.request,
            pods=tuple(reference.name for reference in references if reference.resource == "pods"),
            consumed=consumer.consumed,
        )


def device_state(published_device: PublishedDevice, usage: Usage) -> DeviceState:
    """Return the state of a device: free, partly or wholly allocated, or tainted."""
    use = usage.of(published_device.id)
    if use is None:
        return DeviceState.TAINTED if is_tainted(published_device) else DeviceState.FREE
    return DeviceState.ALLOCATED if use.exclusive else DeviceState.SHARED


def is_tainted(published_device: PublishedDevice) -> bool:
    """Return True if a taint keeps requests without a toleration from a device."""
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
    """Return a string attribute in the driver's domain; empty if there is none."""
    attributes = published_device.device.attributes or {}
    attribute = attributes.get(name) or attributes.get(f"{published_device.id.driver}/{name}")
    return (attribute.string or "") if attribute is not None else ""
