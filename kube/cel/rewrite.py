"""Rewrite a checked tree over `device` into a tree over exactly the values that it reads.

Upstream returns an empty map for an unknown domain; a map of this engine cannot. Converting whole
maps to values of the engine also costs more than the evaluation. Each lookup is therefore replaced:

    device.attributes["d"].x            a variable, unbound where the device has no x
    has(device.attributes["d"].x)       a variable, true or false
    "x" in device.attributes["d"]       the same
    device.attributes["d"].?x           has x ? optional.of(x) : optional.none()
    device.attributes["d"]              a variable, {} where the device has no such domain
    has(device.attributes.d)            true, as upstream
    all[key], all.?key                  key in all ? all[key] : {}, where `all` is the map of domains
    quantity("1Gi"), semver("1.0.0")    a variable that is bound to the value

An unbound variable is an error like any other, so && and || absorb it as the specification says.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from kube.cel.device import DEVICE, QUANTITY, SEMVER, quantity_message, semver_message
from kube.cel.library import STRICT_EQUALS
from kube.cel.semver import Semver
from kube.cel.syntax import (
    PRIMITIVE_STRING,
    WELL_KNOWN_ANY,
    Expr,
    Node,
    call,
    children,
    empty_map,
    ident,
    string_value,
    true_constant,
    walk,
)
from kube.errors import InvalidSelector, UnsupportedSelector
from kube.quantity import Quantity

MAX_COMPUTED_BYTES: Final = 4096
"""The largest encoded expression that computes a domain: it is duplicated, so nesting doubles it."""

Field = Literal["attributes", "capacity"]
VariableKind = Literal["value", "has", "domain", "all"]


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the device that a variable of the rewritten tree represents.

    Attributes:
        kind: A value, its presence, a domain's values, or all domains.
        field: The map of the device.
        domain: Empty for all domains.
        identifier: Empty for a whole domain.
    """

    kind: VariableKind
    field: Field
    domain: str = ""
    identifier: str = ""


class RewrittenExpression(msgspec.Struct, frozen=True, kw_only=True):
    """A tree over variables.

    Attributes:
        expr: The tree, a `cel.expr.Expr`.
        variables: The variables, by their name in the tree.
        constants: Values of the engine, by their name in the tree.
        device_fields: The scalar fields of `device` that the tree reads, and `device` itself.
        has_dynamic_equality: True if an equality depends on the run-time types of attributes.
    """

    expr: Node
    variables: Mapping[str, Variable]
    constants: Mapping[str, Any]
    device_fields: frozenset[str]
    has_dynamic_equality: bool


def rewrite(checked_tree: Any, *, strict: bool) -> RewrittenExpression:
    """Rewrite a checked expression.

    Args:
        checked_tree: A `cel.expr.CheckedExpr`.
        strict: True if an equality of dynamic types raises an error if only one side is a version.

    Raises:
        InvalidSelector: It reads a field of a quantity or a version.
        UnsupportedSelector: It nests computed domains beyond `MAX_COMPUTED_BYTES`, or a map may be of
            the device or another one.
    """
    return _Rewriter(checked_tree, strict=strict).rewrite()


