"""FirstFit against the real structured allocator, scenario by scenario.

A fixed sample: 2,000 scenarios, 20,000 with HYPOTHESIS_PROFILE=oracle.
"""

from collections.abc import Callable

import pytest
from hypothesis import settings

from testing.oracle.compare import Comparison, smallest
from testing.oracle.coverage import FEATURES
from testing.oracle.go import Oracle
from testing.oracle.skips import SKIPS
from tests.oracle.conftest import COVERAGE

pytestmark = pytest.mark.oracle

SHOWN = 3
"""Differences that are made small and printed."""


@pytest.fixture(scope="module")
def comparison(oracle: Oracle) -> Comparison:
    """The whole sample, compared."""
    comparison_ = Comparison()
    comparison_.add(oracle, range(max(2_000, settings().max_examples)))
    return comparison_


def test_first_fit_gives_upstreams_verdicts(
    oracle: Oracle, comparison: Comparison, record_property: Callable[[str, str], None]
) -> None:
    reached = [*comparison.coverage.table(), "", *comparison.summary()]
    record_property(COVERAGE, "\n".join(reached))
    differences = comparison.unexplained
    small = [smallest(oracle, difference) for difference in differences[:SHOWN]]

    assert not differences, "\n".join(
        f"{difference}\n{difference.scenario}" for difference in small
    )


def test_every_deliberate_difference_is_met(comparison: Comparison) -> None:
    assert {skip.reason for skip in SKIPS} == comparison.used.keys()


@pytest.mark.parametrize("feature", FEATURES)
def test_the_sample_has_every_feature(comparison: Comparison, feature: str) -> None:
    assert comparison.coverage.present(feature) >= 0.05


def test_the_sample_has_every_pair_of_features(comparison: Comparison) -> None:
    assert [pair for pair, count in comparison.coverage.pairs.items() if count == 0] == []


def test_the_sample_is_neither_easy_nor_infeasible(comparison: Comparison) -> None:
    total = comparison.coverage.total

    assert 0.3 <= total.share("fit") <= 0.7
    assert total.median_steps >= 20


def test_most_verdicts_are_compared(comparison: Comparison) -> None:
    verdicts = comparison.coverage.total.ends.total()

    assert comparison.not_proved["upstream"] <= 0.06 * verdicts
    assert comparison.not_proved["ours"] <= 0.01 * verdicts
