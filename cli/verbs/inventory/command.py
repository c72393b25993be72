"""`drawbridge inventory`: the devices of a cluster, free capacity, and their DeviceClasses."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import click
import msgspec

from admission.native_mappings import with_wide_mappings
from allocator.model.feature_gates import Features
from allocator.pods.duplicate_resources import DuplicateResource
from answers.cluster.device_classes import ClassInventory, Suggestion
from answers.cluster.devices import Device, DeviceState, published_devices
from answers.cluster.hints import hints
from answers.cluster.inventory import (
    Amount,
    DriverInventory,
    IdleNode,
    Inventory,
    PluginResource,
    build_inventory,
    with_devices,
    with_idle_nodes,
)
from answers.model.cluster_state import build_state
from answers.model.inputs import ClusterObjects
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from answers.model.translation_snapshot import build_snapshot
from cli.flags.feature_gates import feature_gates
from cli.output.formats import (
    Output,
    Report,
    encode_readable,
    format_document,
    text_or_document,
)
from cli.output.help import CLUSTER_STATE, Command
from cli.output.layout import NARROWEST, format_table
from cli.output.simulate_text import node_names
from cli.output.standard_error import print_line
from cli.reading.cluster_settings import SettingsFlags, with_settings
from cli.reading.options import with_whole_cluster
from cli.verbs.inventory.page import format_inventory_page
from findings.text import count_text, printable
from kube.quantity import Quantity, format_amount, format_rounded
from translation.cluster.serving_drivers import serving_drivers

WIDE: Final = "wide"
HTML: Final = "html"

EXAMPLES: Final = """\
drawbridge inventory --snapshot cluster.json.gz
# the attributes by which a DeviceClass can select devices
drawbridge inventory --live --devices
drawbridge inventory --snapshot cluster.json.gz -o html > devices.html
"""


@click.command("inventory", cls=Command, epilog=CLUSTER_STATE + EXAMPLES)
@with_settings
@with_whole_cluster
@feature_gates
@click.option(
    "--devices",
    is_flag=True,
    help="List every device with its attributes, what is free, and the claims that use it.",
)
@click.option("--idle", is_flag=True, help="List the nodes of whose devices no claim uses any.")
@click.option(
    "--all",
    "all_amounts",
    is_flag=True,
    help="With -o text, also amounts that are 0 or 1 on every device, such as slots of partitions.",
)
@text_or_document(
    **{WIDE: "text with --all, --devices and --idle", HTML: "a page for a browser, in one file"}
)
def inventory(
    cluster_objects: ClusterObjects,
    features: Features,
    *,
    settings_flags: SettingsFlags,
    devices: bool,
    idle: bool,
    all_amounts: bool,
    output: str,
) -> None:
    """List devices, free capacity and DeviceClasses of a cluster.

    Also DeviceClasses that select nothing or cannot be evaluated, classes worth writing, pools that
    cannot be used, and resources that both a device plugin and ResourceSlices offer on a node.
    Read-only.

    Exit status: 0 when printed, 2 when the call is wrong.
    """
    objects, faults = decode_objects(
        cluster_objects.objects, STATE_KINDS, cluster_objects.namespace
    )
    for fault in faults:
        print_line(fault.line())
    state = build_state(objects)
    for hint in hints(state.classes):
        print_line(f"hint: {hint}")
    cluster = state.cluster(features)
    options, in_force = settings_flags.read(
        cluster_objects.objects, is_live=cluster_objects.is_live
    )
    drivers_of = partial(serving_drivers, options=options, profiles=in_force.profiles)
    snapshot, _ = build_snapshot(in_force.profiles, (), cluster_objects.objects)
    wide = with_wide_mappings(
        snapshot, options, state.classes, published_devices(cluster)
    ).wide_mappings.values()
    answer = build_inventory(cluster, state.classes, state.slices, drivers_of, wide)
    if devices or output in (WIDE, HTML):
        answer = with_devices(answer, cluster, state.claims)
    if idle or output in (WIDE, HTML):
        answer = with_idle_nodes(answer, cluster)
    if output in (Output.TEXT, WIDE):
        width = shutil.get_terminal_size().columns
        all_amounts = all_amounts or output == WIDE
        click.echo(format_inventory(answer, width, all_amounts=all_amounts))
    elif output == HTML:
        click.echo(format_inventory_page(answer), nl=False)
    else:
        click.echo(format_document(output, encode_readable(answer), Report.INVENTORY))
    sys.exit(0)


def format_inventory(inventory: Inventory, width: int, *, all_amounts: bool) -> str:
    """Return the inventory as text.

    Args:
        all_amounts: Also amounts that are 0 or 1 on every device.
    """
    parts = [
        _drivers(inventory.drivers),
        *_amounts(inventory.drivers, all_amounts=all_amounts),
        _classes(inventory.classes),
    ]
    wide = max(width, NARROWEST)
    lists = (
        ("Offered by device plugins", _plugin_resources(inventory.plugin_resources)),
        (
            "Pools that cannot be used",
            (f"{pool.driver}, pool {pool.pool}: {pool.why}" for pool in inventory.unusable_pools),
        ),
        ("ResourceSlices that no node can reach", inventory.unreachable),
        (
            "Resources that a device plugin and ResourceSlices offer on the same node",
            _duplicates(inventory.duplicate_resources),
        ),
        (
            "DeviceClasses that give other devices than the resource name means",
            (
                f"{mapping.device_class} maps {mapping.resource}, and {mapping.reason}"
                for mapping in inventory.wide_mappings
            ),
        ),
        ("Devices", _devices(inventory.devices or ())),
        ("Nodes without a consumer", _idle_nodes(inventory.idle_nodes)),
    )
    for title, entries in lists:
        lines = [line for entry in entries for line in _entry(entry, wide)]
        if lines:
            parts.append("\n".join((title, *lines)))
    parts.append("\n".join(_suggestions(inventory.suggestions)))
    return "\n\n".join(part for part in parts if part)


def _suggestions(suggestions: Sequence[Suggestion]) -> Iterator[str]:
    """Yield classes worth writing; a selector that was wrapped could not be copied."""
    if suggestions:
        yield "DeviceClasses worth writing, and their selectors"
    for suggestion in suggestions:
        yield f"  {suggestion.name}, {count_text(suggestion.devices, 'device')}"
        yield f"    {printable(suggestion.expression)}"


def _plugin_resources(resources: Sequence[PluginResource]) -> Iterator[str]:
    for offered in resources:
        amount, nodes = format_amount(offered.allocatable), count_text(offered.nodes, "node")
        parts = (
            f", {offered.nodes_in_parts} of them in parts of devices"
            if offered.nodes_in_parts
            else ""
        )
        yield f"{offered.resource}: {amount} on {nodes}{parts}"
    if resources:
        yield "drawbridge assess: what becomes of the pods that use them"


def _duplicates(duplicates: Iterable[DuplicateResource]) -> Iterator[str]:
    """Yield an entry for nodes that offer a resource twice in the same way."""
    alike: dict[tuple[str, str, tuple[str, ...], str], list[DuplicateResource]] = {}
    for duplicate in duplicates:
        amounts = (
            f"{format_amount(duplicate.allocatable)} by the device plugin, {duplicate.devices}"
        )
        key = (duplicate.resource, amounts, duplicate.drivers, duplicate.device_class)
        alike.setdefault(key, []).append(duplicate)
    for (resource, amounts, drivers, device_class), nodes in sorted(alike.items()):
        class_text = f" (DeviceClass {device_class})" if device_class else ""
        yield (
            f"{resource} on {node_names([duplicate.node for duplicate in nodes])}: {amounts} devices"
            f" by {' and '.join(drivers)}{class_text}. A device that both offer can be given to two"
            " pods: run only one of them on a node"
        )


def _devices(devices: Iterable[Device]) -> Iterator[str]:
    for device in devices:
        place = f"node {device.node}" if device.node else "several nodes"
        values = [
            *(f"{name} {_value(value)}" for name, value in device.attributes.items()),
            *(f"{name} {format_amount(amount)}" for name, amount in device.capacity.items()),
        ]
        values_text = f": {', '.join(values)}" if values else ""
        yield f"{device.driver}/{device.pool}/{device.name}, {place}, {device.state}{values_text}"
        if device.state is DeviceState.SHARED and device.free:
            amounts = (f"{name} {format_amount(amount)}" for name, amount in device.free.items())
            yield f"  free: {', '.join(amounts)}"
        for consumer in device.consumers:
            pods = f" of pod {', '.join(consumer.pods)}" if consumer.pods else ""
            yield f"  used by claim {consumer.claim}{pods}"


def _idle_nodes(nodes: Sequence[IdleNode] | None) -> Iterator[str]:
    for node in nodes or ():
        yield f"{node.name}, {count_text(node.devices, 'device')}"
    if nodes is not None and not nodes:
        yield "none"


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _entry(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def _drivers(drivers: Sequence[DriverInventory]) -> str:
    if not drivers:
        return "No devices are published."
    head = ("DRIVER", "NODES", "DEVICES", "FREE", "ALLOCATED", "SHARED", "TAINTED")
    return format_table(
        head,
        (
            (
                *(driver.driver, driver.nodes, driver.devices),
                *(driver.free, driver.allocated, driver.shared, driver.tainted),
            )
            for driver in drivers
        ),
    )


def _amounts(drivers: Iterable[DriverInventory], *, all_amounts: bool) -> Iterator[str]:
    amounts = [
        (driver.driver, name, amount)
        for driver in drivers
        for name, amount in _named_amounts(driver).items()
    ]
    shown_amounts = [amount for amount in amounts if all_amounts or amount[2].largest > Quantity(1)]
    if shown_amounts:
        rows = [
            (
                *(driver, name),
                *(format_rounded(value, amount.total) for value in (amount.free, amount.total)),
            )
            for driver, name, amount in shown_amounts
        ]
        yield format_table(("DRIVER", "CAPACITY", "FREE", "TOTAL"), rows)
    hidden_count = len(amounts) - len(shown_amounts)
    if hidden_count:
        yield f"{count_text(hidden_count, 'amount')} of 0 or 1 per device not shown; --all"


def _named_amounts(driver: DriverInventory) -> Mapping[str, Amount]:
    counters = {f"{name} (shared counter)": amount for name, amount in driver.counters.items()}
    return {**driver.capacity, **counters}


def _classes(classes: Sequence[ClassInventory]) -> str:
    if not classes:
        return "There are no DeviceClasses."
    return format_table(
        ("DEVICECLASS", "DEVICES", "FREE", "DRIVERS"),
        (
            (class_.name, "?", "?", class_.error)
            if class_.error
            else (class_.name, class_.devices, class_.free, ", ".join(class_.drivers) or "none")
            for class_ in classes
        ),
    )
