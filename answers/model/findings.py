"""Findings with the objects that they are about, as JSON and as one line each."""

from collections.abc import Iterable, Sequence

import msgspec

from answers.model.kinds import CLUSTER_SCOPED
from findings.finding import Finding
from findings.text import count_text, printable, reference_text
from kube.api.foreign_quotas import BY_TYPE
from kube.manifests.source import SourceObject, ViewedObject

DEFAULT_NAMESPACE = "default"


class FindingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as `-o json` prints it; `object` is always `Kind/namespace/name`.

    Attributes:
        reasons: The reasons against the devices, by group of nodes.
    """

    severity: str
    code: str
    message: str
    fix: str
    object: str
    path: str
    reasons: tuple[str, ...] = ()


class ObjectFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, and the object that it is about as `Kind/namespace/name`."""

    object: str
    finding: Finding

    def document(self) -> FindingDocument:
        """Return the finding as a value for `-o json`."""
        return FindingDocument(
            severity=self.finding.severity.value,
            code=self.finding.code.value,
            message=self.finding.message,
            fix=self.finding.fix,
            object=self.object,
            path=str(self.finding.path),
            reasons=self.finding.reasons,
        )

    def line(self) -> str:
        """Return the finding as one line of text without control characters."""
        # An object without a namespace is `Kind/name` in text; scripts always get three parts.
        name = reference_text(self.object)
        return printable(f"{self.finding.severity}: {name}: {finding_text(self.finding)}")


def finding_text(finding: Finding) -> str:
    """Return the place, message, fix, reasons and code of a finding as one line, without its object."""
    place = "" if finding.path.is_root else f"{finding.path}: "
    return printable(f"{place}{finding.advice} [{finding.code}]")


def namespace_of(source: SourceObject | ViewedObject, default: str) -> str:
    """Return the namespace of an object; empty for a kind without namespaces."""
    foreign = BY_TYPE.get((source.api_version, source.kind))
    if source.kind in CLUSTER_SCOPED or (foreign is not None and not foreign.namespaced):
        return ""
    return source.namespace or default


def reference(source: SourceObject | ViewedObject, default: str) -> str:
    """Return `Kind/namespace/name`, with generateName as it is written."""
    return f"{source.kind}/{namespace_of(source, default)}/{source.name}"


def has_errors(findings: Iterable[ObjectFinding]) -> bool:
    """Return True if any object is rejected."""
    return any(entry.finding.is_error for entry in findings)


def describe_rejection(findings: Sequence[Finding]) -> str:
    """Return the first error of a rejected object, or the first reason of a waiting one, and the number of others."""
    errors = [finding for finding in findings if finding.is_error]
    reasons = errors or findings
    if not reasons:
        return "it was rejected"
    more = count_text(len(reasons) - 1, "more error" if errors else "more reason")
    return finding_text(reasons[0]) + (f" and {more}" if len(reasons) > 1 else "")
