"""Attributes and the string literals that an expression compares them with.

A typo in such a literal matches no device. Comparisons are read from the checked tree: `==`, `!=`
and `in` between an attribute, optionally with `.orValue`, and a string or a list of strings.
Attributes behind other names (`cel.bind`, loop variables) are not followed, so the result has no
false positives and may be incomplete.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from kube.api.resource import DeviceClass
from kube.cel.check import check_expression
from kube.cel.library import Environment
from kube.cel.syntax import Node, string_value, walk
from kube.errors import CelError

_ATTRIBUTES: Final = "device.attributes"
_LOOKUPS: Final = frozenset({"_[_]", "_?._", "_[?_]"})
_EQUALITIES: Final = frozenset({"_==_", "_!=_"})
_CONNECTIVES: Final = frozenset({"_&&_", "_||_", "!_", "_?_:_"})
_DRIVER: Final = "device.driver"
_MAX_CLASS_CHARACTERS: Final = 1024
"""The characters of all expressions of a class together; checking them takes some milliseconds."""


class ComparedLiteral(msgspec.Struct, frozen=True, order=True):
    """An attribute and a string literal that an expression compares it with."""

    domain: str
    identifier: str
    text: str


def compared_literals(expression: str, environment: Environment) -> tuple[ComparedLiteral, ...]:
    """Return the comparisons of an expression, sorted.

    Raises:
        InvalidSelector: See `kube.cel.compile.compile_selector`.
        UnsupportedSelector: As above.
    """
    literals = {
        ComparedLiteral(*name, text)
        for node in walk(check_expression(expression, environment).expr)
        if node.WhichOneof("kind") == "call_expr" and len(node.call_expr.args) == 2
        for name, text in _comparisons(node.call_expr.function, *node.call_expr.args)
    }
    return tuple(sorted(literals))


def compared_drivers(expression: str, environment: Environment) -> frozenset[str]:
    """Return the strings that an expression compares `device.driver` with, by `==` or `in`.

    Raises:
        InvalidSelector: See `kube.cel.compile.compile_selector`.
        UnsupportedSelector: As above.
    """
    drivers: set[str] = set()
    for node in walk(check_expression(expression, environment).expr):
        call = node.call_expr
        if node.WhichOneof("kind") != "call_expr" or len(call.args) != 2:
            continue
        left, right = call.args
        sides: list[tuple[Node, Iterable[Node]]] = []
        if call.function == "_==_":
            sides = [(left, (right,)), (right, (left,))]
        elif call.function == "@in":
            sides = [(left, right.list_expr.elements)]
        for compared_node, literals in sides:
            if compared_node.ident_expr.name == _DRIVER:
                texts = map(string_value, literals)
                drivers.update(text for text in texts if text is not None)
    return frozenset(drivers)


def drivers_named_by_class(device_class: DeviceClass) -> frozenset[str]:
    """Return the drivers that the selectors of a class name; none if it may select devices of any.

    Selectors that are longer than 1,024 characters together, or cannot be read, name none.
    """
    texts = tuple(
        selector.cel.expression
        for selector in device_class.spec.selectors or ()
        if selector.cel is not None
    )
    if sum(map(len, texts)) > _MAX_CLASS_CHARACTERS:
        return frozenset()
    return frozenset[str]().union(*map(_stored_drivers, texts))


@lru_cache(maxsize=4096)
def _stored_drivers(expression: str) -> frozenset[str]:
    # A change of one class reads all of them again.
    try:
        return compared_drivers(expression, Environment.STORED)
    except CelError:
        return frozenset()


def is_decided_by_texts(expression: str, environment: Environment) -> bool:
    """Return True if an expression depends only on comparisons with literals and on presence.

    Such an expression has the same result for devices whose attributes equal the same literals.

    Raises:
        InvalidSelector: See `kube.cel.compile.compile_selector`.
        UnsupportedSelector: As above.
    """
    return _is_decided(check_expression(expression, environment).expr)


def _is_decided(node: Node) -> bool:
    match node.WhichOneof("kind"):
        case "const_expr":
            return bool(node.const_expr.HasField("bool_value"))
        case "select_expr":
            return bool(node.select_expr.test_only) and _is_domain(node.select_expr.operand)
        case "call_expr":
            return _is_decided_call(node.call_expr)
        case _:
            return False


def _is_decided_call(call: Node) -> bool:
    args = tuple(call.args)
    if call.function in _CONNECTIVES:
        return all(map(_is_decided, args))
    if call.function == "hasValue":
        return _attribute_name(call.target) is not None
    if call.function in _EQUALITIES:
        left, right = args
        return _is_comparison(left, (right,)) or _is_comparison(right, (left,))
    if call.function == "@in":
        left, right = args
        is_presence = string_value(left) is not None and _is_domain(right)
        return is_presence or _is_comparison(left, right.list_expr.elements)
    return False


def _is_comparison(attribute: Node, literals: Iterable[Node]) -> bool:
    texts = [string_value(literal) for literal in literals]
    is_text = _attribute_name(attribute) is not None or attribute.ident_expr.name == _DRIVER
    if attribute.call_expr.function == "orValue":
        is_text = is_text and string_value(attribute.call_expr.args[0]) is not None
    return is_text and bool(texts) and None not in texts


def _is_domain(node: Node) -> bool:
    """Return True if a node is the map of one domain's attributes."""
    domain, device = _lookup(node)
    is_attributes = device is not None and device.ident_expr.name == _ATTRIBUTES
    return domain is not None and is_attributes


def _comparisons(function: str, left: Node, right: Node) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield name and literal of each comparison in a call."""
    if function in _EQUALITIES:
        sides = ((left, (right,)), (right, (left,)))
    elif function == "@in":
        sides = ((left, tuple(right.list_expr.elements)), (right, (left,)))
    else:
        return
    for attribute, literals in sides:
        name = _attribute_name(attribute)
        for literal in literals if name is not None else ():
            text = string_value(literal)
            if name is not None and text is not None:
                yield name, text


def _attribute_name(node: Node) -> tuple[str, str] | None:
    """Return domain and identifier of the attribute that a node reads; None for other nodes."""
    if node.call_expr.function == "orValue":
        return _attribute_name(node.call_expr.target)
    identifier, operand = _lookup(node)
    domain, device = _lookup(operand) if operand is not None else (None, None)
    if identifier is None or domain is None or device is None:
        return None
    return (domain, identifier) if device.ident_expr.name == _ATTRIBUTES else None


def _lookup(node: Node) -> tuple[str | None, Node | None]:
    """Return the constant key and the map of a lookup; (None, None) for other nodes."""
    if node.HasField("select_expr") and not node.select_expr.test_only:
        return node.select_expr.field, node.select_expr.operand
    if node.call_expr.function in _LOOKUPS:
        operand, key = node.call_expr.args
        return string_value(key), operand
    return None, None
