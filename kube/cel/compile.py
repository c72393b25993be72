"""Compile CEL selectors once and evaluate them on devices; docs/cel.md explains the pipeline.

An expression beyond the engine is an `UnsupportedSelector`, never a result: functions that the
engine lacks, nesting or iteration above its limits, and costs that may exceed upstream's limit.

Source: k8s.io/dynamic-resource-allocation v0.37.1, cel/compile.go. Differences from it are listed
in testing/oracle/differences.py. Choice of the engine: docs/adr/0004-cel-engine.md.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from cel_expr_python import cel

from kube.cel import cost
from kube.cel.check import (
    TypeRequirement,
    check_expression,
    error_message,
    is_engine_limit,
    require_boolean,
)
from kube.cel.conjunction import conjunction
from kube.cel.device import DeviceView, NamedDevice, device_view
from kube.cel.engine import SIMPLE_CHARGE, SIMPLE_LENGTH, SelectorEngine
from kube.cel.library import Environment, evaluation_environment
from kube.cel.projection import project_device
from kube.cel.rewrite import RewrittenExpression, Variable, rewrite
from kube.cel.scope import AnswersPending, current_scope, require_wanted
from kube.cel.syntax import CheckedExpr, encode_checked
from kube.errors import (
    CelError,
    NotBoolean,
    SelectorFailed,
    SelectorTooCostly,
    UnsupportedSelector,
)

__all__ = [
    "CompiledExpression",
    "Environment",
    "LocalSelector",
    "Selector",
    "compile_ahead",
    "compile_in_place",
    "compile_selector",
]

MAX_CACHED: Final = 1024
"""The number of cached expressions; a typical one takes ten kilobytes."""
LONG_EXPRESSION: Final = 512
"""Characters above which fewer expressions are cached: one of 10 KiB takes nearly a megabyte."""
MAX_CACHED_LONG: Final = 64

COST_PER_STEP: Final = 150
"""Units of CEL cost that take about as long as one step of a search (3 us)."""

_UNBOUND: Final = re.compile(r'No value with name "(?P<name>[^"]*)"')


class CompiledExpression:
    """A compiled expression; immutable, safe to share.

    Attributes:
        expression: Its text.
        attributes: The attributes that it reads, as (domain, identifier); None if it may read any,
            as with a computed domain or a loop over one.
        capacities: The capacities that it reads; None as above.
        cost: An upper bound of the cost of one evaluation, as upstream counts it.
        charge: The work of one evaluation in this engine, in units of cost.
        calls_python: True if an evaluation calls functions whose bodies are Python, which leaks
            memory; besides, where it compares a version it calls one.
        conjunction: The expression without the engine; None if it is not of the usual form.
    """

    def __init__(
        self, expression: str, environment: Environment, requirement: TypeRequirement
    ) -> None:
        """Compile an expression with a type that meets a requirement.

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
        self.charge, self.calls_python = cost.estimate_charge(tree)
        self._program = _Program(tree)
        self._strict_program = self._program
        if tree.has_dynamic_equality:
            strict_tree = rewrite(types, strict=True)
            self._strict_program = _Program(strict_tree)
            self.charge = cost.estimate_charge(strict_tree).units
        self.attributes = _referenced_names(tree, "attributes")
        self.capacities = _referenced_names(tree, "capacity")
        self.conjunction = conjunction(tree)

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
        return self._strict_program if self._reads_version(device) else self._program

    def _reads_version(self, device: DeviceView) -> bool:
        return bool(device.versions) and (
            self.attributes is None or not self.attributes.isdisjoint(device.versions)
        )


class Selector(Protocol):
    """A compiled expression that selects devices.

    Attributes:
        expression: Its text.
        attributes: The attributes of its `CompiledExpression`.
        capacities: The capacities of its `CompiledExpression`.
        cost: The cost of its `CompiledExpression`.
        charge: The charge of its `CompiledExpression`.
    """

    expression: str
    attributes: frozenset[tuple[str, str]] | None
    capacities: frozenset[tuple[str, str]] | None
    cost: int
    charge: int

    def verdicts(self, devices: Sequence[NamedDevice]) -> list[bool | CelError]:
        """Evaluate the expression on each device: True if it satisfies it, or its error.

        The error is SelectorFailed where the evaluation ended in an error or (NotBoolean) in another
        type, UnsupportedSelector as in `CompiledExpression.evaluate`.

        Raises:
            BudgetSpent: The meter in force has no steps left.
            EvaluationAbandoned: Nobody waits for the answer any more.
            AnswersPending: They are evaluated elsewhere, and not known yet.
        """
        ...


