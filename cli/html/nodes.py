"""Nodes with their devices: a drawing of the shares in the colours of their owners, and a list of the same."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from answers.cluster.devices import Device, DeviceConsumer, DeviceState
from cli.html.elements import Child, Markup, element, join
from findings.text import count_text
from kube.quantity import Quantity, format_amount

OWNER_COLOURS: Final = 8
"""Classes `o0` to `o7` of the style."""
SEVERAL_NODES: Final = "several nodes"
"""The place of devices that more than one node can reach."""
_WIDTH: Final = 24
_HEIGHT: Final = 16
_GAP: Final = 4
_PER_LINE: Final = 12
_PER_LIST: Final = 96
"""Cards of one list: a browser lays out only the lists that it shows."""
_NAMES: Final = 3
_FACTS: Final = (
    "type", "profile", "productName", "product", "modelName", "model", "mode", "sharing", "linkType",
)  # fmt: skip
"""Attributes by which people tell devices and their modes apart; the others stand in the list of devices."""

OwnerOf = Callable[[DeviceConsumer], str]
"""Returns who uses a device: a workload, or else a claim."""
ColourOf = Callable[[str], str]
"""Returns the class of an owner's colour."""


class NodeCard(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is drawn, or several that are drawn alike.

    Attributes:
        subtitle: The source from which its devices are known; may be empty.
        value: Its value for the page's filter.
        others: The further nodes that look the same.
    """

    name: str
    devices: tuple[Device, ...]
    subtitle: str = ""
    value: str | None = None
    others: tuple[str, ...] = ()


def anchors(names: Iterable[str]) -> dict[str, str]:
    """Return node name to an id within a page; no name can spoil the ids."""
    return {name: f"node-{number}" for number, name in enumerate(names)}


def by_node(devices: Iterable[Device]) -> dict[str, tuple[Device, ...]]:
    """Return node name to its devices; those that several nodes can reach come last."""
    nodes: dict[str, list[Device]] = {}
    shared: list[Device] = []
    for device in devices:
        target = shared if device.node is None else nodes.setdefault(device.node, [])
        target.append(device)
    ordered = {name: tuple(nodes[name]) for name in sorted(nodes)}
    return {**ordered, SEVERAL_NODES: tuple(shared)} if shared else ordered


def likeness(devices: Iterable[Device]) -> tuple[tuple[str, str, str, str], ...]:
    """Return the facts about devices on the card of a node without consumers."""
    return tuple(
        (device.driver, device.name, device.state.value, describe_device(device))
        for device in devices
    )


def cards(nodes: Iterable[NodeCard], ids: Mapping[str, str], owner_of: OwnerOf) -> Markup:
    """Return nodes as lists of cards.

    Args:
        nodes: The nodes in their order on the page.
        ids: Node name to its id within the page.
        owner_of: Names the user of a device.
    """
    colours: dict[str, str] = {}

    def colour_of(owner: str) -> str:
        return colours.setdefault(owner, f"o{len(colours) % OWNER_COLOURS}")

    drawn = [_card(node, ids, owner_of, colour_of) for node in nodes]
    return join(
        element("ul", drawn[start : start + _PER_LIST], class_="cards", role="list")
        for start in range(0, len(drawn), _PER_LIST)
    )


def _card(node: NodeCard, ids: Mapping[str, str], owner_of: OwnerOf, colour_of: ColourOf) -> Markup:
    return element(
        "li",
        element("h3", f"{node.name} and {len(node.others)} more" if node.others else node.name),
        element("p", node.subtitle) if node.subtitle else None,
        _others(node.others) if node.others else None,
        _drawing(node.devices, owner_of, colour_of),
        element(
            "ul",
            (element("li", text) for text in _descriptions(node.devices, owner_of, colour_of)),
        ),
        class_="card entry",
        id=ids.get(node.name),
        data_value=node.value,
    )


def _others(names: Sequence[str]) -> Markup:
    """Return the names of nodes that look the same, folded; the search finds them all the same."""
    head = element("summary", f"{count_text(len(names), 'more node')} like it")
    return element("details", head, element("p", ", ".join(names)))


# --- the drawing ----------------------------------------------------------------------------------


def _drawing(devices: Sequence[Device], owner_of: OwnerOf, colour_of: ColourOf) -> Markup | None:
    """Return devices as boxes, filled as far as they are in use; the list below says the same."""
    if not devices:
        return None
    columns = min(len(devices), _PER_LINE)
    width = columns * (_WIDTH + _GAP)
    height = -(-len(devices) // _PER_LINE) * (_HEIGHT + _GAP)
    return element(
        "svg",
        (
            shape
            for number, device in enumerate(devices)
            for shape in _box(number, device, owner_of, colour_of)
        ),
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        aria_hidden="true",
    )


def _box(number: int, device: Device, owner_of: OwnerOf, colour_of: ColourOf) -> Iterator[Markup]:
    x = 1 + number % _PER_LINE * (_WIDTH + _GAP)
    y = 1 + number // _PER_LINE * (_HEIGHT + _GAP)
    state = " tainted" if device.state is DeviceState.TAINTED else ""
    yield element(
        "rect",
        class_=f"device{state}",
        x=x,
        y=y,
        width=_WIDTH,
        height=_HEIGHT,
        rx=2,
    )
    left = float(_WIDTH)
    for consumer in device.consumers:
        part = min(_WIDTH * used_fraction(device, consumer), left)
        yield element(
            "rect",
            class_=colour_of(owner_of(consumer)),
            x=f"{x + _WIDTH - left:.1f}",
            y=y,
            width=f"{part:.1f}",
            height=_HEIGHT,
        )
        left -= part


def used_fraction(device: Device, consumer: DeviceConsumer) -> float:
    """Return the fraction of a device that a claim uses, by its most used capacity.

    A share that records no amounts counts as an equal part.
    """
    if device.state is DeviceState.ALLOCATED:
        return 1.0
    parts = [
        min(float(amount) / float(device.capacity[name]), 1.0)
        for name, amount in (consumer.consumed or {}).items()
        if device.capacity.get(name)
    ]
    return max(parts) if parts else 1 / len(device.consumers)


# --- the list -------------------------------------------------------------------------------------


def _descriptions(
    devices: Sequence[Device], owner_of: OwnerOf, colour_of: ColourOf
) -> Iterator[Child]:
    """Yield a line for devices in a row that are alike, and one below it for each user."""
    for (state, facts, users), group in groupby(devices, lambda device: _key(device, owner_of)):
        names = [device.name for device in group]
        name_text = ", ".join(names[:_NAMES])
        if len(names) > _NAMES:
            name_text = f"{names[0]} to {names[-1]}, {count_text(len(names), 'device')}"
        text = f"{name_text}: {state}{f', {facts}' if facts else ''}"
        items = (
            element(
                "li",
                element("span", class_=f"swatch {colour_of(owner)}"),
                f"{owner}{f': {amounts}' if amounts else ''}",
            )
            for owner, amounts in users
        )
        yield (text, element("ul", items) if users else None)


def _key(device: Device, owner_of: OwnerOf) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    users = tuple(
        (owner_of(consumer), _amounts(consumer.consumed or {})) for consumer in device.consumers
    )
    return device.state.value, describe_device(device), users


def describe_device(device: Device) -> str:
    """Return a short text with a device's attributes and capacity."""
    values = {name.rpartition("/")[2]: value for name, value in device.attributes.items()}
    facts = [f"{name} {values[name]}" for name in _FACTS if name in values]
    return ", ".join([*facts, *filter(None, (_amounts(device.capacity),))])


def _amounts(amounts: Mapping[str, Quantity]) -> str:
    """Return amounts, without those that stand for nothing but a slot."""
    return ", ".join(
        f"{name} {format_amount(amount)}"
        for name, amount in amounts.items()
        if amount > Quantity(1)
    )
