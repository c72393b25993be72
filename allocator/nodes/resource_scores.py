"""The scores of NodeResourcesFit and NodeResourcesBalancedAllocation for CPU and memory.

Both plugins weigh CPU and memory alike by default; `allocator.nodes.scoring` has the other settings.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/noderesources: least_allocated.go,
most_allocated.go, balanced_allocation.go, resource_allocation.go.
"""

from typing import Final

from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest

MAX_SCORE: Final = 100


def least_allocated(request: PodRequest, node: NodeResources) -> int:
    """Return the score of the strategy LeastAllocated: the free share after the pod, in percent."""
    allocatable = node.allocatable
    if allocatable is None:
        return 0
    total = weights = 0
    cpu, memory = allocatable.cpu_milli, allocatable.memory
    if cpu:
        free = cpu - node.scored_cpu_milli - request.scored_cpu_milli
        total += free * MAX_SCORE // cpu if free > 0 else 0
        weights += 1
    if memory:
        free = memory - node.scored_memory - request.scored_memory
        total += free * MAX_SCORE // memory if free > 0 else 0
        weights += 1
    return total // weights if weights else 0


def most_allocated(request: PodRequest, node: NodeResources) -> int:
    """Return the score of the strategy MostAllocated: the share in use after the pod, in percent."""
    allocatable = node.allocatable
    if allocatable is None:
        return 0
    total = weights = 0
    cpu, memory = allocatable.cpu_milli, allocatable.memory
    if cpu:
        used = min(node.scored_cpu_milli + request.scored_cpu_milli, cpu)
        total += used * MAX_SCORE // cpu
        weights += 1
    if memory:
        used = min(node.scored_memory + request.scored_memory, memory)
        total += used * MAX_SCORE // memory
        weights += 1
    return total // weights if weights else 0


def balanced_allocation(request: PodRequest, node: NodeResources) -> int:
    """Return the score of NodeResourcesBalancedAllocation.

    It is 75 where the pod leaves the balance between CPU and memory as it is, up to 100 where it
    improves it, and down to 50 where it worsens it.
    """
    allocatable, amounts = node.allocatable, request.amounts
    if not (amounts.cpu_milli or amounts.memory):
        return 0  # Upstream skips the plugin for these pods, which spread by the other score.
    before = after = MAX_SCORE
    # With one resource alone there is nothing to balance.
    if allocatable is not None and allocatable.cpu_milli and allocatable.memory:
        requested = node.requested
        cpu, memory = requested.cpu_milli, requested.memory
        before = _balance(cpu / allocatable.cpu_milli, memory / allocatable.memory)
        after = _balance(
            (cpu + amounts.cpu_milli) / allocatable.cpu_milli,
            (memory + amounts.memory) / allocatable.memory,
        )
    half = MAX_SCORE // 2
    return half + (half + after - before) // 2


def _balance(cpu_share: float, memory_share: float) -> int:
    # The standard deviation of two values is half their difference. Truncated as upstream's float64.
    deviation = abs((min(cpu_share, 1.0) - min(memory_share, 1.0)) / 2)
    return int((1 - deviation) * MAX_SCORE)
