"""Compile CEL selectors once and evaluate them on devices; docs/cel.md explains the pipeline.

An expression beyond the engine is an `UnsupportedSelector`, never a result: functions that the
engine lacks, nesting or iteration above its limits, and costs that may exceed upstream's limit.

Source: k8s.io/dynamic-resource-allocation v0.37.1, cel/compile.go. Differences from it are listed
in testing/oracle/differences.py. Choice of the engine: docs/adr/0004-cel-engine.md.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Protocol

from cel_expr_python import cel

from kube.api.resource import Device
from kube.cel import cost
from kube.cel.check import (
    TypeRequirement,
    check_expression,
    error_message,
    is_engine_limit,
    require_boolean,
)
from kube.cel.device import DeviceView
from kube.cel.engine import (
    SIMPLE_COST,
    SIMPLE_LENGTH,
    SelectorEngine,
    engine_in_force,
    require_wanted,
)
from kube.cel.library import Environment, evaluation_environment
from kube.cel.rewrite import RewrittenExpression, Variable, rewrite
from kube.cel.syntax import CheckedExpr, encode_checked
from kube.errors import NotBoolean, SelectorFailed, SelectorTooCostly, UnsupportedSelector

__all__ = ["CompiledExpression", "Environment", "Selector", "compile_selector"]

MAX_CACHED: Final = 1024
"""The number of cached expressions; a typical one takes ten kilobytes."""
LONG_EXPRESSION: Final = 512
"""Characters above which fewer expressions are cached: one of 10 KiB takes nearly a megabyte."""
MAX_CACHED_LONG: Final = 64

_UNBOUND: Final = re.compile(r'No value with name "(?P<name>[^"]*)"')


class CompiledExpression:
    """A compiled expression; immutable, safe to share.

    Attributes:
        expression: Its text.
        attributes: The attributes that it reads, as (domain, identifier); None if it may read any,
            as with a computed domain or a loop over one.
        capacities: The capacities that it reads; None as above.
        cost: An upper bound of the cost of one evaluation.
    """

    def __init__(
        self, expression: str, environment: Environment, requirement: TypeRequirement
    ) -> None:
        """Compile an expression whose type meets a requirement.

        Raises:
            InvalidSelector: See `compile_selector`.
            UnsupportedSelector: See `compile_selector`.
        """
        self.expression = expression
        types = check_expression(expression, environment, requirement)
        tree = rewrite(types, strict=False)
        self.cost = cost.estimate_cost(tree)
        if self.cost > cost.LIMIT:
            raise SelectorTooCostly(
                f"the expression may cost more than {cost.LIMIT}, upstream's limit"
            )
        self._program = _Program(tree)
        self._strict_program = self._program
        if tree.has_dynamic_equality:
            self._strict_program = _Program(rewrite(types, strict=True))
        self.attributes = _referenced_names(tree, "attributes")
        self.capacities = _referenced_names(tree, "capacity")

    def evaluate(self, device: DeviceView) -> cel.Value:
        """Evaluate the expression on a device.

        Raises:
            SelectorFailed: The evaluation ended in an error.
            UnsupportedSelector: The device has values that the engine cannot represent, or the
                evaluation reached a limit of the engine.
        """
        program = self._select_program(device)
        kind, value = program.run(device)
        program.require_no_error(kind, value)
        return value

    def _select_program(self, device: DeviceView) -> "_Program":
        if device.error:
            raise SelectorFailed(device.error)
        if device.unsupported:
            raise UnsupportedSelector(device.unsupported)
        return self._strict_program if device.has_versions else self._program


class Selector(Protocol):
    """A compiled expression that selects devices.

    Attributes:
        expression: Its text.
        attributes: See `CompiledExpression`.
        capacities: See `CompiledExpression`.
        cost: See `CompiledExpression`.
    """

    expression: str
    attributes: frozenset[tuple[str, str]] | None
    capacities: frozenset[tuple[str, str]] | None
    cost: int

    def matches(self, device: DeviceView) -> bool:
        """Return whether the device satisfies the expression.

        Raises:
            SelectorFailed: The evaluation ended in an error or (NotBoolean) in another type.
            UnsupportedSelector: As in `CompiledExpression.evaluate`.
        """
        ...


class LocalSelector(CompiledExpression):
    """A selector that is evaluated in place."""

    def __init__(self, expression: str, environment: Environment) -> None:
        """Compile; `compile_selector` is the public way, with a cache."""
        super().__init__(expression, environment, require_boolean)

    def matches(self, device: DeviceView) -> bool:
        """Return whether the device satisfies the expression; see `Selector`."""
        program = self._select_program(device)
        kind, value = program.run(device)
        # The common case first: further calls into the engine cost time.
        if kind == cel.Type.BOOL:
            return bool(value.value())
        program.require_no_error(kind, value)
        raise NotBoolean(f"CEL result of type {kind.name()} could not be converted to bool")


class RemoteSelector:
    """A selector that the engine in force evaluates; in place where none is."""

    def __init__(self, expression: str, environment: Environment, engine: SelectorEngine) -> None:
        """Compile; `compile_selector` is the public way."""
        self.expression = expression
        self._environment = environment
        names = engine.compile(expression, environment)
        self.attributes, self.capacities, self.cost = names.attributes, names.capacities, names.cost

    def matches(self, device: DeviceView) -> bool:
        """Return whether the device satisfies the expression; see `Selector`."""
        engine = engine_in_force()
        if engine is None:
            return compile_selector(self.expression, self._environment).matches(device)
        source_device = device.source or Device(name="")
        return engine.matches(self.expression, self._environment, device.driver, source_device)


def compile_selector(expression: str, environment: Environment) -> Selector:
    """Compile a selector, or return it from the cache.

    Where an engine is in force, it compiles and evaluates what is not short and cheap.

    Raises:
        InvalidSelector: It does not compile, is not boolean, or is longer than 10 KiB.
        UnsupportedSelector: Upstream may accept it; the engine cannot evaluate it.
    """
    engine = engine_in_force()
    if engine is None or len(expression) <= SIMPLE_LENGTH:
        selector = _compile_in_place(expression, environment)
        if engine is None or selector.cost <= SIMPLE_COST:
            return selector
    require_wanted()
    return RemoteSelector(expression, environment, engine)


def _compile_in_place(expression: str, environment: Environment) -> LocalSelector:
    compile_cached = _compile_short if len(expression) <= LONG_EXPRESSION else _compile_long
    return compile_cached(expression, environment)


_compile_short: Final = lru_cache(maxsize=MAX_CACHED)(LocalSelector)
_compile_long: Final = lru_cache(maxsize=MAX_CACHED_LONG)(LocalSelector)


class _Program:
    """A rewritten expression, ready to be evaluated."""

    def __init__(self, tree: RewrittenExpression) -> None:
        self._tree = tree
        try:
            self._compiled = evaluation_environment().deserialize(
                encode_checked(CheckedExpr(expr=tree.expr))
            )
        except RuntimeError as error:
            raise UnsupportedSelector(error_message(error)) from error
        self._bindings = [
            _variable_binding(name, variable) for name, variable in tree.variables.items()
        ]
        self._bindings += [_device_binding(name) for name in tree.device_fields]

    def run(self, device: DeviceView) -> tuple[cel.Type, cel.Value]:
        """Evaluate on a device; return the value and its type, which may be an error."""
        data = dict(self._tree.constants)
        for bind in self._bindings:
            bind(device, data)
        try:
            value = self._compiled.eval(data=data)
        except (RuntimeError, TypeError, ValueError) as error:
            if is_engine_limit(error):
                raise UnsupportedSelector(error_message(error)) from error
            raise SelectorFailed(error_message(error)) from error
        return value.type(), value

    def require_no_error(self, kind: cel.Type, value: cel.Value) -> None:
        """Raise SelectorFailed if the value is an error."""
        if kind == cel.Type.ERROR:
            raise SelectorFailed(self._describe_error(str(value.plain_value())))

    def _describe_error(self, message: str) -> str:
        unbound = _UNBOUND.search(message)
        variable = self._tree.variables.get(unbound["name"]) if unbound else None
        return error_message(message) if variable is None else f"no such key: {variable.identifier}"


_Binding = Callable[[DeviceView, dict[str, Any]], None]
_NO_VALUES: Final[dict[str, Any]] = {}


def _variable_binding(name: str, variable: Variable) -> _Binding:
    """Return a function that puts a variable's value, if the device has it, into the activation."""
    field, domain, identifier = variable.field, variable.domain, variable.identifier

    def domains(device: DeviceView) -> Any:
        return device.attributes if field == "attributes" else device.capacity

    def value(device: DeviceView, data: dict[str, Any]) -> None:
        values = domains(device).get(domain, _NO_VALUES)
        if identifier in values:
            data[name] = values[identifier]

    def has(device: DeviceView, data: dict[str, Any]) -> None:
        data[name] = identifier in domains(device).get(domain, _NO_VALUES)

    def whole_domain(device: DeviceView, data: dict[str, Any]) -> None:
        data[name] = domains(device).get(domain, _NO_VALUES)

    def everything(device: DeviceView, data: dict[str, Any]) -> None:
        data[name] = domains(device)

    return {"value": value, "has": has, "domain": whole_domain, "all": everything}[variable.kind]


def _device_binding(name: str) -> _Binding:
    """Return a function that puts `device` or one of its scalar fields into the activation."""

    def field(device: DeviceView, data: dict[str, Any]) -> None:
        data[name] = _device_fields(device)[name.removeprefix("device.")]

    def whole(device: DeviceView, data: dict[str, Any]) -> None:
        data[name] = _device_fields(device)

    return whole if name == "device" else field


def _device_fields(device: DeviceView) -> dict[str, Any]:
    return {
        "driver": device.driver,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": device.attributes,
        "capacity": device.capacity,
    }


def _referenced_names(tree: RewrittenExpression, field: str) -> frozenset[tuple[str, str]] | None:
    """Return the (domain, identifier) pairs that an expression reads of one map; None for any."""
    variables = [variable for variable in tree.variables.values() if variable.field == field]
    reads_map = any(variable.kind in {"domain", "all"} for variable in variables)
    if reads_map or "device" in tree.device_fields:
        return None
    return frozenset((variable.domain, variable.identifier) for variable in variables)
