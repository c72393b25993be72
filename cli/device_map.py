"""The devices of nodes as rows of signs: what is in use, and what was given just now."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from allocator.core.model import NodeDevices, Pool, PoolState, PublishedDevice, Usage

MAX_ROWS: Final = 16
"""Different kinds of nodes that a map shows."""
_NAMES: Final = 3
_WRAPPED: Final = 64
_TAINTS: Final = frozenset({"NoSchedule", "NoExecute"})


class Sign(StrEnum):
    """What is shown of a device."""

    GIVEN = "+"
    SHARE_GIVEN = "&"
    TAKEN = "#"
    SHARED = "%"
    TAINTED = "x"
    UNUSED = "."


LEGEND: Final[Mapping[Sign, str]] = {
    Sign.GIVEN: "given now",
    Sign.SHARE_GIVEN: "a share given now",
    Sign.TAKEN: "taken",
    Sign.SHARED: "shares taken",
    Sign.TAINTED: "tainted",
    Sign.UNUSED: "not in use",
}


class PoolRow(msgspec.Struct, frozen=True):
    """One pool of a node.

    Attributes:
        signs: One per device, in search order; why there is none where the pool cannot be used.
    """

    driver: str
    pool: str
    signs: str


def pool_rows(node: NodeDevices, before: Usage, after: Usage) -> tuple[PoolRow, ...]:
    """Return the pools of a node; a pool's name is left out where it is the node's own."""
    return tuple(
        PoolRow(
            pool.id.driver,
            "" if pool.id.pool == node.node else pool.id.pool,
            _signs(pool, before, after),
        )
        for pool in node.pools
    )


def device_map(
    nodes: Iterable[NodeDevices], before: Usage, after: Usage, *, limit: int = MAX_ROWS
) -> list[str]:
    """Return lines that show these nodes, those that look alike together, and a legend.

    Args:
        before: What was held before anything was given.
        limit: Different looks that are shown.
    """
    alike: dict[tuple[PoolRow, ...], list[str]] = {}
    for node in nodes:
        alike.setdefault(pool_rows(node, before, after), []).append(node.node)
    shown = list(alike.items())[:limit]
    table = [
        (names if number == 0 else "", _pool_name(row), row.signs)
        for rows, found in shown
        for names in (_names(found),)
        for number, row in enumerate(rows or (PoolRow("no devices", "", ""),))
    ]
    if not table:
        return []
    widths = [max(len(each[column]) for each in table) for column in range(2)]
    lines = [
        line
        for name, pool, signs in table
        for line in _wrapped(f"{name:<{widths[0]}}  {pool:<{widths[1]}}  ", signs)
    ]
    if len(alike) > limit:
        lines.append(f"and {len(alike) - limit} more kinds of nodes")
    return [*lines, *_legend(table)]


def _pool_name(row: PoolRow) -> str:
    return f"{row.driver}, pool {row.pool}" if row.pool else row.driver


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{', '.join(names[:_NAMES])}{more}"


def _wrapped(head: str, signs: str) -> Iterable[str]:
    margin = " " * len(head)
    parts = [signs[at : at + _WRAPPED] for at in range(0, len(signs), _WRAPPED)] or [""]
    for number, part in enumerate(parts):
        yield f"{margin if number else head}{part}".rstrip()


def _legend(table: Iterable[tuple[str, str, str]]) -> list[str]:
    used = {sign for _, _, signs in table for sign in signs}
    told = [f"{sign} {words}" for sign, words in LEGEND.items() if sign in used]
    return [f"({', '.join(told)})"] if told else []


def _signs(pool: Pool, before: Usage, after: Usage) -> str:
    if pool.state is not PoolState.COMPLETE:
        return f"{pool.state}: {pool.why}" if pool.why else str(pool.state)
    return "".join(_sign(each, before, after) for each in pool.devices)


def _sign(published: PublishedDevice, before: Usage, after: Usage) -> Sign:
    was, now = before.of(published.id), after.of(published.id)
    if now is None:
        is_tainted = any(taint.effect in _TAINTS for taint in published.device.taints or ())
        return Sign.TAINTED if is_tainted else Sign.UNUSED
    is_new = was is None or len(now.holders) > len(was.holders)
    if now.exclusive:
        return Sign.GIVEN if is_new else Sign.TAKEN
    return Sign.SHARE_GIVEN if is_new else Sign.SHARED
