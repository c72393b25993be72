"""Typed views of the documents in files, or findings with the reason there is none.

Files have not been through an API server, so their values may have any type. A view is made as the
API server decodes: null means absent, and everything else must have its type. A document of an older
API version is viewed as one of the current version, and findings are in its own terms.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from answers.model.kinds import Kinds
from answers.model.type_faults import TypeFault, type_faults
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from kube.api.conversion import current_version, to_current_version, to_original_path
from kube.api.meta import ApiStruct, convert
from kube.manifests.source import SourceObject, ViewedObject
from translation.model.amounts import invalid_amount

T = TypeVar("T", bound=ApiStruct)

_AMOUNTS: Final = frozenset({"limits", "requests"})
"""Objects that map names of resources to amounts."""
_MAX_VALUE: Final = 80
"""Characters of a wrong value in a message."""


def view_type(source: SourceObject | ViewedObject, kinds: Kinds) -> type[ApiStruct] | None:
    """Return the view of an object in any version; None for other kinds."""
    return kinds.get((current_version(source.api_version, source.kind), source.kind))


def decode_object(source: SourceObject, kind: type[T]) -> T | list[Finding]:
    """Return an object as a view, or a finding for every value of the wrong type."""
    value = decode_view(to_current_version(source.document), kind)
    return original_paths(value, source) if isinstance(value, list) else value


def original_paths(findings: Iterable[Finding], source: SourceObject) -> list[Finding]:
    """Return findings on the converted object with paths into the original one."""

    def original_path(path: FieldPath) -> FieldPath:
        return FieldPath(to_original_path(path.steps, source.api_version, source.kind))

    return [finding.relocated(original_path) for finding in findings]


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
        return invalid_amount(fault.path, fault.value, _as_json(fault.value))
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


def _as_json(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 3]}..."
