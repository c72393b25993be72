"""The functions and types of Kubernetes' CEL environments.

The checking environment declares all of upstream's overloads, also those that the engine does not
implement: a wrong call is rejected as upstream does, and a correct call of an unimplemented
function is recognised as unsupported.

Source: k8s.io/apiserver v0.37.1, pkg/cel/environment/base.go and pkg/cel/library.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final

from cel_expr_python import cel

from kube.cel.device import DEVICE, POOL, QUANTITY, SEMVER, quantity_message, semver_message
from kube.cel.semver import Semver
from kube.quantity import Quantity, is_quantity


class Environment(StrEnum):
    """The environment that an expression is compiled in.

    NEW is the API server's for new and changed expressions (compatibility version 1.36). STORED is
    its environment for stored expressions, and the scheduler's.
    """

    NEW = "new"
    STORED = "stored"


STRICT_EQUALS: Final = "@equals"
"""Equality that raises an error where upstream's does; see `kube.cel.rewrite`."""

# Types that only unsupported functions return.
_URL, _IP, _CIDR = "kubernetes.URL", "net.IP", "net.CIDR"
_FORMAT: Final = "kubernetes.NamedFormat"

_FORMATS: Final = (
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
)

# Name, overload id, result, parameters; the first is the receiver if the name starts with a dot.
_Signature = tuple[str, str, str, tuple[str, ...]]

_UNSUPPORTED: Final[tuple[_Signature, ...]] = (
    ("url", "string_to_url", _URL, ("string",)),
    ("isURL", "is_url_string", "bool", ("string",)),
    (".getScheme", "url_get_scheme", "string", (_URL,)),
    (".getHost", "url_get_host", "string", (_URL,)),
    (".getHostname", "url_get_hostname", "string", (_URL,)),
    (".getPort", "url_get_port", "string", (_URL,)),
    (".getEscapedPath", "url_get_escaped_path", "string", (_URL,)),
    (".getQuery", "url_get_query", "map<string, list<string>>", (_URL,)),
    ("ip", "string_to_ip", _IP, ("string",)),
    (".ip", "cidr_ip", _IP, (_CIDR,)),
    (".family", "ip_family", "int", (_IP,)),
    ("ip.isCanonical", "ip_is_canonical", "bool", ("string",)),
    (".isUnspecified", "ip_is_unspecified", "bool", (_IP,)),
    (".isLoopback", "ip_is_loopback", "bool", (_IP,)),
    (".isLinkLocalMulticast", "ip_is_link_local_multicast", "bool", (_IP,)),
    (".isLinkLocalUnicast", "ip_is_link_local_unicast", "bool", (_IP,)),
    (".isGlobalUnicast", "ip_is_global_unicast", "bool", (_IP,)),
    ("isIP", "is_ip", "bool", ("string",)),
    ("cidr", "string_to_cidr", _CIDR, ("string",)),
    (".containsIP", "cidr_contains_ip_string", "bool", (_CIDR, "string")),
    (".containsIP", "cidr_contains_ip_ip", "bool", (_CIDR, _IP)),
    (".containsCIDR", "cidr_contains_cidr_string", "bool", (_CIDR, "string")),
    (".containsCIDR", "cidr_contains_cidr", "bool", (_CIDR, _CIDR)),
    (".prefixLength", "cidr_prefix_length", "int", (_CIDR,)),
    (".masked", "cidr_masked", _CIDR, (_CIDR,)),
    ("isCIDR", "is_cidr", "bool", ("string",)),
    (".find", "string_find_string", "string", ("string", "string")),
    (".findAll", "string_find_all_string", "list<string>", ("string", "string")),
    (".findAll", "string_find_all_string_int", "list<string>", ("string", "string", "int")),
    # Upstream returns optional lists; the engine cannot declare such a result.
    (".validate", "format-validate", "dyn", (_FORMAT, "string")),
    ("format.named", "format-named", "dyn", ("string",)),
    *((f"format.{name}", f"format.{name}", _FORMAT, ()) for name in _FORMATS),
    *(
        (
            f".{name}",
            f"list_{kind}_{name}",
            "bool" if name == "isSorted" else kind,
            (f"list<{kind}>",),
        )
        for name in ("isSorted", "min", "max")
        for kind in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
    ),
    *(
        (".sum", f"list_{kind}_sum", kind, (f"list<{kind}>",))
        for kind in ("int", "uint", "double", "duration")
    ),
)

