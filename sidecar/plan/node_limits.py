"""The claims that keep a pod from nodes: PostFilter may release them, so that another node fits.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources, unavailableClaims.
"""

from collections.abc import Iterable
from datetime import datetime

from allocator.pods.claims import allocation_of
from allocator.pods.node_eligibility import is_for
from kube.api.core import Node
from kube.api.resource import ResourceClaim
from sidecar.commit.binding import binding_state


def limits_nodes(claim: ResourceClaim, nodes: Iterable[Node], *, cutoff: datetime) -> bool:
    """Return True if an allocation is unusable on some node, or on each as its driver failed.

    Args:
        cutoff: The time before which allocated devices that are not ready yet have timed out.
    """
    allocation = allocation_of(claim)
    if allocation is None:
        return False
    selector = allocation.node_selector
    return binding_state([claim], cutoff=cutoff).is_hopeless or (
        selector is not None and not all(is_for(selector, node) for node in nodes)
    )
