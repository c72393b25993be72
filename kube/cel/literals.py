"""Which texts an expression compares with which attributes: a typo there matches nothing, silently.

Read off the checked tree, without evaluating: `==`, `!=` and `in` between an attribute, perhaps
with `.orValue`, and a text or a list of texts. Attributes under another name (`cel.bind`, loops) are
not followed, so nothing that is returned is a guess and something may be missing.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from kube.cel.check import checked
from kube.cel.library import Environment
from kube.cel.syntax import Node, text_of, walked

_ATTRIBUTES: Final = "device.attributes"
_LOOKUPS: Final = frozenset({"_[_]", "_?._", "_[?_]"})
_EQUALITIES: Final = frozenset({"_==_", "_!=_"})


class Compared(msgspec.Struct, frozen=True, order=True):
    """An attribute and a text that an expression compares it with."""

    domain: str
    identifier: str
    text: str


def compared(expression: str, environment: Environment) -> tuple[Compared, ...]:
    """Return what an expression compares, sorted.

    Raises:
        InvalidSelector: See `kube.cel.compile.compile_selector`.
        UnsupportedSelector: As above.
    """
    found = {
        Compared(*place, text)
        for node in walked(checked(expression, environment).expr)
        if node.WhichOneof("kind") == "call_expr" and len(node.call_expr.args) == 2
        for place, text in _pairs(node.call_expr.function, *node.call_expr.args)
    }
    return tuple(sorted(found))


def _pairs(function: str, left: Node, right: Node) -> Iterator[tuple[tuple[str, str], str]]:
    if function in _EQUALITIES:
        sides = ((left, (right,)), (right, (left,)))
    elif function == "@in":
        sides = ((left, tuple(right.list_expr.elements)), (right, (left,)))
    else:
        return
    for attribute, literals in sides:
        place = _place(attribute)
        for literal in literals if place is not None else ():
            text = text_of(literal)
            if place is not None and text is not None:
                yield place, text


def _place(node: Node) -> tuple[str, str] | None:
    """Return domain and identifier of the attribute that a node is the value of."""
    if node.call_expr.function == "orValue":
        return _place(node.call_expr.target)
    identifier, of = _lookup(node)
    domain, device = _lookup(of) if of is not None else (None, None)
    if identifier is None or domain is None or device is None:
        return None
    return (domain, identifier) if device.ident_expr.name == _ATTRIBUTES else None


def _lookup(node: Node) -> tuple[str | None, Node | None]:
    """Return the constant key and the map of a lookup; twice None for anything else."""
    if node.HasField("select_expr") and not node.select_expr.test_only:
        return node.select_expr.field, node.select_expr.operand
    if node.call_expr.function in _LOOKUPS:
        of, key = node.call_expr.args
        return text_of(key), of
    return None, None
