"""Nodes of one class get the verdict that each would get alone."""

from typing import Any

import msgspec
import pytest

from allocator.cluster import Cluster, Outcome
from allocator.core.model import Budget, Plan
from allocator.core.outcome import AttemptFailed
from allocator.core.problem import Rules
from tests.allocator.worlds import crowd
from tests.oracle.ours import Objects

pytestmark = pytest.mark.property

BUDGET = Budget(steps=20_000)
SEEDS = range(600)
CHUNK = 100


def told(outcome: Outcome | None) -> Any:
    if isinstance(outcome, Plan):
        return [[str(one.device.id) for one in claim] for claim in outcome.choices]
    return type(outcome).__name__


def alone(cluster: Cluster, given: Objects) -> dict[str, Any]:
    """Each node's verdict, found for itself."""
    asked = cluster.ask(given.claims)
    return {
        name: told(cluster.verdict(asked, name, budget=BUDGET)) for name in sorted(cluster.nodes)
    }


def together(cluster: Cluster, given: Objects) -> dict[str, Any]:
    """Each node's verdict, found once per class."""
    verdicts = cluster.verdicts(cluster.ask(given.claims), budget=BUDGET)
    return {
        node: told(verdicts.plan(node) if isinstance(outcome, Plan) else outcome)
        for node, outcome, _ in sorted(verdicts, key=lambda one: one[0])
    }


@pytest.mark.parametrize("start", range(SEEDS.start, SEEDS.stop, CHUNK))
def test_the_memo_never_lies(start: int) -> None:
    shared = 0
    for seed in range(start, start + CHUNK):
        given = crowd(seed)
        cluster = new(given)
        try:
            want: Any = alone(cluster, given)
        except AttemptFailed:
            want = None

        try:
            got: Any = together(cluster, given)
        except AttemptFailed:
            got = None

        assert want == got, seed
        if want is not None:
            classes = cluster.verdicts(cluster.ask(given.claims), budget=BUDGET).classes
            shared += len(classes) < len(cluster.nodes)
    # A memo that never shares would not lie either.
    assert shared > CHUNK / 3


@pytest.mark.parametrize("seed", range(0, 200, 5))
def test_what_is_kept_is_what_a_fresh_start_would_find(seed: int) -> None:
    given = crowd(seed)
    kept = new(given, without_claims=True)
    try:
        together(kept, given)
        for claim in given.allocated:
            kept.allocate(claim)
        for listed in given.slices[::2]:
            kept.replace_slice(listed, None)
        for listed in given.slices[::2]:
            kept.replace_slice(None, listed)
        for node in given.nodes[::2]:
            kept.replace_node(node.metadata.name, None)
            kept.replace_node(node.metadata.name, node)
        for claim in given.allocated[::2]:
            kept.release(claim)
            kept.allocate(claim)
        got: Any = together(kept, given)
    except AttemptFailed:
        got = None
    # What came back is listed last, and upstream, too, goes by the list where groups contradict.
    relisted = (*given.slices[1::2], *given.slices[::2])
    try:
        want: Any = together(new(msgspec.structs.replace(given, slices=relisted)), given)
    except AttemptFailed:
        want = None

    if want is not None and got is not None:
        assert want == got


def new(given: Objects, *, without_claims: bool = False) -> Cluster:
    return Cluster(
        slices=given.slices,
        nodes=given.nodes,
        claims=() if without_claims else given.allocated,
        classes=given.classes,
        rules=Rules(features=given.features),
    )
