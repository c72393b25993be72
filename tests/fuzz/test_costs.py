"""The results of the search for costly input, as rows; and the law that the search goes uphill."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import msgspec
import pytest

from kube.cel import cost, scope
from kube.cel.patterns import MAX_SIZE, program_size
from process.selectors import engine
from testing.allocation.builders import DRIVER
from testing.fuzz import evaluating
from testing.fuzz.costs import SPECIES, PodGene, pod_of, search
from testing.fuzz.evaluating import Evaluation
from testing.fuzz.evaluations import (
    LENGTH,
    SHAPES,
    SelectorGene,
    decision_excess,
    device_of,
    evaluation_excess,
    keyed,
    mapped,
    pairs,
    patterns,
    route_excess,
    selector_of,
    worker_excess,
)
from testing.fuzz.reviews import review
from testing.fuzz.species import Species
from webhook.reviews import LARGE_BODY


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(
            r"\pL{0,55}", id="the repetition of a class by its name, not of its last letter"
        ),
        pytest.param(r"\p{Greek}{9}", id="the same of a long name"),
        pytest.param(r"(?i)\W\W{1,220}", id="a negated class with other case"),
    ],
)
def test_a_pattern_that_took_longer_than_its_size_said_is_large(pattern: str) -> None:
    assert program_size(pattern) > MAX_SIZE


@pytest.mark.parametrize(
    "gene",
    [
        PodGene(containers=48, init=52, key=1, amounts=1, filters=25, claims=133, again=2),
        PodGene(
            containers=58, init=51, key=1, amounts=4, filters=25, padding=32, claims=101, again=1
        ),
        PodGene(containers=54, init=23, key=1, amounts=1, filters=18, padding=3),
    ],
    ids=repr,
)
def test_a_pod_that_took_nearly_as_long_as_it_may_is_large(gene: PodGene) -> None:
    assert len(msgspec.json.encode(review(pod_of(gene)))) > LARGE_BODY


def test_the_search_climbs() -> None:
    letters: Species = SPECIES["pattern"]._replace(excess=lambda text: text.count("a") / 1000)
    first = search(letters, Random(1), range(40))[0]
    best = search(letters, Random(1), range(2000))[0]

    assert best.excess > first.excess
    assert best.excess > 0.02


@pytest.mark.parametrize("species", SPECIES.values(), ids=SPECIES)
def test_every_species_is_drawn_and_changed(species: Species) -> None:
    chance = Random(1)
    gene = species.draw(chance)
    for _ in range(20):
        gene = species.change(gene, chance)

    assert species.excess(gene) >= 0
    assert species.show(gene)


def test_an_expression_that_is_charged_too_little_exceeds_its_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if `map` were charged for its elements alone, and copied no list."""
    copying = SelectorGene(shape=SHAPES.index(mapped), length=3000)
    assert evaluation_excess(copying) < 1

    monkeypatch.setattr(
        cost, "estimate_charge", lambda tree: cost.Charge(cost.estimate_cost(tree), False)
    )

    assert evaluation_excess(copying) > 3


def test_the_key_of_a_map_has_a_price() -> None:
    """A key was charged nothing, so this one took more than a hundred times its price, in place."""
    key = SelectorGene(shape=SHAPES.index(keyed), length=1200)
    alone = key._replace(shape=SHAPES.index(pairs))

    assert price_s(key) > price_s(alone)


def price_s(gene: SelectorGene) -> float:
    """The CPU time that an evaluation of a gene's selector is charged."""
    return Evaluation(selector_of(gene), DRIVER, device_of(0, 0)).price_s


def test_a_decision_that_waits_for_the_worker_exceeds_what_it_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if the turn were held while expressions are evaluated, and no step were charged."""
    gene = SelectorGene(shape=SHAPES.index(patterns), length=LENGTH, requests=24, devices=5)

    @contextmanager
    def in_place(**_: object) -> Iterator[None]:
        with scope.evaluating(engine=None):
            yield

    monkeypatch.setattr(evaluating, "evaluating", in_place)
    monkeypatch.setattr(scope.Meter, "charge", lambda *_: None)

    assert decision_excess(gene) > 1
    assert route_excess(gene) > 1


def test_a_tenant_that_blocks_others_from_the_worker_exceeds_what_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if losses were counted for all tenants together."""
    ending = SelectorGene(shape=SHAPES.index(mapped), length=LENGTH)
    is_blocked = engine.WorkerEngine._is_blocked

    def is_anybody_blocked(self: engine.WorkerEngine, tenant: str) -> bool:
        return is_blocked(self, tenant) or is_blocked(self, "hostile")

    monkeypatch.setattr(engine.WorkerEngine, "_is_blocked", is_anybody_blocked)

    assert worker_excess(ending) > 1
