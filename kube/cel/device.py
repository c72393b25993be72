"""What a selector sees of a device: the `device` variable.

Names without a domain are filed under the driver's; everything else about a device (its name,
node, pool, counters, taints) is invisible to selectors.

Source: k8s.io/dynamic-resource-allocation v0.37.1, cel/compile.go, DeviceMatches.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from kube.api.resource import Device, DeviceAttribute
from kube.cel.semver import Semver
from kube.quantity import Quantity

QUANTITY: Final = "kubernetes.Quantity"
SEMVER: Final = "kubernetes.Semver"
DEVICE: Final = "kubernetes.DRADevice"


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """A device as values of the engine.

    Attributes:
        driver: The driver's name.
        allow_multiple_allocations: Whether the device can be shared.
        attributes: Domain to identifier to value; versions are protobuf messages.
        capacity: Domain to identifier to amount, a protobuf message.
        has_versions: Whether any attribute is or contains a version.
        fault: Why every expression fails on this device; empty when the device is well formed.
        beyond: Why our engine cannot judge the device; empty when it can.
    """

    driver: str
    allow_multiple_allocations: bool = False
    attributes: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    capacity: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    has_versions: bool = False
    fault: str = ""
    beyond: str = ""


def view(driver: str, device: Device) -> DeviceView:
    """Return what selectors see of a device that a driver published."""
    attributes: dict[str, dict[str, Any]] = {}
    has_versions, fault, beyond = False, "", ""
    for name, attribute in (device.attributes or {}).items():
        domain, identifier = qualified(name, driver)
        try:
            attributes.setdefault(domain, {})[identifier] = _value(attribute)
        except ValueError as error:
            # Upstream converts all attributes first, so one bad value spoils every expression.
            fault = fault or f"attribute {name}: {error}"
        if "\0" in "".join((attribute.string or "", *(attribute.strings or ()))):
            beyond = f"attribute {name}: our engine ends a text at its first NUL"
        has_versions |= attribute.version is not None or attribute.versions is not None
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in (device.capacity or {}).items():
        domain, identifier = qualified(name, driver)
        capacity.setdefault(domain, {})[identifier] = quantity_message(amount.value)
    return DeviceView(
        driver=driver,
        allow_multiple_allocations=device.allow_multiple_allocations or False,
        attributes=attributes,
        capacity=capacity,
        has_versions=has_versions,
        fault=fault,
        beyond=beyond,
    )


def qualified(name: str, driver: str) -> tuple[str, str]:
    """Return domain and identifier of an attribute's or capacity's name.

    >>> qualified("model", "gpu.example.com"), qualified("a.b/c", "gpu.example.com")
    (('gpu.example.com', 'model'), ('a.b', 'c'))
    """
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _value(attribute: DeviceAttribute) -> Any:
    """Return the one value that is set, lists first as upstream.

    Raises:
        ValueError: None is set, or a version is not one.
    """
    if attribute.ints is not None:
        return list(attribute.ints)
    if attribute.bools is not None:
        return list(attribute.bools)
    if attribute.strings is not None:
        return list(attribute.strings)
    if attribute.versions is not None:
        return [semver_message(Semver.parsed(text)) for text in attribute.versions]
    if attribute.int_ is not None:
        return attribute.int_
    if attribute.bool_ is not None:
        return attribute.bool_
    if attribute.string is not None:
        return attribute.string
    if attribute.version is not None:
        return semver_message(Semver.parsed(attribute.version))
    raise ValueError("unsupported attribute value")


# --- quantities and versions as the engine's own values ------------------------------------------
# The engine knows no types of ours but protobuf messages. Two messages are equal when their fields
# are, so each holds exactly what equality looks at.

_WELL_KNOWN: Final = (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)


def _descriptors() -> descriptor_pool.DescriptorPool:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="kubernetes.proto",
        package="kubernetes",
        syntax="proto3",
        dependency=["google/protobuf/struct.proto"],
    )
    fields: dict[str, tuple[tuple[str, int, str], ...]] = {
        QUANTITY: (("nanos", kinds.TYPE_STRING, ""),),
        SEMVER: (
            ("major", kinds.TYPE_UINT64, ""),
            ("minor", kinds.TYPE_UINT64, ""),
            ("patch", kinds.TYPE_UINT64, ""),
            ("prerelease", kinds.TYPE_STRING, ""),
        ),
        DEVICE: (
            ("driver", kinds.TYPE_STRING, ""),
            ("allowMultipleAllocations", kinds.TYPE_BOOL, ""),
            ("attributes", kinds.TYPE_MESSAGE, ".google.protobuf.Value"),
            ("capacity", kinds.TYPE_MESSAGE, ".google.protobuf.Value"),
        ),
    }
    for message, members in fields.items():
        made = file.message_type.add(name=message.removeprefix("kubernetes."))
        for number, (name, kind, type_name) in enumerate(members, start=1):
            field = made.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
            if type_name:
                field.type_name = type_name
    pool = descriptor_pool.DescriptorPool()
    for module in _WELL_KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL: Final = _descriptors()
_Quantity: Final = message_factory.GetMessageClass(POOL.FindMessageTypeByName(QUANTITY))
_Semver: Final = message_factory.GetMessageClass(POOL.FindMessageTypeByName(SEMVER))


@lru_cache(maxsize=4096)
def quantity_message(quantity: Quantity) -> Any:
    """Return a quantity as a value of the engine."""
    return _Quantity(nanos=str(quantity.nanos))


@lru_cache(maxsize=1024)
def semver_message(version: Semver) -> Any:
    """Return a version as a value of the engine."""
    return _Semver(
        major=version.major,
        minor=version.minor,
        patch=version.patch,
        prerelease=version.prerelease,
    )
