"""From a checked tree over `device` to one over exactly the values that it looks at.

Upstream answers an unknown domain with an empty map; no map of our engine can. And handing whole
maps to the engine costs more than the evaluation. So what an expression looks at is replaced:

    device.attributes["d"].x            a variable, unbound where the device has no x
    has(device.attributes["d"].x)       a variable, true or false
    "x" in device.attributes["d"]       the same
    device.attributes["d"].?x           has x ? optional.of(x) : optional.none()
    device.attributes["d"]              a variable, {} where the device has no such domain
    has(device.attributes.d)            true, as upstream
    all[key], all.?key                  key in all ? all[key] : {}, where `all` is the map of domains
    quantity("1Gi"), semver("1.0.0")    a variable that is bound to the value

An unbound variable is an error of the engine like any other, so && and || absorb it as they should.
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
    text_of,
    truth,
    walked,
)
from kube.errors import InvalidSelector, UnsupportedSelector
from kube.quantity import Quantity

MAX_COMPUTED_BYTES: Final = 4096
"""Of the encoded expression that computes a domain: it is written twice, so nested ones double."""

Field = Literal["attributes", "capacity"]
What = Literal["value", "has", "domain", "all"]


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """What a variable of the rewritten tree stands for.

    Attributes:
        what: A value, whether there is one, a domain's values, or all domains.
        field: Of which map of the device.
        domain: Empty for all domains.
        identifier: Empty for a whole domain.
    """

    what: What
    field: Field
    domain: str = ""
    identifier: str = ""


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """A tree over variables.

    Attributes:
        expr: The tree, a `cel.expr.Expr`.
        variables: Name in the tree to what it stands for.
        constants: Name in the tree to a value of the engine.
        device_fields: `device.driver` and its like where they are read, and `device` itself.
        compares_freely: Whether an equality depends on the types of attributes.
    """

    expr: Node
    variables: Mapping[str, Variable]
    constants: Mapping[str, Any]
    device_fields: frozenset[str]
    compares_freely: bool


def rewritten(checked: Any, *, strict: bool) -> Rewritten:
    """Return the tree of a checked expression over variables.

    Args:
        checked: A `cel.expr.CheckedExpr`.
        strict: Whether equality that depends on attribute types fails for unlike versions.

    Raises:
        InvalidSelector: It looks into a quantity or a version.
        UnsupportedSelector: It nests lookups by computed domains beyond `MAX_COMPUTED_BYTES`.
    """
    return _Rewriter(checked, strict=strict).done()


class _Rewriter:
    """One walk over one tree."""

    def __init__(self, checked: Any, *, strict: bool) -> None:
        self._types = {typed.key: typed.value for typed in checked.type_map}
        self._root = checked.expr
        self._strict = strict
        self._variables: dict[Variable, str] = {}
        self._constants: dict[str, Any] = {}
        self._device_fields: set[str] = set()
        self._compares_freely = False
        self._reads_device = any(
            node.ident_expr.name.removeprefix(".").startswith("device")
            for node in walked(self._root)
        )

    def done(self) -> Rewritten:
        expr = self._visit(self._root)
        for number, node in enumerate(walked(expr), start=1):
            node.id = number
        return Rewritten(
            expr=expr,
            variables={name: variable for variable, name in self._variables.items()},
            constants=self._constants,
            device_fields=frozenset(self._device_fields),
            compares_freely=self._compares_freely,
        )

    def _visit(self, node: Node) -> Node:
        self._refuse_a_look_inside(node)
        lookup = _lookup(node)
        if lookup is not None:
            value = self._value(lookup)
            if value is not None:
                return value
            if lookup.how != "in" and self._is_map_of_domains(lookup.map):
                return self._domain(lookup)
        constant = self._constant(node)
        return self._copied(node) if constant is None else constant

    def _value(self, lookup: "_Lookup") -> Node | None:
        """Return what replaces a lookup by constant domain and identifier; None for others."""
        outer = _lookup(lookup.map)
        if outer is None or outer.how != "index":
            return None
        field, domain, identifier = _field(outer.map), text_of(outer.key), text_of(lookup.key)
        if field is None or domain is None or identifier is None:
            return None
        value = Variable(what="value", field=field, domain=domain, identifier=identifier)
        if lookup.how == "index":
            return self._variable(value)
        has = self._variable(msgspec.structs.replace(value, what="has"))
        if lookup.how == "optional":
            found = call("optional.of", self._variable(value))
            return call("_?_:_", has, found, call("optional.none"))
        return has

    def _domain(self, lookup: "_Lookup") -> Node:
        """Return what replaces a lookup in the map of all domains, which has every domain."""
        if lookup.how == "test":
            return truth()
        field, domain = _field(lookup.map), text_of(lookup.key)
        if field is not None and domain is not None:
            values = self._variable(Variable(what="domain", field=field, domain=domain))
        else:
            domains, key = self._visit(lookup.map), self._visit(lookup.key)
            if domains.ByteSize() + key.ByteSize() > MAX_COMPUTED_BYTES:
                raise UnsupportedSelector("the expression nests too many computed domains")
            values = call(
                "_?_:_", call("@in", key, domains), call("_[_]", domains, key), empty_map()
            )
        return call("optional.of", values) if lookup.how == "optional" else values

    def _constant(self, node: Node) -> Node | None:
        """Return what replaces a quantity or version that is written down; None for others."""
        if node.WhichOneof("kind") != "call_expr" or len(node.call_expr.args) != 1:
            return None
        function, text = node.call_expr.function, text_of(node.call_expr.args[0])
        if text is None or function not in {"quantity", "semver"}:
            return None
        name = f"@{function}({text})"
        if name not in self._constants:
            try:
                self._constants[name] = (
                    quantity_message(Quantity(text))
                    if function == "quantity"
                    else semver_message(Semver.parsed(text))
                )
            except ValueError:
                # Upstream compiles it and fails when it gets there; so does what is left in place.
                return None
        return ident(name)

    def _copied(self, node: Node) -> Node:
        """Return the node with what is below it rewritten."""
        copy = Expr()
        copy.CopyFrom(node)
        for child in children(copy):
            child.CopyFrom(self._visit(child))
        match copy.WhichOneof("kind"):
            case "ident_expr":
                return self._identified(copy)
            case "call_expr" if copy.call_expr.function == "_==_":
                return self._equality(node, copy)
        return copy

    def _identified(self, node: Node) -> Node:
        name = node.ident_expr.name.removeprefix(".")
        field = _FIELDS.get(name)
        if field is not None:
            return self._variable(Variable(what="all", field=field))
        if name == "device" or name.startswith("device."):
            self._device_fields.add(name)
            return ident(name)
        return node

    def _equality(self, node: Node, copy: Node) -> Node:
        """Return an equality that fails where upstream's fails.

        Upstream, a version or a quantity equals its like or raises; our engine says false.
        """
        left, right = (self._kind(arg) for arg in node.call_expr.args)
        if left == "plain" or (left == "opaque" and right == "opaque"):
            return copy
        self._compares_freely = True
        # What is only known at run time is a version on few devices: those pay for the check.
        if left == "free" and not self._strict:
            return copy
        return call(STRICT_EQUALS, *copy.call_expr.args)

    def _kind(self, node: Node) -> Literal["free", "opaque", "plain"]:
        """Return whether a value's type is known only at run time, or is a version or quantity."""
        kind = self._types.get(node.id)
        if kind is None:
            return "plain"
        if kind.HasField("dyn") or kind.well_known == WELL_KNOWN_ANY:
            return "free"
        return "opaque" if kind.message_type in {QUANTITY, SEMVER} else "plain"

    def _is_map_of_domains(self, node: Node) -> bool:
        """Return whether a node is `device.attributes` or `device.capacity`, perhaps renamed."""
        if not self._reads_device:
            return False
        if _is_call(node, "dyn", 1):
            return self._is_map_of_domains(node.call_expr.args[0])
        if node.HasField("select_expr") and f"device.{node.select_expr.field}" in _FIELDS:
            operand = self._types.get(node.select_expr.operand.id)
            return operand is not None and operand.message_type == DEVICE
        kind = self._types.get(node.id)
        if kind is None or not kind.HasField("map_type") or node.HasField("struct_expr"):
            return False
        inner = kind.map_type.value_type
        if kind.map_type.key_type.primitive != PRIMITIVE_STRING or not inner.HasField("map_type"):
            return False
        leaf = inner.map_type.value_type
        return bool(
            leaf.HasField("dyn")
            or leaf.well_known == WELL_KNOWN_ANY
            or leaf.message_type == QUANTITY
        )

    def _refuse_a_look_inside(self, node: Node) -> None:
        """Quantities and versions have no fields upstream, and cannot be made as messages."""
        if node.HasField("select_expr"):
            kind = self._types.get(node.select_expr.operand.id)
            if kind is not None and kind.message_type in {QUANTITY, SEMVER}:
                field = node.select_expr.field
                raise InvalidSelector(f"undefined field '{field}' of {kind.message_type}")
        made = node.struct_expr.message_name if node.HasField("struct_expr") else ""
        if made in {QUANTITY, SEMVER}:
            raise InvalidSelector(f"undeclared reference to '{made}'")
        if made == DEVICE:
            raise UnsupportedSelector(f"our engine cannot make a {made}")

    def _variable(self, variable: Variable) -> Node:
        name = self._variables.setdefault(variable, f"@{len(self._variables)}")
        return ident(name)


