"""Static estimates, computed before an evaluation runs: its cost upstream, and its charge here.

**Cost** is an upper bound of the cost that upstream counts during the evaluation, where it stops at a
million. It decides what is evaluated at all. This engine counts only iterations, so strings that double
in every `cel.bind`, or long strings compared in a loop, would have no limit. The bound is loose, but real
selectors stay far below the limit. An expression above the limit is unsupported, not invalid.

**Charge** is what the evaluation takes of this engine, in the same unit of 20 ns. It decides how many
steps of a budget an evaluation takes. The engine copies the result of `map` and `filter` for each element,
which upstream does not, it reads every variable before it begins, and functions of Kubernetes are Python.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kube.cel import patterns
from kube.cel.library import IMPLEMENTED, STRICT_EQUALS
from kube.cel.rewrite import RewrittenExpression
from kube.cel.syntax import Node, bytes_value, string_value

LIMIT: Final = 1_000_000
"""CELSelectorExpressionMaxCost of upstream."""

_VALUE_SIZE: Final = 64
"""The largest size of an attribute's name or value in characters, or of a list in elements."""

_MAX_NAMES: Final = 32
"""The largest number of domains of a device, or of names in a domain."""

_PRODUCTS: Final = frozenset({"contains", "indexOf", "lastIndexOf", "replace"})
"""Functions whose cost or result grows with the product of their arguments' sizes."""

_OF_TEXTS: Final = frozenset({*_PRODUCTS, "format", "join", "split", "string", "strings.quote"})
"""Functions that search, make or split texts."""

_PAIRWISE: Final = frozenset(
    {"sets.contains", "sets.equivalent", "sets.intersects", "distinct", "@sortByAssociatedKeys"}
)
"""Functions that compare elements pairwise."""

_SCALAR_TEXT: Final = 40
"""The largest number of characters of a number, time or duration as text, and of what separates members."""
_BINARY_TEXT: Final = 64
"""The largest number of characters of an integer in binary."""
_FLOAT_TEXT: Final = 1400
"""The largest number of characters of a number with 1,000 decimals, the largest precision."""
_FLOAT_FORMAT: Final = re.compile(r"%[.0-9]*[feFE]|%\.")

_ELEMENTWISE: Final = frozenset(
    {"_==_", "_!=_", "_+_", STRICT_EQUALS, "flatten", "reverse", "slice", "sort"}
)
"""Functions that read or copy each element of a list or map."""

_CAP: Final = 10**12

EVALUATION: Final = 400
"""Units that each evaluation takes, whatever the expression is (8 us)."""
_VARIABLE: Final = 25
"""Units to read a variable of the device."""
_MEMBER: Final = 4
"""Units to build a member of a literal."""
_COPY: Final = 2
"""Units to copy an element of a list, or to compare it with another one."""
_CALL: Final = 450
"""Units to call a function whose body is Python (9 us)."""


class _Estimate(NamedTuple):
    """Upper bounds for a node of the tree.

    Attributes:
        cost: The cost to evaluate it.
        size: The number of its characters and elements in total.
        length: The number of its elements, as a loop over it sees them.
        element_size: The size of one element.
        is_device_map: True if it is a map of the device, or a part of one, whose keys and values have
            the sizes of the API.
    """

    cost: int
    size: int
    length: int
    element_size: int
    is_device_map: bool = False


def estimate_cost(tree: RewrittenExpression) -> int:
    """Return an upper bound of the cost of an expression on any device, as upstream counts it."""
    return _Estimator(is_charge=False).estimate(tree.expr, _known_estimates(tree)).cost


class Charge(NamedTuple):
    """The work of an evaluation in this engine.

    Attributes:
        units: The amount in units of cost.
        calls_python: True if it may call functions whose bodies are Python.
    """

    units: int
    calls_python: bool


def estimate_charge(tree: RewrittenExpression) -> Charge:
    """Return the work of an expression's evaluation in this engine."""
    variables = len(tree.variables) + len(tree.device_fields)
    estimator = _Estimator(is_charge=True)
    work = estimator.estimate(tree.expr, _known_estimates(tree)).cost
    return Charge(EVALUATION + _VARIABLE * variables + work, estimator.calls_python)


def _known_estimates(tree: RewrittenExpression) -> dict[str, _Estimate]:
    """Return the estimates of the variables of an expression."""
    known_estimates = {
        name: _VARIABLE_ESTIMATES[variable.kind] for name, variable in tree.variables.items()
    }
    known_estimates |= dict.fromkeys(tree.constants, _estimate_value(1, 1))
    known_estimates |= {
        name: _estimate_value(1, _VALUE_SIZE) for name in tree.device_fields if name != "device"
    }
    return known_estimates


_DEVICE_MAPS: Final = _Estimate(
    cost=1,
    size=2 * _MAX_NAMES * _VALUE_SIZE,
    length=_MAX_NAMES,
    element_size=2 * _MAX_NAMES * _VALUE_SIZE,
    is_device_map=True,
)


