"""Opaque parameters of drivers that we know: what their strict decoders refuse when a pod starts.

A schema per kind is data, of which the CEL for the API server's own policies is made, too.
Groups, versions and drivers that are not here are nobody's business but theirs: nothing is said.

Source: kubernetes-sigs/dra-driver-nvidia-gpu, api/nvidia.com/resource/v1beta1; kubernetes-sigs/
dra-example-driver, api/example.com/resource/gpu/v1alpha1.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kube.cel.literal import quote
from kube.errors import QuantityError
from kube.quantity import Quantity
from webhook.findings import shown
from webhook.rules.claim import nearest


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with parameters, by the path below them."""

    path: str
    message: str
    fix: str = ""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """One of a few words; any text where there are none."""

    words: tuple[str, ...] = ()


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """A whole number within bounds."""

    least: int = 0
    most: int | None = None


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity that is not less than another."""

    least: str = "0"


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """True or false."""


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """An object.

    Attributes:
        fields: All that it may have.
        required: Those that it must have.
        of_strategy: Values of the field `strategy` to the field that goes with that value only;
            empty for a value that has none.
    """

    fields: Mapping[str, "Schema"]
    required: tuple[str, ...] = ()
    of_strategy: Mapping[str, str] = {}


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """Any keys to quantities."""

    value: Amount


Schema = Word | Whole | Amount | Flag | Fields | Amounts


def faults(schema: Schema, value: Any, path: str = "") -> Iterator[Fault]:
    """Yield what a strict decoder, and the checks behind it, would refuse."""
    match schema:
        case Fields():
            yield from _of_fields(schema, value, path)
        case Amounts():
            yield from _of_amounts(schema, value, path)
        case Word():
            yield from _of_word(schema, value, path)
        case Whole():
            yield from _of_whole(schema, value, path)
        case Amount():
            yield from _of_amount(schema, value, path)
        case Flag():
            if not isinstance(value, bool):
                yield _typed(path, value, "true or false")


def _of_amounts(schema: Amounts, value: Any, path: str) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield _typed(path, value, "an object")
        return
    for key, amount in value.items():
        yield from faults(schema.value, amount, f"{path}[{key}]")


def _of_fields(schema: Fields, value: Any, path: str) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield _typed(path, value, "an object")
        return
    present = {name: child for name, child in value.items() if child is not None}
    for name, child in present.items():
        place = f"{path}.{name}" if path else name
        if name in schema.fields:
            yield from faults(schema.fields[name], child, place)
        else:
            yield Fault(
                path=place,
                message="the driver's strict decoder knows no such field",
                fix=nearest(name, schema.fields),
            )
    for name in schema.required:
        if name not in present:
            place = f"{path}.{name}" if path else name
            yield Fault(path=place, message="is missing", fix=_example(schema.fields[name]))
    yield from _of_other_strategies(schema, present, path)


def _of_other_strategies(schema: Fields, present: Mapping[str, Any], path: str) -> Iterator[Fault]:
    chosen = present.get("strategy")
    if not isinstance(chosen, str) or chosen not in schema.of_strategy:
        return
    for strategy, field in schema.of_strategy.items():
        if field in present and strategy != chosen:
            yield Fault(
                path=f"{path}.{field}" if path else field,
                message=f"belongs to strategy {strategy}, and the strategy is {chosen}",
                fix=f"leave it out, or write strategy {strategy}",
            )


def _of_word(schema: Word, value: Any, path: str) -> Iterator[Fault]:
    if not isinstance(value, str):
        yield _typed(path, value, "text")
    elif schema.words and value not in schema.words:
        yield Fault(
            path=path, message=f"{shown(value)} is not known", fix=nearest(value, schema.words)
        )


def _of_whole(schema: Whole, value: Any, path: str) -> Iterator[Fault]:
    if isinstance(value, bool) or not isinstance(value, int):
        yield _typed(path, value, "a whole number")
    elif value < schema.least or (schema.most is not None and value > schema.most):
        bounds = (
            f"{schema.least} or more" if schema.most is None else f"{schema.least} to {schema.most}"
        )
        yield Fault(path=path, message=f"must be {bounds}, found {value}")


def _of_amount(schema: Amount, value: Any, path: str) -> Iterator[Fault]:
    amount = _quantity(value)
    if amount is None:
        yield _typed(path, value, "a quantity, such as 8Gi")
    elif amount < Quantity(schema.least):
        yield Fault(path=path, message=f"must be {schema.least} or more, found {amount}")


def _quantity(value: Any) -> Quantity | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return Quantity(value if isinstance(value, str) else repr(value))
    except QuantityError:
        return None


def _typed(path: str, value: Any, wanted: str) -> Fault:
    found = msgspec.json.encode(value).decode()
    return Fault(path=path, message=f"must be {wanted}, found {shown(found)}")


def _example(schema: Schema) -> str:
    return f"write {schema.words[0]}" if isinstance(schema, Word) and schema.words else ""


# --- the drivers ----------------------------------------------------------------------------------

Kinds = Mapping[tuple[str, str], Fields]
"""apiVersion and kind to what they may hold."""


def _header(fields: Mapping[str, Schema], *required: str) -> Fields:
    return Fields(fields={"apiVersion": Word(), "kind": Word(), **fields}, required=required)


_INTERVAL: Final = Word(words=("Default", "Short", "Medium", "Long"))
_TIME_SLICING: Final = Fields(fields={"interval": _INTERVAL}, required=("interval",))
_PINNED: Final = Amount(least="1Mi")
_MPS: Final = Fields(
    fields={
        "defaultActiveThreadPercentage": Whole(most=100),
        "defaultPinnedDeviceMemoryLimit": _PINNED,
        "defaultPerDevicePinnedMemoryLimit": Amounts(value=_PINNED),
        "multiUser": Flag(),
    }
)
_NVIDIA_STRATEGY: Final = Word(words=("TimeSlicing", "MPS"))
_NVIDIA: Final = "resource.nvidia.com/v1beta1"

_GPU_NVIDIA: Final[Kinds] = {
    (_NVIDIA, "GpuConfig"): _header(
        {
            "sharing": Fields(
                fields={
                    "strategy": _NVIDIA_STRATEGY,
                    "timeSlicingConfig": _TIME_SLICING,
                    "mpsConfig": _MPS,
                },
                required=("strategy",),
                of_strategy={"TimeSlicing": "timeSlicingConfig", "MPS": "mpsConfig"},
            )
        }
    ),
    (_NVIDIA, "MigDeviceConfig"): _header(
        {
            "sharing": Fields(
                fields={"strategy": _NVIDIA_STRATEGY, "mpsConfig": _MPS},
                required=("strategy",),
                of_strategy={"TimeSlicing": "", "MPS": "mpsConfig"},
            )
        }
    ),
    (_NVIDIA, "VfioDeviceConfig"): _header(
        {
            "iommu": Fields(
                fields={
                    "backendPolicy": Word(words=("LegacyOnly", "PreferIommuFD")),
                    "enableAPIDevice": Flag(),
                }
            )
        }
    ),
}
_COMPUTE_DOMAIN: Final[Kinds] = {
    (_NVIDIA, "ComputeDomainChannelConfig"): _header(
        {"domainID": Word(), "allocationMode": Word(words=("Single", "All"))}, "domainID"
    ),
    (_NVIDIA, "ComputeDomainDaemonConfig"): _header({"domainID": Word()}, "domainID"),
}
_EXAMPLE: Final[Kinds] = {
    ("gpu.resource.example.com/v1alpha1", "GpuConfig"): _header(
        {
            "mode": Word(),
            "sharing": Fields(
                fields={
                    "strategy": Word(words=("TimeSlicing", "SpacePartitioning")),
                    "timeSlicingConfig": _TIME_SLICING,
                    "spacePartitioningConfig": Fields(fields={"partitionCount": Whole()}),
                },
                required=("strategy",),
                of_strategy={
                    "TimeSlicing": "timeSlicingConfig",
                    "SpacePartitioning": "spacePartitioningConfig",
                },
            ),
        }
    )
}

DRIVERS: Final[Mapping[str, Kinds]] = {
    "compute-domain.nvidia.com": _COMPUTE_DOMAIN,
    "gpu.example.com": _EXAMPLE,
    "gpu.nvidia.com": _GPU_NVIDIA,
}

COMPARES_LITERALLY: Final = frozenset({"gpu.example.com", "gpu.nvidia.com"})
"""Drivers to which a configuration for `gpu` is none for `gpu/large`."""


def refused(driver: str, parameters: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield why a driver would refuse parameters; nothing for drivers and versions not known."""
    kinds = DRIVERS.get(driver)
    if kinds is None:
        return
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    versions = sorted({known for known, _ in kinds})
    if not isinstance(version, str) or not isinstance(kind, str):
        known = ", ".join(sorted(name for _, name in kinds))
        yield Fault(
            path="",
            message="parameters need an apiVersion and a kind",
            fix=f"{driver} knows {known} of {' and '.join(versions)}",
        )
        return
    schema = kinds.get((version, kind))
    if schema is not None:
        yield from faults(schema, parameters)
    elif version in versions:
        yield Fault(
            path="kind",
            message=f"{driver} knows no {shown(kind)} of {version}",
            fix=nearest(kind, (name for _, name in kinds)),
        )
    elif version.partition("/")[0] not in {known.partition("/")[0] for known in versions}:
        yield Fault(
            path="apiVersion",
            message=f"{driver} knows no {shown(version)}",
            fix=f"write {versions[0]}",
        )


