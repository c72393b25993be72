"""Values of a document with another type than the API's: every one of them, with its path.

msgspec stops at the first and names neither the keys of maps nor the value, so documents that it
rejects are compared here with the types of its view once more.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from findings.field_path import FieldPath
from kube.quantity import Quantity, is_quantity

_NAMES: Final[Mapping[type[inspect.Type], str]] = {
    inspect.BoolType: "true or false",
    inspect.DictType: "an object",
    inspect.FloatType: "a number",
    inspect.IntType: "an integer",
    inspect.StrType: "a string",
    inspect.StructType: "an object",
    inspect.VarTupleType: "a list",
}
"""Types as users of JSON and YAML call them."""
_PYTHON: Final[Mapping[type[inspect.Type], type | tuple[type, ...]]] = {
    inspect.BoolType: bool,
    inspect.FloatType: (int, float),
    inspect.IntType: int,
    inspect.StrType: str,
}
"""Python's types for values without parts."""


class TypeFault(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the wrong type.

    Attributes:
        path: The path from the root of the document.
        expected_type: The expected type, such as "a string"; "" for an amount.
        missing: The required field that the object at `path` lacks; "" in all other cases.
    """

    path: FieldPath
    value: Any
    expected_type: str = ""
    missing: str = ""


def type_faults(document: object, kind: type[Any]) -> list[TypeFault]:
    """Return the wrong values of a document, in the order of the type's fields.

    Args:
        document: The document without nulls in objects; a null there means that the field is
            absent.
        kind: The view that the document is read as.
    """
    return list(_faults(inspect.type_info(kind), document, FieldPath()))


def _faults(kind: inspect.Type, value: object, path: FieldPath) -> Iterator[TypeFault]:
    match kind:
        case inspect.UnionType(types=alternatives):
            (kind,) = (
                alternative
                for alternative in alternatives
                if not isinstance(alternative, inspect.NoneType)
            )
            yield from _faults(kind, value, path)
        case inspect.StructType(fields=fields) if isinstance(value, Mapping):
            yield from _field_faults(fields, value, path)
        case inspect.DictType(value_type=element) if isinstance(value, Mapping):
            for key, child in value.items():
                yield from _faults(element, child, path.key(str(key)))
        case inspect.VarTupleType(item_type=element) if isinstance(value, list):
            for index, child in enumerate(value):
                yield from _faults(element, child, path.child(index))
        case _ if not _is_of(kind, value):
            yield TypeFault(path=path, value=value, expected_type=_expected_type(kind))
        case _:
            pass


def _field_faults(
    fields: Iterable[inspect.Field], document: Mapping[str, Any], path: FieldPath
) -> Iterator[TypeFault]:
    for field in fields:
        name = field.encode_name
        if name in document:
            yield from _faults(field.type, document[name], path.child(name))
        elif field.required:
            yield TypeFault(path=path, value=document, missing=name)


def _is_of(kind: inspect.Type, value: object) -> bool:
    """Return True if a value without parts is of a type."""
    match kind:
        case inspect.AnyType():
            return True
        case inspect.EnumType(cls=members):
            return value in {member.value for member in members}
        case inspect.CustomType(cls=cls) if cls is Quantity:
            return _is_amount(value)
    return isinstance(value, _PYTHON.get(type(kind), ())) and (
        not isinstance(value, bool) or isinstance(kind, inspect.BoolType)
    )


def _expected_type(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.EnumType):
        return f"one of {', '.join(member.value for member in kind.cls)}"
    return _NAMES.get(type(kind), "")


def _is_amount(value: object) -> bool:
    """Return True if a value of YAML or JSON is a Kubernetes quantity."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    return is_quantity(value if isinstance(value, str) else repr(value))
