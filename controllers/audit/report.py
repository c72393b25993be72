"""The findings of the audit about stored objects, and their events. Pure.

Whatever was admitted before a rule existed, or while the webhook was away, stays as it is; here it is
told. Only what would be denied is told beside the object; the rest is counted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from allocator.pods.claims import allocation_of
from allocator.pods.duplicate_resources import DuplicateResource
from clusterstate.kinds import Kind
from findings.finding import Code, Finding, Severity
from kube.api.events import Event, ObjectReference
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from rules.context.context import Context
from rules.engine.engine import Target, validate

AUDITED: Final[Mapping[Kind, str]] = {
    Kind.CLASS: "DeviceClass",
    Kind.SLICE: "ResourceSlice",
    Kind.TEMPLATE: "ResourceClaimTemplate",
    Kind.CLAIM: "ResourceClaim",
}
"""The kinds that are audited. DeviceCompatibilityPolicies say it in their conditions."""
API_VERSION: Final = "resource.k8s.io/v1"
ACTION: Final = "Audit"

FindingKey = tuple[str, str, str]
"""Kind, severity and code."""

Audited = DeviceClass | ResourceSlice | ResourceClaimTemplate | ResourceClaim


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one evaluation of all objects.

    Attributes:
        objects: Kind to how many were looked at.
        findings: Kind, severity and code to how often.
    """

    objects: Mapping[str, int]
    findings: Mapping[FindingKey, int]


def findings_of(audited_object: Audited, context: Context) -> tuple[Finding, ...]:
    """Return the findings of the rules about a stored object; nothing if it has its devices."""
    if isinstance(audited_object, ResourceClaim) and allocation_of(audited_object) is not None:
        return ()
    metadata = audited_object.metadata
    target = Target(view=audited_object, metadata=metadata, namespace=metadata.namespace)
    return validate(target, context)


def event_of(kind: str, audited_object: Audited, findings: Iterable[Finding]) -> Event | None:
    """Return the event about an object; None if nothing would deny it."""
    errors = tuple(finding for finding in findings if finding.is_error)
    if not errors:
        return None
    code = errors[0].code.value
    return Event(
        regarding=ObjectReference.of(API_VERSION, kind, audited_object.metadata),
        reason=code[0].upper() + code[1:],
        action=ACTION,
        note=_note(errors),
        # Without messages, in which numbers change.
        identity="\n".join(sorted(f"{finding.code} {finding.path}" for finding in errors)),
    )


def tally(
    findings_by_object: Iterable[tuple[str, tuple[Finding, ...]]],
    others: Mapping[FindingKey, int] | None = None,
) -> Tally:
    """Count the findings about objects.

    Args:
        findings_by_object: Kind and findings of each object.
        others: Findings about objects that are not validated, as `Tally.findings` has them.
    """
    objects: Counter[str] = Counter()
    findings: Counter[FindingKey] = Counter(others)
    for kind, object_findings in findings_by_object:
        objects[kind] += 1
        findings.update(
            (kind, finding.severity.value, finding.code.value) for finding in object_findings
        )
    return Tally(objects=objects, findings=findings)


def count_duplicates(duplicates: Collection[DuplicateResource]) -> Mapping[FindingKey, int]:
    """Return the findings about nodes, one for each resource that a node offers twice."""
    key = ("Node", Severity.WARNING.value, Code.DUPLICATE_RESOURCE.value)
    return {key: len(duplicates)} if duplicates else {}


def _note(findings: tuple[Finding, ...]) -> str:
    return ". ".join(f"{finding.path}: {finding.advice}" for finding in findings)
