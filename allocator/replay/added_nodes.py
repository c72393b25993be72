"""More nodes like one of a cluster, with devices of their own."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from allocator.replay.workload import Inventory
from kube.api.core import Node
from kube.api.resource import ResourceSlice

HOSTNAME: Final = "kubernetes.io/hostname"
MAX_ADDED: Final = 10_000
"""Nodes that are added at once; Kubernetes supports 5,000."""


def add_nodes(inventory: Inventory, name: str, count: int) -> Inventory:
    """Return a cluster with more nodes like one of it, called `NAME-added-1` and so on.

    They have its labels, taints and allocatable amounts, the ResourceSlices that name it as their node, and the
    pods of DaemonSets that run there. Nothing is allocated on them.

    Args:
        inventory: The cluster.
        name: The node's name.
        count: Number of nodes that are added.

    Raises:
        KeyError: There is no such node.
    """
    nodes = {node.metadata.name: node for node in inventory.nodes}
    model = nodes[name]
    names: list[str] = []
    number = 0
    while len(names) < count:
        number += 1
        if (added := f"{name}-added-{number}") not in nodes:
            names.append(added)
    slices = [slice_ for slice_ in inventory.slices if slice_.spec.node_name == name]
    daemons = [
        pod
        for pod in inventory.pods
        if pod.spec.node_name == name
        and any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references or ())
    ]
    return replace(
        inventory,
        nodes=(*inventory.nodes, *(node_like(model, added) for added in names)),
        slices=(
            *inventory.slices,
            *(copy for added in names for copy in _slices(slices, name, added)),
        ),
        pods=(
            *inventory.pods,
            *(
                replace(pod, spec=replace(pod.spec, node_name=added))
                for added in names
                for pod in daemons
            ),
        ),
    )


def node_like(model: Node, name: str) -> Node:
    """Return a node like another one, under a name of its own."""
    labels = dict(model.labels)
    if HOSTNAME in labels:
        labels[HOSTNAME] = name
    return replace(model, metadata=replace(model.metadata, name=name, labels=labels))


def _slices(slices: list[ResourceSlice], model: str, name: str) -> Iterator[ResourceSlice]:
    """Yield the slices of a node as those of another; a pool keeps the part of its name beside the node's."""
    for slice_ in slices:
        pool = slice_.spec.pool
        own = name if pool.name == model else f"{name}/{pool.name}"
        yield replace(
            slice_,
            metadata=replace(slice_.metadata, name=f"{slice_.metadata.name}-{name}"),
            spec=replace(slice_.spec, node_name=name, pool=replace(pool, name=own)),
        )
