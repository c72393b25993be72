"""Limits, references, messages and quoting; test_cel_table.py compares results with Go."""

import pytest
from cel_expr_python import cel
from hypothesis import given
from hypothesis import strategies as st

from kube.api.resource import Device, DeviceAttribute, DeviceCapacity
from kube.cel.compile import Environment, compile_in_place
from kube.cel.device import device_view
from kube.cel.quoting import quote
from kube.errors import InvalidSelector, SelectorFailed, UnsupportedSelector
from kube.quantity import Quantity

GPU = device_view(
    "gpu.example.com",
    Device(
        name="gpu-0",
        attributes={
            "model": DeviceAttribute(string="A100"),
            "other.example.com/zone": DeviceAttribute(string="a"),
        },
        capacity={"memory": DeviceCapacity(value=Quantity("80Gi"))},
    ),
)
STORED = Environment.STORED


@pytest.mark.parametrize(
    ("attributes", "capacities", "expression"),
    [
        (set(), set(), "true"),
        (set(), set(), 'device.driver == "x"'),
        ({("d", "x")}, set(), 'device.attributes["d"].x == 1'),
        (
            {("d", "x"), ("e", "y")},
            set(),
            'has(device.attributes["d"].x) && "y" in device.attributes["e"]',
        ),
        ({("d", "x")}, set(), 'device.attributes["d"].?x.orValue(false)'),
        (set(), {("d", "m")}, 'device.capacity["d"].m.isInteger()'),
        (None, set(), 'device.attributes["d"].exists(k, k == "x")'),
        (None, set(), "device.attributes[device.driver].x == 1"),
        (None, {("d", "m")}, 'device.attributes.size() == 1 && has(device.capacity["d"].m)'),
        (None, None, 'cel.bind(d, device, d.driver == "x")'),
    ],
)
def test_referenced_names(
    attributes: set[tuple[str, str]] | None,
    capacities: set[tuple[str, str]] | None,
    expression: str,
) -> None:
    selector = compile_in_place(expression, STORED)

    assert (selector.attributes, selector.capacities) == (attributes, capacities)


def test_a_missing_attribute_is_named_as_upstream_does() -> None:
    with pytest.raises(SelectorFailed, match=r"^no such key: missing$"):
        compile_in_place('device.attributes["d"].missing == 1', STORED).matches(GPU)


def test_a_result_of_another_type_is_named() -> None:
    selector = compile_in_place('device.attributes["gpu.example.com"].model', STORED)

    with pytest.raises(SelectorFailed, match="CEL result of type STRING could not be converted"):
        selector.matches(GPU)


@pytest.mark.parametrize("expression", ["true", 'device.driver == "x"'])
def test_an_invalid_attribute_fails_every_expression(expression: str) -> None:
    broken_device_view = device_view(
        "d", Device(name="x", attributes={"v": DeviceAttribute(version="v1")})
    )

    with pytest.raises(SelectorFailed, match="attribute v: 'v1' is not a semantic version"):
        compile_in_place(expression, STORED).matches(broken_device_view)


@pytest.mark.parametrize("name", ["gpu.example.com", "other.example.com"])
@pytest.mark.parametrize("expression", ["device.driver == '{}'", "'{}' == device.driver"])
def test_a_driver_is_compared_as_the_engine_does(expression: str, name: str) -> None:
    selector = compile_in_place(expression.format(name), STORED)

    assert selector.matches(GPU) == (name == "gpu.example.com") == selector.evaluate(GPU).value()


def test_compiling_twice_gives_the_same_selector() -> None:
    assert compile_in_place("1 == 1", STORED) is compile_in_place("1 == 1", STORED)


def test_the_largest_expression_has_ten_kilobytes() -> None:
    assert compile_in_place("true".ljust(10240), STORED).matches(GPU)
    with pytest.raises(InvalidSelector, match="longer than 10240 bytes"):
        compile_in_place("true".ljust(10241), STORED)
    with pytest.raises(InvalidSelector, match="longer"):
        compile_in_place(f"'{'ß' * 5200}' == ''", STORED)


def doubling_bindings(times: int) -> str:
    bindings = "".join(f"cel.bind(x{n + 1}, x{n} + x{n}, " for n in range(times))
    return f"cel.bind(x0, 'aaaaaaaaaa', {bindings}size(x{times}) > 0{')' * (times + 1)}"


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(doubling_bindings(26), id="a string that doubles in every binding"),
        pytest.param(
            f"lists.range(9000).all(i, '{'a' * 5000}'.contains('b'))", id="a long string in a loop"
        ),
        pytest.param(
            "lists.range(device.attributes['d'].x).size() == 1",
            id="a list whose length is an attribute",
        ),
        pytest.param(
            f"'{'a' * 3000}'.matches('{'(a*)*' * 100}b')", id="a long pattern on a long string"
        ),
        pytest.param("+".join("1" * 3000) + " == 1", id="nested deeper than the engine parses"),
        pytest.param("(" * 200 + "true" + ")" * 200, id="more parentheses than the engine parses"),
        pytest.param(
            "device.attributes[" * 12 + "device.driver" + "].x" * 12 + " == 1",
            id="nested lookups with computed domains",
        ),
    ],
)
def test_an_expression_that_may_cost_too_much_is_unsupported(expression: str) -> None:
    with pytest.raises(UnsupportedSelector):
        compile_in_place(expression, STORED)


@pytest.mark.parametrize(
    "expression",
    ['"has(device.driver)" == "x" || has(device.driver)', "[1].exists(device, has(device.driver))"],
)
def test_an_ambiguous_has_is_unsupported(expression: str) -> None:
    with pytest.raises(UnsupportedSelector, match=r"has\(\) of a field"):
        compile_in_place(expression, STORED)


def test_an_expression_that_is_not_unicode_is_invalid() -> None:
    with pytest.raises(InvalidSelector, match="not Unicode"):
        compile_in_place("'\ud800' == ''", STORED)


@pytest.mark.parametrize(
    ("want", "text"),
    [
        ('""', ""),
        ('"a"', "a"),
        ('"\\"\\\\"', '"\\'),
        ('"\\u0000\\n\\u007f"', "\0\n\x7f"),
        ('"Gr\\u00f6\\u00dfe \\U0001f600"', "Größe \U0001f600"),
        ('"\\" || true || \\""', '" || true || "'),
    ],
)
def test_quote(want: str, text: str) -> None:
    assert want == quote(text)


def _value(literal: str) -> object:
    return cel.NewEnv().compile(literal).eval().plain_value()


@pytest.mark.property
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_quoted_string_evaluates_to_itself(text: str) -> None:
    assert text == _value(quote(text))


def test_a_quoted_string_evaluates_to_itself_for_every_ascii_character() -> None:
    text = "".join(map(chr, range(128)))

    assert text == _value(quote(text))


def test_a_string_that_the_engine_would_cut_is_unsupported() -> None:
    cut = device_view("d", Device(name="x", attributes={"v": DeviceAttribute(string="a\0b")}))

    with pytest.raises(UnsupportedSelector, match="attribute v"):
        compile_in_place("true", STORED).matches(cut)
