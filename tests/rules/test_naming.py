"""The name that a misspelt one probably stands for: found among many, and never searched at a user's price."""

import difflib
from collections.abc import Sequence
from typing import Final

import pytest

from findings.similar_names import MAX_SIMILAR_LENGTH
from rules.model.naming import (
    MAX_COMPARED,
    closest_name,
    find_similar_name,
    suggest_name,
)

OTHERS: Final = tuple(f"{chr(97 + number % 26)}{number // 26}-templates" for number in range(100))


def test_a_similar_name_is_found_among_many() -> None:
    assert find_similar_name("trainign-gpus", (*OTHERS, "training-gpus")) == "training-gpus"


def test_names_that_users_may_make_as_long_as_they_like_are_not_compared() -> None:
    longest = "a" * MAX_SIMILAR_LENGTH

    assert find_similar_name(f"{longest[:-1]}b", [longest]) == longest
    assert find_similar_name(f"{longest}b", [longest]) == ""
    assert find_similar_name(longest, [f"{longest}b"]) == ""


def test_a_suggestion_names_known_names_where_a_long_one_is_not_compared() -> None:
    longest = "a" * MAX_SIMILAR_LENGTH

    assert suggest_name(f"{longest[:-1]}b", [longest]) == f'did you mean "{longest}"?'
    assert suggest_name(f"{longest}b", [longest]) == f'known names: "{longest}"'


def test_only_the_first_names_are_compared() -> None:
    names = [f"b{number}" for number in range(MAX_COMPARED)]

    assert find_similar_name("trainign", [*names, "training"]) == ""


def test_the_words_and_the_rewrite_of_a_finding_search_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[str] = []

    def search(name: str, names: Sequence[str], n: int, cutoff: float) -> list[str]:
        searched.append(name)
        return similar(name, names, n=n, cutoff=cutoff)

    similar = difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", search)

    suggest_name("search-once", ["search-one"])
    closest_name("search-once", ["search-one"])

    assert searched == ["search-once"]
