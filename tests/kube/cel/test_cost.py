"""Estimates are upper bounds: of every part of an expression, in every place."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from kube.api.resource import Device, DeviceAttribute
from kube.cel import cost
from kube.cel.compile import compile_in_place
from kube.cel.derived import compile_derived
from kube.cel.device import device_view
from kube.cel.library import Environment
from kube.cel.rewrite import RewrittenExpression
from kube.cel.syntax import Expr, Node, call, children, ident, string_constant
from kube.errors import SelectorTooCostly

LOOPS: Final = "lists.range(90).all(x, lists.range(90).all(y, true))"
PYTHON: Final = "quantity('1Gi').compareTo(quantity('2Gi'))"


def estimate(expression: str) -> tuple[int, int, bool]:
    """Return cost, charge, and True if Python is called."""
    selector = compile_in_place(expression, Environment.STORED)
    return selector.cost, selector.charge, selector.calls_python


# --- every part of every node ---------------------------------------------------------------------


def costly_node() -> Node:
    """Return a call of a high cost."""
    return call("lists.range", _number(50_000))


def _number(value: int) -> Node:
    node = Expr()
    node.const_expr.int64_value = value
    return node


def _kinds_with_children() -> Iterator[tuple[str, Node]]:
    """Yield a node of each kind, with a constant in each place for a child."""
    for field in Expr.DESCRIPTOR.oneofs_by_name["kind"].fields:
        node = Expr()
        getattr(node, field.name).SetInParent()
        _fill(getattr(node, field.name))
        yield field.name, node


def _fill(message: Any) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.message_type is None:
            continue
        value = getattr(message, field.name)
        part = value.add() if hasattr(value, "add") else value
        if field.message_type == Expr.DESCRIPTOR:
            part.list_expr.elements.add().CopyFrom(string_constant("a"))
        else:
            part.SetInParent()
            _fill(part)


def _places(message: Any) -> int:
    """Return the number of places for a child in a message of the tree."""
    return sum(
        1 if field.message_type == Expr.DESCRIPTOR else _places(part)
        for field, value in message.ListFields()
        if field.message_type is not None
        for part in (value if hasattr(value, "add") else (value,))
    )


NODES: Final = dict(_kinds_with_children())


@pytest.mark.parametrize("kind", NODES)
def test_every_child_of_every_kind_of_node_is_visited(kind: str) -> None:
    assert _places(getattr(NODES[kind], kind)) == len(list(children(NODES[kind])))


@pytest.mark.parametrize(
    ("kind", "place"),
    [(kind, place) for kind, node in NODES.items() for place in range(len(list(children(node))))],
)
def test_every_child_of_every_kind_of_node_is_estimated(kind: str, place: int) -> None:
    node = Expr()
    node.CopyFrom(NODES[kind])
    list(children(node))[place].CopyFrom(costly_node())
    tree = RewrittenExpression(
        expr=node,
        variables={},
        constants={},
        device_fields=frozenset(),
        has_dynamic_equality=False,
    )

    assert cost.estimate_cost(tree) > 50_000
    assert cost.estimate_charge(tree).units > 50_000


def test_an_unknown_name_is_as_large_as_all_that_a_device_has() -> None:
    tree = RewrittenExpression(
        expr=call("_==_", ident("x"), ident("x")),
        variables={},
        constants={},
        device_fields=frozenset(),
        has_dynamic_equality=False,
    )

    assert cost.estimate_cost(tree) > 800


# --- keys of map literals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inner",
    [
        LOOPS,
        PYTHON,
        "'a'.matches('[a-c]{40}')",
        "'abc'.replace('', 'abcdefghijk')",
        "[1, 2, 3].map(x, x + 1).size()",
        "cel.bind(a, 'aaaa', a + a)",
        f"{{1: {LOOPS}}}[1]",
        f"[{LOOPS}][0]",
        f"{{{LOOPS}: 1}}.size()",
        f"device.allowMultipleAllocations ? {LOOPS} : false",
        "device.attributes[device.driver].size()",
        "device.attributes['d'].exists(k, k == 'a')",
        "has(device.attributes['d'].x)",
    ],
)
@pytest.mark.parametrize(
    "outer",
    [
        "{EXPR: 1}.size() == 1",
        "[{1: {EXPR: 1}}].size() == 1",
        "{?1: optional.of({EXPR: 1})}.size() == 1",
    ],
)
def test_a_key_costs_what_its_expression_costs(outer: str, inner: str) -> None:
    alone = estimate(f"[{inner}].size() == 1")

    within = estimate(outer.replace("EXPR", inner))

    assert within[0] >= alone[0] - 2  # Less the list.
    assert within[1] >= alone[1] - 8
    assert within[2] == alone[2]


def test_a_key_that_would_not_be_evaluated_alone_is_not_evaluated() -> None:
    growing = "c.replace('', c).size()"
    for name, text in (("c", "b.replace('', b)"), ("b", "a.replace('', a)"), ("a", "'xxxxxxxxxx'")):
        growing = f"cel.bind({name}, {text}, {growing})"

    with pytest.raises(SelectorTooCostly):
        compile_in_place(f"{{{growing}: 1}}.size() == 1", Environment.STORED)


@pytest.mark.parametrize(
    "names", ["k, k", "k, v, k", "k, v, v + k"], ids=["key", "key of two", "value of two"]
)
def test_a_loop_over_a_map_literal_has_its_keys(names: str) -> None:
    variables, _, text = names.rpartition(", ")
    body = f"({text}).replace('', 'abcdefghij').size() > 1"
    alone = estimate(f"['{'x' * 150}'].all(k, {body.replace(text, 'k')})")

    assert estimate(f"{{'{'x' * 150}': 'y'}}.all({variables}, {body})")[0] >= alone[0]


def test_a_loop_over_a_list_in_a_message_has_its_elements() -> None:
    value = "google.protobuf.Value{string_value: 'x'}"
    elements = f"google.protobuf.ListValue{{values: [{', '.join([value] * 20)}]}}"

    cost_of_list = estimate(f"[{', '.join(['1'] * 20)}].all(x, x != 'y'.size())")[0]

    assert estimate(f"{elements}.all(x, x != 'y')")[0] > cost_of_list


# --- sizes of results -----------------------------------------------------------------------------

DEVICE: Final = device_view(
    "gpu.example.com",
    Device(
        name="gpu-0",
        attributes={
            "longest": DeviceAttribute(string="\u00e9" * 32),
            "texts": DeviceAttribute(strings=("x" * 64,) * 64),
            "smallest": DeviceAttribute(int_=-(2**63)),
        },
    ),
)
"""A device with values as long as the API takes them."""
A: Final = 'device.attributes["gpu.example.com"]'
SEARCHED: Final = "x" * 9


@pytest.mark.parametrize(
    "text",
    [
        "'\u00e9\U0001f600'",
        "string(-9223372036854775807)",
        "string(18446744073709551615u)",
        "string(-2.2250738585072014e-308)",
        "string(timestamp('9999-12-31T23:59:59.999999999Z'))",
        "string(duration('-9223372036.854775807s'))",
        "string(b'abc')",
        "string(true)",
        f"string({A}.smallest)",
        f"{A}.longest",
        f"{A}.longest + {A}.longest",
        f"{A}.texts.join()",
        f"{A}.texts.join('--------')",
        f"{A}.longest.split('').join('--------')",
        "['abc', 'd'].join('-')",
        f"{A}.longest.replace('', 'abcdef')",
        "'aaaa'.replace('a', 'abcdef', 3)",
        "strings.quote('\"\\\\\\n')",
        "strings.quote(strings.quote(strings.quote('\"\\\\\"')))",
        "'%s'.format([-9223372036854775807])",
        "'%b'.format([9223372036854775807])",
        "'%X'.format(['abcdefghijklmnop'])",
        "'%f'.format([1.7976931348623157e308])",
        "'%.1000f'.format([1.7976931348623157e308])",
        "'%.999e'.format([1.7e308])",
        "'%d%%%d%s'.format([-9223372036854775807, -9223372036854775807, 'x'])",
        "cel.bind(f, '%.1000f', f.format([1.0]))",
        f"'%s %s'.format([{A}.texts, {A}.longest])",
        "'%s'.format([{'a': [1.5, 2.5], 'b': [-2.2250738585072014e-308]}])",
        "true ? 'a' : 'abcdefghijk'",
        "optional.none().orValue('abcdef')",
        "{'a': 'abcdef'}['a']",
        "['a', 'abcdef'][1]",
        "[['a'], ['abcdef', 'abcdef']][1].join()",
        "'abcdef'.substring(1).upperAscii().trim()",
        "[1, 2, 3].map(x, 'abc' + string(x)).join()",
        "{'abc': 'd'}.transformList(k, v, k + v).join()",
        "['c', 'b'].sortBy(x, x).join('---')",
        "lists.range(12).map(x, string(x)).join()",
    ],
)
def test_a_text_is_no_longer_than_estimated(text: str) -> None:
    value = compile_derived(text).evaluate(DEVICE).value()

    assert estimate(f"({text}).contains('{SEARCHED}')")[0] >= len(value.encode()) * len(SEARCHED)


@pytest.mark.parametrize(
    "values",
    [
        f"{A}.texts",
        f"true ? [{', '.join(['1'] * 30)}] : [123456789]",
        "true ? ['a', 'b', 'c'] : ['" + "d" * 90 + "']",
        "cel.bind(l, true ? ['a', 'b', 'c'] : ['" + "d" * 90 + "'], l)",
        f"{A}.longest.split('')",
        "lists.range(5)",
        "[[1, 2], [3]].flatten()",
        "[1, 2] + [3]",
        "[1, 2, 3].filter(x, x > 1)",
        "[3, 1, 2].sort()",
        "['a', 'a'].distinct()",
        "google.protobuf.ListValue{values: [google.protobuf.Value{bool_value: true}]}",
    ],
)
def test_a_list_is_no_longer_than_estimated(values: str) -> None:
    elements = compile_derived(f"dyn({values})").evaluate(DEVICE).value()
    loop = "lists.range(90).all(y, true)"

    assert estimate(f"({values}).all(x, {loop})")[0] >= len(elements) * estimate(loop)[0]


@pytest.mark.parametrize("alternatives", ["SHORT : LONG", "LONG : SHORT"])
def test_a_conditional_has_the_length_of_one_and_the_elements_of_another(alternatives: str) -> None:
    many, large = f"[{', '.join([repr('')] * 30)}]", f"['{'x' * 60}']"
    values = alternatives.replace("SHORT", large).replace("LONG", many)
    loops = "l.all(a, l.all(b, 'xxxxxxxx'.replace('', 'yyyyyyyy').size() > 0))"

    alone = estimate(f"cel.bind(l, {many}, {loops})")[0]

    assert estimate(f"cel.bind(l, device.allowMultipleAllocations ? {values}, {loops})")[0] >= alone


def test_the_maps_of_a_device_and_a_literal_are_as_large_as_the_larger() -> None:
    literal = f"{{'{'x' * 4000}': {{'a': dyn(1)}}}}"
    loop = "all(k, k.contains('ab'))"

    alone = estimate(f"cel.bind(m, {literal}, m.{loop})")[0]

    assert estimate(f"cel.bind(m, true ? {literal} : device.attributes, m.{loop})")[0] >= alone


def test_an_alias_of_the_maps_of_a_device_costs_what_they_cost() -> None:
    loop = "all(k, k.contains('a'))"

    alone = estimate(f"device.attributes.{loop}")[0]

    assert estimate(f"cel.bind(m, device.attributes, m.{loop})")[0] < 2 * alone


@pytest.mark.parametrize(
    "letters",
    [
        "string(9223372036854775807)",
        'strings.quote(\'"""""\')',
        "'%b'.format([9223372036854775807])",
    ],
)
def test_a_text_that_grows_from_a_short_expression_is_not_evaluated(letters: str) -> None:
    growing = "c.replace('', c).size() > 0"
    for name, text in (("c", "b.replace('', b)"), ("b", "a.replace('', a)"), ("a", letters)):
        growing = f"cel.bind({name}, {text}, {growing})"

    with pytest.raises(SelectorTooCostly):
        compile_in_place(growing, Environment.STORED)


