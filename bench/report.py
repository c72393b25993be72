"""Results as JSON lines, and as a table for people."""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TextIO

import msgspec
from msgspec import structs
from rich.console import Console
from rich.table import Table

NO_GOAL: Final = "none: to know"
GOALS_MISSED: Final = 3
"""The exit status of suites whose missed goals are a failure."""


class Better(StrEnum):
    """The better side of a figure."""

    LESS = "less"
    MORE = "more"
    NEITHER = "neither"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement.

    Attributes:
        name: The name of the measure, with its unit.
        ours: Our figure.
        anchor: The figure to compare with, taken in the same run; None where the goal is absolute.
        ratio: ours / anchor.
        goal: The goal in words.
        met: Whether the goal was met in this run.
        better: The side on which our figure, or its ratio, is better.
    """

    name: str
    ours: float
    anchor: float | None
    ratio: float | None
    goal: str
    met: bool
    better: Better = Better.NEITHER


def against(name: str, ours: float, anchor: float, *, at_least: float) -> Result:
    """Return the result of a comparison with a ratio that must reach a share of the anchor."""
    ratio = _ratio(ours, anchor)
    return Result(
        name=name,
        ours=round(ours, 3),
        anchor=round(anchor, 3),
        ratio=_round_ratio(ratio),
        goal=f"at least {at_least:g} of the anchor",
        met=ratio >= at_least,
        better=Better.MORE,
    )


def times(name: str, ours: float, anchor: float, *, at_least: float) -> Result:
    """Return the result of two rates; ours must be so many times the anchor's."""
    result = against(name, ours, anchor, at_least=at_least)
    return structs.replace(result, goal=f"at least {at_least:g} times the anchor")


def within(name: str, ours: float, anchor: float, *, at_most: float) -> Result:
    """Return the result of two costs; ours may be so many times the anchor's."""
    result = against(name, ours, anchor, at_least=0)
    goal = f"at most {at_most:g} times the anchor"
    is_met = _ratio(ours, anchor) <= at_most
    return structs.replace(result, goal=goal, met=is_met, better=Better.LESS)


def below(name: str, ours: float, bound: float | None, *, anchor: float | None = None) -> Result:
    """Return the result of a cost that must stay below a bound, in the name's unit.

    Args:
        bound: None where there is no goal.
        anchor: The value to compare with; None if there is none, or it came to no end.
    """
    return Result(
        name=name,
        ours=round(ours, 3),
        anchor=None if anchor is None else round(anchor, 3),
        ratio=_round_ratio(ours / anchor) if anchor else None,
        goal=NO_GOAL if bound is None else f"below {bound:g}",
        met=bound is None or ours < bound,
        better=Better.LESS,
    )


def exactly(name: str, ours: float, expected: float) -> Result:
    """Return the result of a count that has to be as expected."""
    return Result(
        name=name,
        ours=ours,
        anchor=None,
        ratio=None,
        goal=f"exactly {expected:g}",
        met=ours == expected,
    )


def points(name: str, ours: float, anchor: float, *, at_least: float) -> Result:
    """Return the result of two shares in percent; ours must be so many points above the anchor.

    Args:
        at_least: Points; below 0 where ours may be less than the anchor.
    """
    sign, size = ("-", -at_least) if at_least < 0 else ("+", at_least)
    return Result(
        name=name,
        ours=round(ours, 2),
        anchor=round(anchor, 2),
        ratio=_round_ratio(ours / anchor),
        goal=f"at least the anchor {sign} {size:g} points",
        met=ours >= anchor + at_least,
        better=Better.MORE,
    )


def informative(name: str, ours: float, anchor: float) -> Result:
    """Return a comparison without a goal."""
    return Result(
        name=name,
        ours=round(ours, 3),
        anchor=round(anchor, 3),
        ratio=_round_ratio(ours / anchor),
        goal=NO_GOAL,
        met=True,
    )


def _ratio(ours: float, anchor: float) -> float:
    """Return the ratio, infinite beside a time that no clock can tell from nothing."""
    return ours / anchor if anchor else math.inf


def _round_ratio(ratio: float) -> float:
    """Return a ratio with three decimals, or with three digits if it is small."""
    return float(f"{ratio:.3g}") if ratio < 1 else round(ratio, 3)


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
            ""
            if result.ratio is None
            else f"{result.ratio:,.3g}"
            if result.ratio < 1
            else f"{result.ratio:,.2f}",
            result.goal,
            "met" if result.met else "NOT MET",
        )
    Console(width=120).print(table)