# A value is a scalar or a list, of the largest size.
_VARIABLE_ESTIMATES: Final = {
    "value": _Estimate(1, _VALUE_SIZE, _VALUE_SIZE, _VALUE_SIZE),
    "has": _Estimate(1, 1, 1, 1),
    "domain": _Estimate(1, 2 * _MAX_NAMES * _VALUE_SIZE, _MAX_NAMES, _VALUE_SIZE),
    "all": _DEVICE_MAPS,
}


def _estimate_value(cost: int, size: int) -> _Estimate:
    """Return the estimate of a string, or of a list with a known size and unknown items."""
    size = min(size, _CAP)
    return _Estimate(min(cost, _CAP), size, size, size)


class _Estimator:
    """One walk through an expression, for its cost upstream or its charge here.

    Attributes:
        calls_python: True if a function whose body is Python is called.
    """

    def __init__(self, *, is_charge: bool) -> None:
        self._is_charge = is_charge
        self.calls_python = False

    def estimate(self, node: Node, known_estimates: Mapping[str, _Estimate]) -> _Estimate:
        """Estimate a node; `known_estimates` holds the variables of the enclosing loops and bindings."""
        match node.WhichOneof("kind"):
            case "const_expr":
                text = (string_value(node) or "").encode() + bytes_value(node)
                return _estimate_value(1, len(text) + 1)
            case "ident_expr":
                return known_estimates.get(node.ident_expr.name, _DEVICE_MAPS)
            case "select_expr":
                return _estimate_element(self.estimate(node.select_expr.operand, known_estimates))
            case "call_expr":
                return self._estimate_call(node.call_expr, known_estimates)
            case "list_expr":
                return self._estimate_literal(
                    [self.estimate(element, known_estimates) for element in node.list_expr.elements]
                )
            case "struct_expr":
                return self._estimate_struct(node.struct_expr, known_estimates)
            case "comprehension_expr":
                return self._estimate_comprehension(node.comprehension_expr, known_estimates)
            case _:
                return _estimate_value(1, 1)

    def _estimate_call(self, call: Node, known_estimates: Mapping[str, _Estimate]) -> _Estimate:
        args = [self.estimate(arg, known_estimates) for arg in call.args]
        if call.HasField("target"):
            args.insert(0, self.estimate(call.target, known_estimates))
        cost, size = 1 + sum(arg.cost for arg in args), sum(arg.size for arg in args)
        cost += self._estimate_python(call.function) + self._estimate_elements(call.function, args)
        match call.function:
            case "_[_]" | "_?._" | "_[?_]":
                return _estimate_element(args[0])._replace(cost=cost)
            case "_?_:_":
                return _estimate_either(args[1:])._replace(cost=cost)
            case "_&&_" | "_||_" | "!_" | "@not_strictly_false" | "@in":
                list_in = args[1] if call.function == "@in" else _estimate_value(0, 0)
                return _estimate_value(cost + list_in.length + list_in.size // 10, 1)
            case "_+_":
                length, element_size = (
                    sum(arg.length for arg in args),
                    max(arg.element_size for arg in args),
                )
                return _Estimate(
                    min(cost + size // 10, _CAP), min(size, _CAP), min(length, _CAP), element_size
                )
            case "matches":
                pattern = string_value(call.args[-1])
                program = patterns.program_size(pattern) if pattern is not None else _CAP
                return _estimate_value(cost + program * (patterns.COMPILATION + args[0].size), 1)
            case _ if call.function in _OF_TEXTS:
                return _estimate_of_texts(call, cost, args)
            case "lists.range":
                count = call.args[0].const_expr.int64_value
                count = count if count > 0 else _CAP
                return _estimate_value(cost + count, count)._replace(size=min(count + 1, _CAP))
            case _ if call.function in _PAIRWISE:
                pairs = args[0].length * args[-1].length
                return _estimate_value(
                    cost + pairs * (1 + max(arg.element_size for arg in args) // 10), size
                )
            case _:
                # Each character is read once; ten count as one, as upstream.
                return _estimate_value(cost + size // 10, size)

    def _estimate_python(self, function: str) -> int:
        """Return the charge of a call of a function's body, if that is Python."""
        if function not in IMPLEMENTED:
            return 0
        self.calls_python = True
        return _CALL if self._is_charge else 0

    def _estimate_elements(self, function: str, args: Sequence[_Estimate]) -> int:
        """Return the charge to read each element of literals, and of lists and maps made of them.

        Upstream counts a tenth of a unit for an element, as for a character.
        """
        if not self._is_charge or function not in _ELEMENTWISE:
            return 0
        # A text has as many elements as characters. A map of the device may be one of its values instead.
        return _COPY * sum(
            arg.length if arg.is_device_map else arg.size for arg in args if arg.length < arg.size
        )

    def _estimate_comprehension(
        self, loop: Node, known_estimates: Mapping[str, _Estimate]
    ) -> _Estimate:
        """Estimate a comprehension: the cost of a step times the length of the range.

        `cel.bind` is a comprehension over an empty range.
        """
        over, start = (
            self.estimate(loop.iter_range, known_estimates),
            self.estimate(loop.accu_init, known_estimates),
        )
        inside = {
            **known_estimates,
            loop.iter_var: _estimate_value(
                1, _VALUE_SIZE if over.is_device_map else over.element_size
            ),
            # The accumulator grows by each step; inside the step its current size is not counted.
            loop.accu_var: _Estimate(1, 0, 0, 0),
        }
        if loop.iter_var2:
            # A position in a list, or a key.
            key_size = max(_VALUE_SIZE, inside[loop.iter_var].size)
            inside[loop.iter_var] = _estimate_value(1, key_size)
            inside[loop.iter_var2] = _estimate_element(over)
        step, condition = (
            self.estimate(loop.loop_step, inside),
            self.estimate(loop.loop_condition, inside),
        )
        result_estimate = start._replace(
            cost=1,
            size=min(start.size + over.length * step.size, _CAP),
            length=min(start.length + over.length * step.length, _CAP),
            element_size=max(start.element_size, step.element_size),
        )
        result = self.estimate(loop.result, {**known_estimates, loop.accu_var: result_estimate})
        turns = over.length * (1 + step.cost + condition.cost)
        if self._is_charge and loop.accu_init.WhichOneof("kind") == "list_expr":
            # The list that grows is copied in each step.
            turns += _COPY * over.length * over.length * step.length // 2
        cost = 1 + over.cost + start.cost + turns + result.cost
        return result._replace(cost=min(cost, _CAP))

    def _estimate_struct(self, struct: Node, known_estimates: Mapping[str, _Estimate]) -> _Estimate:
        """Estimate a map literal, or a message; a key is evaluated as a value is."""
        keys, values = (
            [
                self.estimate(entry.map_key, known_estimates)
                for entry in struct.entries
                if entry.HasField("map_key")
            ],
            [self.estimate(entry.value, known_estimates) for entry in struct.entries],
        )
        literal = self._estimate_literal([*keys, *values])
        if struct.message_name:
            # A field of a message may be its list or map, as in google.protobuf.ListValue.
            return literal._replace(length=literal.size, element_size=literal.size)
        return literal._replace(length=len(struct.entries))

    def _estimate_literal(self, members: list[_Estimate]) -> _Estimate:
        building = 1 + (_MEMBER * len(members) if self._is_charge else 0)
        return _Estimate(
            cost=building + sum(member.cost for member in members),
            size=min(1 + sum(member.size for member in members), _CAP),
            length=len(members),
            element_size=max((member.size for member in members), default=0),
        )


def _estimate_element(whole: _Estimate) -> _Estimate:
    """Estimate one element; an element of a device's maps may be a map again."""
    if whole.is_device_map:
        return _DEVICE_MAPS._replace(cost=min(whole.cost + 1, _CAP))
    return _estimate_value(whole.cost + 1, whole.element_size)


def _estimate_either(values: Sequence[_Estimate]) -> _Estimate:
    """Estimate a value that is one of several; the longest need not be the largest."""
    # An unknown domain is an empty map, which the sizes of a device's maps hold for, too.
    device_maps = [value for value in values if value.is_device_map]
    if device_maps and all(value.is_device_map or not value.length for value in values):
        return device_maps[0]
    return _Estimate(
        cost=max(value.cost for value in values),
        size=max(value.size for value in values),
        length=max(value.length for value in values),
        element_size=max(value.element_size for value in values),
    )


def _estimate_of_texts(call: Node, cost: int, args: Sequence[_Estimate]) -> _Estimate:
    """Estimate a call of one of `_OF_TEXTS`; `cost` is that of its arguments."""
    if call.function in _PRODUCTS:
        product = math.prod(arg.size for arg in args[:3])
        return _estimate_value(cost + product, product + sum(arg.size for arg in args))
    if call.function == "split":
        # All parts of a text are together as long as the text.
        text = args[0].size
        cost += text + args[1].size
        return _Estimate(min(cost, _CAP), min(2 * text, _CAP), text, text)
    size = _text_size(call, args)
    return _estimate_value(cost + size, size)


def _text_size(call: Node, args: Sequence[_Estimate]) -> int:
    """Return the size of the text that a function makes of its arguments; it may be longer than they are."""
    match call.function:
        case "string":
            return args[0].size + _SCALAR_TEXT
        case "strings.quote":
            return 2 * args[0].size + 2
        case "join":
            separator = args[1].size if len(args) > 1 else 0
            return _content_size(args[0]) + args[0].length * separator
        case _:
            text = string_value(call.target)
            conversions = args[0].size // 2 if text is None else text.count("%")
            may_be_float = text is None or _FLOAT_FORMAT.search(text) is not None
            conversion = _FLOAT_TEXT if may_be_float else _BINARY_TEXT
            return args[0].size + _SCALAR_TEXT * _content_size(args[1]) + conversions * conversion


def _content_size(values: _Estimate) -> int:
    """Return the size of all elements of a list; a list of the device is as long as its elements may be."""
    return max(values.size, values.length * values.element_size)
