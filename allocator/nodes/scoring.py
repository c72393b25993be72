"""The score of a node's resources under a profile of kube-scheduler: strategy, resources and weights.

The default profile is scored by `allocator.nodes.resource_scores`, which counts CPU and memory alone and is
faster. Not modelled: extended resources that DeviceClasses serve, in the scores of a profile that names them.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/noderesources: fit.go,
least_allocated.go, most_allocated.go, requested_to_capacity_ratio.go, balanced_allocation.go,
resource_allocation.go; pkg/scheduler/apis/config/v1/defaults.go.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from allocator.nodes.amounts import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    ResourceAmounts,
    is_scalar,
)
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest
from allocator.nodes.resource_scores import (
    MAX_SCORE,
    balanced_allocation,
    least_allocated,
    most_allocated,
)

MAX_SHAPE_SCORE: Final = 10
"""The greatest score of a point of a shape. Source: MaxCustomPriorityScore."""


class FitStrategy(StrEnum):
    """The scoring strategies of NodeResourcesFit."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


class ScoredResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that counts in a score, and its weight."""

    name: str
    weight: int = 1


class ShapePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A point of the function of RequestedToCapacityRatio.

    Attributes:
        utilization: The share in use, in percent.
        score: The score there, from 0 to MAX_SHAPE_SCORE.
    """

    utilization: int
    score: int


CPU_AND_MEMORY: Final = (ScoredResource(name=CPU), ScoredResource(name=MEMORY))


class ScoringProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The scores that a profile of kube-scheduler gives to the resources of nodes.

    Attributes:
        strategy: The strategy of NodeResourcesFit.
        resources: The resources that it counts.
        shape: The function of RequestedToCapacityRatio, by utilization; unused by the others.
        fit_weight: The weight of NodeResourcesFit; 0 where it does not score.
        balanced_resources: The resources that NodeResourcesBalancedAllocation counts.
        balanced_weight: Its weight; 0 where it does not score.
        strategy_weight: The weight of the bridge's plugin; None where the profile does not say.
        percentage_of_nodes: Feasible nodes after which the scheduler looks no further, in percent of
            all; 0 for its default.
    """

    strategy: FitStrategy = FitStrategy.LEAST_ALLOCATED
    resources: tuple[ScoredResource, ...] = CPU_AND_MEMORY
    shape: tuple[ShapePoint, ...] = ()
    fit_weight: int = 1
    balanced_resources: tuple[ScoredResource, ...] = CPU_AND_MEMORY
    balanced_weight: int = 1
    strategy_weight: int | None = None
    percentage_of_nodes: int = 0


DEFAULT_PROFILE: Final = ScoringProfile()
MOST_ALLOCATED_PROFILE: Final = ScoringProfile(strategy=FitStrategy.MOST_ALLOCATED)


def score_resources(request: PodRequest, node: NodeResources, profile: ScoringProfile) -> int:
    """Return the weighted sum of both plugins' scores.

    >>> from allocator.nodes.amounts import ResourceAmounts
    >>> node = NodeResources(allocatable=ResourceAmounts(cpu_milli=4000, memory=8 << 30), max_pods=9)
    >>> half = PodRequest(
    ...     amounts=ResourceAmounts(cpu_milli=2000, memory=4 << 30),
    ...     scored_cpu_milli=2000, scored_memory=4 << 30, placed_cpu_milli=2000, placed_memory=4 << 30,
    ... )
    >>> score_resources(half, node, DEFAULT_PROFILE)
    125
    """
    total = 0
    if profile.fit_weight:
        total += profile.fit_weight * _fit_score(request, node, profile)
    if profile.balanced_weight:
        total += profile.balanced_weight * _balanced_score(request, node, profile)
    return total


def _fit_score(request: PodRequest, node: NodeResources, profile: ScoringProfile) -> int:
    if profile.resources == CPU_AND_MEMORY:
        if profile.strategy is FitStrategy.LEAST_ALLOCATED:
            return least_allocated(request, node)
        if profile.strategy is FitStrategy.MOST_ALLOCATED:
            return most_allocated(request, node)
    if node.allocatable is None:
        return 0
    is_ratio = profile.strategy is FitStrategy.REQUESTED_TO_CAPACITY_RATIO
    total = weights = 0
    for resource in profile.resources:
        capacity = _capacity(resource.name, request, node.allocatable)
        if not capacity:
            continue
        score = _resource_score(profile, _scored_use(resource.name, request, node), capacity)
        if score or not is_ratio:  # Of a ratio upstream leaves the weight of a score of 0 out, too.
            total += score * resource.weight
            weights += resource.weight
    if not weights:
        return 0
    # Go's math.Round, of a number that is not negative.
    return math.floor(total / weights + 0.5) if is_ratio else total // weights


def _resource_score(profile: ScoringProfile, used: int, capacity: int) -> int:
    """Return the score of one resource of a node.

    Args:
        profile: The profile.
        used: The amount in use with the pod.
        capacity: The allocatable amount, above 0.
    """
    match profile.strategy:
        case FitStrategy.LEAST_ALLOCATED:
            return (capacity - used) * MAX_SCORE // capacity if used <= capacity else 0
        case FitStrategy.MOST_ALLOCATED:
            return min(used, capacity) * MAX_SCORE // capacity
        case FitStrategy.REQUESTED_TO_CAPACITY_RATIO:
            percent = MAX_SCORE if used > capacity else used * MAX_SCORE // capacity
            return _at(profile.shape, percent)


def _at(shape: Sequence[ShapePoint], percent: int) -> int:
    """Return the value of a function that is linear between its points; a point's score is in tenths."""
    scale = MAX_SCORE // MAX_SHAPE_SCORE
    for number, point in enumerate(shape):
        if percent > point.utilization:
            continue
        if number == 0:
            return point.score * scale
        before = shape[number - 1]
        rise = (point.score - before.score) * scale * (percent - before.utilization)
        # Go truncates toward zero.
        return before.score * scale + int(rise / (point.utilization - before.utilization))
    return shape[-1].score * scale if shape else 0


