"""Conjunctions of the usual conditions, decided without the engine.

Most selectors compare a driver, a text or a capacity with a constant, or ask for a name, all joined by `&&`. A call
into the engine takes ten times as long as such a comparison. What is unusual about a device, such as a missing
value, a list, or a name that is published twice, is left to the engine, and so are all errors.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from kube.api.resource import Device, DeviceAttribute, DeviceCapacity
from kube.cel.projection import attribute_fault
from kube.cel.rewrite import RewrittenExpression, Variable
from kube.cel.syntax import Node, bool_value, string_value

MAX_CONDITIONS: Final = 16
"""Conditions of a conjunction; the engine evaluates longer ones, and has limits of its own."""

_V = TypeVar("_V")
_RELATIONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "_==_": operator.eq,
    "_>=_": operator.ge,
    "_>_": operator.gt,
    "_<=_": operator.le,
    "_<_": operator.lt,
}


class Condition(Protocol):
    """A part of a conjunction."""

    def holds(self, driver: str, device: Device, /) -> bool | None:
        """Return True if a device of a driver meets it, False if not; None if only the engine can say."""
        ...


class Conjunction:
    """Conditions that a device has to meet together."""

    def __init__(self, conditions: tuple[Condition, ...]) -> None:
        self._conditions = conditions

    def holds(self, driver: str, device: Device) -> bool | None:
        """Return True if a device meets all conditions, False if not; None if only the engine can say."""
        if attribute_fault(device):
            return None
        for condition in self._conditions:
            holds = condition.holds(driver, device)
            if not holds:
                return holds
        return True


def conjunction(tree: RewrittenExpression) -> Conjunction | None:
    """Return an expression as a conjunction of usual conditions; None if it is something else."""
    conditions: list[Condition] = []
    nodes = [tree.expr]
    while nodes:
        node = nodes.pop()
        if node.call_expr.function == "_&&_":
            nodes.extend(reversed(node.call_expr.args))
            continue
        condition = _read_condition(node, tree)
        if condition is None or len(conditions) == MAX_CONDITIONS:
            return None
        conditions.append(condition)
    return Conjunction(tuple(conditions))


class _Name(msgspec.Struct, frozen=True, kw_only=True):
    """The name of an attribute or a capacity, without a slash in either part."""

    domain: str
    identifier: str
    qualified: str

    def is_in(self, driver: str, values: Mapping[str, object] | None) -> bool:
        """Return True if a driver publishes a value under this name."""
        if not values:
            return False
        return self.qualified in values or (self.domain == driver and self.identifier in values)

    def lookup(self, driver: str, values: Mapping[str, _V] | None) -> _V | None:
        """Return the value that a driver publishes; None if there is none, or two."""
        if not values:
            return None
        value = values.get(self.qualified)
        if self.domain != driver:
            return value
        bare = values.get(self.identifier)
        if value is None:
            return bare
        return value if bare is None else None


class _IsOfDriver(msgspec.Struct, frozen=True, kw_only=True):
    """`device.driver == "name"`."""

    name: str

    def holds(self, driver: str, _device: Device, /) -> bool | None:
        return driver == self.name


class _IsPublished(msgspec.Struct, frozen=True, kw_only=True):
    """`"name" in device.attributes["domain"]`, or the same of `device.capacity`."""

    name: _Name
    is_capacity: bool

    def holds(self, driver: str, device: Device) -> bool | None:
        if self.is_capacity:
            return self.name.is_in(driver, device.capacity)
        if not self.name.is_in(driver, device.attributes):
            return False
        attribute = self.name.lookup(driver, device.attributes)
        # An element of a list may be malformed, which only the engine's values show.
        if attribute is None or attribute.strings is not None or attribute.versions is not None:
            return None
        return True


class _EqualsText(msgspec.Struct, frozen=True, kw_only=True):
    """`device.attributes["domain"].name == "text"`."""

    name: _Name
    text: str

    def holds(self, driver: str, device: Device) -> bool | None:
        attribute = self.name.lookup(driver, device.attributes)
        if attribute is None or attribute != DeviceAttribute(string=attribute.string):
            return None
        return None if attribute.string is None else attribute.string == self.text


class _EqualsFlag(msgspec.Struct, frozen=True, kw_only=True):
    """`device.attributes["domain"].name == true`, or false."""

    name: _Name
    flag: bool

    def holds(self, driver: str, device: Device) -> bool | None:
        attribute = self.name.lookup(driver, device.attributes)
        if attribute is None or attribute != DeviceAttribute(bool_=attribute.bool_):
            return None
        return None if attribute.bool_ is None else attribute.bool_ is self.flag


class _ComparesAmount(msgspec.Struct, frozen=True, kw_only=True):
    """`device.capacity["domain"].name.compareTo(quantity("amount")) >= 0`, or another relation."""

    name: _Name
    relation: Callable[[int, int], bool]
    nanos: int

    def holds(self, driver: str, device: Device) -> bool | None:
        capacity: DeviceCapacity | None = self.name.lookup(driver, device.capacity)
        return None if capacity is None else self.relation(capacity.value.nanos, self.nanos)


def _read_condition(node: Node, tree: RewrittenExpression) -> Condition | None:
    """Read a condition; None if it is not a usual one."""
    if node.HasField("ident_expr"):
        return _read_presence(node, tree)
    arguments = node.call_expr.args
    if len(arguments) != 2:
        return None
    left, right = arguments
    relation = _RELATIONS.get(node.call_expr.function)
    if relation is not None and left.call_expr.function == "compareTo":
        return _read_comparison(left, relation, right, tree)
    return _read_equality(left, right, tree) if node.call_expr.function == "_==_" else None


def _read_presence(node: Node, tree: RewrittenExpression) -> Condition | None:
    variable = tree.variables.get(node.ident_expr.name)
    name = _name(variable, "has")
    if variable is None or name is None:
        return None
    return _IsPublished(name=name, is_capacity=variable.field == "capacity")


def _read_equality(left: Node, right: Node, tree: RewrittenExpression) -> Condition | None:
    text, flag = string_value(right), bool_value(right)
    if text is not None and left.ident_expr.name == "device.driver":
        return _IsOfDriver(name=text)
    variable = tree.variables.get(left.ident_expr.name)
    name = _name(variable, "value")
    if variable is None or name is None or variable.field != "attributes":
        return None
    # The engine cuts a text at its first NUL.
    if text is not None and "\0" not in text:
        return _EqualsText(name=name, text=text)
    return None if flag is None else _EqualsFlag(name=name, flag=flag)


def _read_comparison(
    call: Node, relation: Callable[[int, int], bool], right: Node, tree: RewrittenExpression
) -> Condition | None:
    variable = tree.variables.get(call.call_expr.target.ident_expr.name)
    name = _name(variable, "value")
    amount: Any = tree.constants.get(call.call_expr.args[0].ident_expr.name)
    is_zero = right.const_expr.HasField("int64_value") and right.const_expr.int64_value == 0
    if variable is None or name is None or variable.field != "capacity" or not is_zero:
        return None
    # A capacity can be compared with nothing but a quantity, as the checked types say.
    return (
        None
        if amount is None
        else _ComparesAmount(name=name, relation=relation, nanos=int(amount.nanos))
    )


def _name(variable: Variable | None, kind: str) -> _Name | None:
    """Return the name that a variable of a kind reads; None for other variables."""
    if variable is None or variable.kind != kind:
        return None
    domain, identifier = variable.domain, variable.identifier
    # With a slash, it is not the name of what is published under the joined text.
    if "/" in domain or "/" in identifier:
        return None
    return _Name(domain=domain, identifier=identifier, qualified=f"{domain}/{identifier}")
