"""Schemas of the opaque parameters of known drivers; these decode strictly when a pod starts.

Each kind has a schema as data; the CEL for the API server's policies is made from it, too.
Parameters of other groups, versions and drivers are not validated.

Source: kubernetes-sigs/dra-driver-nvidia-gpu, api/nvidia.com/resource/v1beta1; kubernetes-sigs/
dra-example-driver, api/example.com/resource/gpu/v1alpha1; driver/plan/config.py for our own.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from findings.field_path import FieldPath
from findings.fitting import Renaming, Replacement, Rewrite
from findings.text import quote_text
from kube.cel.quoting import quote
from kube.errors import QuantityError
from kube.names import GROUP
from kube.quantity import Quantity
from rules.model.naming import closest_name, suggest_name

ROOT: Final = FieldPath()


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of parameters, with its path below them.

    Attributes:
        rewrites: The fix as texts of the parameters; empty where it is another, or leaves a choice.
    """

    path: FieldPath
    message: str
    fix: str = ""
    rewrites: tuple[Rewrite, ...] = ()


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """A string: one of `words`, or any text if there are none."""

    words: tuple[str, ...] = ()


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """An integer within bounds."""

    least: int = 0
    most: int | None = None


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity with a minimum."""

    least: str = "0"


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """A boolean."""


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """An object.

    Attributes:
        fields: All fields.
        required_fields: Names of the required fields.
        of_strategy: Values of the field `strategy` to the field that is allowed with that value
            only; empty for a value without one.
    """

    fields: Mapping[str, "Schema"]
    required_fields: tuple[str, ...] = ()
    of_strategy: Mapping[str, str] = {}


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """A map of quantities."""

    value: Amount


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A list of values."""

    value: "Schema"


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """A map of values."""

    value: "Schema"


class Anything(msgspec.Struct, frozen=True, kw_only=True):
    """A value that something else than the driver decodes."""


Schema = Word | Whole | Amount | Flag | Fields | Amounts | Listed | Mapped | Anything


def validate_value(schema: Schema, value: Any, path: FieldPath = ROOT) -> Iterator[Fault]:
    """Yield the faults that a strict decoder and the validation of the driver would reject."""
    match schema:
        case Fields():
            yield from _of_fields(schema, value, path)
        case Amounts() | Mapped():
            yield from _of_map(schema.value, value, path)
        case Listed():
            yield from _of_list(schema.value, value, path)
        case Anything():
            pass
        case Word():
            yield from _of_word(schema, value, path)
        case Whole():
            yield from _of_whole(schema, value, path)
        case Amount():
            yield from _of_amount(schema, value, path)
        case Flag():
            if not isinstance(value, bool):
                yield _wrong_type(path, value, "true or false")


def _of_map(schema: Schema, value: Any, path: FieldPath) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield _wrong_type(path, value, "an object")
        return
    for key, child in value.items():
        yield from validate_value(schema, child, path.key(key))


def _of_list(schema: Schema, value: Any, path: FieldPath) -> Iterator[Fault]:
    if not isinstance(value, list):
        yield _wrong_type(path, value, "a list")
        return
    for index, child in enumerate(value):
        yield from validate_value(schema, child, path.child(index))


def _of_fields(schema: Fields, value: Any, path: FieldPath) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield _wrong_type(path, value, "an object")
        return
    present = {name: child for name, child in value.items() if child is not None}
    for name, child in present.items():
        place = path.child(name)
        if name in schema.fields:
            yield from validate_value(schema.fields[name], child, place)
        else:
            yield Fault(
                path=place,
                message="unknown field, which the driver's strict decoder rejects",
                fix=suggest_name(name, schema.fields),
                rewrites=_renamed(place, closest_name(name, schema.fields)),
            )
    for name in schema.required_fields:
        if name not in present:
            yield Fault(
                path=path.child(name), message="is required", fix=_example(schema.fields[name])
            )
    yield from _of_other_strategies(schema, present, path)


def _of_other_strategies(
    schema: Fields, present: Mapping[str, Any], path: FieldPath
) -> Iterator[Fault]:
    chosen_strategy = present.get("strategy")
    if not isinstance(chosen_strategy, str) or chosen_strategy not in schema.of_strategy:
        return
    for strategy, field in schema.of_strategy.items():
        if field in present and strategy != chosen_strategy:
            yield Fault(
                path=path.child(field),
                message=f"belongs to strategy {strategy}, but the strategy is {chosen_strategy}",
                fix=f"remove it, or use strategy {strategy}",
            )


def _renamed(path: FieldPath, name: str) -> tuple[Rewrite, ...]:
    return (Renaming(path=path, name=name),) if name else ()


def _rewritten(path: FieldPath, before: str, after: str) -> tuple[Rewrite, ...]:
    return (Replacement(path=path, before=before, after=after),) if after else ()


