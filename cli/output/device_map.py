"""The devices of nodes as rows of symbols: those in use, and those that were just allocated."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

import click
import msgspec

from allocator.model.devices import NodeDevices, Pool, PoolState, PublishedDevice
from allocator.model.usage import Usage
from findings.text import join_names, printable

MAX_ROWS: Final = 16
"""Groups of nodes that a map shows."""
_NAMES: Final = 3
_WRAPPED: Final = 64
_TAINTS: Final = frozenset({"NoSchedule", "NoExecute"})
_NO_OFFERS: Final[Mapping[str, str]] = {}


class Symbol(StrEnum):
    """The state of a device in the map."""

    ALLOCATED_NOW = "+"
    SHARED_NOW = "&"
    ALLOCATED = "#"
    SHARED = "%"
    TAINTED = "x"
    UNUSED = "."


LEGEND: Final[Mapping[Symbol, str]] = {
    Symbol.ALLOCATED_NOW: "allocated now",
    Symbol.SHARED_NOW: "a share allocated now",
    Symbol.ALLOCATED: "allocated",
    Symbol.SHARED: "shares allocated",
    Symbol.TAINTED: "tainted",
    Symbol.UNUSED: "not in use",
}


_STYLES: Final[Mapping[str, Mapping[str, Any]]] = {
    Symbol.ALLOCATED_NOW: {"fg": "green", "bold": True},
    Symbol.SHARED_NOW: {"fg": "green"},
    Symbol.ALLOCATED: {"fg": "yellow"},
    Symbol.SHARED: {"fg": "yellow"},
    Symbol.TAINTED: {"fg": "red"},
    Symbol.UNUSED: {"dim": True},
}


class PoolRow(msgspec.Struct, frozen=True):
    """One pool of a node.

    Attributes:
        symbols: One per device, in search order; for an unusable pool the reason.
    """

    driver: str
    pool: str
    symbols: str


def pool_rows(node: NodeDevices, before: Usage, after: Usage) -> tuple[PoolRow, ...]:
    """Return the pools of a node, without the name of a pool that is called as the node."""
    return tuple(
        PoolRow(
            pool.id.driver,
            "" if pool.id.pool == node.node else pool.id.pool,
            _symbols(pool, before, after),
        )
        for pool in node.pools
    )


def device_map(
    nodes: Iterable[NodeDevices],
    before: Usage,
    after: Usage,
    *,
    limit: int = MAX_ROWS,
    offers: Mapping[str, str] = _NO_OFFERS,
) -> list[str]:
    """Return lines that show these nodes, equal ones together, and a legend, in colours.

    Args:
        before: The usage before the new allocations.
        limit: Groups of equal nodes that are shown.
        offers: Node to what device plugins offer there, which stands where no driver publishes devices.
    """
    groups: dict[tuple[PoolRow, ...], list[str]] = {}
    for node in nodes:
        rows = pool_rows(node, before, after)
        if not rows:
            rows = (PoolRow(offers.get(node.node, "no devices"), "", ""),)
        groups.setdefault(rows, []).append(node.node)
    shown_groups = list(groups.items())[:limit]
    table = [
        (names if number == 0 else "", printable(_pool_name(row)), printable(row.symbols))
        for rows, nodes in shown_groups
        for names in (_names(nodes),)
        for number, row in enumerate(rows)
    ]
    if not table:
        return []
    widths = [max(len(row[column]) for row in table) for column in range(2)]
    lines = [
        line
        for name, pool, symbols in table
        for line in _wrap(f"{name:<{widths[0]}}  {pool:<{widths[1]}}  ", symbols)
    ]
    if len(groups) > limit:
        lines.append(f"and {len(groups) - limit} more groups of nodes")
    return [*lines, *_legend(table)]


def _pool_name(row: PoolRow) -> str:
    return f"{row.driver}, pool {row.pool}" if row.pool else row.driver


def _names(names: Sequence[str]) -> str:
    return printable(join_names(names, _NAMES))


def _wrap(head: str, symbols: str) -> Iterable[str]:
    margin = " " * len(head)
    parts = [symbols[at : at + _WRAPPED] for at in range(0, len(symbols), _WRAPPED)] or [""]
    for number, part in enumerate(parts):
        yield f"{margin if number else head}{_colour_symbols(part)}".rstrip()


def _colour_symbols(symbols: str) -> str:
    """Return symbols in their colours; the reason a pool is unusable has none."""
    if not _STYLES.keys() >= set(symbols):
        return symbols
    return "".join(click.style("".join(run), **_STYLES[symbol]) for symbol, run in groupby(symbols))


def _legend(table: Iterable[tuple[str, str, str]]) -> list[str]:
    used = {symbol for _, _, symbols in table for symbol in symbols}
    entries = [
        f"{_colour_symbols(symbol)} {words}" for symbol, words in LEGEND.items() if symbol in used
    ]
    return [f"({', '.join(entries)})"] if entries else []


def _symbols(pool: Pool, before: Usage, after: Usage) -> str:
    if pool.state is not PoolState.COMPLETE:
        return f"{pool.state}: {pool.why}" if pool.why else str(pool.state)
    return "".join(_symbol(device, before, after) for device in pool.devices)


def _symbol(device: PublishedDevice, before: Usage, after: Usage) -> Symbol:
    was, now = before.of(device.id), after.of(device.id)
    if now is None:
        is_tainted = any(taint.effect in _TAINTS for taint in device.device.taints or ())
        return Symbol.TAINTED if is_tainted else Symbol.UNUSED
    is_new = was is None or len(now.consumers) > len(was.consumers)
    if now.exclusive:
        return Symbol.ALLOCATED_NOW if is_new else Symbol.ALLOCATED
    return Symbol.SHARED_NOW if is_new else Symbol.SHARED