class LocalSelector(CompiledExpression):
    """A selector that is evaluated in place."""

    def __init__(self, expression: str, environment: Environment) -> None:
        """Compile; `compile_selector` is the public way, with a cache."""
        super().__init__(expression, environment, require_boolean)
        self._environment = environment
        self._steps = 1 + self.charge // COST_PER_STEP

    def matches(self, device: DeviceView) -> bool:
        """Return True if the device satisfies the expression.

        Raises:
            SelectorFailed: See `Selector.verdicts`.
            UnsupportedSelector: Likewise.
        """
        program = self._select_program(device)
        kind, value = program.run(device)
        if kind == cel.Type.BOOL:
            return bool(value.value())
        program.require_no_error(kind, value)
        raise NotBoolean(f"CEL result of type {kind.name()} could not be converted to bool")

    def verdicts(self, devices: Sequence[NamedDevice]) -> list[bool | CelError]:
        """Evaluate the expression on each device; see `Selector`."""
        scope = current_scope()
        if scope.engine is not None and any(map(self._calls_python_on, devices)):
            return scope.engine.verdicts(self.expression, self._environment, devices)
        charge, steps = scope.meter.charge, self._steps
        verdicts: list[bool | CelError] = []
        for device in devices:
            charge(steps)
            verdicts.append(self._verdict(device))
        return verdicts

    def _verdict(self, device: NamedDevice) -> bool | CelError:
        # The usual cases first: a call into the engine takes longer than all else.
        if self.conjunction is not None:
            holds = self.conjunction.holds(device.driver, device.device)
            if holds is not None:
                return holds
        try:
            return self.matches(self._view(device))
        except CelError as error:
            return error.with_traceback(None)

    def _view(self, device: NamedDevice) -> DeviceView:
        """Return the parts of a device that the expression reads, usually few of its attributes."""
        if self.attributes is None and self.capacities is None:
            return device.view
        driver = device.driver
        projection = project_device(driver, device.device, self.attributes, self.capacities)
        return device_view(driver, projection)

    def _calls_python_on(self, device: NamedDevice) -> bool:
        return self._strict_program is not self._program and self._reads_version(self._view(device))


class RemoteSelector:
    """A selector that the engine in force evaluates; evaluated in place if there is none."""

    def __init__(self, expression: str, environment: Environment, engine: SelectorEngine) -> None:
        """Compile; `compile_selector` is the public way."""
        self.expression = expression
        self._environment = environment
        names = engine.compile(expression, environment)
        self.attributes, self.capacities = names.attributes, names.capacities
        self.cost, self.charge = names.cost, names.charge

    def verdicts(self, devices: Sequence[NamedDevice]) -> list[bool | CelError]:
        """Evaluate the expression on each device; see `Selector`."""
        engine = current_scope().engine
        if engine is None:
            return compile_in_place(self.expression, self._environment).verdicts(devices)
        return engine.verdicts(self.expression, self._environment, devices)


def compile_selector(expression: str, environment: Environment) -> Selector:
    """Compile a selector, or return it from the cache.

    Where an engine is in force, it compiles and evaluates what is not short and cheap, and what leaks.

    Raises:
        InvalidSelector: It does not compile, is not boolean, or is longer than 10 KiB.
        UnsupportedSelector: Upstream may accept it; the engine cannot evaluate it.
        AnswersPending: It is compiled elsewhere, and not yet.
    """
    engine = current_scope().engine
    if engine is None or len(expression) <= SIMPLE_LENGTH:
        selector = compile_in_place(expression, environment)
        is_simple = selector.charge <= SIMPLE_CHARGE and not selector.calls_python
        if engine is None or is_simple:
            return selector
    require_wanted()
    return RemoteSelector(expression, environment, engine)


def compile_ahead(expressions: Iterable[str], environment: Environment) -> None:
    """Name all selectors at once that are compiled elsewhere, before one after the other is needed.

    Raises:
        AnswersPending: Some of them are not compiled yet.
    """
    if current_scope().engine is None:
        return
    pending: AnswersPending | None = None
    for expression in expressions:
        if len(expression) > SIMPLE_LENGTH:
            try:
                compile_selector(expression, environment)
            except AnswersPending as error:
                pending = error
            except CelError:
                continue
    if pending is not None:
        raise pending


def compile_in_place(expression: str, environment: Environment) -> LocalSelector:
    """Compile a selector that is evaluated in place, or return it from the cache.

    Raises:
        InvalidSelector: See `compile_selector`.
        UnsupportedSelector: Likewise.
    """
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
        """Evaluate on a device; return the value, maybe an error, and its type."""
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
