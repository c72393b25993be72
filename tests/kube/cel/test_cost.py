"""Estimates are upper bounds: of every part of an expression, in every place."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from kube.cel import cost
from kube.cel.compile import compile_in_place
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
