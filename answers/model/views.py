"""Typed views of the documents in files, or findings with the reason there is none.

Files have not been through an API server, so their values may have any type. A view is made as the
API server decodes: null means absent, and everything else must have its type.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from answers.model.type_faults import TypeFault, type_faults
from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding, error
from kube.api.meta import ApiStruct, convert

T = TypeVar("T", bound=ApiStruct)

_AMOUNTS: Final = frozenset({"limits", "requests"})
"""Objects that map names of resources to amounts."""
_MAX_VALUE: Final = 80
"""Characters of a wrong value in a message."""
_AMOUNT_WITH_UNIT: Final = re.compile(
    r"(?P<number>[0-9]{1,9}) ?(?P<unit>%|[MGT]i?B)", re.IGNORECASE
)
"""An amount as people write it, which Kubernetes does not read."""
_MIB: Final[Mapping[str, int]] = {"M": 1, "G": 2**10, "T": 2**20}
"""MiB of a unit; people who write GB of a GPU mean GiB."""


def decode_view(document: object, kind: type[T]) -> T | list[Finding]:
    """Return a document as the view `kind`, or a finding for every value of the wrong type."""
    present = _without_nulls(document)
    try:
        return convert(present, kind)
    except msgspec.ValidationError as fault:
        findings = [_finding(type_fault) for type_fault in type_faults(present, kind)]
        return findings or [error(Code.INVALID_OBJECT, FieldPath(), f"Invalid value: {fault}")]


def _without_nulls(value: Any) -> Any:
    """Return the value as Go decodes it: a null field is an absent one, a null amount a mistake."""
    if isinstance(value, Mapping):
        return {
            name: child
            if name in _AMOUNTS and isinstance(child, Mapping)
            else _without_nulls(child)
            for name, child in value.items()
            if child is not None
        }
    if isinstance(value, list):
        return [_without_nulls(child) for child in value]
    return value


def _finding(fault: TypeFault) -> Finding:
    message = f"Invalid value: {_as_json(fault.value)}"
    if fault.missing:
        return error(Code.INVALID_OBJECT, fault.path, f"{message}: {fault.missing} is missing")
    if not fault.expected_type:
        return error(
            Code.INVALID_QUANTITY,
            fault.path,
            f"{message}: not a quantity",
            _quantity_fix(fault),
        )
    fix = ""
    if fault.expected_type == "an object" and "attributes" in fault.path.steps[-2:-1]:
        kind = {bool: "bool", int: "int", str: "string"}.get(type(fault.value))
        fix = f"write {{{kind}: {_as_json(fault.value)}}}" if kind is not None else ""
    elif fault.expected_type == "an object" and "capacity" in fault.path.steps[-2:-1]:
        fix = f"write {{value: {_as_json(fault.value)}}}"
    elif fault.expected_type == "a string" and isinstance(fault.value, bool):
        fix = "put it in quotes; without them n, no and off are false, and y, yes and on are true"
    elif fault.expected_type == "a string" and isinstance(fault.value, int | float):
        fix = "put it in quotes"
    return error(Code.INVALID_OBJECT, fault.path, f"{message}: must be {fault.expected_type}", fix)


def _quantity_fix(fault: TypeFault) -> str:
    """Return the amount to write instead of a text that is none, if the text tells it.

    Kubernetes takes whole numbers without a unit of a resource whose name has a prefix.
    """
    (*_, last) = fault.path.steps or ("",)
    is_extended = isinstance(last, Key) and "/" in last.name
    match = _AMOUNT_WITH_UNIT.fullmatch(fault.value) if isinstance(fault.value, str) else None
    if match is None:
        return f"write a {'whole number' if is_extended else 'number, such as 1 or 500m or 8Gi'}"
    number, unit = match["number"], match["unit"]
    if unit == "%":
        return f"write {number}, without the percent sign"
    if not is_extended:
        return f"write {number}{unit[0].upper()}i"
    mib = int(number) * _MIB[unit[0].upper()]
    return f"write a whole number without a unit: {mib} where the key counts MiB"


def _as_json(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 3]}..."
