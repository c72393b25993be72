"""Documents that people write, read into structs: an unknown field names the nearest known one."""

import difflib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from kube.errors import FieldError


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An object of such a document."""


P = TypeVar("P", bound=Part)


def read_strictly(document: object, kind: type[P]) -> P | tuple[FieldError, ...]:
    """Return a document as a struct, or the errors in its fields.

    All unknown fields are found, but only the first value of a wrong type.

    Args:
        document: Dicts, lists, texts, numbers and booleans.
    """
    unknown = tuple(_unknown_fields(document, kind, ""))
    if unknown:
        return unknown
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at ")
        path = place.strip("`").removeprefix("$").removeprefix(".")
        return (FieldError(path=path, message=message),)


def _unknown_fields(value: object, kind: Any, path: str) -> Iterator[FieldError]:
    """Yield a fault for each field that the struct at its place does not have, at any depth."""
    # Only as deep as the type, so that no document is nested too deep for it.
    if isinstance(value, list) and (item_kind := _argument(kind, tuple, 0)) is not None:
        for index, item in enumerate(value):
            yield from _unknown_fields(item, item_kind, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    struct = _struct_in(kind)
    if struct is None:
        inner_kind = _argument(kind, Mapping, 1)
        for name, inner in value.items() if inner_kind is not None else ():
            yield from _unknown_fields(inner, inner_kind, f"{path}[{name}]")
        return
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for name, inner in value.items():
        here = f"{path}.{name}" if path else str(name)
        if name in fields:
            yield from _unknown_fields(inner, fields[name], here)
        else:
            nearest = difflib.get_close_matches(str(name), fields, n=1, cutoff=0)
            fix = f"did you mean {nearest[0]}?" if nearest else ""
            yield FieldError(path=here, message="is an unknown field", fix=fix)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    is_union = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    return typing.get_args(kind) if is_union else (kind,)


def _struct_in(kind: Any) -> type[Part] | None:
    """Return the struct that an object at this place would be."""
    for option in _alternatives(kind):
        if isinstance(option, type) and issubclass(option, Part):
            return option
    return None


def _argument(kind: Any, origin: type, index: int) -> Any:
    """Return the type of the items of a list, or of the values of a mapping, at this place."""
    for option in _alternatives(kind):
        if typing.get_origin(option) is origin:
            return typing.get_args(option)[index]
    return None