class _Rewriter:
    """A single traversal of a tree."""

    def __init__(self, checked_tree: Any, *, strict: bool) -> None:
        self._types = {typed_node.key: typed_node.value for typed_node in checked_tree.type_map}
        self._root = checked_tree.expr
        self._strict = strict
        self._variables: dict[Variable, str] = {}
        self._constants: dict[str, Any] = {}
        self._device_fields: set[str] = set()
        self._has_dynamic_equality = False
        self._reads_device = any(
            node.ident_expr.name.removeprefix(".").startswith("device") for node in walk(self._root)
        )
        self._builds_maps = any(map(self._may_be_map_of_domains, walk(self._root)))

    def rewrite(self) -> RewrittenExpression:
        expr = self._visit(self._root)
        for number, node in enumerate(walk(expr), start=1):
            node.id = number
        return RewrittenExpression(
            expr=expr,
            variables={name: variable for variable, name in self._variables.items()},
            constants=self._constants,
            device_fields=frozenset(self._device_fields),
            has_dynamic_equality=self._has_dynamic_equality,
        )

    def _visit(self, node: Node) -> Node:
        self._require_opaque(node)
        lookup = _as_lookup(node)
        if lookup is not None:
            value = self._rewrite_value(lookup)
            if value is not None:
                return value
            if lookup.operation != "in" and self._is_map_of_domains(lookup.map):
                return self._rewrite_domain(lookup)
            self._require_no_optional_domains(lookup)
        if self._hides_map_of_domains(node):
            raise UnsupportedSelector(
                "Drawbridge's CEL engine cannot follow a map of the device through a dynamic type"
            )
        constant = self._fold_constant(node)
        return self._rewrite_children(node) if constant is None else constant

    def _rewrite_value(self, lookup: "_Lookup") -> Node | None:
        """Rewrite a lookup with constant domain and identifier; None for other lookups."""
        outer = _as_lookup(lookup.map)
        if outer is None or outer.operation != "index":
            return None
        field, domain, identifier = (
            _device_field(outer.map),
            string_value(outer.key),
            string_value(lookup.key),
        )
        if field is None or domain is None or identifier is None:
            return None
        value = Variable(kind="value", field=field, domain=domain, identifier=identifier)
        if lookup.operation == "index":
            return self._variable(value)
        has = self._variable(msgspec.structs.replace(value, kind="has"))
        if lookup.operation == "optional":
            present = call("optional.of", self._variable(value))
            return call("_?_:_", has, present, call("optional.none"))
        return has

    def _rewrite_domain(self, lookup: "_Lookup") -> Node:
        """Rewrite a lookup in the map of all domains; the map contains every domain."""
        if lookup.operation == "test":
            return true_constant()
        field, domain = _device_field(lookup.map), string_value(lookup.key)
        if field is not None and domain is not None:
            values = self._variable(Variable(kind="domain", field=field, domain=domain))
        else:
            domains, key = self._visit(_without_dyn(lookup.map)), self._visit(lookup.key)
            if domains.ByteSize() + key.ByteSize() > MAX_COMPUTED_BYTES:
                raise UnsupportedSelector("the expression nests too many computed domains")
            values = call(
                "_?_:_", call("@in", key, domains), call("_[_]", domains, key), empty_map()
            )
        return call("optional.of", values) if lookup.operation == "optional" else values

    def _fold_constant(self, node: Node) -> Node | None:
        """Fold quantity() or semver() of a literal into a constant; None for other nodes."""
        if node.WhichOneof("kind") != "call_expr" or len(node.call_expr.args) != 1:
            return None
        function, text = node.call_expr.function, string_value(node.call_expr.args[0])
        if text is None or function not in {"quantity", "semver"}:
            return None
        name = f"@{function}({text})"
        if name not in self._constants:
            try:
                self._constants[name] = (
                    quantity_message(Quantity(text))
                    if function == "quantity"
                    else semver_message(Semver.parse(text))
                )
            except ValueError:
                # As upstream, it compiles and fails when it is evaluated.
                return None
        return ident(name)

    def _rewrite_children(self, node: Node) -> Node:
        """Return a copy of the node with rewritten children."""
        copy = Expr()
        copy.CopyFrom(node)
        for child in children(copy):
            child.CopyFrom(self._visit(child))
        match copy.WhichOneof("kind"):
            case "ident_expr":
                return self._rewrite_identifier(copy)
            case "call_expr" if copy.call_expr.function == "_==_":
                return self._rewrite_equality(node, copy)
        return copy

    def _rewrite_identifier(self, node: Node) -> Node:
        name = node.ident_expr.name.removeprefix(".")
        field = _FIELDS.get(name)
        if field is not None:
            return self._variable(Variable(kind="all", field=field))
        if name == "device" or name.startswith("device."):
            self._device_fields.add(name)
            return ident(name)
        return node

    def _rewrite_equality(self, node: Node, copy: Node) -> Node:
        """Rewrite an equality to one that raises an error if upstream's does.

        Upstream, comparing a version or a quantity with another type is an error; in this engine it
        is false.
        """
        left, right = (self._typing(arg) for arg in node.call_expr.args)
        if left == "plain" or (left == "opaque" and right == "opaque"):
            return copy
        self._has_dynamic_equality = True
        # Few expressions read versions; only for those is the strict program evaluated.
        if left == "free" and not self._strict:
            return copy
        return call(STRICT_EQUALS, *copy.call_expr.args)

    def _typing(self, node: Node) -> Literal["free", "opaque", "plain"]:
        """Classify a node's type: dynamic (free), a version or quantity (opaque), or other."""
        kind = self._types.get(node.id)
        if kind is None:
            return "plain"
        if kind.HasField("dyn") or kind.well_known == WELL_KNOWN_ANY:
            return "free"
        return "opaque" if kind.message_type in {QUANTITY, SEMVER} else "plain"

    def _is_map_of_domains(self, node: Node) -> bool:
        """Return True if a node is `device.attributes` or `device.capacity`, or an alias of one."""
        if not self._reads_device:
            return False
        if _is_call(node, "dyn", 1):
            return self._is_map_of_domains(node.call_expr.args[0])
        if node.HasField("select_expr") and f"device.{node.select_expr.field}" in _FIELDS:
            return self._is_device(node.select_expr.operand)
        if node.HasField("struct_expr") or not _is_type_of_domains(self._types.get(node.id)):
            return False
        if self._builds_maps and _device_field(node) is None:
            raise UnsupportedSelector(
                "the expression has maps of maps of its own beside those of the device"
            )
        return True

    def _hides_map_of_domains(self, node: Node) -> bool:
        """Return True if a map of domains is a part of a node of a type without such maps."""
        if _is_call(node, "dyn", 1):
            return self._is_map_of_domains(node)
        kind = self._types.get(node.id)
        if not self._reads_device or kind is None:
            return False
        match node.WhichOneof("kind"):
            case "list_expr":
                kind = kind.list_type.elem_type
            case "struct_expr":
                kind = kind.map_type.value_type
            case "call_expr" if node.call_expr.function not in {"_?_:_", "orValue"}:
                return False
            case "call_expr":
                pass
            case _:
                return False
        kinds = [self._types[child.id] for child in children(node) if child.id in self._types]
        kinds += [optional for kind in kinds for optional in kind.abstract_type.parameter_types]
        return not _is_type_of_domains(kind) and any(map(_is_type_of_domains, kinds))

    def _may_be_map_of_domains(self, node: Node) -> bool:
        """Return True if a node is a map literal that may be taken for a map of the device."""
        if not node.HasField("struct_expr") or node.struct_expr.message_name:
            return False
        kind = self._types.get(node.id)
        if kind is None:
            return True
        values = kind.map_type.value_type
        if values.HasField("map_type"):
            return not values.map_type.value_type.HasField("map_type")
        # The type of an empty map is that of what it stands beside.
        return values.WhichOneof("kind") in {"dyn", None}

    def _require_no_optional_domains(self, lookup: "_Lookup") -> None:
        """Reject a lookup through an optional map of domains: the engine would find no unknown domain."""
        kind, inner = self._types.get(lookup.map.id), _as_lookup(lookup.map)
        is_field = (
            inner is not None and inner.operation == "optional" and self._is_device(inner.map)
        )
        if is_field or (
            kind is not None and any(map(_is_type_of_domains, kind.abstract_type.parameter_types))
        ):
            raise UnsupportedSelector("Drawbridge's CEL engine cannot look into an optional map")

    def _is_device(self, node: Node) -> bool:
        kind = self._types.get(node.id)
        return kind is not None and kind.message_type == DEVICE

    def _require_opaque(self, node: Node) -> None:
        """Reject field access and construction of quantities and versions, as upstream does."""
        if node.HasField("select_expr"):
            kind = self._types.get(node.select_expr.operand.id)
            if kind is not None and kind.message_type in {QUANTITY, SEMVER}:
                field = node.select_expr.field
                raise InvalidSelector(f"undefined field '{field}' of {kind.message_type}")
        message = node.struct_expr.message_name if node.HasField("struct_expr") else ""
        if message in {QUANTITY, SEMVER}:
            raise InvalidSelector(f"undeclared reference to '{message}'")
        if message == DEVICE:
            raise UnsupportedSelector(f"Drawbridge's CEL engine cannot create a {message}")

    def _variable(self, variable: Variable) -> Node:
        name = self._variables.setdefault(variable, f"@{len(self._variables)}")
        return ident(name)


