"""CEL selectors: compiled once, evaluated on devices.

What the engine cannot judge is `UnsupportedSelector`, never a verdict: legal functions that it
lacks, expressions that nest deeper than it reads or iterate more than it allows, and expressions
that could cost far more than upstream would let them.

Source: k8s.io/dynamic-resource-allocation v0.37.1, cel/compile.go. Differences from it are listed
in tests/oracle/differences.py. Why this engine: docs/adr/0004.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel

from kube.cel import cost
from kube.cel.check import Requirement, checked, is_at_its_limits, require_boolean, words
from kube.cel.device import DeviceView
from kube.cel.library import Environment, evaluator
from kube.cel.rewrite import Rewritten, Variable, rewritten
from kube.cel.syntax import CheckedExpr, encoded
from kube.errors import NotBoolean, SelectorFailed, UnsupportedSelector

__all__ = ["Compiled", "Environment", "Selector", "compile_selector"]

CACHED: Final = 1024
"""Compiled expressions that are kept, ten kilobytes each as people write them."""
LONG: Final = 512
"""Characters of an expression above which few are kept: one of 10 KiB takes nearly a megabyte."""
CACHED_LONG: Final = 64

_UNBOUND: Final = re.compile(r'No value with name "(?P<name>[^"]*)"')


class Compiled:
    """A compiled expression; immutable, safe to share.

    Attributes:
        expression: Its text.
        attributes: The attributes that it looks at as (domain, identifier); None when it may look
            at any, as with a computed domain or a loop over one.
        capacities: The same of capacities.
        cost: An upper bound of what one evaluation costs, in upstream's units.
    """

    def __init__(self, expression: str, environment: Environment, requirement: Requirement) -> None:
        """Compile what meets a requirement.

        Raises:
            InvalidSelector: See `compile_selector`.
            UnsupportedSelector: See `compile_selector`.
        """
        self.expression = expression
        types = checked(expression, environment, requirement)
        tree = rewritten(types, strict=False)
        self.cost = cost.estimated(tree)
        if self.cost > cost.LIMIT:
            raise UnsupportedSelector("the expression may cost more than upstream's limit")
        self._program = _Program(tree)
        self._strict_program = self._program
        if tree.compares_freely:
            self._strict_program = _Program(rewritten(types, strict=True))
        self.attributes = _places(tree, "attributes")
        self.capacities = _places(tree, "capacity")

    def evaluated(self, device: DeviceView) -> cel.Value:
        """Return what the engine makes of the expression on a device.

        Raises:
            SelectorFailed: The evaluation raised.
            UnsupportedSelector: Our engine cannot judge this device, or gives up on the way.
        """
        program = self._program_for(device)
        kind, value = program.run(device)
        program.require_value(kind, value)
        return value

    def _program_for(self, device: DeviceView) -> "_Program":
        if device.fault:
            raise SelectorFailed(device.fault)
        if device.beyond:
            raise UnsupportedSelector(device.beyond)
        return self._strict_program if device.has_versions else self._program


class Selector(Compiled):
    """A compiled expression that says whether a device will do."""

    def __init__(self, expression: str, environment: Environment) -> None:
        """Compile; `compile_selector` is the public way, with a cache."""
        super().__init__(expression, environment, require_boolean)

    def matches(self, device: DeviceView) -> bool:
        """Return whether the device satisfies the expression.

        Raises:
            SelectorFailed: The evaluation raised, or (NotBoolean) gave no boolean.
            UnsupportedSelector: Our engine cannot judge this device, or gives up on the way.
        """
        program = self._program_for(device)
        kind, value = program.run(device)
        # What it nearly always is comes first: asking the engine for a type takes its time.
        if kind == cel.Type.BOOL:
            return bool(value.value())
        program.require_value(kind, value)
        raise NotBoolean(f"CEL result of type {kind.name()} could not be converted to bool")


def compile_selector(expression: str, environment: Environment) -> Selector:
    """Return a compiled selector.

    Raises:
        InvalidSelector: It does not compile, cannot be a boolean or is longer than 10 KiB.
        UnsupportedSelector: Upstream may accept it, our engine cannot judge it.
    """
    keep = _short if len(expression) <= LONG else _long
    return keep(expression, environment)


_short: Final = lru_cache(maxsize=CACHED)(Selector)
_long: Final = lru_cache(maxsize=CACHED_LONG)(Selector)


class _Program:
    """A rewritten tree, ready to run."""

    def __init__(self, tree: Rewritten) -> None:
        self._tree = tree
        try:
            self._compiled = evaluator().deserialize(encoded(CheckedExpr(expr=tree.expr)))
        except RuntimeError as error:
            raise UnsupportedSelector(words(error)) from error
        self._bindings = [_binding(name, each) for name, each in tree.variables.items()]
        self._bindings += [_device_binding(name) for name in tree.device_fields]

    def run(self, device: DeviceView) -> tuple[cel.Type, cel.Value]:
        """Return what comes out and its type, which may be an error."""
        data = dict(self._tree.constants)
        for bind in self._bindings:
            bind(device, data)
        try:
            value = self._compiled.eval(data=data)
        except (RuntimeError, TypeError, ValueError) as error:
            if is_at_its_limits(error):
                raise UnsupportedSelector(words(error)) from error
            raise SelectorFailed(words(error)) from error
        return value.type(), value

    def require_value(self, kind: cel.Type, value: cel.Value) -> None:
        """Accept what is no error."""
        if kind == cel.Type.ERROR:
            raise SelectorFailed(self._explained(str(value.plain_value())))

    def _explained(self, message: str) -> str:
        unbound = _UNBOUND.search(message)
        variable = self._tree.variables.get(unbound["name"]) if unbound else None
        return words(message) if variable is None else f"no such key: {variable.identifier}"


_Binding = Callable[[DeviceView, dict[str, Any]], None]
_NOTHING: Final[dict[str, Any]] = {}


def _binding(name: str, variable: Variable) -> _Binding:
    """Return what puts one variable's value, if the device has it, into the data."""
    field, domain, identifier = variable.field, variable.domain, variable.identifier

    def domains(device: DeviceView) -> Any:
        return device.attributes if field == "attributes" else device.capacity

    def value(device: DeviceView, data: dict[str, Any]) -> None:
        values = domains(device).get(domain, _NOTHING)
        if identifier in values:
            data[name] = values[identifier]

    def has(device: DeviceView, data: dict[str, Any]) -> None:
        data[name] = identifier in domains(device).get(domain, _NOTHING)

    def whole_domain(device: DeviceView, data: dict[str, Any]) -> None:
        data[name] = domains(device).get(domain, _NOTHING)

    def everything(device: DeviceView, data: dict[str, Any]) -> None:
        data[name] = domains(device)

    return {"value": value, "has": has, "domain": whole_domain, "all": everything}[variable.what]


def _device_binding(name: str) -> _Binding:
    """Return what puts `device.driver` and its like, or `device` as a map, into the data."""

    def field(device: DeviceView, data: dict[str, Any]) -> None:
        data[name] = _fields(device)[name.removeprefix("device.")]

    def whole(device: DeviceView, data: dict[str, Any]) -> None:
        data[name] = _fields(device)

    return whole if name == "device" else field


def _fields(device: DeviceView) -> dict[str, Any]:
    return {
        "driver": device.driver,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": device.attributes,
        "capacity": device.capacity,
    }


def _places(tree: Rewritten, field: str) -> frozenset[tuple[str, str]] | None:
    """Return the (domain, identifier) pairs that a tree looks at in one map; None for any."""
    looked_at = [each for each in tree.variables.values() if each.field == field]
    if "device" in tree.device_fields or any(each.what in {"domain", "all"} for each in looked_at):
        return None
    return frozenset((each.domain, each.identifier) for each in looked_at)
