"""The `device` variable: the part of a device that selectors can read.

Names without a domain belong to the driver's domain. Everything else about a device (its name, node,
pool, counters, taints) is invisible to selectors.

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
        allow_multiple_allocations: True if the device can be shared.
        attributes: Domain to identifier to value; versions are protobuf messages.
        capacity: Domain to identifier to amount, a protobuf message.
        versions: Domain and identifier of each attribute that is or contains a version.
        error: The reason every expression fails on this device; empty if it is valid.
        unsupported: The reason the engine cannot represent the device; empty if it can.
    """

    driver: str
    allow_multiple_allocations: bool = False
    attributes: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    capacity: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    versions: frozenset[tuple[str, str]] = frozenset()
    error: str = ""
    unsupported: str = ""


class NamedDevice:
    """A published device with the name of its driver; read at most once.

    Attributes:
        driver: The driver's name.
        device: The device as published.
    """

    __slots__ = ("_view", "device", "driver")

    def __init__(self, driver: str, device: Device) -> None:
        self.driver = driver
        self.device = device
        self._view: DeviceView | None = None

    @property
    def view(self) -> DeviceView:
        """The device as values of the engine."""
        if self._view is None:
            self._view = device_view(self.driver, self.device)
        return self._view


def device_view(driver: str, device: Device) -> DeviceView:
    """Return the part of a published device that selectors can read."""
    attributes: dict[str, dict[str, Any]] = {}
    versions: set[tuple[str, str]] = set()
    fault, beyond = "", ""
    for name, attribute in (device.attributes or {}).items():
        domain, identifier = qualify_name(name, driver)
        try:
            attributes.setdefault(domain, {})[identifier] = _attribute_value(attribute)
        except ValueError as error:
            # Upstream converts all attributes first, so one bad value fails every expression.
            fault = fault or f"attribute {name}: {error}"
        if "\0" in "".join((attribute.string or "", *(attribute.strings or ()))):
            beyond = f"attribute {name}: Drawbridge's CEL engine cuts a string at its first NUL"
        if attribute.version is not None or attribute.versions is not None:
            versions.add((domain, identifier))
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in (device.capacity or {}).items():
        domain, identifier = qualify_name(name, driver)
        capacity.setdefault(domain, {})[identifier] = quantity_message(amount.value)
    return DeviceView(
        driver=driver,
        allow_multiple_allocations=device.allow_multiple_allocations or False,
        attributes=attributes,
        capacity=capacity,
        versions=frozenset(versions),
        error=fault,
        unsupported=beyond,
    )


def qualify_name(name: str, driver: str) -> tuple[str, str]:
    """Split an attribute's or capacity's name into domain and identifier.

    >>> qualify_name("model", "gpu.example.com"), qualify_name("a.b/c", "gpu.example.com")
    (('gpu.example.com', 'model'), ('a.b', 'c'))
    """
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _attribute_value(attribute: DeviceAttribute) -> Any:
    """Return the value that is set; lists take precedence, as upstream.

    Raises:
        ValueError: No value is set, or a version is invalid.
    """
    if attribute.ints is not None:
        return list(attribute.ints)
    if attribute.bools is not None:
        return list(attribute.bools)
    if attribute.strings is not None:
        return list(attribute.strings)
    if attribute.versions is not None:
        return [semver_message(Semver.parse(text)) for text in attribute.versions]
    if attribute.int_ is not None:
        return attribute.int_
    if attribute.bool_ is not None:
        return attribute.bool_
    if attribute.string is not None:
        return attribute.string
    if attribute.version is not None:
        return semver_message(Semver.parse(attribute.version))
    raise ValueError("unsupported attribute value")


# --- quantities and versions as typed values ------------------------------------------------------
# The engine supports custom types as protobuf messages only. Two messages are equal if their fields
# are, so a message holds exactly the fields that equality compares.

_WELL_KNOWN: Final = (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)


def _build_descriptor_pool() -> descriptor_pool.DescriptorPool:
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
        descriptor = file.message_type.add(name=message.removeprefix("kubernetes."))
        for number, (name, kind, type_name) in enumerate(members, start=1):
            field = descriptor.field.add(
                name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL
            )
            if type_name:
                field.type_name = type_name
    pool = descriptor_pool.DescriptorPool()
    for module in _WELL_KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL: Final = _build_descriptor_pool()
_Quantity: Final = message_factory.GetMessageClass(POOL.FindMessageTypeByName(QUANTITY))
_Semver: Final = message_factory.GetMessageClass(POOL.FindMessageTypeByName(SEMVER))


@lru_cache(maxsize=4096)
def quantity_message(quantity: Quantity) -> Any:
    """Return a quantity as a typed value of the engine."""
    return _Quantity(nanos=str(quantity.nanos))


@lru_cache(maxsize=1024)
def semver_message(version: Semver) -> Any:
    """Return a version as a typed value of the engine."""
    return _Semver(
        major=version.major,
        minor=version.minor,
        patch=version.patch,
        prerelease=version.prerelease,
    )
