"""Percentages of memory: rounded so that parts of 100 in total fit on one device."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kube.quantity import Quantity
from testing.builders import (
    HAMI,
    amount,
    device,
    devices_of,
    driver_slice,
    gpus,
    pod,
    translation_of,
    translation_snapshot,
)

pytestmark = pytest.mark.property

MEBIBYTE = 2**20


@st.composite
def shares(draw: st.DrawFn) -> list[int]:
    """At least two percentages that add to 100."""
    cuts = draw(st.lists(st.integers(1, 99), min_size=1, max_size=9, unique=True))
    edges = [0, *sorted(cuts), 100]
    return [right - left for left, right in pairwise(edges)]


steps = st.sampled_from((1, 1000, 3000, 300 * 1024, MEBIBYTE, 3 * MEBIBYTE, 2**30)) | st.integers(
    1, 2**31
)


def claimed(percent: int, size: int, least: int | None, step: int | None) -> int:
    """Bytes that a claim for a percentage of the device's memory names."""
    span = {"min": str(least)} if least is not None else {}
    span |= {"step": str(step)} if step is not None else {}
    gpu = device(
        shared=True,
        attributes={"type": "hami-gpu"},
        capacity={"memory": amount(str(size), str(size), **span), "cores": "100"},
    )
    (claim,) = translation_of(
        pod(gpus(1, pct=percent)), translation_snapshot(driver_slice(HAMI, gpu))
    ).claims
    (only,) = devices_of(claim)["requests"][0]["firstAvailable"]
    return int(Quantity(only["capacity"]["requests"]["memory"]))


def consumed(number: int, least: int | None, step: int | None) -> int:
    """Return the amount that the scheduler consumes: KEP-5075 rounds up to min and a multiple of step."""
    if least is None or step is None:
        return max(number, least or 0)
    return least + max(0, -(-(number - least) // step)) * step


@given(
    shares(),
    st.integers(2**30, 2**38),
    st.none() | st.sampled_from((0, 1, MEBIBYTE)),
    st.none() | steps,
)
def test_shares_that_add_to_100_fit_on_one_device(
    percents: list[int], size: int, least: int | None, step: int | None
) -> None:
    if least is None:
        step = None
    granule = max(step or 0, MEBIBYTE) * 2 + (least or 0)
    assume(size * min(percents) // 100 >= granule)

    amounts = [consumed(claimed(percent, size, least, step), least, step) for percent in percents]

    assert sum(amounts) <= size


@given(st.integers(1, 99), st.integers(2**24, 2**38), st.sampled_from((0, 1, MEBIBYTE)), steps)
def test_what_is_claimed_is_on_the_grid(percent: int, size: int, least: int, step: int) -> None:
    number = claimed(percent, size, least, step)

    assert number > 0
    assert consumed(number, least, step) == number


@given(st.integers(1, 98), st.integers(2**30, 2**38))
def test_more_percent_is_not_less_memory(percent: int, size: int) -> None:
    assert claimed(percent, size, None, None) <= claimed(percent + 1, size, None, None)


@given(st.integers(1, 99), st.lists(st.integers(1, 80), min_size=1, max_size=10, unique=True))
def test_what_is_claimed_is_a_valid_value_within_the_percentage(
    percent: int, gibibytes: list[int]
) -> None:
    values = sorted(gibibytes)
    policy = {"default": "80Gi", "validValues": [f"{value}Gi" for value in values]}
    gpu = device(
        shared=True,
        attributes={"type": "hami-gpu"},
        capacity={"memory": {"value": "80Gi", "requestPolicy": policy}, "cores": "100"},
    )
    (claim,) = translation_of(
        pod(gpus(1, pct=percent)), translation_snapshot(driver_slice(HAMI, gpu))
    ).claims
    (only,) = devices_of(claim)["requests"][0]["firstAvailable"]
    within = [value for value in values if value * 100 <= 80 * percent]

    quantity = Quantity(only["capacity"]["requests"]["memory"])
    assert Quantity(f"{max(within, default=min(values))}Gi") == quantity
