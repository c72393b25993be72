"""The nodes for the search for a closest fit."""

from collections.abc import Hashable, Iterable

from allocator.cluster import equivalence
from allocator.explain.relaxations import class_chain
from allocator.model.devices import NodeDevices
from allocator.model.requests import PendingClaims
from allocator.model.selectors import SelectorChain
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from kube.api.resource import MAX_RESULTS


def candidate_nodes(
    nodes: Iterable[NodeDevices], pending: PendingClaims, usage: Usage, rules: AllocatorOptions
) -> list[NodeDevices]:
    """Return one node of each class, those with the most suitable devices first.

    Changed claims read no more of a device than the claims do, so what holds for one node of a
    class holds for all. Only another attribute of a constraint may differ: such claims fit the node
    that is returned, and possibly no other of its class.
    """
    projection = equivalence.explanation_projection(pending)
    chains = list(
        dict.fromkeys(
            class_chain(request)
            for requests in pending.requests
            for alternatives in requests
            for request in alternatives
        )
    )
    examples: dict[Hashable, NodeDevices] = {}
    for node in nodes:
        uses = [
            (number, equivalence.usage_key(pool, use, rules))
            for number, pool in enumerate(node.pools)
            if (use := usage.pools.get(pool.id))
        ]
        key = (
            equivalence.published_key(node, rules),
            tuple(uses),
            equivalence.projected_key(node, projection),
        )
        examples.setdefault(key, node)
    return sorted(
        examples.values(), key=lambda node: (-_suitable_devices(node, chains, usage), node.node)
    )


def _suitable_devices(node: NodeDevices, chains: Iterable[SelectorChain], usage: Usage) -> int:
    """Return the number of devices of the classes that no claim has to itself."""
    free = [
        device
        for device in node.devices
        if (use := usage.of(device.id)) is None or not use.exclusive
    ]
    return sum(
        min(sum(chain.verdict(device) is True for device in free), MAX_RESULTS) for chain in chains
    )
