"""String literals that expressions compare attributes with."""

import pytest

from kube.api.meta import convert
from kube.api.resource import DeviceClass
from kube.cel.comparisons import compared_literals, drivers_named_by_class, is_decided_by_texts
from kube.cel.library import Environment
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
def test_compared_literals(want: list[str], expression: str) -> None:
    literals = compared_literals(expression, Environment.STORED)

    assert want == [f"{literal.domain}/{literal.identifier}={literal.text}" for literal in literals]


def test_compared_literals_of_an_invalid_expression() -> None:
    with pytest.raises(InvalidSelector):
        compared_literals("device.attributes[", Environment.STORED)


IS_A = 'device.driver == "a.example"'


@pytest.mark.parametrize(
    ("want", "expressions"),
    [
        pytest.param({"a.example"}, [IS_A], id="one"),
        pytest.param({"a.example"}, [f'{HERE}.x == "1"', IS_A], id="by one of two selectors"),
        pytest.param(
            {"a.example", "b.example"}, [f'{IS_A} || device.driver == "b.example"'],
            id="one or another",
        ),
        pytest.param({"a", "b"}, ['device.driver in ["a", "b"]'], id="one of a list"),
        pytest.param(set(), [], id="no selector"),
        pytest.param(set(), [f'{HERE}.x == "1"'], id="attributes only"),
        pytest.param(set(), ['device.driver != "a"'], id="all but one"),
        pytest.param({"a.example"}, ["device.attributes[", IS_A], id="beside what does not compile"),
        pytest.param({"a.example"}, [IS_A + " " * (1024 - len(IS_A))], id="as long as is read"),
        pytest.param(set(), [IS_A + " " * (1025 - len(IS_A))], id="longer than is read"),
    ],
)  # fmt: skip
def test_drivers_named_by_class(want: set[str], expressions: list[str]) -> None:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    device_class = convert({"spec": {"selectors": selectors}}, DeviceClass)

    assert want == drivers_named_by_class(device_class)


@pytest.mark.parametrize(
    ("want", "expression"),
    [
        pytest.param(True, f'{HERE}.x == "1"', id="equal"),
        pytest.param(True, f'{HERE}.?x.orValue("") in ["1", "2"]', id="one of a list"),
        pytest.param(True, f'has({HERE}.x) && !("y" in {HERE})', id="presence"),
        pytest.param(True, f"{HERE}.?x.hasValue() ? true : false", id="an optional value"),
        pytest.param(True, 'device.driver == "a.b"', id="the driver"),
        pytest.param(True, "false", id="a constant"),
        pytest.param(False, f'"1" in {HERE}.x', id="a list attribute"),
        pytest.param(False, f"{HERE}.x == 1", id="a number"),
        pytest.param(False, f"{HERE}.x == {HERE}.y", id="two attributes"),
        pytest.param(False, f'{HERE}.x.startsWith("1")', id="a part of a text"),
        pytest.param(False, f'{HERE}.?x.orValue(1) == "1"', id="a default that is no text"),
        pytest.param(False, f'{HERE}.x == "1" || device.allowMultipleAllocations', id="a field"),
        pytest.param(False, f"{HERE}.x in [{HERE}.y]", id="a list with an attribute"),
    ],
)
def test_is_decided_by_texts(want: bool, expression: str) -> None:
    assert want is is_decided_by_texts(expression, Environment.STORED)