class _Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """One of the ways to ask a map for a key."""

    map: Node
    key: Node
    how: Literal["index", "test", "optional", "in"]


_FIELDS: Final[Mapping[str, Field]] = {
    "device.attributes": "attributes",
    "device.capacity": "capacity",
}


def _lookup(node: Node) -> _Lookup | None:
    """Return the lookup that a node is; None when it is something else."""
    if node.HasField("select_expr"):
        select = node.select_expr
        key = Expr()
        key.const_expr.string_value = select.field
        how: Literal["index", "test"] = "test" if select.test_only else "index"
        return _Lookup(map=select.operand, key=key, how=how)
    if _is_call(node, "_[_]", 2):
        return _Lookup(map=node.call_expr.args[0], key=node.call_expr.args[1], how="index")
    if _is_call(node, "_?._", 2) or _is_call(node, "_[?_]", 2):
        return _Lookup(map=node.call_expr.args[0], key=node.call_expr.args[1], how="optional")
    if _is_call(node, "@in", 2):
        return _Lookup(map=node.call_expr.args[1], key=node.call_expr.args[0], how="in")
    return None


def _is_call(node: Node, function: str, arity: int) -> bool:
    return (
        node.WhichOneof("kind") == "call_expr"
        and node.call_expr.function == function
        and len(node.call_expr.args) == arity
    )


def _field(node: Node) -> Field | None:
    """Return which map of the device a node is; None when it is none or not directly."""
    if node.WhichOneof("kind") != "ident_expr":
        return None
    return _FIELDS.get(node.ident_expr.name.removeprefix("."))
