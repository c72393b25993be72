"""Parse and type-check an expression as the API server does.

An expression that upstream rejects is an `InvalidSelector`. One that upstream may accept and this
engine cannot evaluate is an `UnsupportedSelector`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from cel_expr_python import cel
from google.protobuf.message import DecodeError

from kube.api.resource import MAX_SELECTOR_BYTES
from kube.cel import conversions, patterns, syntax
from kube.cel.expansions import MAX_DOUBLINGS, count_doublings
from kube.cel.library import (
    PARTLY_SUPPORTED,
    UNSUPPORTED_OVERLOADS,
    Environment,
    checking_environment,
    evaluation_environment,
)
from kube.cel.texts import rename_exists_one
from kube.errors import InvalidSelector, SelectorTooCostly, UnsupportedSelector

# The engine reports its own limits only in error texts. It takes the backslash at the end of a raw
# literal for an escape of the quote.
_ENGINE_LIMITS: Final = re.compile(
    r"recursion|Iteration budget|reference resolve step|String must end with"
)

# The checker turns has(device.driver) into device.driver. These fields always exist.
_HAS_FIELD: Final = re.compile(
    r"\bhas\s*\(\s*device\s*\.\s*(?:driver|attributes|capacity|allowMultipleAllocations)\s*\)"
)

_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"}
)
_SIMPLE_TYPES: Final = frozenset({"dyn", "primitive", "well_known", "message_type"})


TypeRequirement = Callable[[Any, Environment], None]
"""Rejects the wrong result types of a kind of expression; None is a type that we do not model.

Raises:
    InvalidSelector: The expression has a wrong type.
