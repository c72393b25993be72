"""The use of devices over time, in replays with arrivals and departures."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.replay.device_use import OverTime
from allocator.replay.replay import replay
from allocator.replay.results import StrategyResult, WaitsOfAll
from allocator.replay.timeline import MAX_SAMPLES, Recorder
from allocator.replay.workload import Order
from testing.replays import Machine, inventory, pods_of

COLUMNS = "name,class,capacity,arrival,departure"


def run(
    rows: Sequence[str], *machines: Machine, recorder: Recorder | None = None
) -> StrategyResult:
    pods = pods_of(*rows, columns=COLUMNS)
    cluster = inventory(*(machines or (Machine("a"),)))
    return replay("stock", pods, cluster, order=Order.ARRIVAL, recorder=recorder)


class Case(NamedTuple):
    name: str
    want: tuple[float, float, float, float, float]
    rows: Sequence[str]


CASES = (
    Case(
        "each share counts for as long as it is there, until the last arrival",
        (0, 40, (10 * 50 + 20 * 100) / 40, 100, 30 / 40),
        ["a,gpu,milli=500,0,10", "b,gpu,milli=1000,20,", "c,gpu,milli=1,40,"],
    ),
    Case(
        "what is there after the last arrival is no part of the mean",
        (5, 10, 20, 90, 1),
        ["a,gpu,milli=200,5,", "b,gpu,milli=700,10,500"],
    ),
    Case(
        "pods that wait count from when they are placed",
        (0, 20, (10 * 100 + 10 * 60) / 20, 100, 1),
        ["a,gpu,milli=1000,0,10", "b,gpu,milli=600,1,", "c,,,20,"],
    ),
    Case(
        "where all come at once that moment counts",
        (7, 7, 80, 80, 1),
        ["a,gpu,milli=300,7,9", "b,gpu,milli=500,7,8"],
    ),
    Case("nobody asks for devices", (0, 9, 0, 0, 0), ["a,,,0,", "b,,,9,"]),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_mean_over_time(case: Case) -> None:
    got = run(case.rows).over_time

    begin, until, mean, peak, in_use = case.want
    assert got == OverTime(
        from_second=begin,
        until_second=until,
        mean_percent=mean,
        peak_percent=peak,
        mean_in_use=in_use,
    )


def test_no_time_passes_where_pods_are_tried_once() -> None:
    got = replay("stock", pods_of("a,1,gpu,milli=1"), inventory(Machine("a")))

    assert not got.over_time
    assert not got.waiting_seconds.of_all


def test_pods_that_never_get_a_node_count_among_the_waits() -> None:
    """Two of three are placed, so that the median is a wait, and the longest ones never end."""
    rows = ["a,gpu,milli=600,0,", "b,gpu,milli=400,1,", "c,gpu,milli=400,2,"]

    waits = run(rows).waiting_seconds

    assert (waits.p50, waits.p99) == (0, 0)
    assert waits.of_all == WaitsOfAll(p50=0, p99=None)


@pytest.mark.parametrize("leaving", [3, 700])
def test_the_curve_goes_on_until_the_last_pod_has_left(leaving: int) -> None:
    rows = [f"p{number},gpu,milli=1,0,{number + 1}" for number in range(leaving)]
    recorder = Recorder(pods_of(*rows, columns=COLUMNS), max_cells=10)

    run(rows, *(Machine(name) for name in "abcdefgh"), recorder=recorder)

    samples = recorder.course
    assert (samples[-1].second, samples[-1].percent) == (leaving, 0)
    assert samples[-1].placed == leaving
    assert [sample.second for sample in samples] == sorted(sample.second for sample in samples)
    assert len(samples) <= 2 * MAX_SAMPLES + 1
    behind = [sample.percent for sample in samples if sample.second > 0]
    assert behind == sorted(behind, reverse=True)
    assert len(behind) >= min(leaving, MAX_SAMPLES // 2)
