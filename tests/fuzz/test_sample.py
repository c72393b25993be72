"""A few thousand hostile reviews: as `make fuzz` at length, with seeds that never change.

What an answer costs is validated by `make fuzz` only: it depends on what else the machine does. As there, a
process of its own makes the reviews, so that the memory of other tests does not count.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from testing.fuzz.run import MAX_GROWTH_MIB, run
from testing.long_runs import beginning_with

pytestmark = pytest.mark.property

SEEDS = (1, 2)
REVIEWS = 2000


@pytest.mark.parametrize("seed", beginning_with(1, SEEDS))
def test_hostile_reviews_are_answered_as_they_should_be(seed: int) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        report = process.submit(run, seed, REVIEWS, checks_costs=False).result()

    assert [(failure.number, failure.kind, failure.complaint) for failure in report.failures] == []
    assert report.reviews == REVIEWS
    assert report.growth_mib < MAX_GROWTH_MIB
    # The sample reaches what it is for.
    assert report.again > REVIEWS // 50
    assert {"200", "400", "408", "415"} <= set(report.statuses)
