"""A policy with its devices, rows of node eligibility, and a claim that is allocated."""

from pathlib import Path

import msgspec

from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.pools import node_devices
from allocator.model.slice_index import build_index
from kube.api.core import Node
from kube.api.meta import convert
from kube.api.node_selector import NodeSelector, NodeSelectorTerm
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import (
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from kube.manifests.reader import read_paths
from testing.allocation.builders import (
    allocated_claim,
    requirement,
    result,
)

ROOT = Path(__file__).parents[2]


def example() -> tuple[DeviceCompatibilityPolicy, NodeDevices]:
    """The policy of the four modes, and the node that it is shown on."""
    objects = read_paths([str(ROOT / "examples" / "compatibility")])
    documents = {kind: [document.document for document in objects if document.kind == kind] for kind in (
        "DeviceCompatibilityPolicy", "ResourceSlice", "Node",
    )}  # fmt: skip
    slices = [convert(document, ResourceSlice) for document in documents["ResourceSlice"]]
    (node,) = documents["Node"]
    (modes,) = documents["DeviceCompatibilityPolicy"]
    return (
        convert(modes, DeviceCompatibilityPolicy),
        node_devices(build_index(slices, Features()), convert(node, Node)),
    )


def held_claim(gpu: str, place: str, name: str = "held") -> ResourceClaim:
    """A claim that holds a device local to a node."""
    holder = allocated_claim(result(gpu, pool=place), name=name)
    assert holder.status is not None
    assert holder.status.allocation is not None
    term = NodeSelectorTerm(match_fields=(requirement("metadata.name", place),))
    allocation = msgspec.structs.replace(
        holder.status.allocation, node_selector=NodeSelector(node_selector_terms=(term,))
    )
    return msgspec.structs.replace(holder, status=ResourceClaimStatus(allocation=allocation))
