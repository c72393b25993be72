"""The bounds of `make attack`, and the expressions of its attackers."""

from random import Random
from typing import Any

import pytest

from bench.attack import floods, poison, table
from bench.attack.floods import Control, Flooded
from bench.attack.honest import LARGE, SMALL, Latencies, percentiles
from bench.attack.poison import Bound, Poisoned
from bench.attack.stage import Used
from e2e.attackers import expressions
from kube.cel.compile import Environment, compile_in_place
from kube.cel.cost import LIMIT
from testing.allocation.builders import DRIVER

MAX_LENGTH = 10 * 1024
"""CELSelectorExpressionMaxLength of upstream."""
USED = Used(0.5, 300)
CALM = Latencies(p50_ms=10, p95_ms=20, pods=200, failed=0)


def latencies(**fields: Any) -> dict[str, Latencies]:
    return {size: CALM._replace(**fields) for size in (SMALL, LARGE)}


def flooded(**fields: Any) -> Flooded:
    return Flooded(latencies(), latencies(**fields), latencies(), USED, {200: 50})


@pytest.mark.parametrize(
    ("during", "control", "fault"),
    [
        ({}, {}, ""),
        ({"p95_ms": 449}, {"p95_ms": 100}, ""),
        ({"p95_ms": 451}, {"p95_ms": 100}, "p95 451 ms, at most 450"),
        ({"failed": 2}, {"failed": 2}, ""),
        ({"failed": 3}, {"failed": 2}, "3 failed, 2 in the control"),
    ],
)
def test_honest_pods_are_compared_with_the_control(
    during: dict[str, Any], control: dict[str, Any], fault: str
) -> None:
    row = floods.row("a", SMALL, [flooded(**during)], [Control(latencies(**control), {200: 50})])

    assert row.faults == ((fault,) if fault else ())


def test_the_median_of_the_runs_counts() -> None:
    runs = [flooded(p95_ms=p95_ms) for p95_ms in (30, 9_000, 40)]

    row = floods.row("a", LARGE, runs, [Control(latencies(), {200: 50})] * 3)

    assert (row.during_p95, row.faults) == (40, ())


def test_a_flood_that_nobody_answers_shows_nothing() -> None:
    silent = flooded()._replace(statuses={})

    row = floods.row("a", SMALL, [silent], [Control(latencies(), {})])

    assert row.faults == ("the attacker got no answer",)


@pytest.mark.parametrize(
    ("during", "after", "faults"),
    [
        (Bound(0.2, 1.2, 200, 0), Bound(0.2, 0.7, 200, 0), ()),
        (Bound(0.2, 1.3, 200, 0), Bound(0.2, 0.2, 200, 0), ("p95 during 1.30 s, at most 1.20",)),
        (Bound(0.2, 0.2, 200, 0), Bound(0.2, 0.8, 200, 0), ("p95 after 0.80 s, at most 0.70",)),
        (Bound(0.2, 0.2, 200, 1), Bound(0.2, 0.2, 200, 0), ("1 were not bound within 60 s",)),
    ],
)
def test_pods_that_are_bound_are_compared_with_those_before(
    during: Bound, after: Bound, faults: tuple[str, ...]
) -> None:
    row = poison.row("a", [Poisoned(Bound(0.1, 0.2, 200, 0), during, after, USED)])

    assert row.faults == faults


def test_the_tables_have_a_line_for_each_row() -> None:
    flood = floods.row("flood", SMALL, [flooded()], [Control(latencies(), {200: 50})])
    calm = Bound(0.1, 0.2, 200, 0)
    poisoned = poison.row("poison", [Poisoned(calm, calm, calm, USED)])

    text = table.render([flood, poisoned])

    assert "| flood | small | 10 / 20 | 10 / 20 | 10 / 20 | 10 / 20 | 0 (0) of 200 |" in text
    assert "| poison | 0.10 / 0.20 | 0.10 / 0.20 | 0.10 / 0.20 | 0 of 200 |" in text


def test_too_few_values_have_no_percentile() -> None:
    assert percentiles([1.0]) == (float("inf"), float("inf"))
    assert percentiles([1.0, 2.0, 3.0])[0] == 2.0


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(expressions.patterns(DRIVER, Random(1)), id="patterns"),
        pytest.param(expressions.true_patterns(DRIVER, Random(1)), id="true patterns"),
        pytest.param(expressions.lists(Random(1)), id="lists"),
        pytest.param(expressions.honest(DRIVER), id="honest"),
    ],
)
def test_the_api_server_takes_the_expressions(expression: str) -> None:
    assert len(expression) <= MAX_LENGTH
    assert compile_in_place(expression, Environment.STORED).cost <= LIMIT
