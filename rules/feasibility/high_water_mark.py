"""The high-water mark: the largest inventory ever seen, by DeviceClass and driver.

A controller stores it in one object and raises it as slices come. While the inventory is below it,
published slices are no evidence that a claim is infeasible: a node may restart, a driver may be
upgraded, a node group may be scaled to zero. The mark holds only what decides feasibility.
"""

from collections.abc import Mapping

import msgspec

from kube.quantity import Quantity


class DriverStock(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices of one driver that one class selects.

    Attributes:
        nodes: Number of nodes that reach such devices.
        devices: Number of reached devices; a device that several nodes reach counts for each.
        on_one_node: The largest number that one node reaches.
        capacity: Name to the largest amount of one device.
    """

    nodes: int = 0
    devices: int = 0
    on_one_node: int = 0
    capacity: Mapping[str, Quantity] = {}


ClassStock = Mapping[str, DriverStock]
"""Driver to its devices of one class."""


class HighWaterMark(msgspec.Struct, frozen=True, kw_only=True):
    """The largest inventory ever seen; empty if none was stored.

    Attributes:
        classes: Name of a DeviceClass to driver to its devices.
    """

    classes: Mapping[str, ClassStock] = {}


def raise_mark(mark: HighWaterMark, stocks: Mapping[str, ClassStock]) -> HighWaterMark:
    """Return a mark that is nowhere below the present inventory, nor below the old mark.

    Args:
        stocks: The present inventory by class, as `IdleCluster.class_stock` returns it.
    """
    classes = dict(mark.classes)
    for name, stock in stocks.items():
        before = classes.get(name, {})
        drivers = {*before, *stock}
        classes[name] = {
            driver: _larger(before.get(driver, DriverStock()), stock.get(driver, DriverStock()))
            for driver in sorted(drivers)
        }
    return mark if classes == mark.classes else HighWaterMark(classes=classes)


def shortfall(mark: HighWaterMark, device_class: str, stock: ClassStock) -> str:
    """Return the amounts that the inventory once had more of; empty if it is at its largest.

    >>> mark = HighWaterMark(classes={"gpu": {"gpu.example.com": DriverStock(nodes=2, devices=16, on_one_node=8)}})
    >>> shortfall(mark, "gpu", {"gpu.example.com": DriverStock(nodes=1, devices=8, on_one_node=8)})
    'class gpu had 2 nodes with devices of gpu.example.com and has 1 now'
    """
    for driver, most in sorted(mark.classes.get(device_class, {}).items()):
        now = stock.get(driver, DriverStock())
        counts = (
            (f"nodes with devices of {driver}", most.nodes, now.nodes),
            (f"devices of {driver}", most.devices, now.devices),
            (f"devices of {driver} on one node", most.on_one_node, now.on_one_node),
        )
        for what, then, count in counts:
            if count < then:
                return f"class {device_class} had {then} {what} and has {count} now"
        for name, amount in sorted(most.capacity.items()):
            there = now.capacity.get(name)
            if there is None or there < amount:
                return f"class {device_class} had a device of {driver} with {name} {amount}"
    return ""


def _larger(left: DriverStock, right: DriverStock) -> DriverStock:
    names = {*left.capacity, *right.capacity}
    amounts = {name: _most(left.capacity.get(name), right.capacity.get(name)) for name in names}
    return DriverStock(
        nodes=max(left.nodes, right.nodes),
        devices=max(left.devices, right.devices),
        on_one_node=max(left.on_one_node, right.on_one_node),
        capacity={name: amounts[name] for name in sorted(names)},
    )


def _most(left: Quantity | None, right: Quantity | None) -> Quantity:
    amounts = [amount for amount in (left, right) if amount is not None]
    return max(amounts, key=lambda amount: amount.nanos)
