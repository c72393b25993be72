"""The page of `drawbridge inventory`: devices, their users, free capacity, and problems."""

from collections.abc import Iterator
from typing import Final

import msgspec

from answers.cluster.devices import Device, DeviceConsumer
from answers.cluster.inventory import Inventory
from cli.html.elements import Child, Markup, element
from cli.html.nodes import NodeCard, anchors, by_node, cards, likeness
from cli.html.page import Filter, build_page, lines, row, section, table, tiles
from findings.text import count_text
from kube.quantity import Quantity, format_amount, format_rounded

MAX_LISTED: Final = 2_000
"""Devices whose attributes are listed; every device is drawn."""
_IDLE: Final = "idle"
_IN_USE: Final = "in use"


def format_inventory_page(inventory: Inventory) -> str:
    """Return the page.

    Args:
        inventory: An inventory with devices and idle nodes.
    """
    return build_page(
        "Devices of a cluster",
        "",
        tiles(_tiles(inventory)),
        *_problems(inventory),
        section("Drivers", _drivers(inventory)),
        section("DeviceClasses", _classes(inventory), _suggestions(inventory)),
        section("Nodes", _nodes(inventory), note="Colours are those of claims."),
        section("Devices", _devices(inventory.devices or ())),
        choice=Filter(label="Nodes", values=(_IDLE, _IN_USE)),
    )


def _tiles(inventory: Inventory) -> Iterator[tuple[str, Child]]:
    drivers = inventory.drivers
    yield "devices", sum(driver.devices for driver in drivers)
    yield "free", sum(driver.free for driver in drivers)
    yield "allocated", sum(driver.allocated for driver in drivers)
    yield "shared", sum(driver.shared for driver in drivers)
    yield "tainted", sum(driver.tainted for driver in drivers)
    yield "nodes without a consumer", len(inventory.idle_nodes or ())


def _problems(inventory: Inventory) -> Iterator[Markup]:
    if inventory.unusable_pools:
        yield section(
            "Pools that cannot be used",
            table(
                "Pools, and why no device of them can be allocated",
                ("Pool", "Driver", "State", "Why"),
                (
                    row(pool.pool, pool.driver, pool.state, pool.why)
                    for pool in inventory.unusable_pools
                ),
            ),
        )
    if inventory.unreachable:
        yield section(
            "ResourceSlices that no node can reach", element("p", ", ".join(inventory.unreachable))
        )
    if inventory.plugin_resources:
        yield section(
            "Offered by device plugins",
            table(
                "Resource names of device plugins; drawbridge assess tells what becomes of their pods",
                ("Resource", "Nodes", "Amount", "In parts on"),
                (
                    row(
                        offered.resource,
                        offered.nodes,
                        format_amount(offered.allocatable),
                        offered.nodes_in_parts,
                    )
                    for offered in inventory.plugin_resources
                ),
            ),
        )
    if inventory.duplicate_resources:
        yield section(
            "Resources that a device plugin and ResourceSlices offer on the same node",
            table(
                "A device that both offer can be given to two pods",
                ("Node", "Resource", "By the device plugin", "By drivers", "DeviceClass"),
                (
                    row(
                        duplicate.node,
                        duplicate.resource,
                        format_amount(duplicate.allocatable),
                        f"{duplicate.devices} by {', '.join(duplicate.drivers)}",
                        duplicate.device_class or "-",
                    )
                    for duplicate in inventory.duplicate_resources
                ),
            ),
        )


def _drivers(inventory: Inventory) -> Markup:
    if not inventory.drivers:
        return element("p", "No devices are published.")
    head = ("Driver", "Nodes", "Devices", "Free", "Allocated", "Shared", "Tainted", "Free capacity")
    return table(
        "Devices of each driver",
        head,
        (
            row(
                driver.driver,
                driver.nodes,
                driver.devices,
                driver.free,
                driver.allocated,
                driver.shared,
                driver.tainted,
                lines(
                    f"{name}: {format_rounded(amount.free, amount.total)} of "
                    f"{format_rounded(amount.total, amount.total)}"
                    for name, amount in {**driver.capacity, **driver.counters}.items()
                    if amount.largest > Quantity(1)
                ),
            )
            for driver in inventory.drivers
        ),
    )


def _classes(inventory: Inventory) -> Markup:
    if not inventory.classes:
        return element("p", "There are no DeviceClasses.")
    return table(
        "Devices that each DeviceClass selects",
        ("DeviceClass", "Devices", "Free", "Drivers"),
        (
            row(class_.name, "?", "?", class_.error)
            if class_.error
            else row(class_.name, class_.devices, class_.free, ", ".join(class_.drivers) or "none")
            for class_ in inventory.classes
        ),
    )


def _suggestions(inventory: Inventory) -> Markup | None:
    if not inventory.suggestions:
        return None
    return table(
        "DeviceClasses worth writing",
        ("Name", "Devices", "Selector"),
        (
            row(suggestion.name, suggestion.devices, element("code", suggestion.expression))
            for suggestion in inventory.suggestions
        ),
    )


def _nodes(inventory: Inventory) -> Markup:
    devices = by_node(inventory.devices or ())
    idle = {node.name for node in inventory.idle_nodes or ()}
    if not devices:
        return element("p", "No devices are published.")
    # Each node in use is drawn, and of idle ones that look the same the first.
    alike: dict[object, list[str]] = {}
    for name, own in devices.items():
        alike.setdefault(likeness(own) if name in idle else name, []).append(name)
    drawn = (
        NodeCard(
            name=name,
            devices=devices[name],
            subtitle=count_text(len(devices[name]), "device"),
            value=_IDLE if name in idle else _IN_USE,
            others=tuple(others),
        )
        for name, *others in alike.values()
    )
    return cards(drawn, anchors(devices), _owner)


def _owner(consumer: DeviceConsumer) -> str:
    pods = f", pod {', '.join(consumer.pods)}" if consumer.pods else ""
    return f"{consumer.claim}{pods}"


def _devices(devices: tuple[Device, ...]) -> Markup:
    if not devices:
        return element("p", "No devices are published.")
    left = len(devices) - MAX_LISTED
    return element(
        "div",
        table(
            "Attributes by which a DeviceClass can select devices, and what is left of them",
            ("Device", "Node", "State", "Attributes", "Capacity", "Free"),
            map(_device, devices[:MAX_LISTED]),
        ),
        element("p", f"and {count_text(left, 'more device')}; drawbridge inventory --devices")
        if left > 0
        else None,
    )


def _device(device: Device) -> Markup:
    return row(
        f"{device.driver}/{device.pool}/{device.name}",
        device.node or "several",
        device.state.value,
        lines(f"{name} {_value(value)}" for name, value in device.attributes.items()),
        lines(f"{name} {format_amount(amount)}" for name, amount in device.capacity.items()),
        lines(f"{name} {format_amount(amount)}" for name, amount in device.free.items()),
    )


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()
