"""Incomplete pools of a driver, and the advice about them."""

from collections.abc import Iterable

from allocator.model.devices import PoolId, pool_of
from kube.api.resource import ResourceSlice
from rules.feasibility.idle_cluster import complete_slices


def completed_slices(slices: Iterable[ResourceSlice]) -> tuple[ResourceSlice, ...]:
    """Return slices as if the newest generation of each pool were complete."""
    pools: dict[PoolId, dict[str, ResourceSlice]] = {}
    for number, slice_ in enumerate(slices):
        name = slice_.metadata.name or f"#{number}"
        pools.setdefault(pool_of(slice_), {})[name] = slice_
    return tuple(slice_ for parts in pools.values() for slice_ in complete_slices(parts).values())


def wait_for_pool(cause: str, node: str) -> str:
    """Return the advice about an incomplete pool of a node.

    >>> wait_for_pool("pool gpu.example.com/a is incomplete: 1 of 2 slices", "a")
    'pool gpu.example.com/a is incomplete: 1 of 2 slices; wait until its driver has published all of it, or ask an administrator to look at the driver on node a'
    """
    return (
        f"{cause}; wait until its driver has published all of it, or ask an administrator to look "
        f"at the driver on node {node}"
    )
