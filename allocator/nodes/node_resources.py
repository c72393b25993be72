"""The resources of a node, and the part of them that its pods request.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/types.go, NodeInfo.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.nodes.amounts import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    ResourceAmounts,
    read_amounts,
)
from allocator.nodes.headroom import UNLIMITED, Headroom
from allocator.nodes.pod_requests import PodRequest
from kube.api.core import Node
from kube.quantity import Quantity

_NOTHING = ResourceAmounts()
_UNLIMITED: Final = Quantity(2**50)
"""More than any node has, of anything."""


class NodeResources(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of one node.

    Attributes:
        allocatable: The amounts that pods may request; None for a node without limits.
        max_pods: Number of pods that it may run; unused without limits.
        requested: Sum of its pods' requests.
        scored_cpu_milli: CPU of its pods as LeastAllocated and MostAllocated count it.
        scored_memory: Memory of its pods as they count it.
        pods: Number of its pods.
    """

    allocatable: ResourceAmounts | None = None
    max_pods: int = 0
    requested: ResourceAmounts = _NOTHING
    scored_cpu_milli: int = 0
    scored_memory: int = 0
    pods: int = 0

    @property
    def free_cpu_milli(self) -> int | None:
        """CPU that is not requested, in thousandths of a core; None without limits."""
        if self.allocatable is None:
            return None
        return max(0, self.allocatable.cpu_milli - self.requested.cpu_milli)

    @property
    def free_memory(self) -> int | None:
        """Memory that is not requested, in bytes; None without limits."""
        if self.allocatable is None:
            return None
        return max(0, self.allocatable.memory - self.requested.memory)

    @property
    def headroom(self) -> Headroom:
        """The room that the pods leave."""
        if self.allocatable is None:
            return UNLIMITED
        return Headroom(
            cpu_milli=self.free_cpu_milli,
            memory=self.free_memory,
            pods=max(0, self.max_pods - self.pods),
        )

    def with_pod(self, request: PodRequest) -> "NodeResources":
        """Return the resources with one more pod."""
        return replace(
            self,
            requested=self.requested + request.amounts,
            scored_cpu_milli=self.scored_cpu_milli + request.placed_cpu_milli,
            scored_memory=self.scored_memory + request.placed_memory,
            pods=self.pods + 1,
        )

    def with_pods(self, request: PodRequest, number: int) -> "NodeResources":
        """Return the resources with so many more equal pods."""
        resources = self
        for _ in range(number):
            resources = resources.with_pod(request)
        return resources

    def without_pod(self, request: PodRequest) -> "NodeResources":
        """Return the resources without one of its pods."""
        return replace(
            self,
            requested=self.requested - request.amounts,
            scored_cpu_milli=self.scored_cpu_milli - request.placed_cpu_milli,
            scored_memory=self.scored_memory - request.placed_memory,
            pods=self.pods - 1,
        )


def with_unnamed_resources(node: Node) -> Node:
    """Return a node without limits for the resources that its manifest does not name.

    A kubelet publishes all of CPU, memory and the number of pods, so a node without the last one was written by
    hand, mostly with its devices alone.

    >>> from kube.api.core import NodeStatus
    >>> node = Node(status=NodeStatus(allocatable={"nvidia.com/gpu": Quantity(8)}))
    >>> sorted(with_unnamed_resources(node).status.allocatable)
    ['cpu', 'ephemeral-storage', 'memory', 'nvidia.com/gpu', 'pods']
    """
    allocatable = node.status.allocatable
    if allocatable is None or PODS in allocatable:
        return node
    unnamed = dict.fromkeys((CPU, MEMORY, EPHEMERAL_STORAGE, PODS), _UNLIMITED)
    return replace(node, status=replace(node.status, allocatable={**unnamed, **allocatable}))


def node_resources(node: Node, pods: Iterable[PodRequest] = ()) -> NodeResources:
    """Return the resources of a node with its pods.

    A node without `status.allocatable` has no limits, so that a manifest of a node needs none.

    Args:
        node: The node.
        pods: Requests of the pods that are bound to it and have not finished.
    """
    allocatable = node.status.allocatable
    resources = NodeResources()
    if allocatable is not None:
        max_pods = allocatable[PODS].round_up() if PODS in allocatable else 0
        resources = NodeResources(allocatable=read_amounts(allocatable), max_pods=max_pods)
    for request in pods:
        resources = resources.with_pod(request)
    return resources
