"""Nodes of one class get the verdict that each would get alone."""

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from allocator.cluster.cluster import Cluster
from allocator.cluster.ranking import Limits, RankedNodes
from allocator.cluster.verdicts import Outcome
from allocator.features.node_operations import DECLARED as OPTIONAL_OPERATIONS
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.model.usage import without_claims
from allocator.search.attempt import AllocatorOptions
from allocator.strategies.registry import ALL as STRATEGIES
from allocator.strategies.strategy import Strategy
from kube.api.resource import ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    classes,
    device,
    distinct,
    match,
    node,
    request,
    result,
    slice_of,
    taint,
)
from testing.allocation.clusters import crowd
from testing.long_runs import every_second
from testing.oracle.ours import Objects

pytestmark = pytest.mark.property

BUDGET = Budget(steps=20_000)
SEEDS = range(600)
CHUNK = 100


def describe(outcome: Outcome | None) -> Any:
    if isinstance(outcome, Plan):
        return [[str(choice.device.id) for choice in claim] for claim in outcome.choices]
    return type(outcome).__name__


def alone(cluster: Cluster, objects: Objects) -> dict[str, Any]:
    """Each node's verdict, found for itself."""
    pending = cluster.resolve(objects.claims)
    return {
        name: describe(cluster.verdict(pending, name, budget=BUDGET))
        for name in sorted(cluster.nodes)
    }


def together(cluster: Cluster, objects: Objects) -> dict[str, Any]:
    """Each node's verdict, found once per class."""
    verdicts = cluster.verdicts(cluster.resolve(objects.claims), budget=BUDGET)
    return {
        node: describe(verdicts.plan(node) if isinstance(outcome, Plan) else outcome)
        for node, outcome, _ in sorted(verdicts, key=lambda first_values: first_values[0])
    }


@pytest.mark.parametrize("start", every_second(range(SEEDS.start, SEEDS.stop, CHUNK)))
def test_cached_verdicts_are_those_of_a_search(start: int) -> None:
    shared = 0
    for seed in range(start, start + CHUNK):
        objects = crowd(seed)
        cluster = new(objects)
        try:
            want: Any = alone(cluster, objects)
        except AttemptFailed:
            want = None

        try:
            placements: Any = together(cluster, objects)
        except AttemptFailed:
            placements = None

        assert want == placements, seed
        if want is not None:
            classes = cluster.verdicts(cluster.resolve(objects.claims), budget=BUDGET).classes
            shared += len(classes) < len(cluster.nodes)
    # A memo that never shares would not lie either.
    assert shared > CHUNK / 3