def _of_word(schema: Word, value: Any, path: FieldPath) -> Iterator[Fault]:
    if not isinstance(value, str):
        yield _wrong_type(path, value, "text")
    elif schema.words and value not in schema.words:
        yield Fault(
            path=path,
            message=f"unknown value {quote_text(value)}",
            fix=suggest_name(value, schema.words),
            rewrites=_rewritten(path, value, closest_name(value, schema.words)),
        )


def _of_whole(schema: Whole, value: Any, path: FieldPath) -> Iterator[Fault]:
    if isinstance(value, bool) or not isinstance(value, int):
        yield _wrong_type(path, value, "a whole number")
    elif value < schema.least or (schema.most is not None and value > schema.most):
        bounds = (
            f"{schema.least} or more" if schema.most is None else f"{schema.least} to {schema.most}"
        )
        yield Fault(path=path, message=f"must be {bounds}, found {value}")


def _of_amount(schema: Amount, value: Any, path: FieldPath) -> Iterator[Fault]:
    amount = _quantity(value)
    if amount is None:
        yield _wrong_type(path, value, "a quantity, such as 8Gi")
    elif amount < Quantity(schema.least):
        yield Fault(path=path, message=f"must be {schema.least} or more, found {amount}")


def _quantity(value: Any) -> Quantity | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return Quantity(value if isinstance(value, str) else repr(value))
    except QuantityError:
        return None


def _wrong_type(path: FieldPath, value: Any, expected_form: str) -> Fault:
    return Fault(path=path, message=f"must be {expected_form}, found {_describe(value)}")


def _describe(value: Any) -> str:
    try:
        return quote_text(msgspec.json.encode(value).decode())
    except RecursionError:  # What could just be decoded need not be encodable from here.
        return "a value that is nested too deeply"


def _example(schema: Schema) -> str:
    return f"use {schema.words[0]}" if isinstance(schema, Word) and schema.words else ""


# --- the drivers ----------------------------------------------------------------------------------

Kinds = Mapping[tuple[str, str], Fields]
"""apiVersion and kind to the schema."""


def header(fields: Mapping[str, Schema], *required_fields: str) -> Fields:
    """Return the schema of an object with apiVersion and kind."""
    return Fields(
        fields={"apiVersion": Word(), "kind": Word(), **fields}, required_fields=required_fields
    )


_INTERVAL: Final = Word(words=("Default", "Short", "Medium", "Long"))
_TIME_SLICING: Final = Fields(fields={"interval": _INTERVAL}, required_fields=("interval",))
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