# --- the charge of elements -----------------------------------------------------------------------


def doubled(once: str, twice: str, last: str) -> str:
    """Return an expression about a value that doubles seven times."""
    expression = last.replace("V", "v7")
    for number in range(7, 0, -1):
        text = twice.replace("V", f"v{number - 1}")
        expression = f"cel.bind(v{number}, {text}, {expression})"
    return f"cel.bind(v0, {once}, {expression})"


@pytest.mark.parametrize(
    ("once", "twice"),
    [
        ("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "V + V"),
        ("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "[V, V]"),
        ("{1: 1, 2: 2, 3: 3, 4: 4, 5: 5}", "{1: V, 2: V}"),
        ("lists.range(10)", "V + V"),
    ],
)
@pytest.mark.parametrize("last", ["V == V", "V != V"])
def test_a_comparison_is_charged_for_each_element(once: str, twice: str, last: str) -> None:
    assert estimate(doubled(once, twice, last))[1] > 2 * 10 * 2**7


@pytest.mark.parametrize(
    "last", ["V + V", "V.sort()", "V.reverse()", "V.slice(0, 2)", "[V].flatten()", "V"]
)
def test_a_list_that_is_copied_is_charged_for_each_element(last: str) -> None:
    expression = doubled("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "V + V", f"({last}).size() > 0")

    assert estimate(expression)[1] > 2 * 10 * 2**7


def test_a_comparison_with_a_text_is_charged_as_before() -> None:
    assert estimate('device.driver == "gpu.example.com"')[1] < cost.EVALUATION + 50


@pytest.mark.parametrize(
    ("expression", "most"),
    [
        ('device.attributes.exists(k, v, k == "d" && v.x == 1)', 50_000),
        ('device.attributes.exists(k, device.attributes[k].model == "x")', 60_000),
        (
            'cel.bind(a, device.attributes, a["d"].x == 1 && a["d"].y == 2 && a["d"].z == 3)',
            6_000,
        ),
        ("device.attributes[device.driver].x == 1", 3_000),
    ],
)
def test_a_value_below_a_computed_domain_is_no_whole_map(expression: str, most: int) -> None:
    """A DeviceQuota with such a selector counts thousands of devices."""
    assert estimate(expression)[1] < most
