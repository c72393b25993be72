"""Verdicts about nodes; an error of one matters only if it does for a scheduler."""

from collections.abc import Collection

from allocator.cluster.cluster import Cluster
from allocator.cluster.verdicts import Verdicts
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget
from allocator.model.requests import PendingClaims
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy


def best_verdicts(
    cluster: Cluster,
    pending: PendingClaims,
    strategy: Strategy,
    budget: Budget,
    nodes: Collection[str],
) -> Verdicts:
    """Return verdicts that include the best of some nodes.

    Raises:
        AttemptFailed: The attempt ends before a node is found.
    """
    try:
        return cluster.verdicts(pending, strategy=strategy, budget=budget, nodes=nodes)
    except AttemptFailed:
        if strategy is not FIRST_FIT:
            raise
        # In order of names, the node that ends the attempt matters only if none before it fits.
        for node in sorted(nodes):
            verdicts = cluster.verdicts(pending, budget=budget, nodes=(node,))
            if verdicts.plan(node) is not None:
                return verdicts
        raise
