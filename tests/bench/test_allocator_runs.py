"""The timed runs of the allocator: the objects that each of them has."""

import pytest

from bench.allocator_runs import ClusterRun
from testing.oracle import workloads
from testing.oracle.scenarios import Scenario


@pytest.mark.parametrize("scenario", [workloads.free(8), workloads.full(2)], ids=["free", "full"])
def test_the_usage_is_the_same_again_after_the_requests_that_follow_changes(
    scenario: Scenario,
) -> None:
    run = ClusterRun(scenario)
    before = dict(run.cluster.usage.pools)
    run.after_a_change()

    assert before == dict(run.cluster.usage.pools)
