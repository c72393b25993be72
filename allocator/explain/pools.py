"""The pools of a node with devices that cannot be allocated, and a node without any other devices."""

from collections.abc import Iterator

from allocator.explain.wording import node_shortage
from allocator.model.devices import NodeDevices
from allocator.model.outcome import Reason, Shortage


def explain_pools(node: NodeDevices) -> Iterator[Shortage]:
    """Yield the pools with devices that cannot be allocated."""
    for pool in node.pools:
        if pool.state is not pool.state.COMPLETE:
            is_invalid = pool.state is pool.state.INVALID
            reason = Reason.POOL_INVALID if is_invalid else Reason.POOL_INCOMPLETE
            why = f": {pool.why}" if pool.why else ""
            yield node_shortage(reason, f"pool {pool.id} is {pool.state}{why}")


def missing_devices(node: NodeDevices) -> str:
    """Return the lack of a node without devices in words, beside its unusable pools."""
    if not node.pools:
        return "devices"
    is_usable = all(pool.state is pool.state.COMPLETE for pool in node.pools)
    return "usable devices" if is_usable else "other devices"
