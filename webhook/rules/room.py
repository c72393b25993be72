"""Whether a cluster has room for claims, and why not in one line, for a bounded price.

Each node that is asked stands for all that are like it; to say why, a few are enough.
"""

from collections.abc import Iterable
from enum import Enum, auto
from itertools import islice
from typing import Final, NamedTuple

from allocator import nodeclass
from allocator.cluster import Cluster
from allocator.core.inventory import Chain, chain
from allocator.core.model import Asked, Budget, NodeDevices, Plan
from allocator.core.outcome import GaveUp
from allocator.summary import bounded, cluster_summary

BUDGET: Final = Budget(steps=5_000)
"""Of the search on one node."""
MAX_STEPS: Final = 40_000
"""Of all searches for one answer; below a quarter of a second."""
_SEARCH: Final = 40
"""Steps that a search costs at least."""
MAX_LOOKED_AT: Final = 256
"""Classes of nodes of which the most promising are chosen."""
MAX_EXAMPLES: Final = 32
MAX_TOLD: Final = 4
MAX_TEXT: Final = 400
"""Bytes of all reasons in one message."""
_MAX_GROUP: Final = 360
"""Of them for nodes that say the same, beside how many they are and how many say something else."""


class Fit(Enum):
    """Whether claims fit some node, solved together."""

    FITS = auto()
    NOWHERE = auto()
    GAVE_UP = auto()
    """Not found out for the price."""
    UNJUDGED = auto()
    """Something ends the attempt, or there is no node to ask."""


class Example(NamedTuple):
    """A node, and how many there are that must get the same verdict, itself included."""

    node: NodeDevices
    alike: int


def fit(cluster: Cluster, asked: Asked) -> Fit:
    """Return whether claims fit some node.

    Raises:
        AttemptFailed: The attempt ends on all nodes.
    """
    if not cluster.nodes:
        return Fit.UNJUDGED
    left, gave_up = MAX_STEPS, False
    for each in cluster.searched(asked, budget=BUDGET):
        if isinstance(each.outcome, Plan):
            return Fit.FITS
        gave_up |= isinstance(each.outcome, GaveUp)
        left -= max(each.outcome.steps, _SEARCH)
        if left <= 0:
            return Fit.GAVE_UP
    return Fit.GAVE_UP if gave_up else Fit.NOWHERE


def examples(cluster: Cluster, asked: Asked) -> tuple[Example, ...]:
    """Return one node of each class, those with the most devices that are selected first."""
    selectors = _selectors(asked)
    found = [
        Example(node, number)
        for node, number in islice(cluster.alike(nodeclass.lens(asked)), MAX_LOOKED_AT)
        if node.devices
    ]
    found.sort(key=lambda one: (-_selected(one.node, selectors), one.node.node))
    return tuple(found[:MAX_EXAMPLES])


def reasons(cluster: Cluster, asked: Asked) -> str:
    """Return what rules out the devices of nodes that do not fit.

    Raises:
        AttemptFailed: The attempt ends on all nodes.
    """
    selectors = _selectors(asked)
    found = examples(cluster, asked)
    # Nodes that have nothing of the kind say no more than that.
    telling = [one for one in found if _selected(one.node, selectors)] or found
    number = {one.node.node: one.alike for one in telling[:MAX_TOLD]}
    verdicts = cluster.verdicts(asked, budget=BUDGET, nodes=tuple(number))
    summary = cluster_summary(cluster, asked, verdicts, most=_MAX_GROUP)
    groups = [(sum(number[name] for name in each.nodes), each.text) for each in summary.groups]
    parts = [f"{_nodes(count)}: {text}" for count, text in sorted(groups, key=_most_first)]
    left = sum(one.alike for one in telling[MAX_TOLD:])
    parts += [f"{_nodes(left)} more"] if left else []
    return bounded(parts, MAX_TEXT, "group")


def _most_first(group: tuple[int, str]) -> tuple[int, str]:
    return -group[0], group[1]


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count:,} nodes"


def _selectors(asked: Asked) -> frozenset[Chain]:
    """Return the selectors of all requests."""
    return frozenset(
        chain(one.expressions)
        for claim in asked.requests
        for alternatives in claim
        for one in alternatives
    )


def _selected(node: NodeDevices, selectors: Iterable[Chain]) -> int:
    """Return how many devices of a node are selected, each as often as it is."""
    return sum(each.selection(node).chosen.bit_count() for each in selectors)
