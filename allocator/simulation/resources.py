"""The resources of nodes during a simulation: the nodes with enough for a pod, and the pods' use."""

from collections.abc import Collection, Mapping, Sequence

from allocator.explain.failure import NodeReason
from allocator.model.outcome import Reason
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest
from allocator.nodes.resources_fit import (
    InsufficientResource,
    has_resources,
    insufficient_resources,
)


class ResourceLedger:
    """The resources of nodes, changed by the pods that are placed.

    Attributes:
        resources: Node to its resources; None where only devices count. A node without an entry has no limits.
    """

    def __init__(
        self, resources: Mapping[str, NodeResources] | None, extended_resources: Collection[str]
    ) -> None:
        """Begin with the pods that run already.

        Args:
            resources: Node to its resources; None where only devices count.
            extended_resources: Names of the extended resources that classes map.
        """
        self.resources = None if resources is None else dict(resources)
        self._from_claims = frozenset(extended_resources)

    def copy(self) -> "ResourceLedger":
        """Return a ledger that changes apart from this one."""
        return ResourceLedger(self.resources, self._from_claims)

    def split(
        self, request: PodRequest, nodes: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return the nodes that have the resources for a pod, and those that lack some."""
        if self.resources is None:
            return nodes, ()
        feasible: list[str] = []
        lacking: list[str] = []
        for name in nodes:
            resources = self.resources.get(name)
            fits = resources is None or has_resources(request, resources, self._from_claims)
            (feasible if fits else lacking).append(name)
        return feasible if lacking else nodes, lacking

    def lacks(self, request: PodRequest, node: str) -> tuple[InsufficientResource, ...]:
        """Return the resources that a node lacks for a pod; none if only devices count."""
        resources = (self.resources or {}).get(node)
        if resources is None:
            return ()
        return insufficient_resources(request, resources, self._from_claims)

    def place(self, request: PodRequest, node: str) -> None:
        """Take a pod's resources on a node."""
        if self.resources is not None and node in self.resources:
            self.resources[node] = self.resources[node].with_pod(request)

    def of(self, node: str) -> NodeResources:
        """Return the resources of a node; without limits if none are known."""
        return (self.resources or {}).get(node) or NodeResources()


def resource_reason(lack: InsufficientResource) -> NodeReason:
    """Return a lack as a reason of a node.

    A resource of a device plugin that a node does not have at all has no amounts to compare.
    """
    message = lack.detail
    if not lack.capacity and "/" in lack.name:
        message = f"no {lack.name} on the node, and no DeviceClass maps it"
    return NodeReason(code=Reason.INSUFFICIENT_RESOURCE, message=message)