class _Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """An access to a key of a map."""

    map: Node
    key: Node
    operation: Literal["index", "test", "optional", "in"]


_FIELDS: Final[Mapping[str, Field]] = {
    "device.attributes": "attributes",
    "device.capacity": "capacity",
}


def _as_lookup(node: Node) -> _Lookup | None:
    """Return a node as a lookup; None for other nodes."""
    if node.HasField("select_expr"):
        select = node.select_expr
        key = Expr()
        key.const_expr.string_value = select.field
        how: Literal["index", "test"] = "test" if select.test_only else "index"
        return _Lookup(map=select.operand, key=key, operation=how)
    if _is_call(node, "_[_]", 2):
        return _Lookup(map=node.call_expr.args[0], key=node.call_expr.args[1], operation="index")
    if _is_call(node, "_?._", 2) or _is_call(node, "_[?_]", 2):
        return _Lookup(map=node.call_expr.args[0], key=node.call_expr.args[1], operation="optional")
    if _is_call(node, "@in", 2):
        return _Lookup(map=node.call_expr.args[1], key=node.call_expr.args[0], operation="in")
    return None


def _is_call(node: Node, function: str, arity: int) -> bool:
    return (
        node.WhichOneof("kind") == "call_expr"
        and node.call_expr.function == function
        and len(node.call_expr.args) == arity
    )


def _device_field(node: Node) -> Field | None:
    """Return the map of the device that a node names; None for other nodes."""
    if node.WhichOneof("kind") != "ident_expr":
        return None
    return _FIELDS.get(node.ident_expr.name.removeprefix("."))


def _without_dyn(node: Node) -> Node:
    """Return the argument of dyn(); other nodes as they are."""
    while _is_call(node, "dyn", 1):
        node = node.call_expr.args[0]
    return node


def _is_type_of_domains(kind: Any) -> bool:
    """Return True for the type of `device.attributes` and `device.capacity`."""
    if kind is None or kind.map_type.key_type.primitive != PRIMITIVE_STRING:
        return False
    values = kind.map_type.value_type.map_type.value_type
    return bool(
        values.HasField("dyn")
        or values.well_known == WELL_KNOWN_ANY
        or values.message_type == QUANTITY
    )
