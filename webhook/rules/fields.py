"""Fields that no object of resource.k8s.io/v1 has: those of older versions, and misspelt ones.

The typed views name every field of 1.37, so what they drop is not one. The API server drops such a
field without a word where its client asks for no validation; kubectl does ask, and is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.resource import Device, DeviceRequest, DeviceSelector
from webhook.findings import Code, Finding, error, shown, warning
from webhook.rules.asked import at
from webhook.rules.claim import nearest
from webhook.rules.context import Context
from webhook.rules.rule import DROPPED, Class, Part, Rule, Subject

_GROUP: Final = "resource.k8s.io"
_SERVED: Final = f"{_GROUP}/v1"

MAX_ENTRIES: Final = 128
"""Of a list that are looked at; no list of DRA's objects may have more."""

_OLD: Final[Mapping[tuple[type[ApiStruct], str], str]] = {
    **{
        (DeviceRequest, field): f"{field} stands below exactly since v1beta2"
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
    (Device, "basic"): "what is below basic stands in the device itself since v1beta2",
    (DeviceSelector, "expression"): "expression stands below cel",
}
"""Fields of older versions, and where their content is now."""


def old_version(subject: Subject[ApiStruct], path: str, _context: Context) -> Iterator[Finding]:
    """Yield a version that is off in 1.37 unless --runtime-config turns it on."""
    version = str(subject.raw.get("apiVersion", ""))
    if version.startswith(f"{_GROUP}/") and version != _SERVED:
        yield warning(
            Code.OLD_VERSION,
            at(path, "apiVersion"),
            f"Kubernetes 1.37 serves {shown(version)} only where --runtime-config says so",
            f"write {_SERVED}, where each request says exactly or firstAvailable",
        )


def old_fields(subject: Subject[ApiStruct], path: str, _context: Context) -> Iterator[Finding]:
    """Yield fields of older versions, whose content would be lost."""
    for kind, place, field, _ in _unknown(type(subject.view), subject.raw, path):
        moved = _OLD.get((kind, field))
        if moved is not None:
            yield error(
                Code.OLD_FIELD,
                at(place, field),
                f"{moved}, so here it says nothing",
                "move it, or write the apiVersion that the manifest is meant for",
            )


def unknown_fields(subject: Subject[ApiStruct], path: str, _context: Context) -> Iterator[Finding]:
    """Yield fields that no version had."""
    for kind, place, field, known in _unknown(type(subject.view), subject.raw, path):
        if (kind, field) not in _OLD:
            yield warning(
                Code.UNKNOWN_FIELD,
                at(place, field),
                f"Kubernetes 1.37 knows no field {shown(field)} here, and drops it",
                nearest(field, known),
            )


def _unknown(
    kind: Any, value: object, path: str
) -> Iterator[tuple[type[ApiStruct], str, str, Sequence[str]]]:
    """Yield type, path and name of every field that its type does not have, and those it has."""
    kind = _bare(kind)
    if _is_struct(kind) and isinstance(value, Mapping):
        if kind is ObjectMeta:
            return  # Its view names only what we read.
        known = _fields(kind)
        for name, child in value.items():
            if name in known:
                yield from _unknown(known[name], child, at(path, name))
            elif not (name == "status" or (name in {"apiVersion", "kind"} and "metadata" in known)):
                yield kind, path, name, tuple(known)
    elif (element := _element(kind)) is not None and isinstance(value, list):
        for index, child in enumerate(value[:MAX_ENTRIES]):
            yield from _unknown(element, child, f"{path}[{index}]")
    elif _is_struct_mapping(kind) and isinstance(value, Mapping):
        for key, child in value.items():
            yield from _unknown(get_args(kind)[1], child, f"{path}[{key}]")


@lru_cache(maxsize=256)
def _bare(kind: Any) -> Any:
    """Return a type without `| None`."""
    if get_origin(kind) in {Union, UnionType}:
        return next(one for one in get_args(kind) if one is not type(None))
    return kind


@lru_cache(maxsize=256)
def _element(kind: Any) -> Any:
    """Return the type of what is in a list; None for what is no list of objects."""
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
        code=Code.OLD_VERSION,
        part=Part.HEAD,
        rank=Class.ADVICE,
        judge=old_version,
        cure="Write `resource.k8s.io/v1`; below `exactly` stands what a request said before.",
        why_not_cel="the API server converts the object before any policy is asked",
    ),
    Rule(
        code=Code.OLD_FIELD,
        part=Part.OBJECT,
        rank=Class.WRONG,
        judge=old_fields,
        cure="Move the field, or write the apiVersion that the manifest is meant for.",
        why_not_cel=DROPPED,
    ),
    Rule(
        code=Code.UNKNOWN_FIELD,
        part=Part.OBJECT,
        rank=Class.ADVICE,
        judge=unknown_fields,
        cure="Write the field as the API has it.",
        why_not_cel=DROPPED,
    ),
)
