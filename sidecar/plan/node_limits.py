"""The claims that keep a pod from nodes: PostFilter may release them, so that another node fits."""

from collections.abc import Iterable

from allocator.pods.claims import allocation_of
from allocator.pods.node_eligibility import is_for
from kube.api.core import Node
from kube.api.resource import ResourceClaim


def limits_nodes(claim: ResourceClaim, nodes: Iterable[Node]) -> bool:
    """Return whether an allocation is unusable on some node, or may yet fail on its own."""
    allocation = allocation_of(claim)
    if allocation is None:
        return False
    selector = allocation.node_selector
    has_conditions = any(result.binding_conditions for result in allocation.devices.results or ())
    return has_conditions or (
        selector is not None and not all(is_for(selector, node) for node in nodes)
    )
