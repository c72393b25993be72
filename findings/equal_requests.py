"""The request beside a limit of the same extended resource. Pure.

The API server wants both to be equal. A translation reads the limits. So a person who mends only the limit would meet the request in the next denial.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from findings.checked_object import CheckedObject
from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding
from kube.errors import QuantityError
from kube.quantity import Quantity

Document = Mapping[str, Any]

IN_BOTH: Final = " in limits and requests"
_SAME: Final = "; write the same in requests"
OF_BOTH: Final = frozenset({Code.LIMIT_REQUIRED, Code.LIMIT_DIFFERS})
"""The findings about a request beside its limit, whose fixes name both."""
_OF_AMOUNTS: Final = frozenset(
    {Code.WRONG_UNIT, Code.NOT_AN_INTEGER, Code.NEGATIVE, Code.OUT_OF_RANGE}
)
"""The findings about an amount that is wrong in itself."""


def name_requests_of(objects: Iterable[CheckedObject]) -> Iterator[CheckedObject]:
    """Yield objects with the requests named in the fixes of their findings; arguments as of `name_requests`."""
    for checked in objects:
        findings = tuple(name_requests(checked.findings, checked.source.document))
        yield replace(checked, findings=findings)


def name_requests(findings: Iterable[Finding], document: Document) -> Iterator[Finding]:
    """Yield findings; the fix of an amount names the equal request, too.

    Args:
        document: The object as its author wrote it: the API server gives a pod the requests of its limits.
    """
    for finding in findings:
        is_of_amount = finding.corrections or (finding.is_error and finding.code in _OF_AMOUNTS)
        names_both = finding.code in OF_BOTH or finding.fix.endswith((IN_BOTH, _SAME))
        # What is left of a quota is one of several ways out, which stand after it.
        has_others = finding.fitting is not None and bool(finding.fitting.quota)
        if (
            finding.fix
            and is_of_amount
            and not (names_both or has_others)
            and equal_request(document, finding.path) is not None
        ):
            yield replace(finding, fix=f"{finding.fix}{_SAME}")
        else:
            yield finding


def equal_request(document: Document, limit: FieldPath) -> FieldPath | None:
    """Return the path of the request equal to a limit; None without one, and for a path of another field."""
    request = request_of(limit)
    amount = _quantity(value_at(document, limit))
    if request is None or amount is None or amount != _quantity(value_at(document, request)):
        return None
    return request


def request_of(limit: FieldPath) -> FieldPath | None:
    """Return the path of the request beside a limit; None for a path of another field."""
    *parents, section, key = ("", *limit.steps)
    if section != "limits" or not isinstance(key, Key):
        return None
    return FieldPath((*parents[1:], "requests", key))


def value_at(document: Document, path: FieldPath) -> Any:
    """Return the value at a path; None if there is none."""
    value: Any = document
    for step in path.steps:
        try:
            value = value[step.name if isinstance(step, Key) else step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _quantity(value: Any) -> Quantity | None:
    try:
        return Quantity(value) if isinstance(value, str | int) else None
    except QuantityError:
        return None
