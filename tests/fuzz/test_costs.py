"""The results of the search for costly input, as rows; and the law that the search goes uphill."""

from random import Random

import msgspec
import pytest

from kube.cel.patterns import MAX_SIZE, program_size
from testing.fuzz.costs import SPECIES, PodGene, Species, pod_of, search
from testing.fuzz.reviews import review
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