# --- the same in CEL ------------------------------------------------------------------------------


def in_cel(opaque: str) -> str:
    """Return CEL: the driver would take the parameters of an opaque configuration.

    Args:
        opaque: CEL of the configuration, with `driver` and `parameters`.
    """
    drivers = (
        f"({opaque}.driver != {quote(driver)}\n|| {_kinds_in_cel(kinds, 'p')})"
        for driver, kinds in sorted(DRIVERS.items())
    )
    # The API server's type checker knows nothing of parameters, hence dyn().
    return f"[dyn({opaque}.parameters)].all(p,\n" + "\n&& ".join(drivers) + ")"


def _kinds_in_cel(kinds: Kinds, p: str) -> str:
    by_version: dict[str, dict[str, Fields]] = {}
    for (version, kind), schema in kinds.items():
        by_version.setdefault(version, {})[kind] = schema
    # Later versions of a group are not known here, so they pass.
    groups = sorted({version.partition("/")[0] for version in by_version})
    verdict = " || ".join(f"{p}.apiVersion.startsWith({quote(group + '/')})" for group in groups)
    for version, schemas in by_version.items():
        of_kind = "false"
        for kind, schema in schemas.items():
            of_kind = f"{p}.kind == {quote(kind)} ? {_in_cel(schema, p)}\n: ({of_kind})"
        verdict = f"{p}.apiVersion == {quote(version)} ? ({of_kind}) : ({verdict})"
    named = " && ".join(
        f"{quote(name)} in {p} && type({p}[{quote(name)}]) == string"
        for name in ("apiVersion", "kind")
    )
    return f"({named}\n&& ({verdict}))"


