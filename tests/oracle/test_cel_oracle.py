"""The record of CEL verdicts against Go today, and quoted texts in Go."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.cel.quoting import quote
from testing.oracle.go import Oracle
from testing.oracle.record import CEL, recorded_document

pytestmark = pytest.mark.oracle


def test_the_record_is_what_go_says_today() -> None:
    assert json.loads(CEL.read_text()) == recorded_document()


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_quoted_text_evaluates_to_itself(oracle: Oracle, text: str) -> None:
    (answer,) = oracle.ask([{"text": {"expression": quote(text)}}])

    assert answer == {"text": text}