def _balanced_score(request: PodRequest, node: NodeResources, profile: ScoringProfile) -> int:
    if profile.balanced_resources == CPU_AND_MEMORY:
        return balanced_allocation(request, node)
    names = [resource.name for resource in profile.balanced_resources]
    if not any(_amount(name, request.amounts) for name in names):
        return 0  # Upstream skips the plugin for these pods.
    before = after = MAX_SCORE
    if node.allocatable is not None:
        shares: list[tuple[float, float]] = []
        for name in names:
            capacity = _capacity(name, request, node.allocatable)
            if capacity:
                used = _amount(name, node.requested)
                more = used + _amount(name, request.amounts)
                shares.append((min(used / capacity, 1.0), min(more / capacity, 1.0)))
        before = _balance([share for share, _ in shares])
        after = _balance([share for _, share in shares])
    half = MAX_SCORE // 2
    return half + (half + after - before) // 2


def _balance(shares: Sequence[float]) -> int:
    deviation = 0.0
    if len(shares) == 2:
        deviation = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > 2:
        mean = sum(shares) / len(shares)
        deviation = math.sqrt(
            sum((share - mean) * (share - mean) for share in shares) / len(shares)
        )
    return int((1 - deviation) * MAX_SCORE)


def _amount(name: str, amounts: ResourceAmounts) -> int:
    if name == CPU:
        return amounts.cpu_milli
    if name == MEMORY:
        return amounts.memory
    if name == EPHEMERAL_STORAGE:
        return amounts.ephemeral_storage
    return amounts.scalars.get(name, 0)


def _capacity(name: str, request: PodRequest, allocatable: ResourceAmounts) -> int:
    """Return the amount that a node has; 0 for a resource that does not count for this pod."""
    if is_scalar(name) and not _amount(name, request.amounts):
        return 0
    return _amount(name, allocatable)


def _scored_use(name: str, request: PodRequest, node: NodeResources) -> int:
    """Return the amount in use with the pod, as NodeResourcesFit scores it."""
    if name == CPU:
        return node.scored_cpu_milli + request.scored_cpu_milli
    if name == MEMORY:
        return node.scored_memory + request.scored_memory
    return _amount(name, node.requested) + _amount(name, request.amounts)
