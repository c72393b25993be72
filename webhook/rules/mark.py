"""The high-water mark: the largest inventory that was ever seen, by class of devices and driver.

Whoever follows a cluster keeps it in one object and raises it as slices come; while there is less
than it says, what is published is no proof that something can never fit: a node restarts, a driver is
upgraded, a pool is at zero. Only what decides whether claims fit is kept.
"""

from collections.abc import Mapping

import msgspec

from kube.quantity import Quantity


class Seen(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices of one driver that one class selects, at their most.

    Attributes:
        nodes: That reach some of them.
        devices: That nodes reach; those that several nodes share count once for each.
        on_one_node: The most that one node reaches.
        capacity: Name to the largest amount that one device has.
    """

    nodes: int = 0
    devices: int = 0
    on_one_node: int = 0
    capacity: Mapping[str, Quantity] = {}


Stock = Mapping[str, Seen]
"""Driver to what there is of one class."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The largest inventory ever seen; empty for one that was never kept.

    Attributes:
        classes: Name of a DeviceClass to driver to its devices.
    """

    classes: Mapping[str, Stock] = {}


def raised(mark: Mark, stocks: Mapping[str, Stock]) -> Mark:
    """Return a mark that is nowhere below what is there now, and nowhere below what it was.

    Args:
        stocks: By class, as `Room.stock` tells them.
    """
    classes = dict(mark.classes)
    for name, stock in stocks.items():
        before = classes.get(name, {})
        drivers = {*before, *stock}
        classes[name] = {
            driver: _larger(before.get(driver, Seen()), stock.get(driver, Seen()))
            for driver in sorted(drivers)
        }
    return mark if classes == mark.classes else Mark(classes=classes)


def shortfall(mark: Mark, device_class: str, stock: Stock) -> str:
    """Return what there was more of once, in words; empty where the inventory is at its largest.

    >>> mark = Mark(classes={"gpu": {"gpu.example.com": Seen(nodes=2, devices=16, on_one_node=8)}})
    >>> shortfall(mark, "gpu", {"gpu.example.com": Seen(nodes=1, devices=8, on_one_node=8)})
    'class gpu had 2 nodes with devices of gpu.example.com and has 1 now'
    """
    for driver, most in sorted(mark.classes.get(device_class, {}).items()):
        now = stock.get(driver, Seen())
        counts = (
            (f"nodes with devices of {driver}", most.nodes, now.nodes),
            (f"devices of {driver}", most.devices, now.devices),
            (f"devices of {driver} on one node", most.on_one_node, now.on_one_node),
        )
        for what, then, left in counts:
            if left < then:
                return f"class {device_class} had {then} {what} and has {left} now"
        for name, amount in sorted(most.capacity.items()):
            there = now.capacity.get(name)
            if there is None or there < amount:
                return f"class {device_class} had a device of {driver} with {name} {amount}"
    return ""


def _larger(one: Seen, other: Seen) -> Seen:
    names = {*one.capacity, *other.capacity}
    amounts = {name: _most(one.capacity.get(name), other.capacity.get(name)) for name in names}
    return Seen(
        nodes=max(one.nodes, other.nodes),
        devices=max(one.devices, other.devices),
        on_one_node=max(one.on_one_node, other.on_one_node),
        capacity={name: amounts[name] for name in sorted(names)},
    )


def _most(one: Quantity | None, other: Quantity | None) -> Quantity:
    found = [each for each in (one, other) if each is not None]
    return max(found, key=lambda each: each.nanos)
