"""Results as JSON lines, and as a table for people."""

from collections.abc import Iterable
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement.

    Attributes:
        name: What was measured, with its unit.
        ours: Our figure.
        anchor: The figure to compare with, taken in the same run; None where the goal is absolute.
        ratio: ours / anchor.
        goal: In words.
        met: Whether the goal was met in this run.
    """

    name: str
    ours: float
    anchor: float | None
    ratio: float | None
    goal: str
    met: bool


def against(name: str, ours: float, anchor: float, *, at_least: float) -> Result:
    """Return the result of a comparison whose ratio must reach a share of the anchor."""
    ratio = ours / anchor
    return Result(
        name=name,
        ours=round(ours, 3),
        anchor=round(anchor, 3),
        ratio=round(ratio, 3),
        goal=f"at least {at_least:g} of the anchor",
        met=ratio >= at_least,
    )


def below(name: str, ours: float, bound: float) -> Result:
    """Return the result of a measurement that must stay below a bound, in the name's unit."""
    return Result(
        name=name,
        ours=round(ours, 3),
        anchor=None,
        ratio=None,
        goal=f"below {bound:g}",
        met=ours < bound,
    )


def informative(name: str, ours: float, anchor: float) -> Result:
    """Return a comparison without a goal."""
    return Result(
        name=name,
        ours=round(ours, 3),
        anchor=round(anchor, 3),
        ratio=round(ours / anchor, 3),
        goal="none: to know",
        met=True,
    )


def write_lines(results: Iterable[Result], out: TextIO) -> None:
    """Write one JSON object per line."""
    out.writelines(msgspec.json.encode(result).decode() + "\n" for result in results)


def show(results: Iterable[Result]) -> None:
    """Print the results as a table."""
    table = Table(box=None, pad_edge=False)
    for column in ("measurement", "ours", "anchor", "ratio", "goal", ""):
        table.add_column(
            column, justify="right" if column in {"ours", "anchor", "ratio"} else "left"
        )
    for result in results:
        table.add_row(
            result.name,
            f"{result.ours:,.3f}",
            "" if result.anchor is None else f"{result.anchor:,.3f}",
            "" if result.ratio is None else f"{result.ratio:.2f}",
            result.goal,
            "met" if result.met else "NOT MET",
        )
    Console(width=120).print(table)
