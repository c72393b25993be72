"""The kinds of pods that usually come: the pods that count, their weight, and its duration."""

from collections.abc import Sequence

import pytest

from allocator.strategies.kind_counts import (
    HALF_LIFE_S,
    MAX_COUNTS,
    MAX_DEMANDS,
    MAX_DIFFERENT_DEMANDS,
    MAX_SELECTORS,
    KindCounts,
)
from allocator.strategies.pod_kinds import MAX_KINDS, DeviceDemand

ONE = (DeviceDemand(),)


def count(*pods: tuple[int, str, float], begun: KindCounts | None = None) -> KindCounts:
    """Count pods of so many CPUs, with owners and the days of their arrival."""
    counts = begun or KindCounts()
    for cpus, owner, day in pods:
        counts.add(ONE, cpus, 0, owner=owner, at_s=day * 24 * 3600)
    return counts


def weights(counts: KindCounts) -> dict[int, int]:
    return {kind.cpu_milli: kind.weight for kind in counts.kinds}


@pytest.mark.parametrize(
    ("expected", "pods"),
    [
        pytest.param({}, [], id="none"),
        pytest.param({1: 1000}, [(1, "", 0)], id="the first one at once"),
        pytest.param(
            {1: 750, 2: 250}, [(1, "", 0)] * 3 + [(2, "", 0)], id="each as often as it came"
        ),
        pytest.param(
            {1: 333, 2: 666}, [(1, "", 0), (2, "", 1)], id="a pod of yesterday counts half"
        ),
        pytest.param(
            {1: 500, 2: 500}, [(1, "a", 0)] * 3 + [(2, "b", 0)], id="two owners count alike"
        ),
        pytest.param(
            {1: 100, 2: 100, 3: 800},
            [(1, "a", 0)] * 8 + [(2, "b", 0)] * 8 + [(3, f"c{n}", 0) for n in range(16)],
            id="an owner counts at most a tenth of all pods",
        ),
        pytest.param(
            {1: 750, 2: 250},
            [(1, "", 0)] * 24 + [(2, "", 0)] * 8,
            id="pods without an owner are not held to a tenth",
        ),
    ],
)
def test_the_weight_of_a_kind(
    expected: dict[int, int], pods: Sequence[tuple[int, str, float]]
) -> None:
    assert expected == pytest.approx(weights(count(*pods)), abs=1)


def test_kinds_are_taken_over_when_weight_has_moved() -> None:
    counts = KindCounts()
    taken_over = [
        number + 1
        for number in range(3000)
        if counts.add(ONE, 1 if number < 1500 else 2, 0, owner="", at_s=0)
    ]
    assert taken_over == [1, 2048, 2560]


def test_only_the_most_frequent_kinds_are_values() -> None:
    counts = count(*((cpus, "", 0) for cpus in range(MAX_KINDS * 2)))
    assert len(counts.kinds) == MAX_KINDS


def test_what_nobody_can_bound_is_not_counted() -> None:
    counts = KindCounts()
    long = DeviceDemand(selectors=("x" * (MAX_SELECTORS + 1),))
    assert not counts.add((long,), 1, 0)
    assert not counts.add((), 1, 0), "a pod without devices"
    many = tuple(DeviceDemand(count=number + 1) for number in range(MAX_DEMANDS + 1))
    assert not counts.add(many, 1, 0)
    assert counts.kinds == ()


def test_the_kinds_have_few_different_demands_together() -> None:
    """Compare devices with a bounded number of requests."""
    counts = KindCounts()
    for kind in range(MAX_KINDS):
        demands = tuple(
            DeviceDemand(count=kind * MAX_DEMANDS + number + 1) for number in range(MAX_DEMANDS)
        )
        counts.add(demands, 1, 0)
        counts.add(ONE, 7, 0)

    different = {demand for kind in counts.kinds for demand in kind.demands}
    assert MAX_DIFFERENT_DEMANDS - MAX_DEMANDS < len(different) <= MAX_DIFFERENT_DEMANDS
    assert weights(counts)[7] == 500


def test_the_latest_of_many_kinds_are_remembered() -> None:
    """An owner of pods of ever other kinds pushes out others' only as they fade."""
    counts = count(*((7, "", 2 + number / 1000) for number in range(64)))
    count(*((100 + number, "", 0) for number in range(MAX_COUNTS * 2)), begun=counts)
    assert weights(counts)[7] >= 100


def test_time_goes_on_for_years() -> None:
    counts = count(*((1, "", 0),) * 8, *((2, "", 400 + number / 10) for number in range(8)))
    assert weights(counts).get(2, 0) > 990
    assert HALF_LIFE_S == 24 * 3600


def test_a_clock_may_jump_by_decades() -> None:
    """A pod may be older than a thousand half-lives, and a clock may begin in 1970."""
    counts = count((1, "", 0), (2, "", 56 * 365))

    assert weights(counts).get(2, 0) > 990
