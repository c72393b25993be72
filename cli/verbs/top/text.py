"""Devices in use as tables, the largest use first."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from answers.cluster.top import (
    AmountInUse,
    DeviceInUse,
    DriverUse,
    NamespaceUse,
    NodeUse,
    PodUse,
    Top,
    WaitingPods,
)
from answers.cluster.uses import Amounts
from cli.output.layout import NARROWEST, format_table
from findings.text import count_text, inert_line, printable
from kube.quantity import Quantity, format_amount, format_rounded

_ONE: Final = Quantity(1)
_NAMES: Final = 3
_SEVERAL: Final = "several nodes"
_Row = tuple[object, ...]


_USE: Final = ("DEVICES OF", "IN USE", "SHARES", "AMOUNTS IN USE")
_NODES: Final = ("NODE", *_USE)
_NAMESPACES: Final = ("NAMESPACE", "PODS", "WAITING", *_USE)
_PODS: Final = ("NAMESPACE", "POD", "NODE", *_USE)
_DEVICES: Final = ("DEVICE", "NODE", "STATE", "SHARES", "AMOUNTS IN USE", "CLAIMS")


def format_top(top: Top, width: int) -> str:
    """Return the lists of an answer, each as a table."""
    parts = []
    if top.nodes is not None:
        rows = [row for node in top.nodes for row in _node_rows(node)]
        parts.append(_table(_NODES, rows, "No node has devices."))
    if top.namespaces is not None:
        rows = [row for namespace in top.namespaces for row in _namespace_rows(namespace)]
        parts.append(_table(_NAMESPACES, rows, "No namespace uses devices."))
    if top.pods is not None:
        rows = [row for pod in top.pods for row in _pod_rows(pod)]
        parts.append(_table(_PODS, rows, "No running pod uses devices."))
    if top.devices is not None:
        rows = [_device_row(device) for device in top.devices]
        parts.append(_table(_DEVICES, rows, "No devices are published."))
    if top.waiting is not None:
        lines = [line for group in top.waiting for line in _waiting_lines(group, width)]
        title = "Pods that wait for devices" if lines else "No pod waits for devices."
        parts.append("\n".join((title, *lines)))
    return "\n\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[_Row], empty: str) -> str:
    return format_table(head, rows) if rows else empty


def _node_rows(node: NodeUse) -> Iterator[_Row]:
    name = node.name or _SEVERAL
    for driver in node.drivers:
        amounts = _amounts_of_totals({**driver.capacity, **driver.counters})
        yield name, driver.driver, f"{driver.in_use}/{driver.devices}", driver.shares, amounts
    for plugin in node.plugins:
        in_use = f"{format_amount(plugin.used)}/{format_amount(plugin.total)}"
        yield name, plugin.resource, in_use, "-", ""


def _namespace_rows(namespace: NamespaceUse) -> Iterator[_Row]:
    head = (namespace.name, namespace.pods, namespace.waiting)
    for cells in _use_cells(namespace.drivers, namespace.plugins):
        yield (*head, *cells)


def _pod_rows(pod: PodUse) -> Iterator[_Row]:
    for cells in _use_cells(pod.drivers, pod.plugins):
        yield (pod.namespace, pod.name, pod.node, *cells)


def _use_cells(drivers: Iterable[DriverUse], plugins: Amounts) -> list[_Row]:
    """Return the cells of a namespace or a pod: a row for each driver and each key."""
    cells: list[_Row] = [
        (driver.driver, driver.devices, driver.shares, _amounts(driver.capacity, driver.counters))
        for driver in drivers
    ]
    cells += [(key, format_amount(amount), "-", "") for key, amount in plugins.items()]
    return cells or [("-", "-", "-", "")]


def _device_row(device: DeviceInUse) -> _Row:
    name = f"{device.driver}/{device.pool}/{device.name}"
    amounts = _amounts_of_totals(device.capacity)
    claims = ", ".join(device.claims[:_NAMES])
    more = len(device.claims) - _NAMES
    claims += f" and {more} more" if more > 0 else ""
    return name, device.node or _SEVERAL, device.state, device.shares, amounts, claims


def _amounts_of_totals(amounts: Mapping[str, AmountInUse]) -> str:
    """Return amounts with their totals, without slots that a device has one or none of."""
    return ", ".join(
        f"{name} {format_rounded(amount.used, amount.total) if amount.used else 0}/"
        f"{format_rounded(amount.total, amount.total)}"
        for name, amount in amounts.items()
        if amount.largest > _ONE
    )


def _amounts(capacity: Amounts, counters: Amounts) -> str:
    return ", ".join(
        f"{name} {format_amount(amount)}"
        for name, amount in {**capacity, **counters}.items()
        if amount > _ONE
    )


def _waiting_lines(group: WaitingPods, width: int) -> Iterator[str]:
    more = len(group.pods) - _NAMES
    names = ", ".join(group.pods[:_NAMES]) + (f" and {more} more" if more > 0 else "")
    yield inert_line(printable(f"  {count_text(len(group.pods), 'pod')}: {names}"))
    namespace, _, name = group.pods[0].partition("/")
    no_reason = f"a node may have devices: drawbridge why pod {name} -n {namespace}"
    reason = group.reason or no_reason
    for line in textwrap.wrap(printable(reason), max(width, NARROWEST) - 4, break_on_hyphens=False):
        yield f"    {inert_line(line)}"
