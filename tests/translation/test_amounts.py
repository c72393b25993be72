"""Amounts of device keys: the counts, and the words for amounts that are none."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from findings.field_path import FieldPath
from findings.finding import Finding
from kube.quantity import Quantity
from translation.model.amounts import whole_amount
from translation.model.intents import LegacyContainer

KEY = "nvidia.com/gpu"


class Case(NamedTuple):
    amount: str
    want: int | str


CASES = (
    Case("2", 2),
    Case("2000m", 2),
    Case("0", 0),
    Case("500m", "500m is not a whole number; write a whole number"),
    Case("1.5", "1500m is not a whole number; write a whole number"),
    Case("-1", "-1 is negative; write 0 or more"),
)


def _container(limits: Mapping[str, Quantity]) -> LegacyContainer:
    path = FieldPath.of("spec", "containers", 0)
    return LegacyContainer(name="main", path=path, limits=limits)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.amount)
def test_an_amount_is_whole_or_denied_with_a_fix(case: Case) -> None:
    answer = whole_amount(_container({KEY: Quantity(case.amount)}), KEY)

    words = f"{answer.message}; {answer.fix}" if isinstance(answer, Finding) else answer
    assert words == case.want


def test_a_container_without_the_key_has_no_amount() -> None:
    assert whole_amount(_container({}), KEY) is None
