"""The suite of DeviceQuotas, on a few nodes and with a few quotas."""

import pytest

from bench import quotas
from bench.__main__ import OWN_SUITES
from bench.report import within

SMALL = quotas.Sizes(
    nodes=8, quotas=4, allocated=8, rounds=2, calls=4, waiting=5, quiet_s=0.5, raised=2
)


@pytest.mark.long
def test_one_of_those_that_wait_is_let_through_and_nothing_is_written_twice() -> None:
    assert OWN_SUITES["quotas"] is quotas.measure

    decisions, *freed, memory = quotas.measure(SMALL)

    assert "4 DeviceQuotas over 20 namespaces" in decisions.name
    assert decisions.ours >= 0
    *gates, _, _, _, raised, bridge = freed
    assert [(result.ours, result.met) for result in gates] == [(1, True), (0, True)]
    assert [(result.ours, result.met) for result in (raised, bridge)] == [(2, True), (1, True)]
    assert memory.met, memory


def test_a_cost_beside_one_that_no_clock_sees_is_above_every_bound() -> None:
    """The CPU time of a process has steps of 10 ms, so that of a few decisions may be 0."""
    assert not within("x", 1.25, 0.0, at_most=1.1).met
