"""A rough bound of what an expression can cost our engine, before it runs.

Upstream counts while it evaluates and stops at a million; our engine only counts iterations, so
strings that double in every `cel.bind`, or long ones compared in a loop, would cost what they like.
The bound is on the safe side by far for such expressions, and far above what selectors cost.
Unlike upstream's estimate it is no verdict: beyond it we do not know.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kube.cel.rewrite import Rewritten
from kube.cel.syntax import Node, text_of

LIMIT: Final = 1_000_000
"""As upstream: CELSelectorExpressionMaxCost."""

_VALUE: Final = 64
"""Characters of a name or a value of a device, or elements of a list."""

_NAMES: Final = 32
"""Domains of a device, or names in a domain."""

_PRODUCTS: Final = frozenset(
    {"contains", "format", "indexOf", "join", "lastIndexOf", "matches", "replace", "split"}
)
"""Functions whose steps, or whose result, grow as the product of their arguments."""

_PAIRWISE: Final = frozenset(
    {"sets.contains", "sets.equivalent", "sets.intersects", "distinct", "@sortByAssociatedKeys"}
)
"""Functions that compare each element with each."""

_HUGE: Final = 10**12


class _Bound(NamedTuple):
    """What an expression can be at most.

    Attributes:
        cost: Steps to get it.
        size: Characters and elements, all in all.
        length: Elements, as a loop over it sees them.
        each: The size of one element.
    """

    cost: int
    size: int
    length: int
    each: int


def estimated(tree: Rewritten) -> int:
    """Return a bound of the steps that an expression takes on any device."""
    known = {name: _VARIABLES[each.what] for name, each in tree.variables.items()}
    known |= dict.fromkeys(tree.constants, _plain(1, 1))
    known |= {name: _plain(1, _VALUE) for name in tree.device_fields if name != "device"}
    return _bound(tree.expr, known).cost


_DEVICE: Final = _Bound(1, 2 * _NAMES * _VALUE, _NAMES, 2 * _NAMES * _VALUE)


# What a value is: a scalar, or a list of that many.
_VARIABLES: Final = {
    "value": _Bound(1, _VALUE, _VALUE, _VALUE),
    "has": _Bound(1, 1, 1, 1),
    "domain": _Bound(1, 2 * _NAMES * _VALUE, _NAMES, _VALUE),
    "all": _DEVICE,
}


def _plain(cost: int, size: int) -> _Bound:
    """Return the bound of a text, or of a list of which nothing is known but its size."""
    size = min(size, _HUGE)
    return _Bound(min(cost, _HUGE), size, size, size)


def _bound(node: Node, known: Mapping[str, _Bound]) -> _Bound:
    """Return the bound of a node among the variables of the loops and bindings around it."""
    match node.WhichOneof("kind"):
        case "const_expr":
            return _plain(1, len(text_of(node) or "") + 1)
        case "ident_expr":
            return known.get(node.ident_expr.name, _DEVICE)
        case "select_expr":
            return _element(_bound(node.select_expr.operand, known))
        case "call_expr":
            return _call(node.call_expr, known)
        case "list_expr":
            return _literal([_bound(each, known) for each in node.list_expr.elements])
        case "struct_expr":
            return _literal([_bound(entry.value, known) for entry in node.struct_expr.entries])
        case "comprehension_expr":
            return _loop(node.comprehension_expr, known)
        case _:
            return _plain(1, 1)


def _call(call: Node, known: Mapping[str, _Bound]) -> _Bound:
    args = [_bound(each, known) for each in call.args]
    if call.HasField("target"):
        args.insert(0, _bound(call.target, known))
    cost, size = 1 + sum(arg.cost for arg in args), sum(arg.size for arg in args)
    match call.function:
        case "_[_]" | "_?._" | "_[?_]":
            return _element(args[0])._replace(cost=cost)
        case "_?_:_":
            largest = max(args[1:], key=lambda arg: arg.size)
            return largest._replace(cost=cost)
        case "_&&_" | "_||_" | "!_" | "@not_strictly_false" | "@in":
            list_in = args[1] if call.function == "@in" else _plain(0, 0)
            return _plain(cost + list_in.length + list_in.size // 10, 1)
        case "_+_":
            count, each = sum(arg.length for arg in args), max(arg.each for arg in args)
            return _Bound(min(cost + size // 10, _HUGE), min(size, _HUGE), min(count, _HUGE), each)
        case _ if call.function in _PRODUCTS and len(args) > 1:
            product = args[0].size * args[1].size * (args[2].size if len(args) > 2 else 1)
            return _plain(cost + product, product + size)
        case "lists.range":
            count = call.args[0].const_expr.int64_value
            return _plain(cost + count, count) if count > 0 else _plain(_HUGE, _HUGE)
        case _ if call.function in _PAIRWISE:
            pairs = args[0].length * args[-1].length
            return _plain(cost + pairs * (1 + max(arg.each for arg in args) // 10), size)
        case _:
            # Each character is looked at once; ten at a time, as upstream counts.
            return _plain(cost + size // 10, size)


def _loop(loop: Node, known: Mapping[str, _Bound]) -> _Bound:
    """Return the bound of a macro: its steps times its range; cel.bind loops not at all."""
    over, start = _bound(loop.iter_range, known), _bound(loop.accu_init, known)
    inside = {
        **known,
        loop.iter_var: _plain(1, over.each if over != _DEVICE else _VALUE),
        # What a macro gathers grows by its step, in which what it has gathered counts nothing.
        loop.accu_var: _Bound(1, 0, 0, 0),
    }
    if loop.iter_var2:
        inside[loop.iter_var] = _plain(1, _VALUE)
        inside[loop.iter_var2] = _element(over)
    step, condition = _bound(loop.loop_step, inside), _bound(loop.loop_condition, inside)
    gathered = _Bound(
        cost=1,
        size=min(start.size + over.length * step.size, _HUGE),
        length=min(start.length + over.length * step.length, _HUGE),
        each=max(start.each, step.each),
    )
    result = _bound(loop.result, {**known, loop.accu_var: gathered})
    turns = over.length * (1 + step.cost + condition.cost)
    cost = 1 + over.cost + start.cost + turns + result.cost
    return result._replace(cost=min(cost, _HUGE))


def _literal(members: list[_Bound]) -> _Bound:
    return _Bound(
        cost=1 + sum(member.cost for member in members),
        size=min(1 + sum(member.size for member in members), _HUGE),
        length=len(members),
        each=max((member.size for member in members), default=0),
    )


def _element(whole: _Bound) -> _Bound:
    """Return the bound of one element; in the maps of a device, that may be such a map again."""
    if whole[1:] == _DEVICE[1:]:
        return _DEVICE._replace(cost=min(whole.cost + 1, _HUGE))
    return _plain(whole.cost + 1, whole.each)
