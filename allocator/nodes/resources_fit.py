"""NodeResourcesFit: the resources that a pod requests and a node lacks, if any.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/noderesources/fit.go, fitsRequest.
Not modelled: `ignoredResources` and `ignoredResourceGroups` of NodeResourcesFitArgs.
"""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from allocator.nodes.amounts import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    ResourceAmounts,
    format_resource,
)
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest


class InsufficientResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that a node has too little left of.

    Attributes:
        name: The resource.
        requested: The amount that the pod requests; milli-units for CPU.
        used: The amount that other pods request.
        capacity: The allocatable amount.
    """

    name: str
    requested: int
    used: int
    capacity: int

    @property
    def message(self) -> str:
        """The text in an event of kube-scheduler."""
        return "Too many pods" if self.name == PODS else f"Insufficient {self.name}"

    @property
    def detail(self) -> str:
        """The resource with its amounts, for people; equal for nodes of one size.

        >>> InsufficientResource(name="cpu", requested=4000, used=6500, capacity=8000).detail
        'Insufficient cpu: the pod requests 4, and too little of 8 is left'
        """
        if self.name == PODS:
            return f"Too many pods: the node takes {self.capacity}"
        requested, capacity = (
            format_resource(self.name, amount) for amount in (self.requested, self.capacity)
        )
        if self.is_unresolvable:
            return f"Insufficient {self.name}: the pod requests {requested}, and the node has {capacity}"
        return f"Insufficient {self.name}: the pod requests {requested}, and too little of {capacity} is left"

    @property
    def is_unresolvable(self) -> bool:
        """True if no other pod's removal makes room; never so for the number of pods, as upstream."""
        return self.name != PODS and self.requested > self.capacity


def insufficient_resources(
    request: PodRequest, node: NodeResources, from_claims: Collection[str] = ()
) -> tuple[InsufficientResource, ...]:
    """Return the resources that a node lacks for a pod; none if it fits.

    Args:
        request: The pod's request.
        node: The node's resources.
        from_claims: Extended resources of DeviceClasses, which count only on nodes that have them
            from a device plugin.
    """
    allocatable = node.allocatable
    if allocatable is None or has_resources(request, node, from_claims):
        return ()
    return tuple(_insufficient(request, node, allocatable, from_claims))


def has_resources(
    request: PodRequest, node: NodeResources, from_claims: Collection[str] = ()
) -> bool:
    """Return True if a node has the resources for a pod.

    Args:
        request: The pod's request.
        node: The node's resources.
        from_claims: The same resources as in `insufficient_resources`.
    """
    allocatable = node.allocatable
    if allocatable is None:
        return True
    if node.pods >= node.max_pods:
        return False
    amounts, requested = request.amounts, node.requested
    # A resource of which the pod requests nothing does not count, even if the node has less than nothing.
    cpu = amounts.cpu_milli
    if cpu > 0 and cpu > allocatable.cpu_milli - requested.cpu_milli:
        return False
    memory = amounts.memory
    if memory > 0 and memory > allocatable.memory - requested.memory:
        return False
    storage = amounts.ephemeral_storage
    if storage > 0 and storage > allocatable.ephemeral_storage - requested.ephemeral_storage:
        return False
    for name, amount in amounts.scalars.items():
        if amount <= 0 or (name in from_claims and not allocatable.scalars.get(name)):
            continue
        if amount > allocatable.scalars.get(name, 0) - requested.scalars.get(name, 0):
            return False
    return True


def most_equal_pods(
    request: PodRequest, node: NodeResources, limit: int, from_claims: Collection[str] = ()
) -> int:
    """Return the number of equal pods, up to a limit, with room on a node for all of them together.

    Args:
        request: The request of each pod.
        node: The node's resources.
        from_claims: The same resources as in `insufficient_resources`.
    """
    allocatable = node.allocatable
    if allocatable is None:
        return limit
    amounts, requested = request.amounts, node.requested
    most = min(limit, node.max_pods - node.pods)
    if amounts.cpu_milli > 0:
        most = min(most, (allocatable.cpu_milli - requested.cpu_milli) // amounts.cpu_milli)
    if amounts.memory > 0:
        most = min(most, (allocatable.memory - requested.memory) // amounts.memory)
    if amounts.ephemeral_storage > 0:
        free_storage = allocatable.ephemeral_storage - requested.ephemeral_storage
        most = min(most, free_storage // amounts.ephemeral_storage)
    for name, amount in amounts.scalars.items():
        if amount <= 0 or (name in from_claims and not allocatable.scalars.get(name)):
            continue
        free = allocatable.scalars.get(name, 0) - requested.scalars.get(name, 0)
        most = min(most, free // amount)
    return max(0, most)


def have_resources(
    pods: Iterable[tuple[PodRequest, int]], node: NodeResources, from_claims: Collection[str] = ()
) -> bool:
    """Return True if a node has the resources for numbers of pods together.

    Args:
        pods: The request of equal pods, and their number.
        node: The node's resources.
        from_claims: The same resources as in `insufficient_resources`.
    """
    allocatable = node.allocatable
    if allocatable is None:
        return True
    requested = node.requested
    number = cpu = memory = storage = 0
    scalars: dict[str, int] = {}
    for request, count in pods:
        amounts = request.amounts
        number += count
        cpu += count * amounts.cpu_milli
        memory += count * amounts.memory
        storage += count * amounts.ephemeral_storage
        for name, amount in amounts.scalars.items():
            scalars[name] = scalars.get(name, 0) + count * amount
    if number > node.max_pods - node.pods:
        return False
    free = allocatable - requested
    return (
        (cpu <= 0 or cpu <= free.cpu_milli)
        and (memory <= 0 or memory <= free.memory)
        and (storage <= 0 or storage <= free.ephemeral_storage)
        and all(
            amount <= 0
            or amount <= free.scalars.get(name, 0)
            or (name in from_claims and not allocatable.scalars.get(name))
            for name, amount in scalars.items()
        )
    )


def _insufficient(
    request: PodRequest,
    node: NodeResources,
    allocatable: ResourceAmounts,
    from_claims: Collection[str],
) -> Iterator[InsufficientResource]:
    if node.pods >= node.max_pods:
        yield InsufficientResource(name=PODS, requested=1, used=node.pods, capacity=node.max_pods)
    amounts, requested = request.amounts, node.requested
    rows = [
        (CPU, amounts.cpu_milli, requested.cpu_milli, allocatable.cpu_milli),
        (MEMORY, amounts.memory, requested.memory, allocatable.memory),
        (
            EPHEMERAL_STORAGE,
            amounts.ephemeral_storage,
            requested.ephemeral_storage,
            allocatable.ephemeral_storage,
        ),
    ]
    for name, amount in sorted(amounts.scalars.items()):
        capacity = allocatable.scalars.get(name, 0)
        if capacity > 0 or name not in from_claims:
            rows.append((name, amount, requested.scalars.get(name, 0), capacity))
    for name, amount, used, capacity in rows:
        if amount > 0 and amount > capacity - used:
            yield InsufficientResource(name=name, requested=amount, used=used, capacity=capacity)
