"""From text to a checked tree, or the reason why not.

What upstream refuses is `InvalidSelector`; what our engine cannot judge is `UnsupportedSelector`.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from cel_expr_python import cel
from google.protobuf.message import DecodeError

from kube.api.resource import MAX_SELECTOR_BYTES
from kube.cel import syntax
from kube.cel.library import BEYOND, BEYOND_WORDS, Environment, checker, evaluator
from kube.errors import InvalidSelector, UnsupportedSelector

# What the engine says when it, not the expression, is at its limits.
_AT_ITS_LIMITS: Final = re.compile(r"recursion|Iteration budget|reference resolve step")

# The engine's checker turns has(device.driver) into device.driver. The fields are always there.
_HAS_FIELD: Final = re.compile(
    r"\bhas\s*\(\s*device\s*\.\s*(?:driver|attributes|capacity|allowMultipleAllocations)\s*\)"
)

_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"}
)
_SIMPLE_TYPES: Final = frozenset({"dyn", "primitive", "well_known", "message_type"})


Requirement = Callable[[Any, Environment], None]
"""Refuses a type that a kind of expression may not have; None stands for one that we do not know.

Raises:
    InvalidSelector: It may not.
"""


def require_boolean(kind: Any, environment: Environment) -> None:
    """Refuse what can be no boolean: only bool itself and exactly an attribute's type may be."""
    if kind is not None:
        is_new = environment is Environment.NEW
        is_any = kind.well_known == syntax.WELL_KNOWN_ANY
        is_attribute = is_any if is_new else kind.HasField("dyn")
        if kind.primitive == syntax.PRIMITIVE_BOOL or is_attribute:
            return
    raise InvalidSelector("must evaluate to bool or the unknown type")


def checked(
    expression: str, environment: Environment, requirement: Requirement = require_boolean
) -> Any:
    """Return the `CheckedExpr` of an expression of a required type, and that we can evaluate.

    Raises:
        InvalidSelector: It does not compile, has another type, or is longer than 10 KiB.
        UnsupportedSelector: Upstream may accept it; it calls or nests what our engine cannot.
    """
    _require_size(expression)
    try:
        compiled = checker(environment).compile(_without_has_field(expression, environment))
    except RuntimeError as error:
        raise _refusal(error) from error
    try:
        tree = syntax.decoded(compiled.serialize())
    except DecodeError as error:
        raise UnsupportedSelector("the expression is nested too deeply for our engine") from error
    requirement(_types(tree).get(tree.expr.id), environment)
    _require_known_functions(tree)
    _require_sound_literals(tree)
    _require_like_elements(tree)
    return tree


def is_at_its_limits(error: Exception) -> bool:
    """Return whether the engine gave up, rather than the expression failed."""
    return _AT_ITS_LIMITS.search(str(error)) is not None


def words(error: Exception | str) -> str:
    """Return what the engine said, in one line without its codes.

    >>> words("INVALID_ARGUMENT: divide by zero [INVALID_ARGUMENT]")
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


def _without_has_field(expression: str, environment: Environment) -> str:
    """Return the expression with has(device.driver) and its like, always true, written as true.

    Raises:
        UnsupportedSelector: The same text stands in a literal, or `device` is a loop's variable.
        RuntimeError: The expression does not parse.
    """
    if not _HAS_FIELD.search(expression):
        return expression
    parsed = checker(environment).compile(expression, disable_check=True)
    for node in syntax.walked(syntax.decoded_unchecked(parsed.serialize()).expr):
        loop = node.comprehension_expr
        is_shadowed = "device" in {loop.iter_var, loop.iter_var2, loop.accu_var}
        if is_shadowed or _HAS_FIELD.search(node.const_expr.string_value):
            raise UnsupportedSelector("our engine cannot tell what has() asks here")
    return _HAS_FIELD.sub("true", expression)


def _refusal(error: RuntimeError) -> InvalidSelector | UnsupportedSelector:
    if is_at_its_limits(error):
        return UnsupportedSelector(words(error))
    for word in BEYOND_WORDS:
        if f"overload for '{word}'" in str(error):
            return UnsupportedSelector(f"our engine may lack an overload of {word}()")
    return InvalidSelector(f"compilation failed: {words(error)}")


def _require_known_functions(tree: Any) -> None:
    overloads = {each.key: each.value.overload_id for each in tree.reference_map}
    for node in syntax.walked(tree.expr):
        function = node.call_expr.function
        if not BEYOND.isdisjoint((function, *overloads.get(node.id, ()))):
            raise UnsupportedSelector(f"our engine has no {function}()")


def _require_sound_literals(tree: Any) -> None:
    """Refuse what upstream converts while it compiles: int("x"), duration("1x"), matches("(").

    Source: cel-go's ValidateDurationLiterals and the like, and OptOptimize.
    """
    for node in syntax.walked(tree.expr):
        call = node.call_expr
        if call.function in _CONVERSIONS and len(call.args) == 1:
            literal, probe = call.args[0], node
        elif call.function == "matches" and call.args:
            literal = call.args[-1]
            probe = syntax.call("matches", syntax.text(""), literal)
        else:
            continue
        if literal.WhichOneof("kind") != "const_expr":
            continue
        compiled = evaluator().deserialize(syntax.encoded(syntax.CheckedExpr(expr=probe)))
        value = compiled.eval(data={})
        if value.type() == cel.Type.ERROR:
            said = words(str(value.plain_value()))
            raise InvalidSelector(f"invalid argument of {call.function}(): {said}")


def _require_like_elements(tree: Any) -> None:
    """Refuse list and map literals of unlike elements, but for what is formatted.

    Source: cel-go's ValidateHomogeneousAggregateLiterals. Lists within lists are not compared.
    """
    types = _types(tree)

    def is_mixed(members: Iterable[Any]) -> bool:
        kinds = [types[member.id] for member in members if member.id in types]
        simple = [kind for kind in kinds if kind.WhichOneof("kind") in _SIMPLE_TYPES]
        return len({kind.SerializeToString() for kind in simple}) > 1

    formatted = {
        arg.id
        for node in syntax.walked(tree.expr)
        if node.call_expr.function == "format"
        for arg in node.call_expr.args
    }
    for node in syntax.walked(tree.expr):
        if node.id not in formatted and any(map(is_mixed, _members(node))):
            raise InvalidSelector("the elements of a list or map literal are of different types")


def _members(node: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Return a literal's elements, keys and values, without optional ones."""
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


def _types(tree: Any) -> dict[int, Any]:
    return {typed.key: typed.value for typed in tree.type_map}
