"""The setting `translation.vocabularies`: keys of a vocabulary that is not chosen have no effect."""

from typing import NamedTuple

import pytest

from admission.match_conditions import match_conditions
from testing.builders import gpus, koordinator_container, pod, profiles, translation_outcome
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, vocabularies_in_force
from translation.pipeline.translate import Translated, Untouched


class Case(NamedTuple):
    name: str
    chosen: frozenset[str]
    pod: Document
    owners: tuple[str, ...]


CASES = (
    Case("the only one", frozenset({"nvidia"}), pod(gpus(1)), ("nvidia",)),
    Case(
        "not the one of these keys", frozenset({"nvidia"}), pod(koordinator_container(gpu=50)), ()
    ),
    Case("none", frozenset(), pod(gpus(1, mem=1)), ()),
    Case(
        "one of two in the pod",
        frozenset({"nvidia", "hami"}),
        pod(gpus(1), koordinator_container("other", gpu=50)),
        ("nvidia",),
    ),
    Case("a key that several handle", frozenset({"koordinator"}), pod(gpus(1)), ("koordinator",)),
    Case("without NICs", frozenset({"hami"}), pod(gpus(mem=1)), ("hami",)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_only_keys_of_chosen_vocabularies_are_translated(case: Case) -> None:
    outcome = translation_outcome(case.pod, options=TranslationOptions(vocabularies=case.chosen))

    if not case.owners:
        assert outcome == Untouched()
    else:
        assert isinstance(outcome, Translated)
        assert tuple(used.vocabulary for used in outcome.record.profiles) == case.owners


def test_pods_with_keys_of_other_vocabularies_do_not_depend_on_the_webhook() -> None:
    options = TranslationOptions(vocabularies=frozenset({"nvidia", "hami"}))

    conditions = "".join(
        match_conditions(vocabularies_in_force(options, profiles()).values()).values()
    )

    assert "nvidia.com/gpumem" in conditions
    assert "koordinator.sh" not in conditions
    assert "rdma/" not in conditions
