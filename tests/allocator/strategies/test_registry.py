from collections.abc import Mapping
from typing import NamedTuple

import pytest

from allocator.strategies.registry import ALL, find_strategy, requested_strategy
from kube.errors import FieldError
from kube.names import STRATEGY_ANNOTATION

KNOWN = (
    "one of FirstFit, CompactFirst, LowLoadFirst, NodeCompactDeviceLowLoad, TopologyPacked, BestFit, "
    "FragmentationAware"
)


def strategy_annotations(word: str) -> dict[str, str]:
    """Annotations that choose."""
    return {STRATEGY_ANNOTATION: word, "example.com/other": "x"}


@pytest.mark.parametrize("first_value", ALL, ids=lambda strategy: strategy.name)
def test_strategies_are_named_like_their_classes(first_value: object) -> None:
    assert find_strategy(type(first_value).__name__) is first_value


def test_an_unknown_name_lists_the_known_ones() -> None:
    assert find_strategy("binpack") == FieldError(
        path="strategy", message='"binpack" is not a strategy', fix=KNOWN
    )


def test_a_long_name_is_cut() -> None:
    error = find_strategy("x" * 10_000)

    assert isinstance(error, FieldError)
    assert len(error.message) < 100


class Row(NamedTuple):
    name: str
    pod: Mapping[str, str]
    classes: Mapping[str, Mapping[str, str]]
    want: str | None


ROWS = (
    Row("nobody says anything", {}, {}, None),
    Row("a class without the annotation", {}, {"gpu": {}}, None),
    Row("the class", {}, {"gpu": strategy_annotations("BestFit")}, "BestFit"),
    Row(
        "the pod before the class",
        strategy_annotations("LowLoadFirst"),
        {"gpu": strategy_annotations("BestFit")},
        "LowLoadFirst",
    ),
    Row("the pod alone", strategy_annotations("TopologyPacked"), {}, "TopologyPacked"),
    Row(
        "of several classes the first that says something",
        {},
        {
            "nic": {},
            "gpu": strategy_annotations("BestFit"),
            "fpga": strategy_annotations("CompactFirst"),
        },
        "BestFit",
    ),
    Row("space around a word is nothing", strategy_annotations(" BestFit\n"), {}, "BestFit"),
    Row(
        "a wrong word of a class that is outvoted does no harm",
        strategy_annotations("BestFit"),
        {"gpu": strategy_annotations("x")},
        "BestFit",
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_requested_strategy(row: Row) -> None:
    assert row.want == requested_strategy(row.pod, row.classes)


class Wrong(NamedTuple):
    name: str
    pod: Mapping[str, str]
    classes: Mapping[str, Mapping[str, str]]
    path: str


WRONG = (
    Wrong(
        "of the pod",
        strategy_annotations("bestfit"),
        {},
        "metadata.annotations[drawbridge.internal/strategy]",
    ),
    Wrong(
        "empty",
        strategy_annotations(""),
        {},
        "metadata.annotations[drawbridge.internal/strategy]",
    ),
    Wrong(
        "of a class",
        {},
        {"nic": {}, "gpu": strategy_annotations("spread")},
        "deviceClass[gpu].metadata.annotations[drawbridge.internal/strategy]",
    ),
)


@pytest.mark.parametrize("row", WRONG, ids=lambda row: row.name)
def test_an_unknown_strategy_is_a_field_error(row: Wrong) -> None:
    error = requested_strategy(row.pod, row.classes)

    assert isinstance(error, FieldError)
    assert (row.path, KNOWN) == (error.path, error.fix)
