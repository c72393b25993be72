"""Texts that expressions compare with attributes."""

import pytest

from kube.cel.library import Environment
from kube.cel.literals import compared
from kube.errors import InvalidSelector

HERE = 'device.attributes["a.b"]'


@pytest.mark.parametrize(
    ("want", "expression"),
    [
        pytest.param(["a.b/x=1"], f'{HERE}.x == "1"', id="equal"),
        pytest.param(["a.b/x=1"], f'"1" != {HERE}["x"]', id="unequal, the other way around"),
        pytest.param(["a.b/x=1", "a.b/x=2"], f'{HERE}.x in ["2", "1"]', id="one of a list"),
        pytest.param(["a.b/x=1"], f'"1" in {HERE}.x', id="in a list attribute"),
        pytest.param(["a.b/x=1"], f'{HERE}.?x.orValue("") == "1"', id="with a default"),
        pytest.param(["a.b/x=1"], f'{HERE}[?"x"].orValue("") == "1"', id="by an optional index"),
        pytest.param(["a/x=1"], 'device.attributes.a.x == "1"', id="a domain as a field"),
        pytest.param(
            ["a.b/x=1", "a.b/y=2"], f'has({HERE}.x) && ({HERE}.x == "1" || {HERE}.y == "2")',
            id="below operators",
        ),
        pytest.param([], f"{HERE}.x == 1", id="a number is no text"),
        pytest.param([], f"{HERE}.x == {HERE}.y", id="two attributes"),
        pytest.param([], 'device.driver == "1"', id="not an attribute"),
        pytest.param([], f'cel.bind(a, {HERE}, a.x == "1")', id="another name is not followed"),
    ],
)  # fmt: skip
def test_compared(want: list[str], expression: str) -> None:
    got = compared(expression, Environment.STORED)

    assert want == [f"{each.domain}/{each.identifier}={each.text}" for each in got]


def test_compared_in_what_does_not_compile() -> None:
    with pytest.raises(InvalidSelector):
        compared("device.attributes[", Environment.STORED)