def _in_cel(schema: Schema, v: str) -> str:
    """Return CEL: the value that `v` stands for is what a schema says."""
    match schema:
        case Fields():
            return _fields_in_cel(schema, v)
        case Amounts():
            return f"(type({v}) == map && {v}.all(key, {_in_cel(schema.value, f'{v}[key]')}))"
        case Word():
            known = f" && {v} in {_list(schema.words)}" if schema.words else ""
            return f"(type({v}) == string{known})"
        case Whole():
            most = "" if schema.most is None else f" && {v} <= {schema.most}"
            return f"(type({v}) == int && {v} >= {schema.least}{most})"
        case Amount():
            least = int(Quantity(schema.least))
            text = f"isQuantity({v}) && !quantity({v}).isLessThan(quantity({quote(schema.least)}))"
            number = f"(type({v}) == int || type({v}) == double) && {v} >= {least}"
            return f"(type({v}) == string ? {text} : ({number}))"
        case Flag():
            return f"(type({v}) == bool)"


def _fields_in_cel(schema: Fields, v: str) -> str:
    def there(name: str) -> str:
        return f"({quote(name)} in {v} && {v}[{quote(name)}] != null)"

    tests = [
        f"type({v}) == map",
        f"{v}.all(name, {v}[name] == null || name in {_list(schema.fields)})",
    ]
    tests += [there(name) for name in schema.required]
    inner = f"{v}{v[0]}"  # A name of its own for each depth.
    tests += [
        f"(!{there(name)}\n|| [{v}[{quote(name)}]].all({inner}, {_in_cel(child, inner)}))"
        for name, child in schema.fields.items()
        if name not in {"apiVersion", "kind"}
    ]
    for strategy, field in schema.of_strategy.items():
        others = [one for one in schema.of_strategy if one != strategy]
        if field:
            tests.append(f'!({there(field)} && {v}["strategy"] in {_list(others)})')
    return "(" + "\n&& ".join(tests) + ")"


def _list(words: Iterable[str]) -> str:
    return f"[{', '.join(map(quote, words))}]"
