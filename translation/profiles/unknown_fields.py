"""Finds the first field of a document that a struct does not have, and its nearest known one."""

import difflib
from typing import Final

import msgspec
from msgspec import inspect

from findings.field_path import FieldPath
from findings.text import quote_text

MAX_COMPARED: Final = 64
"""Characters of the longest name that is compared; the comparison's cost grows with their square."""


class UnknownFieldError(ValueError):
    """A field that a profile does not have.

    Attributes:
        path: Its place in the document.
        message: Its name, without the place, and the nearest known field of the same struct.
    """

    def __init__(self, path: FieldPath, name: str, hint: str) -> None:
        """Name the field; the hint is the end of the message, and may be empty."""
        super().__init__(f"unknown field {path}{hint}")
        self.path = path
        self.message = f"unknown field {quote_text(name)}{hint}"


def find_unknown_field(document: object, kind: type[msgspec.Struct]) -> UnknownFieldError | None:
    """Return the error about the first unknown field at any depth; None if there is none.

    The depth is that of the types, whatever the document is.
    """
    return _find(document, inspect.type_info(kind), FieldPath())


def _find(value: object, kind: inspect.Type, path: FieldPath) -> UnknownFieldError | None:
    if not isinstance(value, dict):
        return None
    if isinstance(kind, inspect.UnionType):
        faults = (_find(value, member, path) for member in kind.types)
    elif isinstance(kind, inspect.StructType):
        fields = {field.encode_name: field.type for field in kind.fields}
        faults = (
            _find(inner, fields[name], path.child(name))
            if name in fields
            else _unknown_field(str(name), fields, path)
            for name, inner in value.items()
        )
    elif isinstance(kind, inspect.DictType):
        # Kinds of devices are written as fields, and resource names as the keys of a map.
        step = path.child if isinstance(kind.key_type, inspect.EnumType) else path.key
        faults = (_find(inner, kind.value_type, step(str(name))) for name, inner in value.items())
    else:
        return None
    return next((fault for fault in faults if fault is not None), None)


def _unknown_field(
    name: str, fields: dict[str, inspect.Type], path: FieldPath
) -> UnknownFieldError:
    nearest = difflib.get_close_matches(name, fields, n=1) if len(name) <= MAX_COMPARED else []
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return UnknownFieldError(path.child(name), name, hint)
