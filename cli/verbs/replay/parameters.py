"""The values of `drawbridge replay`'s options."""

import re
from typing import Any, Final

import click

from allocator.replay.added_nodes import MAX_ADDED
from allocator.replay.replay import STRATEGIES
from rules.model.naming import closest_name

MAX_DEMAND: Final = 1000
"""Percent of all devices."""
_MAX_SHARE: Final = 10
"""A number up to this, without a sign, may be meant as a share."""
_NUMBER: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")
_WHOLE: Final = re.compile("[+-]?[0-9]{1,20}")


class Percentage(click.ParamType[float]):
    """A percentage above 0, with or without its sign, as a share."""

    name = "percentage"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share; click reports texts that are no percentage, above MAX_DEMAND, or may be a share."""
        text = str(value).strip().removesuffix("%").strip()
        if not _NUMBER.fullmatch(text) or not 0 < float(text) <= MAX_DEMAND:
            self.fail(f"{value!r} is not a percentage above 0 and up to {MAX_DEMAND}", param, ctx)
        if "%" not in str(value) and float(text) <= _MAX_SHARE:
            times = float(text)
            self.fail(
                f"{value!r} may be a share or percent: write {100 * times:g}% or {times:g}%",
                param,
                ctx,
            )
        return float(text) / 100


class AddedNodes(click.ParamType[tuple[int, str]]):
    """A number of nodes, and the node that they are like."""

    name = "nodes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, str]:
        """Return both; click reports texts that are not `N=NODE`."""
        count, separator, name = str(value).partition("=")
        if not separator or not name or not _WHOLE.fullmatch(count):
            self.fail(f"write N=NODE, such as 10=node-a, not {value!r}", param, ctx)
        if not 1 <= int(count) <= MAX_ADDED:
            self.fail(f"{count} is not a number from 1 to {MAX_ADDED}", param, ctx)
        return int(count), name


class StrategyNames(click.ParamType[tuple[str, ...]]):
    """Names of strategies, with commas between them."""

    name = "strategies"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names; click reports one that is not known."""
        names = tuple(filter(None, map(str.strip, str(value).split(","))))
        for name in names:
            if name not in STRATEGIES:
                self.fail(f"unknown strategy {name!r}; {_suggest(name)}", param, ctx)
        if not names:
            self.fail(f"names no strategy; known are: {', '.join(STRATEGIES)}", param, ctx)
        return names


def _suggest(name: str) -> str:
    closest = closest_name(name, STRATEGIES)
    names = ", ".join(STRATEGIES)
    return f"did you mean {closest}? All are: {names}" if closest else f"known are: {names}"
