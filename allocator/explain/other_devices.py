"""Nodes without a device of a requested class."""

from collections.abc import Iterator

from allocator.explain.relaxations import class_chain
from allocator.model.devices import NodeDevices, PoolState
from allocator.model.requests import PendingClaims, Request


def is_for_others(node: NodeDevices, pending: PendingClaims) -> bool:
    """Return True if a node has no device of any requested class."""
    if any(pool.state is not PoolState.COMPLETE for pool in node.pools):
        return False
    chains = {chain.key: chain for chain in map(class_chain, all_requests(pending))}
    return not any(
        chain.verdict(device) is not False for chain in chains.values() for device in node.devices
    )


def all_requests(pending: PendingClaims) -> Iterator[Request]:
    """Yield every request of claims, with its alternatives."""
    return (
        request for claim in pending.requests for alternatives in claim for request in alternatives
    )
