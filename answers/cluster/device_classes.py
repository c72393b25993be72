"""The devices that DeviceClasses select, and classes worth writing for the others. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.devices import PublishedDevice
from allocator.model.requests import Expression
from allocator.model.selectors import SelectorFailure, selector_chain
from answers.cluster.devices import DeviceState, device_state, text_attribute
from kube.api.resource import DeviceClass

_TYPE: Final = "type"
"""The attribute by which drivers tell whole devices, partitions and network interfaces apart."""
_PRODUCTS: Final = ("productName", "product", "modelName", "model")
"""Attributes with the name of a product; the first that a device has counts."""
_PROFILE: Final = "profile"
"""The attribute with the profile of a MIG device."""
_IDENTIFIERS: Final = re.compile(
    "id$|serial|addr|bus|parent|root|name|index|version|rdmadevice", re.IGNORECASE
)
"""Names of attributes with a device, its place or its software, rather than a kind of devices."""
_MAX_KINDS: Final = 8
"""Values of an attribute by which devices of one product are divided."""
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.]+")

SelectedDevices = tuple[PublishedDevice, ...] | str
"""The devices of a class, or why its selectors cannot be evaluated."""


class ClassInventory(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that one DeviceClass selects.

    Attributes:
        error: The reason its selectors cannot be evaluated; empty when they can.
    """

    name: str
    drivers: tuple[str, ...] = ()
    devices: int = 0
    free: int = 0
    error: str = ""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A class worth writing, for devices that no class selects alone.

    Attributes:
        expression: The CEL of its only selector.
        devices: The number of devices that it would select.
    """

    name: str
    expression: str
    devices: int


def select_devices(
    classes: Mapping[str, DeviceClass], devices: Iterable[PublishedDevice]
) -> dict[str, SelectedDevices]:
    """Return the devices of each class, by name."""
    all_devices = tuple(devices)
    return {name: _select(classes[name], all_devices) for name in sorted(classes)}


def _select(device_class: DeviceClass, devices: Iterable[PublishedDevice]) -> SelectedDevices:
    selectors = selector_chain(
        tuple(
            Expression(text=selector.cel.expression, origin=f"selector #{number}")
            for number, selector in enumerate(device_class.spec.selectors or ())
            if selector.cel is not None
        )
    )
    selected_devices = []
    for device in devices:
        verdict = selectors.verdict(device)
        if isinstance(verdict, SelectorFailure):
            return verdict.message
        if verdict:
            selected_devices.append(device)
    return tuple(selected_devices)


def class_inventory(
    name: str, selected_devices: SelectedDevices, cluster: Cluster
) -> ClassInventory:
    """Return the devices that a class selects."""
    if isinstance(selected_devices, str):
        return ClassInventory(name=name, error=selected_devices)
    return ClassInventory(
        name=name,
        drivers=tuple(sorted({device.id.driver for device in selected_devices})),
        devices=len(selected_devices),
        free=sum(
            device_state(device, cluster.usage) is DeviceState.FREE for device in selected_devices
        ),
    )


# --- classes worth writing ------------------------------------------------------------------------


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    """Devices with the same values of some attributes.

    Attributes:
        values: Attribute name to value.
        label: The part of the class's name before the driver; empty for all of a driver.
        qualifier: A prefix for the name if a class with other devices has it.
    """

    driver: str
    values: tuple[tuple[str, str], ...]
    label: str
    qualifier: str
    devices: frozenset[PublishedDevice]


def suggest_classes(
    devices: Iterable[PublishedDevice], devices_by_class: Mapping[str, SelectedDevices]
) -> Iterator[Suggestion]:
    """Yield classes for each driver, type, product, MIG profile and kind of these that no class is only about.

    Args:
        devices_by_class: The devices of the classes that there are.
    """
    covered_sets = {
        frozenset(class_devices)
        for class_devices in devices_by_class.values()
        if not isinstance(class_devices, str)
    }
    names = set(devices_by_class)
    for group in _groups(devices):
        if group.devices in covered_sets:
            continue
        covered_sets.add(group.devices)
        label = _NOT_IN_NAMES.sub("-", group.label.lower()).strip("-.")
        name = f"{label}.{group.driver}" if label else group.driver
        if name in names:
            name = _unused_name(f"{group.qualifier}{name}", names)
        names.add(name)
        yield Suggestion(name=name, expression=_expression(group), devices=len(group.devices))


def _groups(devices: Iterable[PublishedDevice]) -> Iterator[_Group]:
    """Yield groups of devices by driver, in it by type, and in that by MIG profile or product.

    There is no group of a whole driver whose devices have several types: a request would get a whole
    device or a partition of one, whichever comes first.
    """
    by_driver: dict[str, list[PublishedDevice]] = {}
    for device in devices:
        by_driver.setdefault(device.id.driver, []).append(device)
    for driver, members in sorted(by_driver.items()):
        by_type = _by_attribute(members, _TYPE)
        if len(by_type) == 1:
            yield _Group(
                driver=driver, values=(), label="", qualifier="all.", devices=frozenset(members)
            )
        for kind, devices_of_type in by_type.items():
            own = ((_TYPE, kind),) if kind else ()
            of_type = _Group(
                driver=driver,
                values=own,
                label=kind,
                qualifier="all-",
                devices=frozenset(devices_of_type),
            )
            if kind:
                yield of_type
            attribute = _model_attribute(devices_of_type)
            if not any(text_attribute(device, attribute) for device in devices_of_type):
                yield from _kinds(of_type)
            for value, devices_of_value in _by_attribute(devices_of_type, attribute).items():
                if value:
                    label = f"{kind}-{value}" if kind else value
                    group = _Group(
                        driver=driver,
                        values=(*own, (attribute, value)),
                        label=label,
                        qualifier="only-",
                        devices=frozenset(devices_of_value),
                    )
                    yield group
                    yield from _kinds(group)


def _kinds(group: _Group) -> Iterator[_Group]:
    """Yield the parts of a group by each text attribute with few values."""
    names = {
        name.removeprefix(f"{group.driver}/")
        for device in group.devices
        for name in device.device.attributes or ()
    }
    for name in sorted(names):
        if "/" in name or (name not in _PRODUCTS and _IDENTIFIERS.search(name)):
            continue
        by_value = _by_attribute(group.devices, name)
        if not 1 < len(by_value) <= min(_MAX_KINDS, len(group.devices) - 1):
            continue
        for value, devices in by_value.items():
            if value:
                yield msgspec.structs.replace(
                    group,
                    values=(*group.values, (name, value)),
                    label=f"{group.label}-{value}" if group.label else value,
                    qualifier="only-",
                    devices=frozenset(devices),
                )


def _model_attribute(devices: Sequence[PublishedDevice]) -> str:
    """Return the attribute with the MIG profile, else with the name of the product."""
    names = (_PROFILE, *_PRODUCTS)
    return next(
        (name for name in names if any(text_attribute(device, name) for device in devices)),
        _PROFILE,
    )


def _by_attribute(
    devices: Iterable[PublishedDevice], name: str
) -> dict[str, list[PublishedDevice]]:
    by_value: dict[str, list[PublishedDevice]] = {}
    for device in devices:
        by_value.setdefault(text_attribute(device, name), []).append(device)
    return dict(sorted(by_value.items()))


def _expression(group: _Group) -> str:
    tests = [f"device.driver == {_literal(group.driver)}"]
    tests += [
        f'device.attributes[{_literal(group.driver)}].?{name}.orValue("") == {_literal(value)}'
        for name, value in group.values
    ]
    return " && ".join(tests)


def _literal(text: str) -> str:
    """Return text as a string of CEL; its escapes are those of JSON."""
    return msgspec.json.encode(text).decode()


def _unused_name(name: str, names: set[str]) -> str:
    """Return the name, with a number behind it if a class has that name."""
    number, unused_name = 2, name
    while unused_name in names:
        unused_name, number = f"{name}-{number}", number + 1
    return unused_name
