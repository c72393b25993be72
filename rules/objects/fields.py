"""Fields that resource.k8s.io/v1 does not have: fields of older versions, and misspelt ones.

The typed views name every field of 1.37, so a field that they drop is unknown. Without field
validation the API server drops it silently; kubectl requests strict validation and is rejected.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.resource import (
    Device,
    DeviceCapacity,
    DeviceClaim,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from rules.context.context import Context
from rules.context.rule import DROPPED_ON_DECODE, Category, Rule, Scope, Subject
from rules.model.naming import closest_name, suggest_name

_GROUP: Final = "resource.k8s.io"
_SERVED: Final = f"{_GROUP}/v1"

MAX_ENTRIES: Final = 128
"""Validated entries of a list; no list of a DRA object may have more."""

_MOVED: Final[Mapping[tuple[type[ApiStruct], str], str]] = {
    **{
        (DeviceRequest, field): f"{field} moved below exactly in v1beta2"
        for field in (
            "adminAccess",
            "allocationMode",
            "capacity",
            "count",
            "deviceClassName",
            "selectors",
            "tolerations",
        )
    },
    (Device, "basic"): "the fields of basic moved into the device in v1beta2",
    (DeviceSelector, "expression"): "expression belongs below cel",
}
"""Fields of older versions to where their content is now."""


_CURES: Final[Mapping[tuple[type[ApiStruct], str], str]] = {
    **dict.fromkeys(
        (
            (kind, "compatibleOnlyWith")
            for kind in (Device, DeviceClassSpec, DeviceClaim, DeviceRequest, ExactDeviceRequest)
        ),
        "say it in a DeviceCompatibilityPolicy, in rules[].compatibleOnlyWith.cel.expression (docs/compatibility.md)",
    ),
    (Device, "resources"): "capacities of a device are in capacity: {<name>: {value: <quantity>}}",
    (DeviceCapacity, "quantity"): "the amount is in value",
    **dict.fromkeys(
        ((kind, "resources") for kind in (DeviceRequest, ExactDeviceRequest, DeviceSubRequest)),
        "an amount of a shared device is in exactly.capacity.requests: {<name>: <quantity>}",
    ),
    **dict.fromkeys(
        (
            (kind, "requirements")
            for kind in (DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaimSpec)
        ),
        "requirements are CEL: exactly.selectors[].cel.expression of a request in spec.devices.requests",
    ),
}
"""Fields of designs and talks that never became part of the API, to where their content belongs."""

_RIGHT_PLACES: Final[Mapping[tuple[type[ApiStruct], str], tuple[str, ...]]] = {
    (ResourceClaim, "devices"): ("spec", "devices"),
    (ResourceClaim, "requests"): ("spec", "devices", "requests"),
    (ResourceClaimSpec, "requests"): ("devices", "requests"),
    (ResourceClaimTemplate, "devices"): ("spec", "spec", "devices"),
    (ResourceClaimTemplate, "requests"): ("spec", "spec", "devices", "requests"),
    (ResourceClaimTemplateSpec, "devices"): ("spec", "devices"),
    (ResourceClaimTemplateSpec, "requests"): ("spec", "devices", "requests"),
}
"""Fields with the requests of a claim in a wrong object, to their path from there."""
_REQUEST_FIELDS: Final = frozenset({"exactly", "firstAvailable", "deviceClassName"})
_MAX_DEPTH: Final = 4


def find_unserved_version(
    subject: Subject[ApiStruct], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield a version that 1.37 serves only with --runtime-config."""
    version = str(subject.raw.get("apiVersion", ""))
    if version.startswith(f"{_GROUP}/") and version != _SERVED:
        yield warning(
            Code.UNSERVED_VERSION,
            path.child("apiVersion"),
            f"Kubernetes 1.37 serves {quote_text(version)} only with --runtime-config",
            f"use {_SERVED}, where each request has exactly or firstAvailable",
        )


