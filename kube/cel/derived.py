"""Derived attributes: results of expressions, used by constraints as attributes (KEP-6080, alpha).

Source: k8s.io/dynamic-resource-allocation v0.37.1, cel/compile.go, EvaluateDerivedAttribute,
valToDeviceAttribute and validateOutputType.
"""

from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel

from kube.api.resource import DeviceAttribute
from kube.cel import syntax
from kube.cel.compile import (
    LONG_EXPRESSION,
    MAX_CACHED,
    MAX_CACHED_LONG,
    CompiledExpression,
)
from kube.cel.device import SEMVER, DeviceView
from kube.cel.library import Environment
from kube.errors import InvalidSelector, SelectorFailed

_SCALARS: Final = frozenset({syntax.PRIMITIVE_BOOL, syntax.PRIMITIVE_INT, syntax.PRIMITIVE_STRING})


class DerivedExpression(CompiledExpression):
    """A compiled expression for a bool, int, string, version, or a list of one of them.

    Unlike upstream's, versions have no build metadata: 1.0.0+a and 1.0.0+b are equal here.
    """

    def __init__(self, expression: str, environment: Environment) -> None:
        """Compile; `compile_derived` is the public way, with a cache."""
        super().__init__(expression, environment, _require_attribute)

    def attribute(self, device: DeviceView) -> DeviceAttribute:
        """Evaluate the expression on a device as an attribute.

        Raises:
            SelectorFailed: The evaluation ended in an error, or in a type that attributes lack.
            UnsupportedSelector: As in `evaluate`.
        """
        result = self.evaluate(device)
        if result.type() != cel.Type.LIST:
            name, value = _scalar_member(result)
            return _attribute(name, value)
        scalars = [_scalar_member(element) for element in result.value()]
        if not scalars:
            return DeviceAttribute(strings=())
        kind = scalars[0][0]
        for position, (name, _) in enumerate(scalars):
            if name != kind:
                raise SelectorFailed(
                    f"expected list element at index {position} to be {kind}, got {name}"
                )
        return _attribute(f"{kind}s", tuple(value for _, value in scalars))


def compile_derived(
    expression: str, environment: Environment = Environment.STORED
) -> DerivedExpression:
    """Compile a derived attribute, or return it from the cache.

    Raises:
        InvalidSelector: It does not compile, has a type that attributes lack, or is longer than
            10 KiB.
        UnsupportedSelector: Upstream may accept it; the engine cannot evaluate it.
    """
    is_long = len(expression) > LONG_EXPRESSION
    return (_compile_long if is_long else _compile_short)(expression, environment)


_compile_short: Final = lru_cache(maxsize=MAX_CACHED)(DerivedExpression)
_compile_long: Final = lru_cache(maxsize=MAX_CACHED_LONG)(DerivedExpression)


def _require_attribute(kind: Any, environment: Environment) -> None:
    """Reject result types that attributes lack.

    Stored expressions may be lists. New ones may be lists only with the gate DRAListTypeAttributes,
    which is off by default in 1.37.
    """
    may_be_list = environment is Environment.STORED
    if kind is not None:
        is_list = may_be_list and kind.WhichOneof("kind") == "list_type"
        if _is_scalar_type(kind.list_type.elem_type if is_list else kind):
            return
    types = "a string, integer, boolean or semver"
    raise InvalidSelector(f"must evaluate to {types}{' or a list of them' if may_be_list else ''}")


def _is_scalar_type(kind: Any) -> bool:
    return bool(
        kind.primitive in _SCALARS
        or kind.well_known == syntax.WELL_KNOWN_ANY
        or kind.HasField("dyn")
        or kind.message_type == SEMVER
    )


def _scalar_member(result: Any) -> tuple[str, Any]:
    """Return the field of DeviceAttribute for a value of the engine, and the value."""
    kind = result.type()
    for name, type_ in _MEMBERS:
        if kind == type_:
            return name, result.value()
    if kind.name() == SEMVER:
        version = result.value()
        release = f"{version.major}.{version.minor}.{version.patch}"
        suffix = f"-{version.prerelease}" if version.prerelease else ""
        return "version", f"{release}{suffix}"
    raise SelectorFailed(f"unsupported CEL return type: {kind.name()}")


_MEMBERS: Final = (("bool", cel.Type.BOOL), ("int", cel.Type.INT), ("string", cel.Type.STRING))


def _attribute(name: str, value: Any) -> DeviceAttribute:
    return DeviceAttribute(**{f"{name}_" if name in {"bool", "int"} else name: value})