@pytest.mark.parametrize("seed", every_second(range(0, 200, 5)))
@pytest.mark.parametrize("evicts", [False, True], ids=["keeps", "forgets"])
def test_updates_lead_to_the_state_of_a_fresh_start(
    seed: int, evicts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if evicts:
        for bound in (
            "verdict_cache.MAX_KEYS",
            "verdict_cache.MAX_KEY_BYTES",
            "verdict_cache.MAX_VERDICTS",
            "cluster.MAX_PARTITIONS",
            "cluster.MAX_RANKINGS",
        ):
            monkeypatch.setattr(f"allocator.cluster.{bound}", 1)
    objects = crowd(seed)
    kept_cluster = new(objects, without_claims=True)
    try:
        together(kept_cluster, objects)
        for _ in changes(kept_cluster, objects):
            pass
        placements: Any = together(kept_cluster, objects)
    except AttemptFailed:
        placements = None
    # What came back is listed last, and upstream, too, goes by the list where groups contradict.
    relisted_slices = (*objects.slices[1::2], *objects.slices[::2])
    try:
        want: Any = together(new(msgspec.structs.replace(objects, slices=relisted_slices)), objects)
    except AttemptFailed:
        want = None

    if want is not None and placements is not None:
        assert want == placements


@pytest.mark.parametrize("seed", every_second(range(0, 200, 5)))
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_a_ranking_follows_every_change(seed: int, strategy: Strategy) -> None:
    objects = crowd(seed)
    cluster = new(objects, without_claims=True)

    def check() -> None:
        """Compare the ranking, built in small steps, with the verdicts about all nodes."""
        try:
            pending = cluster.resolve(objects.claims)
        except AttemptFailed:
            return
        usable = [name for name in cluster.nodes if not _fails(cluster, pending, name)]
        verdicts = cluster.verdicts(pending, strategy=strategy, budget=BUDGET, nodes=usable)
        fitting = [(name, score) for name, outcome, score in verdicts if isinstance(outcome, Plan)]
        expected = tuple(sorted(fitting, key=lambda node: (-node[1], node[0])))
        rank = partial(cluster.rank_nodes, pending, strategy=strategy, budget=BUDGET)
        ranked = rank(may_use=usable.__contains__)
        best = rank(may_use=usable.__contains__, limit=2)
        assert expected == ranked.nodes, seed
        assert (expected[:2], len(expected) <= 2) == (best.nodes, best.complete), seed
        if len(usable) < len(cluster.nodes):
            with pytest.raises(AttemptFailed):
                rank()

    check()
    for _ in changes(cluster, objects):
        check()


def _fails(cluster: Cluster, pending: PendingClaims, node: str) -> bool:
    try:
        cluster.verdict(pending, node, budget=BUDGET)
    except AttemptFailed:
        return True
    return False


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_a_ranking_that_is_searched_in_parts_becomes_the_whole_one(seed: int) -> None:
    objects = crowd(seed)
    try:
        pending = new(objects).resolve(objects.claims)
        expected_ranked_nodes = new(objects).rank_nodes(pending, budget=BUDGET)
    except AttemptFailed:
        return
    cluster = new(objects)

    def rank_a_part() -> RankedNodes:
        limits = Limits(nodes=2, searches=1, steps=BUDGET.steps)
        return cluster.rank_nodes(pending, budget=BUDGET, limits=limits)

    part = rank_a_part()
    for _ in objects.nodes:
        assert part.complete is part.is_known
        assert set(part.nodes) <= set(expected_ranked_nodes.nodes)
        part = rank_a_part()

    assert (expected_ranked_nodes.nodes, True) == (part.nodes, part.is_known)


def changes(cluster: Cluster, objects: Objects) -> Iterator[None]:
    """Change a cluster without allocated claims in every way, and yield after each kind of change.

    In the end all claims are allocated, and the first half of the slices is listed last.
    """
    for number, claim_ in enumerate(objects.allocated_claims):
        cluster.allocate(claim_)
        if number % 2:
            yield
    for slice_ in objects.slices[::2]:
        cluster.replace_slices([(slice_, None)])
    yield
    for slice_ in objects.slices[::2]:
        cluster.replace_slices([(None, slice_)])
    for node_ in objects.nodes[::2]:
        cluster.replace_node(node_.metadata.name, None)
    yield
    for node_ in objects.nodes[::2]:
        cluster.replace_node(node_.metadata.name, node_)
    for claim_ in objects.allocated_claims[::2]:
        cluster.release(claim_)
    yield
    for claim_ in objects.allocated_claims[::2]:
        cluster.allocate(claim_)
    yield
    usage, features = cluster.usage, cluster.options.features
    cluster.replace_usage(without_claims(usage, objects.allocated_claims[1::2], features))
    yield
    cluster.replace_usage(usage)
    yield


def new(objects: Objects, *, without_claims: bool = False) -> Cluster:
    return Cluster(
        slices=objects.slices,
        nodes=objects.nodes,
        claims=() if without_claims else objects.allocated_claims,
        classes=objects.classes,
        options=AllocatorOptions(features=objects.features),
    )


def dedicated(seed: int) -> tuple[Cluster, ResourceClaim]:
    """Many nodes of few kinds, held at random, and a claim for dedicated devices by number."""
    rng = Random(seed)
    slices, allocated = [], []
    for number in range(24):
        cards = [
            device(
                f"d{index}",
                attributes={
                    "model": rng.choice(("A100", "A100", "T4")),
                    "numa": rng.randrange(2),
                    "root": f"{number}-{rng.randrange(3)}",
                },
                taints=(taint(),) if rng.random() < 0.1 else None,
            )
            for index in range(6)
        ]
        skipped = ("*",) if rng.random() < 0.2 else None
        slices.append(slice_of(*cards, pool=f"n{number}", skip_node_operations=skipped))
        allocated += [
            allocated_claim(result(f"d{index}", pool=f"n{number}"), name=f"{number}-{index}")
            for index in range(6)
            if rng.random() < 0.4
        ]
    model = f'device.attributes["{DRIVER}"].model == "A100"'
    requests = [
        request(f"r{index}", *rng.choice(((), (model,))), count=rng.randint(1, 2))
        for index in range(rng.randint(1, 2))
    ]
    constraint = rng.choice((match, distinct))(f"{DRIVER}/{rng.choice(('root', 'numa'))}")
    cluster = Cluster(
        slices=slices,
        nodes=[
            node(f"n{number}", features=rng.choice(((), (OPTIONAL_OPERATIONS,))))
            for number in range(24)
        ],
        claims=allocated,
        classes=classes(),
        options=AllocatorOptions(features=Features(optional_node_operations=True)),
    )
    return cluster, claim(*requests, constraints=rng.choice(((), (constraint,))))


def test_nodes_that_differ_in_order_share_the_verdict_but_not_the_devices() -> None:
    shared = 0
    for seed in range(150):
        cluster, wanted_claim = dedicated(seed)
        pending = cluster.resolve([wanted_claim])
        verdicts = cluster.verdicts(pending)

        for name in cluster.nodes:
            want = describe(cluster.verdict(pending, name))
            plan = verdicts.plan(name)
            assert want == (describe(plan) if plan is not None else "DoesNotFit"), (seed, name)
        shared += sum(not device_class.same_order for device_class in verdicts.classes)
    assert shared > 150
