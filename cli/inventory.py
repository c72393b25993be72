"""`drawbridge inventory`: what devices a cluster has, what is free, and which classes are about them."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

from allocator.core.model import Features
from cli.gates import feature_gates
from cli.hints import hints
from cli.inputs import Found, with_cluster
from cli.objects import placed
from cli.output import Output, indented, text_or_json
from cli.reading import STATE_KINDS
from cli.report import printable
from cli.state import state_of
from cli.stock import Amount, ClassStock, DriverStock, Stock, stock_of
from cli.text import NARROWEST
from kube.api.meta import encode
from kube.quantity import readable


@click.command("inventory")
@with_cluster
@feature_gates
@text_or_json()
def inventory(found: Found, features: Features, output: str) -> None:
    """Say what devices a cluster has and what is free.

    Also which DeviceClasses select nothing or cannot be judged, which devices no class is about,
    and which pools give nothing at all. Changes nothing anywhere.

    Exits 0 when printed, 2 when the call is wrong.

    \b
    drawbridge inventory --snapshot cluster.yaml
    drawbridge inventory --live -o json
    """  # noqa: D301 - click's mark for lines that are not wrapped is a real \b.
    objects, faults = placed(found.objects, STATE_KINDS, found.namespace)
    for fault in faults:
        click.echo(fault.line(), err=True)
    state = state_of(objects)
    for hint in hints(state.classes):
        click.echo(f"hint: {hint}", err=True)
    stock = stock_of(state.cluster(features), state.classes, state.slices)
    if output == Output.JSON:
        click.echo(indented(encode(stock)))
    else:
        click.echo(rendered(stock, shutil.get_terminal_size().columns))
    sys.exit(0)


def rendered(stock: Stock, width: int) -> str:
    """Return the inventory for people."""
    parts = [_drivers(stock.drivers), *_amounts(stock.drivers), _classes(stock.classes)]
    wide = max(width, NARROWEST)
    lists = (
        (
            "Pools that give nothing",
            (f"{each.driver}, pool {each.pool}: {each.why}" for each in stock.broken_pools),
        ),
        ("ResourceSlices that no node sees", stock.unreachable),
        (
            "DeviceClasses worth having",
            (f"{each.name}: {each.expression}" for each in stock.suggestions),
        ),
    )
    for title, entries in lists:
        lines = [line for each in entries for line in _entry(each, wide)]
        if lines:
            parts.append("\n".join((title, *lines)))
    return "\n\n".join(part for part in parts if part)


def _entry(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def _drivers(drivers: Sequence[DriverStock]) -> str:
    if not drivers:
        return "No devices are published."
    head = ("DRIVER", "NODES", "DEVICES", "FREE", "TAKEN", "SHARED", "TAINTED")
    return _table(
        head,
        (
            (each.driver, each.nodes, each.devices, each.free, each.used, each.shared, each.tainted)
            for each in drivers
        ),
    )


def _amounts(drivers: Iterable[DriverStock]) -> Iterator[str]:
    rows = [
        (each.driver, name, readable(amount.free), readable(amount.total))
        for each in drivers
        for name, amount in _both(each).items()
    ]
    if rows:
        yield _table(("DRIVER", "AMOUNT", "FREE", "TOTAL"), rows)


def _both(stock: DriverStock) -> Mapping[str, Amount]:
    counters = {f"{name} (shared counter)": amount for name, amount in stock.counters.items()}
    return {**stock.capacity, **counters}


def _classes(classes: Sequence[ClassStock]) -> str:
    if not classes:
        return "There are no DeviceClasses."
    return _table(
        ("DEVICECLASS", "DEVICES", "FREE", "OF"),
        (
            (each.name, "?", "?", each.error)
            if each.error
            else (each.name, each.devices, each.free, ", ".join(each.drivers) or "matches nothing")
            for each in classes
        ),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return columns as wide as their longest cell, the last one ragged."""
    cells = [head, *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
