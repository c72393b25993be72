"""The page of `drawbridge replay`: allocations by strategies, over time, and a map of the devices."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from allocator.replay.agreement import RECORDED, Agreement
from allocator.replay.demand import Demand
from allocator.replay.results import StrategyResult
from allocator.replay.timeline import MAPS, DeviceMap, Sample
from allocator.replay.workload import Order
from cli.html.curves import Series, curves
from cli.html.elements import Child, Markup, element
from cli.html.page import build_page, lines, row, section, table, tiles
from cli.verbs.replay.answer import first_capacity
from cli.verbs.replay.text import (
    NOT_MODELLED,
    describe_columns,
    format_agreement,
    format_demand,
    format_means,
    format_more,
    format_percent,
    format_waits,
    tabulate_shapes,
)
from findings.text import count_text

MAX_CELLS: Final = 16_000
"""Cells of all maps of a page together."""
_CELL: Final = 7
_PER_LINE: Final = 64
_FULL: Final = 3
"""The class of a cell whose devices are wholly in use; 0 is that of idle ones."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """A replay with its course."""

    result: StrategyResult
    samples: Sequence[Sample]
    maps: Sequence[DeviceMap]


def cells_of_a_map(strategies: int) -> int:
    """Return the most cells of a map, so that those of all strategies fit on a page."""
    return max(_PER_LINE, MAX_CELLS // (MAPS * max(1, strategies)))


def format_replay_page(
    results: Sequence[StrategyResult],
    courses: Sequence[Course],
    order: Order,
    pods: int,
    version: str = "",
    *,
    heading: str = "",
    agreement: Agreement | None = None,
    demand: Demand | None = None,
) -> str:
    """Return the page.

    Args:
        results: All results.
        courses: The courses that are drawn, one of each strategy.
        order: The order in which pods arrived.
        pods: Number of pods.
        version: The program's version, for the line below the title; may be empty.
        heading: The question in words; may be empty.
        agreement: The recorded placements, for pods of a recording; None for others.
        demand: The devices that the pods request; None where they leave.
    """
    capacity = next(filter(None, map(first_capacity, results)), None)
    if agreement is not None:
        results = (agreement.outcome, *results)
    name = f"{capacity.name} of {capacity.driver}" if capacity is not None else "devices in use"
    parts: list[Child] = [
        tiles(_tiles(results, pods)),
        section(
            "Strategies",
            _results(results),
            note=_notes(results, name, demand),
        ),
        section("Pods that failed, and idle devices", _reasons(results)),
    ]
    names, shape_rows = tabulate_shapes(results)
    if shape_rows:
        shapes = table(
            "Shapes", (*names, "of", "devices of each"), [row(*cells) for cells in shape_rows]
        )
        parts.append(section("Pods that failed, by what they request", shapes))
    if any(result.held_back for result in results):
        parts.append(section("Pods that a quota held back", _held_back(results)))
    if agreement is not None:
        parts.insert(2, section("Recorded", lines(format_agreement(agreement))))
    if courses:
        note = f"With seed {courses[0].result.seed}."
        parts.append(section(f"Allocated share of {name}", _shares(courses, order), note=note))
        parts.append(section("Pods without a node", _waiting(courses, order), note=note))
        parts += [_maps(course, order) for course in courses]
    parts.append(
        section(
            "Not modelled",
            element("p", " ".join(NOT_MODELLED.removeprefix("Not modelled: ").split())),
        )
    )
    subtitle = f"{count_text(pods, 'pod')} in the order {order.value}"
    if heading:
        subtitle = f"{heading}: {subtitle}"
    return build_page(
        "Replay of pods", f"{subtitle}, by Drawbridge {version}" if version else subtitle, *parts
    )


def _tiles(results: Sequence[StrategyResult], pods: int) -> Iterator[tuple[str, Child]]:
    yield "pods", pods
    if results:
        yield "devices", results[0].devices.total
    yield "replays", sum(result.name != RECORDED for result in results)


def _gain(result: StrategyResult) -> str:
    gain = result.gain
    return (
        "-"
        if not gain
        else f"{gain.pods:+} pods, {format_more(gain.devices_in_use)} devices in use"
    )


def _results(results: Sequence[StrategyResult]) -> Markup:
    has_gain = any(result.gain for result in results)
    passes = any(result.over_time for result in results)
    rows = []
    for result in results:
        capacity = first_capacity(result)
        rows.append(
            row(
                result.name,
                "-" if result.name == RECORDED else result.seed,
                result.pods.placed,
                result.pods.failed,
                *(format_means(result) if passes else ()),
                "-" if capacity is None else format_percent(capacity.percent),
                result.devices.in_use,
                result.devices.whole_idle,
                result.second_attempts,
                ", ".join(format_waits(result.waiting_seconds)),
                *([_gain(result)] if has_gain else ()),
            )
        )
    head = (
        *("strategy", "seed", "placed", "failed"),
        *(("mean over time", "peak", "at the end") if passes else ("allocated",)),
        *("devices in use", "wholly idle"),
        *("second attempts", "waiting time, p50 and p99"),
        *(["added nodes bring"] if has_gain else ()),
    )
    return table("Strategies", head, rows)


def _notes(results: Sequence[StrategyResult], capacity: str, demand: Demand | None) -> str:
    """Return the line above the table: the demand, and the meaning of columns."""
    notes = [] if demand is None else [f"{format_demand(demand)}."]
    if any(result.over_time for result in results):
        columns = describe_columns(results, f"the share of {capacity}").replace("\n", " ")
        notes.append(f"{columns}. Waiting times are of all pods; never: such a pod got no node.")
    return " ".join(notes)


def _reasons(results: Iterable[StrategyResult]) -> Markup:
    rows = (
        row(
            result.name,
            result.seed,
            lines(_failed(result)),
            lines(f"{reason} {count}" for reason, count in result.idle_because.items()),
        )
        for result in results
    )
    return table("Reasons", ("strategy", "seed", "pods failed by", "devices idle because"), rows)


def _failed(result: StrategyResult) -> Iterator[str]:
    yield from (f"{reason} {count}" for reason, count in result.failed_by.items())
    yield from (f"{reason}: {text}" for reason, text in (result.errors or {}).items())


def _held_back(results: Iterable[StrategyResult]) -> Markup:
    rows = (
        row(
            result.name,
            result.seed,
            entry.quota,
            entry.namespace,
            entry.pods,
            entry.placed,
            f"{entry.waiting_seconds.p50:g} s, {entry.waiting_seconds.p99:g} s",
        )
        for result in results
        for entry in result.held_back or ()
    )
    head = ("strategy", "seed", "quota", "namespace", "pods", "placed later")
    return table("Held back", (*head, "waiting time of these, p50 and p99"), rows)


def _place(sample: Sample, order: Order) -> float:
    return sample.second if order is Order.ARRIVAL else float(sample.arrived)


def _across(order: Order) -> str:
    return "second" if order is Order.ARRIVAL else "pods that arrived"


def _shares(courses: Iterable[Course], order: Order) -> Markup:
    series = [
        Series(
            name=course.result.name,
            points=[(_place(sample, order), sample.percent) for sample in course.samples],
        )
        for course in courses
    ]
    return curves("Allocated share", series, unit=" %", across=_across(order))


def _waiting(courses: Iterable[Course], order: Order) -> Markup:
    series = [
        Series(
            name=course.result.name,
            points=[
                (_place(sample, order), float(sample.arrived - sample.placed))
                for sample in course.samples
            ],
        )
        for course in courses
    ]
    return curves("Pods without a node", series, unit="", across=_across(order))


def _maps(course: Course, order: Order) -> Markup:
    per_cell = max((map_.per_cell for map_ in course.maps), default=1)
    note = "A box is a device, node by node" if per_cell == 1 else f"A box is {per_cell} devices"
    return section(
        f"Devices with {course.result.name}",
        element("div", [_map(map_, order) for map_ in course.maps], class_="moments"),
        note=f"{note}: empty where idle, filled the more of it is in use.",
    )


def _map(map_: DeviceMap, order: Order) -> Markup:
    levels = [_level(load) for load in map_.loads]
    height = -(-len(levels) // _PER_LINE) * _CELL
    counts = f"{levels.count(0)} idle, {levels.count(_FULL)} full, of {len(levels)}"
    moment = f", second {map_.second:g}" if order is Order.ARRIVAL else ""
    caption = f"after {count_text(map_.arrived, 'pod')}{moment}: {counts}"
    cells = (
        element(
            "rect",
            x=number % _PER_LINE * _CELL,
            y=number // _PER_LINE * _CELL,
            width=_CELL - 1,
            height=_CELL - 1,
            class_=f"cell load{level}" if level else "cell",
        )
        for number, level in enumerate(levels)
    )
    return element(
        "figure",
        element(
            "svg",
            cells,
            viewBox=f"0 0 {_PER_LINE * _CELL} {height or 1}",
            width=_PER_LINE * _CELL,
            height=height or 1,
            aria_hidden="true",
        ),
        element("figcaption", caption),
    )


def _level(load: float) -> int:
    """Return the class of a cell.

    >>> [_level(load) for load in (0, 0.1, 0.5, 0.99, 1)]
    [0, 1, 2, 2, 3]
    """
    if load <= 0:
        return 0
    return _FULL if load >= 1 else 1 + (load >= 1 / 2)