UNSUPPORTED_OVERLOADS: Final = frozenset(
    {"cel.@mapInsert", *(overload for _, overload, _, _ in _UNSUPPORTED)}
)
"""Overloads that upstream implements and the engine does not, and the helper of transformMap."""

PARTLY_SUPPORTED: Final = ("indexOf", "lastIndexOf", "string")
"""Functions with upstream overloads that cannot be declared next to the engine's own."""

_ORDERED_TYPES: Final = (
    "bool",
    "int64",
    "uint64",
    "double",
    "string",
    "bytes",
    "timestamp",
    "duration",
)
_NUMERIC_TYPES: Final = ("int64", "uint64", "double")
_COMPARISONS: Final = {
    "_<_": "less",
    "_<=_": "less_equals",
    "_>_": "greater",
    "_>=_": "greater_equals",
}

_EXTENSIONS: Final = """
extensions:
  - name: bindings
  - name: lists
  - name: optional
  - name: sets
  - name: strings
    version: 2
  - name: two-var-comprehensions
"""


@cache
def checking_environment(environment: Environment) -> Any:
    """Return the environment that parses and type-checks expressions."""
    attribute = "any" if environment is Environment.NEW else "dyn"
    # Upstream compares numbers of different types; the engine declares equal types only.
    excluded_names = "".join(f"\n    - name: {name}" for name in _COMPARISONS)
    configuration = f"name: check{_EXTENSIONS}stdlib:\n  exclude_functions:{excluded_names}\n"
    signatures = [
        *(
            (name, overload, result, parameters)
            for name, overload, result, parameters, _ in _IMPLEMENTED
        ),
        *_UNSUPPORTED,
        *_comparison_signatures(),
    ]
    if environment is Environment.NEW:
        signatures = [signature for signature in signatures if signature[0] != ".includes"]
    return cel.NewEnv(
        descriptor_pool=POOL,
        config=cel.NewEnvConfigFromYaml(configuration),
        variables={
            "device": cel.Type(DEVICE),
            "device.driver": cel.Type.STRING,
            "device.allowMultipleAllocations": cel.Type.BOOL,
            "device.attributes": cel.Type(f"map<string, map<string, {attribute}>>"),
            "device.capacity": cel.Type(f"map<string, map<string, {QUANTITY}>>"),
        },
        functions=_declare((signature, None) for signature in signatures),
    )


@cache
def evaluation_environment() -> Any:
    """Return the environment that evaluates checked and rewritten trees."""
    return cel.NewEnv(
        descriptor_pool=POOL,
        config=cel.NewEnvConfigFromYaml(f"name: evaluate{_EXTENSIONS}"),
        functions=_declare(
            ((name, overload, result, parameters), run)
            for name, overload, result, parameters, run in _runtime_functions()
        ),
    )


def _runtime_functions() -> Iterator[tuple[str, str, str, tuple[str, ...], Callable[..., Any]]]:
    """Yield the implemented functions, one for each distinguishable overload.

    At run time the engine selects an overload by the kinds of the arguments, and every message has
    the same kind.
    """
    seen_overloads = set()
    for name, overload, result, parameters, run in _IMPLEMENTED:
        kinds = tuple("message" if kind in {QUANTITY, SEMVER} else kind for kind in parameters)
        if (name, kinds) not in seen_overloads:
            seen_overloads.add((name, kinds))
            # The run time calls a dynamic parameter "any", the checker "dyn".
            runtime = tuple("any" if kind == "dyn" else kind for kind in parameters)
            yield name, overload, result, runtime, run


