"""Feasibility of claims in a cluster, and the reasons against it in one line, at a bounded cost.

Each searched node stands for its equivalence class; a few classes are enough for the reasons.
"""

from collections.abc import Iterable
from enum import Enum, auto
from itertools import islice
from typing import Final, NamedTuple

from allocator.cluster import equivalence
from allocator.cluster.cluster import Cluster
from allocator.explain.summary import parts_within, summarize_cluster
from allocator.model.devices import NodeDevices
from allocator.model.outcome import BudgetExhausted
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.model.selectors import SelectorChain, selector_chain

BUDGET: Final = Budget(steps=5_000)
"""The budget of the search on one node."""
MAX_STEPS: Final = 40_000
"""The steps of all searches for one verdict; less than a quarter of a second."""
_MIN_SEARCH_STEPS: Final = 40
"""Steps that a search costs at least."""
MAX_CLASSES: Final = 256
"""Equivalence classes of nodes among which the examples are chosen."""
MAX_EXAMPLES: Final = 32
MAX_EXPLAINED: Final = 4
"""Nodes whose reasons are in one message."""
MAX_TEXT: Final = 400
"""Bytes of all reasons in one message."""
_MAX_GROUP: Final = 360
"""The bytes of the reasons for nodes with the same reasons, beside the counts of nodes."""


class Feasibility(Enum):
    """A verdict about claims that are allocated together on one node."""

    FEASIBLE = auto()
    """Some node fits."""
    INFEASIBLE = auto()
    """No node fits."""
    BUDGET_EXHAUSTED = auto()
    """The search ended before it found out."""
    NOT_EVALUATED = auto()
    """An error ends the attempt, or there is no node."""


class Example(NamedTuple):
    """A node, and the number of nodes of its equivalence class."""

    node: NodeDevices
    class_size: int


def feasibility(cluster: Cluster, claims: PendingClaims) -> Feasibility:
    """Search for a node that fits the claims.

    Raises:
        AttemptFailed: The attempt ends on all nodes.
    """
    if not cluster.nodes:
        return Feasibility.NOT_EVALUATED
    steps_left, is_exhausted = MAX_STEPS, False
    for verdict in cluster.class_verdicts(claims, budget=BUDGET):
        if isinstance(verdict.outcome, Plan):
            return Feasibility.FEASIBLE
        is_exhausted |= isinstance(verdict.outcome, BudgetExhausted)
        steps_left -= max(verdict.outcome.steps, _MIN_SEARCH_STEPS)
        if steps_left <= 0:
            return Feasibility.BUDGET_EXHAUSTED
    return Feasibility.BUDGET_EXHAUSTED if is_exhausted else Feasibility.INFEASIBLE


def example_nodes(cluster: Cluster, claims: PendingClaims) -> tuple[Example, ...]:
    """Return one node of each equivalence class, those with the most selected devices first."""
    selectors = _selectors(claims)
    examples = [
        Example(node, number)
        for node, number in islice(
            cluster.equivalence_classes(equivalence.build_projection(claims)), MAX_CLASSES
        )
        if node.devices
    ]
    examples.sort(
        key=lambda example: (-_selected_count(example.node, selectors), example.node.node)
    )
    return tuple(examples[:MAX_EXAMPLES])


def summarize_reasons(cluster: Cluster, claims: PendingClaims) -> tuple[str, ...]:
    """Return the reasons against the devices of nodes that do not fit.

    Raises:
        AttemptFailed: The attempt ends on all nodes.
    """
    selectors = _selectors(claims)
    examples = example_nodes(cluster, claims)
    # A node without selected devices has no other reason.
    explained_examples = [
        example for example in examples if _selected_count(example.node, selectors)
    ] or examples
    sizes = {
        example.node.node: example.class_size for example in explained_examples[:MAX_EXPLAINED]
    }
    verdicts = cluster.verdicts(claims, budget=BUDGET, nodes=tuple(sizes))
    summary = summarize_cluster(cluster, claims, verdicts, most=_MAX_GROUP)
    groups = [(sum(sizes[name] for name in group.nodes), group.text) for group in summary.groups]
    groups.sort(key=lambda group: (-group[0], group[1]))
    parts = [f"{_nodes(count)}: {text}" for count, text in groups]
    others = sum(example.class_size for example in explained_examples[MAX_EXPLAINED:])
    parts += [f"{_nodes(others)} more"] if others else []
    return parts_within(parts, MAX_TEXT, "group")


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count:,} nodes"


def _selectors(claims: PendingClaims) -> frozenset[SelectorChain]:
    """Return the selectors of all requests."""
    return frozenset(
        selector_chain(request.expressions)
        for claim in claims.requests
        for alternatives in claim
        for request in alternatives
    )


def _selected_count(node: NodeDevices, selectors: Iterable[SelectorChain]) -> int:
    """Return the number of devices of a node that selectors choose, summed over the selectors."""
    return sum(selector.selection(node).selected.bit_count() for selector in selectors)