"""


def require_boolean(kind: Any, environment: Environment) -> None:
    """Reject expressions that are neither of type bool nor of the dynamic type of attributes."""
    if kind is not None:
        is_new = environment is Environment.NEW
        is_any = kind.well_known == syntax.WELL_KNOWN_ANY
        is_attribute = is_any if is_new else kind.HasField("dyn")
        if kind.primitive == syntax.PRIMITIVE_BOOL or is_attribute:
            return
    raise InvalidSelector("must evaluate to bool or the unknown type")


def check_expression(
    expression: str, environment: Environment, requirement: TypeRequirement = require_boolean
) -> Any:
    """Parse and type-check an expression; return its `CheckedExpr`.

    Raises:
        InvalidSelector: It does not compile, has a wrong type, or is longer than 10 KiB.
        UnsupportedSelector: Upstream may accept it, but it uses functions or a nesting depth that
            the engine does not support.
        SelectorTooCostly: Its regular expressions are too large, or are computed, or its macros let it
            grow too much.
    """
    _require_size(expression)
    _require_small_expansion(expression)
    try:
        compiled_tree = checking_environment(environment).compile(
            _replace_has_field(rename_exists_one(expression), environment)
        )
    except RuntimeError as error:
        raise _compilation_error(error) from error
    try:
        tree = syntax.decode_checked(compiled_tree.serialize())
    except DecodeError as error:
        raise UnsupportedSelector(
            "the expression is nested too deeply for Drawbridge's CEL engine"
        ) from error
    requirement(_type_map(tree).get(tree.expr.id), environment)
    nodes = tuple(syntax.walk(tree.expr))
    _require_supported_functions(tree, nodes)
    _require_small_patterns(nodes)
    _require_valid_literals(nodes)
    _require_homogeneous_literals(tree, nodes)
    return tree


def is_engine_limit(error: Exception) -> bool:
    """Return True if an error is due to a limit of the engine, not to the expression."""
    return _ENGINE_LIMITS.search(str(error)) is not None


def error_message(error: Exception | str) -> str:
    """Return the first line of the engine's error, without its status codes.

    >>> error_message("INVALID_ARGUMENT: divide by zero [INVALID_ARGUMENT]")
    'divide by zero'
    """
    line = str(error).partition("\n")[0]
    return re.sub(r"^[A-Z_]+: | \[[A-Z_]+\]$", "", line)[:300]


def _require_size(expression: str) -> None:
    try:
        size = len(expression.encode())
    except UnicodeEncodeError as error:
        raise InvalidSelector("not Unicode text") from error
    if size > MAX_SELECTOR_BYTES:
        raise InvalidSelector(f"longer than {MAX_SELECTOR_BYTES} bytes")


def _require_small_expansion(expression: str) -> None:
    """Reject an expression that its macros let grow without bounds, before they are expanded."""
    doublings = count_doublings(expression)
    if doublings > MAX_DOUBLINGS:
        raise SelectorTooCostly(
            f"optMap() and optFlatMap() on each other's result doubles a part of it {doublings} times, and"
            f" only {MAX_DOUBLINGS} times are evaluated"
        )


def _replace_has_field(expression: str, environment: Environment) -> str:
    """Replace has(device.driver) and the like, always true, by true.

    Raises:
        UnsupportedSelector: The same text is in a string literal, or `device` is a loop variable.
        RuntimeError: The expression does not parse.
    """
    if not _HAS_FIELD.search(expression):
        return expression
    parsed_tree = checking_environment(environment).compile(expression, disable_check=True)
    for node in syntax.walk(syntax.decode_parsed(parsed_tree.serialize()).expr):
        loop = node.comprehension_expr
        is_shadowed = "device" in {loop.iter_var, loop.iter_var2, loop.accu_var}
        if is_shadowed or _HAS_FIELD.search(node.const_expr.string_value):
            raise UnsupportedSelector(
                "has() of a field of `device` cannot be evaluated where a string literal has the"
                " same text or a loop variable is named `device`"
            )
    return _HAS_FIELD.sub("true", expression)


def _compilation_error(error: RuntimeError) -> InvalidSelector | UnsupportedSelector:
    if is_engine_limit(error):
        return UnsupportedSelector(error_message(error))
    for word in PARTLY_SUPPORTED:
        if f"overload for '{word}'" in str(error):
            return UnsupportedSelector(f"Drawbridge's CEL engine may lack an overload of {word}()")
    return InvalidSelector(f"compilation failed: {error_message(error)}")


def _require_supported_functions(tree: Any, nodes: Sequence[Any]) -> None:
    overloads = {entry.key: entry.value.overload_id for entry in tree.reference_map}
    for node in nodes:
        function = node.call_expr.function
        if not UNSUPPORTED_OVERLOADS.isdisjoint((function, *overloads.get(node.id, ()))):
            raise UnsupportedSelector(f"Drawbridge's CEL engine has no {function}()")


def _require_small_patterns(nodes: Sequence[Any]) -> None:
    """Reject regular expressions that are costly to compile, before anything compiles them."""
    size = 0
    for node in nodes:
        call = node.call_expr
        if call.function == "matches" and call.args:
            pattern = syntax.string_value(call.args[-1])
            if pattern is None:
                raise SelectorTooCostly(
                    "the pattern of matches() is not a string literal, so what it costs is unknown"
                )
            size += patterns.program_size(pattern)
    if size > patterns.MAX_SIZE:
        raise SelectorTooCostly(
            f"its regular expressions compile to as many as {size} instructions, and only"
            f" {patterns.MAX_SIZE} are evaluated"
        )


def _require_valid_literals(nodes: Sequence[Any]) -> None:
    """Reject literals that upstream fails to convert at compile time, such as duration("1x").

    Source: cel-go's ValidateDurationLiterals and the like, and OptOptimize.
    """
    for node in nodes:
        call = node.call_expr
        if call.function in _CONVERSIONS and len(call.args) == 1:
            _require_valid_literal(call.function, call.args[0], node)
        elif call.function == "matches" and call.args:
            probe = syntax.call("matches", syntax.string_constant(""), call.args[-1])
            _require_valid_literal(call.function, call.args[-1], probe)


def _require_valid_literal(function: str, literal: Any, probe: Any) -> None:
    """Reject a literal that upstream fails to convert; `probe` is a call that does so here."""
    if literal.WhichOneof("kind") != "const_expr":
        return
    text = syntax.string_value(literal)
    is_valid = _is_valid_upstream(function, text)
    literal_program = evaluation_environment().deserialize(
        syntax.encode_checked(syntax.CheckedExpr(expr=probe))
    )
    value = literal_program.eval(data={})
    fails = value.type() == cel.Type.ERROR
    if fails and is_valid:
        raise UnsupportedSelector(
            f"Drawbridge's CEL engine does not read the argument of {function}()"
        )
    if fails or is_valid is False:
        unread = f"Kubernetes does not read {(text or '')[:64]!r}"
        message = error_message(str(value.plain_value())) if fails else unread
        raise InvalidSelector(f"invalid argument of {function}(): {message}")


def _is_valid_upstream(function: str, text: str | None) -> bool | None:
    """Return True if Go reads a text, False if not; None if only the engine can tell."""
    if text is None:
        return None
    if function == "matches":
        return False if patterns.matches_bytes(text) else None
    return conversions.is_converted(function, text) if function in conversions.CONVERTED else None


def _require_homogeneous_literals(tree: Any, nodes: Sequence[Any]) -> None:
    """Reject list and map literals of mixed types, except in arguments of format().

    Source: cel-go's ValidateHomogeneousAggregateLiterals. Nested lists are not compared.
    """
    types = _type_map(tree)

    def is_mixed(members: Iterable[Any]) -> bool:
        kinds = [types[member.id] for member in members if member.id in types]
        simple = [kind for kind in kinds if kind.WhichOneof("kind") in _SIMPLE_TYPES]
        return len({kind.SerializeToString() for kind in simple}) > 1

    formatted_ids = {
        arg.id
        for node in nodes
        if node.call_expr.function == "format"
        for arg in node.call_expr.args
    }
    for node in nodes:
        if node.id not in formatted_ids and any(map(is_mixed, _literal_members(node))):
            raise InvalidSelector("the elements of a list or map literal are of different types")


def _literal_members(node: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Return elements, keys and values of a list or map literal, without optional ones."""
    optional = frozenset(node.list_expr.optional_indices)
    elements = [
        element
        for position, element in enumerate(node.list_expr.elements)
        if position not in optional
    ]
    is_map = node.HasField("struct_expr") and not node.struct_expr.message_name
    entries = node.struct_expr.entries if is_map else []
    keys = [entry.map_key for entry in entries]
    return elements, keys, [entry.value for entry in entries if not entry.optional_entry]


def _type_map(tree: Any) -> dict[int, Any]:
    return {typed_node.key: typed_node.value for typed_node in tree.type_map}