def _comparison_signatures() -> Iterator[_Signature]:
    cel_names = {"int64": "int", "uint64": "uint"}
    for name, overload in _COMPARISONS.items():
        pairs = [(kind, kind) for kind in _ORDERED_TYPES]
        pairs += [
            (left, right) for left in _NUMERIC_TYPES for right in _NUMERIC_TYPES if left != right
        ]
        for left, right in pairs:
            suffix = left if left == right else f"{left}_{right}"
            types = (cel_names.get(left, left), cel_names.get(right, right))
            yield name, f"{overload}_{suffix}", "bool", types


def _type(name: str) -> Any:
    return cel.Type.DYN if name == "dyn" else cel.Type(name)


def _declare(
    functions: Iterable[tuple[_Signature, Callable[..., Any] | None]],
) -> list[Any]:
    """Return function declarations, with all overloads of a name in one."""
    overloads: dict[str, list[Any]] = {}
    for (name, overload, result, parameters), run in functions:
        overloads.setdefault(name.removeprefix("."), []).append(
            cel.Overload(
                overload,
                return_type=_type(result),
                parameters=[_type(parameter) for parameter in parameters],
                is_member=name.startswith("."),
                impl=run,
            )
        )
    return [cel.FunctionDecl(name, alternatives) for name, alternatives in overloads.items()]


# --- implemented functions ------------------------------------------------------------------------


def _to_quantity(message: Any) -> Quantity:
    if _opaque_type(message) != QUANTITY:
        raise TypeError("no such overload")
    return Quantity.from_nanos(int(message.nanos))


def _quantity(text: str) -> Any:
    return quantity_message(Quantity(text))


def _as_integer(message: Any) -> int:
    amount = _to_quantity(message)
    if not _is_integer(message):
        raise ValueError("cannot convert value to integer")
    return int(amount)


def _is_integer(message: Any) -> bool:
    amount = _to_quantity(message)
    return amount.is_whole and -(2**63) <= int(amount) < 2**63


def _compare(left: Any, right: Any) -> int:
    """Compare two quantities or two versions; return -1, 0 or 1."""
    kind = _opaque_type(left)
    if not kind or kind != _opaque_type(right):
        raise TypeError("no such overload")
    if kind == SEMVER:
        return _to_semver(left).compare(_to_semver(right))
    ours, theirs = int(left.nanos), int(right.nanos)
    return (ours > theirs) - (ours < theirs)


def _sign(message: Any) -> int:
    nanos = _to_quantity(message).nanos
    return (nanos > 0) - (nanos < 0)


def _add(left: Any, right: Any) -> Any:
    return quantity_message(_to_quantity(left) + _to_quantity(right))


def _subtract(left: Any, right: Any) -> Any:
    return quantity_message(_to_quantity(left) - _to_quantity(right))


def _to_semver(message: Any) -> Semver:
    if _opaque_type(message) != SEMVER:
        raise TypeError("no such overload")
    return Semver(
        major=message.major,
        minor=message.minor,
        patch=message.patch,
        prerelease=message.prerelease,
    )


def _semver(text: str, normalize: bool = False) -> Any:  # noqa: FBT001, FBT002
    parse = Semver.parse_tolerant if normalize else Semver.parse
    return semver_message(parse(text))


def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002
    try:
        _semver(text, normalize)
    except ValueError:
        return False
    return True


