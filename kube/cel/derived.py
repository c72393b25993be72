"""Derived attributes: expressions whose value constraints take for an attribute (KEP-6080, alpha).

Source: k8s.io/dynamic-resource-allocation v0.37.1, cel/compile.go, EvaluateDerivedAttribute,
valToDeviceAttribute and validateOutputType.
"""

from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel

from kube.api.resource import DeviceAttribute
from kube.cel import syntax
from kube.cel.compile import CACHED, Compiled
from kube.cel.device import SEMVER, DeviceView
from kube.cel.library import Environment
from kube.errors import InvalidSelector, SelectorFailed

_SCALARS: Final = frozenset({syntax.PRIMITIVE_BOOL, syntax.PRIMITIVE_INT, syntax.PRIMITIVE_STRING})


class DerivedExpression(Compiled):
    """A compiled expression whose value is a bool, int, string, version, or a list of one of them.

    Unlike upstream's, versions come without their build metadata, which our engine's have not:
    1.0.0+a and 1.0.0+b are equal here.
    """

    def __init__(self, expression: str, environment: Environment) -> None:
        """Compile; `compile_derived` is the public way, with a cache."""
        super().__init__(expression, environment, _require_attribute)

    def value(self, device: DeviceView) -> DeviceAttribute:
        """Return the attribute that the expression makes of a device.

        Raises:
            SelectorFailed: The evaluation raised, or gave what no attribute can hold.
            UnsupportedSelector: Our engine cannot judge this device, or gives up on the way.
        """
        found = self.evaluated(device)
        if found.type() != cel.Type.LIST:
            name, value = _scalar(found)
            return _attribute(name, value)
        scalars = [_scalar(each) for each in found.value()]
        if not scalars:
            return DeviceAttribute(strings=())
        kind = scalars[0][0]
        for position, (name, _) in enumerate(scalars):
            if name != kind:
                raise SelectorFailed(
                    f"expected list element at index {position} to be {kind}, got {name}"
                )
        return _attribute(f"{kind}s", tuple(value for _, value in scalars))


@lru_cache(maxsize=CACHED)
def compile_derived(
    expression: str, environment: Environment = Environment.STORED
) -> DerivedExpression:
    """Return a compiled derived attribute.

    Raises:
        InvalidSelector: It does not compile, cannot be an attribute or is longer than 10 KiB.
        UnsupportedSelector: Upstream may accept it, our engine cannot judge it.
    """
    return DerivedExpression(expression, environment)


def _require_attribute(kind: Any, environment: Environment) -> None:
    """Refuse what no attribute can hold.

    "For stored expressions, we always allow 'lists'"; new ones may be lists only with the gate
    DRAListTypeAttributes, and the rules for new ones are those of 1.37's defaults.
    """
    may_be_list = environment is Environment.STORED
    if kind is not None:
        is_list = may_be_list and kind.WhichOneof("kind") == "list_type"
        if _is_scalar(kind.list_type.elem_type if is_list else kind):
            return
    what = "a string, integer, boolean or semver"
    raise InvalidSelector(f"must evaluate to {what}{' or a list of them' if may_be_list else ''}")


def _is_scalar(kind: Any) -> bool:
    return bool(
        kind.primitive in _SCALARS
        or kind.well_known == syntax.WELL_KNOWN_ANY
        or kind.HasField("dyn")
        or kind.message_type == SEMVER
    )


def _scalar(found: Any) -> tuple[str, Any]:
    """Return which member of an attribute a value of the engine is, and the value."""
    kind = found.type()
    for name, type_ in _MEMBERS:
        if kind == type_:
            return name, found.value()
    if kind.name() == SEMVER:
        version = found.value()
        release = f"{version.major}.{version.minor}.{version.patch}"
        suffix = f"-{version.prerelease}" if version.prerelease else ""
        return "version", f"{release}{suffix}"
    raise SelectorFailed(f"unsupported CEL return type: {kind.name()}")


_MEMBERS: Final = (("bool", cel.Type.BOOL), ("int", cel.Type.INT), ("string", cel.Type.STRING))


def _attribute(name: str, value: Any) -> DeviceAttribute:
    return DeviceAttribute(**{f"{name}_" if name in {"bool", "int"} else name: value})
