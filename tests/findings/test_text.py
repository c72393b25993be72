"""Tests of findings.text: foreign and long texts in messages."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from findings.text import shorten, shorten_encoded


class Shortened(NamedTuple):
    name: str
    text: str
    length: int
    want: str


SHORTENED = (
    Shortened("short enough", "leave it out", 12, "leave it out"),
    Shortened("behind a word", "leave out the limit", 14, "leave out..."),
    Shortened("a word that just fits", "leave out the limit", 12, "leave out..."),
    Shortened("no comma before the ellipsis", "one, two, three", 13, "one, two..."),
    Shortened("a long word is cut", "a-very-long-name-without-spaces", 10, "a-very-..."),
    Shortened(
        "a long word behind a short one", "is very-long-name-without-spaces", 16, "is very-long-..."
    ),
    Shortened("no room", "leave it", 2, ".."),
)


@pytest.mark.parametrize("case", SHORTENED, ids=lambda case: case.name)
def test_shorten(case: Shortened) -> None:
    assert case.want == shorten(case.text, case.length)


@given(st.text(), st.integers(0, 60))
def test_nothing_is_longer_than_it_may_be(text: str, length: int) -> None:
    assert len(shorten(text, length)) <= length
    assert len(shorten_encoded(text, length).encode(errors="replace")) <= length
