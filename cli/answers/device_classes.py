"""The devices that DeviceClasses select, and classes worth writing for the others. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.devices import PublishedDevice
from allocator.model.requests import Expression
from allocator.model.selectors import SelectorFailure, selector_chain
from cli.answers.devices import DeviceState, device_state, text_attribute
from kube.api.resource import DeviceClass

_TYPE: Final = "type"
"""The attribute by which drivers tell whole devices, partitions and network interfaces apart."""
_PRODUCTS: Final = ("productName", "product", "modelName", "model")
"""Attributes with the name of a product; the first that a device has counts."""
_PROFILE: Final = "profile"
"""The attribute with the profile of a MIG device."""
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.]+")

Selected = tuple[PublishedDevice, ...] | str
"""The devices of a class, or why its selectors cannot be evaluated."""


class ClassInventory(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that one DeviceClass selects.

    Attributes:
        error: Why its selectors cannot be evaluated; empty when they can.
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
) -> dict[str, Selected]:
    """Return the devices of each class, by name."""
    published = tuple(devices)
    return {name: _selected(classes[name], published) for name in sorted(classes)}


def _selected(device_class: DeviceClass, devices: Iterable[PublishedDevice]) -> Selected:
    selectors = selector_chain(
        tuple(
            Expression(text=selector.cel.expression, origin=f"selector #{number}")
            for number, selector in enumerate(device_class.spec.selectors or ())
            if selector.cel is not None
        )
    )
    selected = []
    for published in devices:
        verdict = selectors.verdict(published)
        if isinstance(verdict, SelectorFailure):
            return verdict.message
        if verdict:
            selected.append(published)
    return tuple(selected)


def class_inventory(name: str, selected: Selected, cluster: Cluster) -> ClassInventory:
    """Return what a class selects."""
    if isinstance(selected, str):
        return ClassInventory(name=name, error=selected)
    return ClassInventory(
        name=name,
        drivers=tuple(sorted({published.id.driver for published in selected})),
        devices=len(selected),
        free=sum(
            device_state(published, cluster.usage) is DeviceState.FREE for published in selected
        ),
    )


# --- classes worth writing ------------------------------------------------------------------------


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    """Devices with the same values of some attributes.

    Attributes:
        values: Attribute name to value.
        label: The part of the class's name before the driver; empty for all of a driver.
    """

    driver: str
    values: tuple[tuple[str, str], ...]
    label: str
    devices: frozenset[PublishedDevice]


def suggest_classes(
    devices: Iterable[PublishedDevice], selected: Mapping[str, Selected]
) -> Iterator[Suggestion]:
    """Yield classes for each driver, type, product and MIG profile that no class is only about.

    Args:
        selected: The devices of the classes that there are.
    """
    covered = {frozenset(found) for found in selected.values() if not isinstance(found, str)}
    names = set(selected)
    for group in _groups(devices):
        if group.devices in covered:
            continue
        covered.add(group.devices)
        label = _NOT_IN_NAMES.sub("-", group.label.lower()).strip("-.")
        name = _unused(f"{label}.{group.driver}" if label else group.driver, names)
        names.add(name)
        yield Suggestion(name=name, expression=_expression(group), devices=len(group.devices))


def _groups(devices: Iterable[PublishedDevice]) -> Iterator[_Group]:
    """Yield groups of devices by driver, in it by type, and in that by MIG profile or product."""
    by_driver: dict[str, list[PublishedDevice]] = {}
    for published in devices:
        by_driver.setdefault(published.id.driver, []).append(published)
    for driver, members in sorted(by_driver.items()):
        yield _Group(driver=driver, values=(), label="", devices=frozenset(members))
        for kind, typed in _by_attribute(members, _TYPE).items():
            own = ((_TYPE, kind),) if kind else ()
            if kind:
                yield _Group(driver=driver, values=own, label=kind, devices=frozenset(typed))
            attribute = _model_attribute(typed)
            for value, found in _by_attribute(typed, attribute).items():
                if value:
                    label = f"{kind}-{value}" if kind else value
                    values = (*own, (attribute, value))
                    yield _Group(
                        driver=driver, values=values, label=label, devices=frozenset(found)
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
    found: dict[str, list[PublishedDevice]] = {}
    for published in devices:
        found.setdefault(text_attribute(published, name), []).append(published)
    return dict(sorted(found.items()))


def _expression(group: _Group) -> str:
    tests = [f"device.driver == {_literal(group.driver)}"]
    tests += [
        f'device.attributes[{_literal(group.driver)}].?{name}.orValue("") == {_literal(value)}'
        for name, value in group.values
    ]
    return " && ".join(tests)


def _literal(text: str) -> str:
    """Return text as a string of CEL, whose escapes are those of JSON."""
    return msgspec.json.encode(text).decode()


def _unused(name: str, names: set[str]) -> str:
    """Return the name, with a number behind it if a class has that name."""
    number, unused = 2, name
    while unused in names:
        unused, number = f"{name}-{number}", number + 1
    return unused
