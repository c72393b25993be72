"""The wait of a scheduler in its serial cycle: the hundred best nodes, after one allocation changed.

The cost of an answer must not grow with the nodes of a cluster, nor with the kinds of them. The anchor
is the verdict about every class, which the answer was made from before there were rankings.
"""

from collections.abc import Callable, Iterator
from itertools import cycle
from statistics import quantiles
from typing import Final

from allocator.cluster.ranking import RankedNodes
from allocator.model.requests import PendingClaims
from bench.allocator_runs import build_cluster, seconds
from bench.report import Result, below, informative
from process.garbage import exempt_caches
from sidecar.plan.decisions import ANSWER_LIMITS
from sidecar.protocol import MAX_NODES
from testing.oracle import ours, workloads

QUESTIONS: Final = 500
NEW_QUESTIONS: Final = 20
SIZES: Final = ((1_000, 2.0), (5_000, 5.0))
"""Nodes of a cluster, and the goal for p99 in ms."""
NEW_GOAL_MS: Final = 50.0
CLUSTERS: Final = (
    ("varied", "a random half of each node allocated"),
    ("different", "the same, each node with other amounts"),
)


def measure() -> Iterator[Result]:
    """Yield p50 and p99 of questions that were asked before, and of new ones."""
    for nodes, goal_ms in SIZES:
        for name, title in CLUSTERS:
            yield from _ranking_results(
                name, f"best {MAX_NODES} of {nodes:,} nodes, {title}", nodes, goal_ms
            )


def _ranking_results(name: str, title: str, nodes: int, goal_ms: float) -> Iterator[Result]:
    objects = ours.objects(workloads.WORKLOADS[name][0](nodes))
    cluster = build_cluster(objects)
    exempt_caches()  # As the sidecar does, once it is in sync.
    pending = cluster.resolve(objects.claims)

    def ask(claims: PendingClaims = pending) -> RankedNodes:
        return cluster.rank_nodes(claims, limit=MAX_NODES, limits=ANSWER_LIMITS)

    first_s = seconds(ask)
    while not ask().is_known:
        pass
    changing = cycle(objects.allocated_claims)

    def after_a_change(question: Callable[[], object]) -> float:
        claim = next(changing)
        cluster.release(claim)
        took_s = seconds(question)
        cluster.allocate(claim)
        return took_s

    answers = [after_a_change(ask) for _ in range(QUESTIONS)]
    every = [
        after_a_change(lambda: list(cluster.class_verdicts(pending))) for _ in range(NEW_QUESTIONS)
    ]
    p50_ms, p99_ms = (quantiles(answers, n=100)[at] * 1000 for at in (49, 98))
    yield below(f"{title}: p99 in ms", p99_ms, goal_ms)
    yield informative(f"{title}: p50 in ms", p50_ms, quantiles(every, n=100)[49] * 1000)
    yield below(f"{title}: not asked for before, in ms", first_s * 1000, NEW_GOAL_MS)