def _equal(left: Any, right: Any) -> bool:
    """Return True if two values are equal by CEL's rules: 1 equals 1.0 and does not equal true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return len(left) == len(right) and all(
            key in right and _equal(value, right[key]) for key, value in left.items()
        )
    return bool(left == right)


def _strictly_equal(left: Any, right: Any) -> bool:
    """Return True if two values are equal; raise if a version or quantity is compared with others.

    Source: apiserver's Semver.Equal and Quantity.Equal, which return an error for other types. Only
    the left operand of == calls them; the right operand and != do not.
    """
    kind = _opaque_type(left)
    if kind and kind != _opaque_type(right):
        raise TypeError("no such overload")
    return _equal(left, right)


def _opaque_type(value: Any) -> str:
    descriptor = getattr(value, "DESCRIPTOR", None)
    name = descriptor.full_name if descriptor is not None else ""
    return name if name in {QUANTITY, SEMVER} else ""


def _includes(target: Any, value: Any) -> bool:
    if isinstance(target, (list, tuple)):
        return any(_equal(element, value) for element in target)
    return _equal(target, value)


_Q, _V = QUANTITY, SEMVER

# Name, overload id, result, parameters, implementation.
_IMPLEMENTED: Final[tuple[tuple[str, str, str, tuple[str, ...], Callable[..., Any]], ...]] = (
    ("quantity", "string_to_quantity", _Q, ("string",), _quantity),
    ("isQuantity", "is_quantity_string", "bool", ("string",), is_quantity),
    ("sign", "quantity_sign", "int", (_Q,), _sign),
    (
        ".isGreaterThan",
        "quantity_is_greater_than",
        "bool",
        (_Q, _Q),
        lambda a, b: _compare(a, b) > 0,
    ),
    (".isLessThan", "quantity_is_less_than", "bool", (_Q, _Q), lambda a, b: _compare(a, b) < 0),
    (".compareTo", "quantity_compare_to", "int", (_Q, _Q), _compare),
    (
        ".asApproximateFloat",
        "quantity_get_float",
        "double",
        (_Q,),
        lambda q: float(_to_quantity(q)),
    ),
    (".asInteger", "quantity_get_int", "int", (_Q,), _as_integer),
    (".isInteger", "quantity_is_integer", "bool", (_Q,), _is_integer),
    (".add", "quantity_add", _Q, (_Q, _Q), _add),
    (
        ".add",
        "quantity_add_int",
        _Q,
        (_Q, "int"),
        lambda q, n: _add(q, quantity_message(Quantity(n))),
    ),
    (".sub", "quantity_sub", _Q, (_Q, _Q), _subtract),
    (
        ".sub",
        "quantity_sub_int",
        _Q,
        (_Q, "int"),
        lambda q, n: _subtract(q, quantity_message(Quantity(n))),
    ),
    ("semver", "string_to_semver", _V, ("string",), _semver),
    ("semver", "string_bool_to_semver", _V, ("string", "bool"), _semver),
    ("isSemver", "is_semver_string", "bool", ("string",), _is_semver),
    ("isSemver", "is_semver_string_bool", "bool", ("string", "bool"), _is_semver),
    (
        ".isGreaterThan",
        "semver_is_greater_than",
        "bool",
        (_V, _V),
        lambda a, b: _compare(a, b) > 0,
    ),
    (
        ".isLessThan",
        "semver_is_less_than",
        "bool",
        (_V, _V),
        lambda a, b: _compare(a, b) < 0,
    ),
    (".compareTo", "semver_compare_to", "int", (_V, _V), _compare),
    (".major", "semver_major", "int", (_V,), lambda v: _to_semver(v).major),
    (".minor", "semver_minor", "int", (_V,), lambda v: _to_semver(v).minor),
    (".patch", "semver_patch", "int", (_V,), lambda v: _to_semver(v).patch),
    (".includes", "list_includes_dyn_dyn", "bool", ("dyn", "dyn"), _includes),
    (STRICT_EQUALS, "strictly_equals", "bool", ("dyn", "dyn"), _strictly_equal),
)

IMPLEMENTED: Final = frozenset(name.removeprefix(".") for name, *_ in _IMPLEMENTED)
"""Functions whose bodies are here. The engine never frees the arguments of such a call, a kilobyte for an
amount, so a process that lives long has a worker evaluate them."""