GPU_OF_NVIDIA: Final[Kinds] = {
    (_NVIDIA, "GpuConfig"): header(
        {
            "sharing": Fields(
                fields={
                    "strategy": _NVIDIA_STRATEGY,
                    "timeSlicingConfig": _TIME_SLICING,
                    "mpsConfig": _MPS,
                },
                required_fields=("strategy",),
                of_strategy={"TimeSlicing": "timeSlicingConfig", "MPS": "mpsConfig"},
            )
        }
    ),
    (_NVIDIA, "MigDeviceConfig"): header(
        {
            "sharing": Fields(
                fields={"strategy": _NVIDIA_STRATEGY, "mpsConfig": _MPS},
                required_fields=("strategy",),
                of_strategy={"TimeSlicing": "", "MPS": "mpsConfig"},
            )
        }
    ),
    (_NVIDIA, "VfioDeviceConfig"): header(
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
"""The configurations of NVIDIA's GPUs."""
_COMPUTE_DOMAIN: Final[Kinds] = {
    (_NVIDIA, "ComputeDomainChannelConfig"): header(
        {"domainID": Word(), "allocationMode": Word(words=("Single", "All"))}, "domainID"
    ),
    (_NVIDIA, "ComputeDomainDaemonConfig"): header({"domainID": Word()}, "domainID"),
}
_DRAWBRIDGE: Final[Kinds] = {
    (f"{GROUP}/v1alpha1", "DeviceConfig"): header(
        {"sharing": Fields(fields={"timeSlice": _INTERVAL})}
    )
}
_EXAMPLE: Final[Kinds] = {
    ("gpu.resource.example.com/v1alpha1", "GpuConfig"): header(
        {
            "mode": Word(),
            "sharing": Fields(
                fields={
                    "strategy": Word(words=("TimeSlicing", "SpacePartitioning")),
                    "timeSlicingConfig": _TIME_SLICING,
                    "spacePartitioningConfig": Fields(fields={"partitionCount": Whole()}),
                },
                required_fields=("strategy",),
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
    f"gpu.{GROUP}": _DRAWBRIDGE,
    "gpu.example.com": _EXAMPLE,
    "gpu.nvidia.com": GPU_OF_NVIDIA,
}

COMPARES_LITERALLY: Final = frozenset({"gpu.example.com", "gpu.nvidia.com"})
"""Drivers for which a configuration for `gpu` does not apply to `gpu/large`."""


def find_faults(driver: str, parameters: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults that a driver would reject; none for unknown drivers and versions."""
    kinds = DRIVERS.get(driver)
    if kinds is not None:
        yield from find_faults_of_kinds(driver, kinds, parameters)


def find_faults_of_kinds(
    driver: str, kinds: Kinds, parameters: Mapping[str, Any]
) -> Iterator[Fault]:
    """Yield the faults that a driver of these kinds would reject; none for unknown versions."""
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    versions = sorted({known_version for known_version, _ in kinds})
    if not isinstance(version, str) or not isinstance(kind, str):
        kinds_text = ", ".join(sorted(name for _, name in kinds))
        yield Fault(
            path=ROOT,
            message="apiVersion and kind are required",
            fix=f"{driver} supports {kinds_text} of {' and '.join(versions)}",
        )
        return
    schema = kinds.get((version, kind))
    if schema is not None:
        yield from validate_value(schema, parameters)
    elif version in versions:
        yield Fault(
            path=FieldPath.of("kind"),
            message=f"{driver} has no kind {quote_text(kind)} in {version}",
            fix=suggest_name(kind, (name for _, name in kinds)),
        )
    elif version.partition("/")[0] not in {
        known_version.partition("/")[0] for known_version in versions
    }:
        yield Fault(
            path=FieldPath.of("apiVersion"),
            message=f"{driver} does not support {quote_text(version)}",
            fix=f"use {versions[0]}",
        )


# --- the same in CEL ------------------------------------------------------------------------------


def cel_for_parameters(opaque: str) -> str:
    """Return CEL that is true if the driver would accept the parameters of a configuration.

    Args:
        opaque: CEL of the configuration, with `driver` and `parameters`.
    """
    drivers = (
        f"({opaque}.driver != {quote(driver)}\n|| {_kinds_in_cel(kinds, 'p')})"
        for driver, kinds in sorted(DRIVERS.items())
    )
    # The API server's type checker does not know the type of parameters, hence dyn().
    return f"[dyn({opaque}.parameters)].all(p,\n" + "\n&& ".join(drivers) + ")"


def _kinds_in_cel(kinds: Kinds, p: str) -> str:
    by_version: dict[str, dict[str, Fields]] = {}
    for (version, kind), schema in kinds.items():
        by_version.setdefault(version, {})[kind] = schema
    # Other versions of a group are unknown, so they pass.
    groups = sorted({version.partition("/")[0] for version in by_version})
    verdict = " || ".join(f"{p}.apiVersion.startsWith({quote(group + '/')})" for group in groups)
    for version, schemas in by_version.items():
        of_kind = "false"
        for kind, schema in schemas.items():
            of_kind = f"{p}.kind == {quote(kind)} ? {_in_cel(schema, p)}\n: ({of_kind})"
        verdict = f"{p}.apiVersion == {quote(version)} ? ({of_kind}) : ({verdict})"
    type_checks = " && ".join(
        f"{quote(name)} in {p} && type({p}[{quote(name)}]) == string"
        for name in ("apiVersion", "kind")
    )
    return f"({type_checks}\n&& ({verdict}))"


def _in_cel(schema: Schema, v: str) -> str:
    """Return CEL that is true if the value `v` matches a schema."""
    match schema:
        case Fields():
            return _fields_in_cel(schema, v)
        case Amounts() | Mapped():
            return f"(type({v}) == map && {v}.all(key, {_in_cel(schema.value, f'{v}[key]')}))"
        case Listed():
            return f"(type({v}) == list && {v}.all(entry, {_in_cel(schema.value, 'entry')}))"
        case Anything():
            return "true"
        case Word():
            word_check = f" && {v} in {_list(schema.words)}" if schema.words else ""
            return f"(type({v}) == string{word_check})"
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
    def is_set(name: str) -> str:
        return f"({quote(name)} in {v} && {v}[{quote(name)}] != null)"

    tests = [
        f"type({v}) == map",
        f"{v}.all(name, {v}[name] == null || name in {_list(schema.fields)})",
    ]
    tests += [is_set(name) for name in schema.required_fields]
    inner = f"{v}{v[0]}"  # A distinct name for each depth.
    tests += [
        f"(!{is_set(name)}\n|| [{v}[{quote(name)}]].all({inner}, {_in_cel(child, inner)}))"
        for name, child in schema.fields.items()
        if name not in {"apiVersion", "kind"}
    ]
    for strategy, field in schema.of_strategy.items():
        others = [other for other in schema.of_strategy if other != strategy]
        if field:
            tests.append(f'!({is_set(field)} && {v}["strategy"] in {_list(others)})')
    return "(" + "\n&& ".join(tests) + ")"


def _list(words: Iterable[str]) -> str:
    return f"[{', '.join(map(quote, words))}]"
