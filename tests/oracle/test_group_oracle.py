"""Groups of pods against every placement that there is, case by case.

A fixed sample of 500 cases of at most 4 pods, 4 nodes and 4 devices on each; 10,000 with HYPOTHESIS_PROFILE=oracle.
"""

from typing import NamedTuple

import pytest
from hypothesis import settings
from msgspec.structs import replace

from allocator.groups.decide import decide_group
from allocator.groups.model import Arrangement, GroupOutcome, GroupPlan
from testing.allocation.groups import cluster_of, question_of, random_case, shares_devices
from testing.oracle.group_placements import most_members, placed_pod_by_pod, plan_faults

pytestmark = pytest.mark.oracle

SAMPLE = 500
LONG_SAMPLE = 10_000


class Compared(NamedTuple):
    """A case: the decision, the largest placement, and upstream's number of members."""

    seed: int
    outcome: GroupOutcome
    needed: int
    most: int
    upstream: int

    @property
    def placement(self) -> GroupPlan:
        """The placement, or the closest one."""
        return self.outcome if isinstance(self.outcome, GroupPlan) else self.outcome.closest


@pytest.fixture(scope="module")
def compared_cases() -> list[Compared]:
    """The whole sample, compared."""
    is_long = settings().max_examples >= LONG_SAMPLE
    return [_compared(seed) for seed in range(LONG_SAMPLE if is_long else SAMPLE)]


def _compared(seed: int) -> Compared:
    case = random_case(seed)
    outcome = decide_group(cluster_of(case), question_of(case))
    return Compared(seed, outcome, case.min_count, most_members(case), placed_pod_by_pod(case))


def test_a_group_fits_exactly_if_some_placement_has_its_minimum(
    compared_cases: list[Compared],
) -> None:
    different = [
        f"seed {case.seed}: {type(case.outcome).__name__}, but {case.most} of {case.needed} fit"
        for case in compared_cases
        if isinstance(case.outcome, GroupPlan) != (case.most >= case.needed)
    ]

    assert different == []


def test_the_placement_is_the_largest(compared_cases: list[Compared]) -> None:
    smaller = [
        f"seed {case.seed}: {len(case.placement.nodes)} of {case.most}"
        for case in compared_cases
        if len(case.placement.nodes) != case.most
    ]

    assert smaller == []


def test_upstreams_placement_pod_by_pod_is_never_better(compared_cases: list[Compared]) -> None:
    better = [
        f"seed {case.seed}: {case.upstream} instead of {len(case.placement.nodes)}"
        for case in compared_cases
        if case.upstream > len(case.placement.nodes)
    ]

    assert better == []


def test_every_placement_is_a_valid_one(compared_cases: list[Compared]) -> None:
    faults = [
        f"seed {case.seed}: {fault}"
        for case in compared_cases
        for fault in plan_faults(random_case(case.seed), case.placement)
    ]

    assert faults == []


def test_the_sample_is_neither_easy_nor_infeasible(compared_cases: list[Compared]) -> None:
    total = len(compared_cases)
    fitting = sum(case.most >= case.needed for case in compared_cases)
    turned_away = sum(case.upstream < case.needed <= case.most for case in compared_cases)

    assert 0.3 * total <= fitting <= 0.7 * total
    assert turned_away >= 3


@pytest.mark.parametrize("arrangement", [Arrangement.PACKED, Arrangement.SPREAD])
def test_no_arrangement_changes_whether_a_group_fits(
    compared_cases: list[Compared], arrangement: Arrangement
) -> None:
    different = []
    for case in compared_cases[:SAMPLE]:
        question = replace(question_of(random_case(case.seed)), arrangement=arrangement)
        outcome = decide_group(cluster_of(random_case(case.seed)), question)
        if isinstance(outcome, GroupPlan) != isinstance(case.outcome, GroupPlan):
            different.append(f"seed {case.seed}: {outcome}")

    assert different == []


def test_the_order_of_members_makes_no_difference(compared_cases: list[Compared]) -> None:
    different = []
    for case in compared_cases[:SAMPLE]:
        question = question_of(random_case(case.seed))
        question = replace(question, members=question.members[::-1])
        outcome = decide_group(cluster_of(random_case(case.seed)), question)
        if isinstance(outcome, GroupPlan) != isinstance(case.outcome, GroupPlan):
            different.append(f"seed {case.seed}: {outcome}")

    assert different == []


def test_a_plan_is_kept_when_it_is_asked_about_again(compared_cases: list[Compared]) -> None:
    """Only on nodes that share nothing; others have their devices chosen anew."""
    moved = []
    for case in compared_cases[:SAMPLE]:
        if not isinstance(case.outcome, GroupPlan) or shares_devices(random_case(case.seed)):
            continue
        question = replace(question_of(random_case(case.seed)), earlier=case.outcome.nodes)
        outcome = decide_group(cluster_of(random_case(case.seed)), question)
        if not isinstance(outcome, GroupPlan) or outcome.nodes != case.outcome.nodes:
            moved.append(f"seed {case.seed}: {outcome}")

    assert moved == []
