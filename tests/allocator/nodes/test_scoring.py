"""The scores of profiles that differ from the default, row by row.

Source of the rows: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/noderesources, tables of
requested_to_capacity_ratio_test.go, least_allocated_test.go, most_allocated_test.go and
balanced_allocation_test.go.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from allocator.nodes.node_resources import node_resources, with_unnamed_resources
from allocator.nodes.resource_scores import balanced_allocation, least_allocated, most_allocated
from allocator.nodes.resources_fit import insufficient_resources
from allocator.nodes.scoring import (
    DEFAULT_PROFILE,
    MOST_ALLOCATED_PROFILE,
    FitStrategy,
    ScoredResource,
    ScoringProfile,
    ShapePoint,
    score_resources,
)
from kube.api.core import Node
from kube.api.meta import convert
from testing.allocation.resources import GPU, request, resources

LEAST, MOST, RATIO = FitStrategy
RISING = (ShapePoint(utilization=0, score=0), ShapePoint(utilization=100, score=10))
FALLING = (ShapePoint(utilization=0, score=10), ShapePoint(utilization=100, score=0))


def weights(**named: int) -> tuple[ScoredResource, ...]:
    names = {"cpu": "cpu", "memory": "memory", "gpu": GPU}
    return tuple(ScoredResource(name=names[name], weight=weight) for name, weight in named.items())


def fit_only(strategy: FitStrategy, **fields: Any) -> ScoringProfile:
    return ScoringProfile(strategy=strategy, balanced_weight=0, **fields)


class Case(NamedTuple):
    name: str
    want: int
    profile: ScoringProfile
    pod: Mapping[str, Any]
    node: Mapping[str, Any]
    others: Mapping[str, Any] | None = None


CASES = (
    Case(
        "a rising shape of 3000/4000 cores and 5000/10000 bytes",
        63,  # (75 + 50) / 2 = 62.5, rounded away from zero
        fit_only(RATIO, shape=RISING),
        {"cpu": "3000m", "memory": "5000"},
        {"cpu": "4000m", "memory": "10000"},
    ),
    Case(
        "a falling shape prefers what is free",
        38,  # (25 + 50) / 2 = 37.5
        fit_only(RATIO, shape=FALLING),
        {"cpu": "3000m", "memory": "5000"},
        {"cpu": "4000m", "memory": "10000"},
    ),
    Case(
        "of a ratio a score of 0 leaves its weight out",
        50,
        fit_only(RATIO, shape=FALLING),
        {"cpu": "4000m", "memory": "5000"},
        {"cpu": "4000m", "memory": "10000"},
    ),
    Case(
        "between two points the shape is linear",
        55,  # at 75 percent, between (50, 10) and (100, 1): 100 + (10 - 100) * 25 / 50
        fit_only(
            RATIO,
            resources=weights(cpu=1),
            shape=(
                ShapePoint(utilization=50, score=10),
                ShapePoint(utilization=100, score=1),
            ),
        ),
        {"cpu": "3000m"},
        {"cpu": "4000m"},
    ),
    Case(
        "weights of resources",
        31,  # least: (25 * 3 + 50 * 1) / 4 = 31.25, truncated
        fit_only(LEAST, resources=weights(cpu=3, memory=1)),
        {"cpu": "3000m", "memory": "5000"},
        {"cpu": "4000m", "memory": "10000"},
    ),
    Case(
        "an extended resource that the pod requests counts",
        62,  # most: (75 + 50) / 2
        fit_only(MOST, resources=weights(cpu=1, gpu=1)),
        {"cpu": "3000m", GPU: "2"},
        {"cpu": "4000m", GPU: "4"},
    ),
    Case(
        "one that it does not request is left out",
        77,  # the other pod counts with 100m
        fit_only(MOST, resources=weights(cpu=1, gpu=1)),
        {"cpu": "3000m"},
        {"cpu": "4000m", GPU: "4"},
        {GPU: "3"},
    ),
    Case(
        "three resources are balanced by their standard deviation",
        72,  # before 100, after int((1 - 0.0589...) * 100) = 94: 50 + (50 + 94 - 100) // 2
        ScoringProfile(fit_weight=0, balanced_resources=weights(cpu=1, memory=1, gpu=1)),
        {"cpu": "500m", "memory": "500", GPU: "5"},
        {"cpu": "1000m", "memory": "1000", GPU: "8"},
    ),
    Case(
        "weights of plugins",
        5 * 37 + 2 * 68,  # least 37; balance 100 before, 87 after: 50 + (50 - 13) // 2
        ScoringProfile(fit_weight=5, balanced_weight=2),
        {"cpu": "3000m", "memory": "5000"},
        {"cpu": "4000m", "memory": "10000"},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_scores(case: Case) -> None:
    others = [] if case.others is None else [request(case.others)]

    assert case.want == score_resources(
        request(case.pod), resources(case.node, others), case.profile
    )


@pytest.mark.parametrize("cpu", ["100m", "1", "7"])
def test_the_default_profiles_are_the_plugins_sums(cpu: str) -> None:
    pod, node = request({"cpu": cpu, "memory": "3Gi"}), resources({"cpu": "8", "memory": "9Gi"})

    balanced = balanced_allocation(pod, node)
    assert least_allocated(pod, node) + balanced == score_resources(pod, node, DEFAULT_PROFILE)
    assert most_allocated(pod, node) + balanced == score_resources(
        pod, node, MOST_ALLOCATED_PROFILE
    )


def test_a_node_written_by_hand_has_no_limit_of_what_it_leaves_out() -> None:
    node = convert({"metadata": {"name": "a"}, "status": {"allocatable": {GPU: "2"}}}, Node)
    resources_ = node_resources(with_unnamed_resources(node))

    assert () == insufficient_resources(request({"cpu": "400", "memory": "9Ti"}), resources_)
    (lack,) = insufficient_resources(request({GPU: "3"}), resources_)
    assert lack.message == f"Insufficient {GPU}"
    assert lack.detail == f"Insufficient {GPU}: the pod requests 3, and the node has 2"
