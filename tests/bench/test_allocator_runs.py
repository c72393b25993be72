"""The timed runs of the allocator: the caches and the objects that each of them has."""

import pytest

from allocator.model.selectors import clear_selector_caches
from bench.allocator_runs import ClusterRun, cold_node
from kube.cel.scope import metered
from testing.oracle import workloads
from testing.oracle.scenarios import Scenario


def test_no_verdict_of_a_selector_is_known_to_a_later_search_of_a_cold_node() -> None:
    scenario = workloads.free(1)
    clear_selector_caches()
    with metered() as first:
        cold_node(scenario)
    with metered() as later:
        cold_node(scenario)

    assert first.steps == later.steps


@pytest.mark.parametrize("scenario", [workloads.free(8), workloads.full(2)], ids=["free", "full"])
def test_the_usage_is_the_same_again_after_the_requests_that_follow_changes(
    scenario: Scenario,
) -> None:
    run = ClusterRun(scenario)
    before = dict(run.cluster.usage.pools)
    run.after_a_change()

    assert before == dict(run.cluster.usage.pools)
