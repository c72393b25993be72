"""The findings of an audit as reports of policies, for dashboards of several projects. Pure.

The findings about the objects of a namespace are one report, those about cluster-scoped objects another;
without findings there is none. Remarks are not reported. A finding keeps the time at which it was first
reported, so that a report in which nothing is new stays as it is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from allocator.pods.duplicate_resources import DuplicateResource
from controllers.model.settings import ReportFormat
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity, warning
from findings.text import printable, quote_text, shorten_encoded
from kube.api.meta import ObjectMeta
from kube.api.policy_reports import (
    PolicyReport,
    ReportResult,
    ReportSubject,
    ReportSummary,
    Timestamp,
)
from kube.api.urls import (
    CLUSTER_POLICY_REPORTS,
    CLUSTER_REPORTS,
    POLICY_REPORTS,
    REPORTS,
    Resource,
)
from kube.names import MANAGED_LABEL, NAME

REPORT_NAME: Final = f"{NAME}-audit"
"""The name of every report."""
LABELS: Final[Mapping[str, str]] = {
    "app.kubernetes.io/managed-by": NAME,
    MANAGED_LABEL: "true",
}
CATEGORY: Final = "Dynamic Resource Allocation"
OMITTED: Final = "resultsOmitted"
"""The rule of the result that stands for those above the bound."""
MAX_RESULTS: Final = 250
"""Results about objects in one report. With texts as long as they may be, these are less than a MiB of
the 1.5 that an object of the API may have."""
MAX_MESSAGE_BYTES: Final = 1024
MAX_FIELD_BYTES: Final = 512

_OUTCOMES: Final[Mapping[Severity, tuple[str, str]]] = {
    Severity.ERROR: ("fail", "high"),
    Severity.WARNING: ("warn", "medium"),
}
"""Severity of a finding to result and severity in a report."""
_NOT_EVALUATED: Final = frozenset({Code.NOT_EVALUATED, Code.PARTIALLY_EVALUATED})
"""Codes that say of an object only that it was not, or not wholly, evaluated."""


class ReportKind(NamedTuple):
    """A kind of reports; its resource has or lacks a namespace."""

    resource: Resource
    kind: str


REPORT_KINDS: Final[Mapping[ReportFormat, tuple[ReportKind, ...]]] = {
    ReportFormat.NONE: (),
    ReportFormat.OPEN_REPORTS: (
        ReportKind(REPORTS, "Report"),
        ReportKind(CLUSTER_REPORTS, "ClusterReport"),
    ),
    ReportFormat.POLICY_REPORT: (
        ReportKind(POLICY_REPORTS, "PolicyReport"),
        ReportKind(CLUSTER_POLICY_REPORTS, "ClusterPolicyReport"),
    ),
}
"""Format to the kinds for namespaces and for cluster-scoped objects."""


class ReportedFinding(NamedTuple):
    """A finding and the object that it is about."""

    subject: ReportSubject
    finding: Finding


def report_duplicate(duplicate: DuplicateResource) -> ReportedFinding:
    """Return the finding about a node that offers a resource twice."""
    resource = quote_text(duplicate.resource)
    finding = warning(
        Code.DUPLICATE_RESOURCE,
        FieldPath.of("status", "allocatable").key(duplicate.resource),
        f"{resource} is offered by a device plugin, and as devices of "
        f"{' and '.join(duplicate.drivers)}: one device can be given to two pods",
        "stop the device plugin on this node",
    )
    subject = ReportSubject(api_version="v1", kind="Node", name=duplicate.node)
    return ReportedFinding(subject, finding)


def build_reports(findings: Iterable[ReportedFinding], now: Timestamp) -> dict[str, PolicyReport]:
    """Return namespace to its report, sorted; the report about cluster-scoped objects has no namespace.

    Args:
        findings: The findings of one audit.
        now: The time of the findings.
    """
    by_namespace: dict[str, list[ReportedFinding]] = {}
    for reported in findings:
        if reported.finding.severity in _OUTCOMES:
            by_namespace.setdefault(reported.subject.namespace, []).append(reported)
    return {
        namespace: _report(namespace, by_namespace[namespace], now)
        for namespace in sorted(by_namespace)
    }


def keep_timestamps(report: PolicyReport, stored_report: PolicyReport | None) -> PolicyReport:
    """Return a report with the times of the same results in the stored one."""
    if stored_report is None:
        return report
    times = {_timeless(result): result.timestamp for result in stored_report.results}
    results = tuple(
        msgspec.structs.replace(result, timestamp=times.get(_timeless(result)) or result.timestamp)
        for result in report.results
    )
    return msgspec.structs.replace(report, results=results)


def is_current(report: PolicyReport, stored_report: PolicyReport | None) -> bool:
    """Return True if a stored report has the content that it should have."""
    return stored_report is not None and (report.scope, report.summary, report.results) == (
        stored_report.scope,
        stored_report.summary,
        stored_report.results,
    )


def report_document(kind: ReportKind, report: PolicyReport) -> dict[str, Any]:
    """Return the object of a report."""
    group, version = kind.resource.group, kind.resource.version
    document: dict[str, Any] = msgspec.to_builtins(report)
    return {"apiVersion": f"{group}/{version}", "kind": kind.kind, **document}


def _report(namespace: str, findings: Sequence[ReportedFinding], now: Timestamp) -> PolicyReport:
    # The worst come first, since those above the bound are left out.
    ordered = sorted(findings, key=_order)
    counts = Counter(_outcome(reported.finding)[0] for reported in findings)
    results = [_result(reported, now) for reported in ordered[:MAX_RESULTS]]
    omitted = len(ordered) - len(results)
    if omitted:
        results.append(_omission(omitted, now))
    return PolicyReport(
        metadata=ObjectMeta(name=REPORT_NAME, namespace=namespace, labels=LABELS),
        scope=ReportSubject(api_version="v1", kind="Namespace", name=namespace)
        if namespace
        else None,
        summary=ReportSummary(
            passed=0,
            fail=counts["fail"],
            warn=counts["warn"],
            error=counts["error"],
            skip=1 if omitted else 0,
        ),
        results=tuple(results),
    )


def _outcome(finding: Finding) -> tuple[str, str]:
    """Return result and severity in a report."""
    return ("error", "low") if finding.code in _NOT_EVALUATED else _OUTCOMES[finding.severity]


def _order(reported: ReportedFinding) -> tuple[bool, str, str, str, str, str]:
    subject, finding = reported
    return (
        not finding.is_error,
        subject.kind,
        subject.name,
        finding.code.value,
        str(finding.path),
        finding.message,
    )


def _result(reported: ReportedFinding, now: Timestamp) -> ReportResult:
    subject, finding = reported
    result, severity = _outcome(finding)
    field = shorten_encoded(str(finding.path), MAX_FIELD_BYTES)
    text = finding.advice
    return ReportResult(
        source=NAME,
        policy=REPORT_NAME,
        rule=finding.code.value,
        category=CATEGORY,
        severity=severity,
        timestamp=now,
        result=result,
        scored=finding.is_error,
        resources=(subject,),
        message=shorten_encoded(printable(text), MAX_MESSAGE_BYTES),
        properties={"field": field} if field else None,
    )


def _omission(number: int, now: Timestamp) -> ReportResult:
    return ReportResult(
        source=NAME,
        policy=REPORT_NAME,
        rule=OMITTED,
        category=CATEGORY,
        severity="info",
        timestamp=now,
        result="skip",
        message=f"{number} more findings, which the summary counts, are not listed: a report lists "
        f"{MAX_RESULTS}; fix these first",
    )


def _timeless(result: ReportResult) -> bytes:
    """Return the identity of a result, independent of its time."""
    return msgspec.json.encode(msgspec.structs.replace(result, timestamp=None), order="sorted")