def find_removed_fields(
    subject: Subject[ApiStruct], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield fields of older versions that would lose their content."""
    yield from _removed_fields(type(subject.view), subject.raw, path)


def find_unknown_fields(
    subject: Subject[ApiStruct], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield fields that no version has; an error for one that has all requests of a claim."""
    lacks_requests = _lacks_requests(subject.view)
    yield from _unknown_fields(type(subject.view), subject.raw, path, lacks_requests=lacks_requests)


def find_fields_of_undecodable(kind: type[ApiStruct], raw: object) -> Iterator[Finding]:
    """Yield the removed and unknown fields of an object that has values of the wrong type, so that no rule sees it.

    Args:
        kind: The view that it would have.
        raw: The parsed object, in the current version.
    """
    yield from _removed_fields(kind, raw, FieldPath())
    yield from _unknown_fields(kind, raw, FieldPath(), lacks_requests=False)


def _removed_fields(kind: type[ApiStruct], raw: object, path: FieldPath) -> Iterator[Finding]:
    for unknown in _unknown(kind, raw, path):
        current_place = _MOVED.get((unknown.kind, unknown.field))
        if current_place is not None:
            yield error(
                Code.REMOVED_FIELD,
                unknown.place.child(unknown.field),
                f"{current_place}, so it has no effect here",
                "move it, or use the apiVersion that the manifest was written for",
            )


def _unknown_fields(
    kind: type[ApiStruct], raw: object, path: FieldPath, *, lacks_requests: bool
) -> Iterator[Finding]:
    for unknown in _unknown(kind, raw, path):
        of, place, field = unknown.kind, unknown.place, unknown.field
        if (of, field) in _MOVED:
            continue
        detail = f"Kubernetes 1.37 has no field {quote_text(field)} here, and drops it"
        cure = _CURES.get((of, field))
        right_place = _RIGHT_PLACES.get((of, field))
        make = warning
        if lacks_requests and _has_requests(unknown.value):
            make = error
            detail += ", so the claim requests no devices"
            if right_place is not None:
                cure = f"write it in {place.child(*right_place)}"
        yield make(
            Code.UNKNOWN_FIELD,
            place.child(field),
            detail,
            cure or suggest_name(field, unknown.known_fields),
        ).renamed_to("" if cure else closest_name(field, unknown.known_fields))


def _lacks_requests(view: ApiStruct) -> bool:
    """Return True for a claim, or a template of claims, that requests nothing."""
    if isinstance(view, ResourceClaimTemplate):
        return not view.spec.spec.devices.requests
    return isinstance(view, ResourceClaim) and not view.spec.devices.requests


def _has_requests(value: object, depth: int = 0) -> bool:
    """Return True if a value of an unknown field has a list of requests."""
    if isinstance(value, list):
        return any(
            isinstance(entry, dict) and not _REQUEST_FIELDS.isdisjoint(entry)
            for entry in value[:MAX_ENTRIES]
        )
    return (
        isinstance(value, dict)
        and depth < _MAX_DEPTH
        and any(_has_requests(child, depth + 1) for child in value.values())
    )


class _UnknownField(NamedTuple):
    """An unknown field with its value, the type and the path of its object, and the known fields there."""

    kind: type[ApiStruct]
    place: FieldPath
    field: str
    value: object
    known_fields: Sequence[str]


def _unknown(kind: Any, value: object, path: FieldPath) -> Iterator[_UnknownField]:
    """Yield every unknown field."""
    kind = _bare(kind)
    if _is_struct(kind) and isinstance(value, dict):
        if kind is ObjectMeta:
            return  # Its view is incomplete.
        known_fields = _fields(kind)
        for name, child in value.items():
            if name in known_fields:
                yield from _unknown(known_fields[name], child, path.child(name))
            elif not (
                name == "status" or (name in {"apiVersion", "kind"} and "metadata" in known_fields)
            ):
                yield _UnknownField(kind, path, name, child, tuple(known_fields))
    elif (element := _element(kind)) is not None and isinstance(value, list):
        for index, child in enumerate(value[:MAX_ENTRIES]):
            yield from _unknown(element, child, path.child(index))
    elif _is_struct_mapping(kind) and isinstance(value, dict):
        for key, child in value.items():
            yield from _unknown(get_args(kind)[1], child, path.key(key))


@lru_cache(maxsize=256)
def _bare(kind: Any) -> Any:
    """Return a type without `| None`."""
    if get_origin(kind) in {Union, UnionType}:
        return next(arg for arg in get_args(kind) if arg is not type(None))
    return kind


@lru_cache(maxsize=256)
def _element(kind: Any) -> Any:
    """Return the type of the elements of a list; None for other types, and lists of plain values."""
    if get_origin(kind) is not tuple:
        return None
    element = get_args(kind)[0]
    return element if _is_struct(_bare(element)) or _is_struct_mapping(_bare(element)) else None


@lru_cache(maxsize=256)
def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ApiStruct)


@lru_cache(maxsize=256)
def _is_struct_mapping(kind: Any) -> bool:
    return (
        len(get_args(kind)) == 2 and get_origin(kind) is not tuple and _is_struct(get_args(kind)[1])
    )


@lru_cache(maxsize=256)
def _fields(kind: type[ApiStruct]) -> Mapping[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


RULES: Final[tuple[Rule[ApiStruct], ...]] = (
    Rule(
        code=Code.UNSERVED_VERSION,
        scope=Scope.HEAD,
        category=Category.ADVICE,
        validate=find_unserved_version,
        fix="Use `resource.k8s.io/v1`, where the fields of a request are below `exactly`.",
        no_cel_reason="the API server converts the object before any policy runs",
    ),
    Rule(
        code=Code.REMOVED_FIELD,
        scope=Scope.OBJECT,
        category=Category.INVALID,
        validate=find_removed_fields,
        fix="Move the field, or use the apiVersion that the manifest was written for.",
        no_cel_reason=DROPPED_ON_DECODE,
    ),
    Rule(
        code=Code.UNKNOWN_FIELD,
        scope=Scope.OBJECT,
        category=Category.ADVICE,
        validate=find_unknown_fields,
        fix="Use a field of the API.",
        no_cel_reason=DROPPED_ON_DECODE,
    ),
)
