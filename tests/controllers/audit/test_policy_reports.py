"""Findings as reports of policies: grouped by namespace, bounded, and stable."""

import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pytest

from allocator.pods.duplicate_resources import DuplicateResource
from controllers.audit.policy_reports import (
    CATEGORY,
    LABELS,
    MAX_FIELD_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_RESULTS,
    OMITTED,
    REPORT_KINDS,
    REPORT_NAME,
    ReportedFinding,
    ReportKind,
    build_reports,
    is_current,
    keep_timestamps,
    report_document,
    report_duplicate,
)
from controllers.model.settings import ReportFormat
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, info, warning
from kube.api.meta import convert
from kube.api.policy_reports import PolicyReport, ReportSubject, Timestamp
from kube.api.urls import CLUSTER_REPORTS, REPORTS
from kube.quantity import Quantity
from testing.documents import api_object

NOW: Final = Timestamp(seconds=1_763_700_000, nanos=250_000_000)
LATER: Final = Timestamp(seconds=1_763_700_600, nanos=0)
COUNT: Final = FieldPath.of("spec", "devices", "requests", 0, "exactly", "count")
TOO_MANY: Final = error(Code.EXCEEDS_LARGEST_NODE, COUNT, "count 3 is more than 2", "request 2")
UNGUARDED: Final = warning(Code.UNGUARDED_SELECTOR, FieldPath.of("spec"), "fails on other drivers")
MAX_OBJECT_BYTES: Final = 1024 * 1024
"""A part of the 1.5 MiB that etcd stores; the rest is for the API server's additions."""
KINDS: Final = [kind for kinds in REPORT_KINDS.values() for kind in kinds]


def about(
    finding: Finding, *, namespace: str = "team-a", name: str = "large", kind: str = "ResourceClaim"
) -> ReportedFinding:
    subject = ReportSubject(
        api_version="resource.k8s.io/v1",
        kind=kind,
        namespace=namespace,
        name=name,
        uid="00000000-0000-4000-8000-000000000001",
    )
    return ReportedFinding(subject, finding)


def only_report(*findings: ReportedFinding) -> PolicyReport:
    (report,) = build_reports(findings, NOW).values()
    return report


def as_sent(kind: ReportKind, report: PolicyReport) -> Any:
    """Return the object of a report as JSON has it."""
    return json.loads(json.dumps(report_document(kind, report)))


# --- what a report says ---------------------------------------------------------------------------


def test_a_report_names_object_rule_field_and_fix() -> None:
    document = as_sent(ReportKind(REPORTS, "Report"), only_report(about(TOO_MANY)))

    assert document == api_object(
        "Report",
        REPORT_NAME,
        "team-a",
        api_version="openreports.io/v1alpha1",
        labels=LABELS,
        scope={"apiVersion": "v1", "kind": "Namespace", "name": "team-a"},
        summary={"pass": 0, "fail": 1, "warn": 0, "error": 0, "skip": 0},
        results=[
            {
                "source": "drawbridge",
                "policy": REPORT_NAME,
                "rule": "exceedsLargestNode",
                "category": CATEGORY,
                "severity": "high",
                "timestamp": {"seconds": 1_763_700_000, "nanos": 250_000_000},
                "result": "fail",
                "scored": True,
                "resources": [
                    {
                        "apiVersion": "resource.k8s.io/v1",
                        "kind": "ResourceClaim",
                        "namespace": "team-a",
                        "name": "large",
                        "uid": "00000000-0000-4000-8000-000000000001",
                    }
                ],
                "message": "count 3 is more than 2; request 2",
                "properties": {"field": "spec.devices.requests[0].exactly.count"},
            }
        ],
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_document_is_of_its_kind(kind: ReportKind) -> None:
    document = report_document(kind, only_report(about(TOO_MANY)))

    assert (document["apiVersion"], document["kind"]) == (
        f"{kind.resource.group}/{kind.resource.version}",
        kind.kind,
    )
    assert kind.kind.lower() + "s" == kind.resource.plural
    assert kind.kind.startswith("Cluster") is not kind.resource.namespaced


def test_each_namespace_has_a_report_and_cluster_scoped_objects_have_one() -> None:
    reports = build_reports(
        [
            about(TOO_MANY, namespace="team-b"),
            about(UNGUARDED, namespace="", kind="DeviceClass", name="gpu"),
            about(TOO_MANY, namespace="team-a"),
        ],
        NOW,
    )

    assert list(reports) == ["", "team-a", "team-b"]
    cluster = as_sent(ReportKind(CLUSTER_REPORTS, "ClusterReport"), reports[""])
    assert "namespace" not in cluster["metadata"]
    assert "scope" not in cluster
    assert cluster["results"][0]["resources"] == [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "name": "gpu",
            "uid": "00000000-0000-4000-8000-000000000001",
        }
    ]


@pytest.mark.parametrize(
    ("finding", "result", "severity", "scored"),
    [
        (TOO_MANY, "fail", "high", True),
        (UNGUARDED, "warn", "medium", False),
        (warning(Code.NOT_EVALUATED, FieldPath(), "too many steps"), "error", "low", False),
    ],
    ids=["an error", "a warning", "not evaluated"],
)
def test_a_result_follows_the_finding(
    finding: Finding, result: str, severity: str, *, scored: bool
) -> None:
    report = only_report(about(finding))
    (entry,) = report.results

    assert (entry.result, entry.severity, entry.scored) == (result, severity, scored)
    assert msgspec.to_builtins(report.summary)[result] == 1


def test_remarks_are_not_reported() -> None:
    assert build_reports([about(info(Code.DOES_NOT_FIT_NOW, COUNT, "waits"))], NOW) == {}


def test_a_resource_that_is_offered_twice_is_reported_of_the_node() -> None:
    duplicate = DuplicateResource(
        node="node-1",
        resource="example.com/gpu",
        allocatable=Quantity("4"),
        drivers=("gpu.example.com",),
        devices=4,
    )

    reports = build_reports([report_duplicate(duplicate)], NOW)

    (result,) = reports[""].results
    assert result.rule == "duplicateResource"
    assert result.resources == (ReportSubject(api_version="v1", kind="Node", name="node-1"),)
    assert result.properties == {"field": "status.allocatable[example.com/gpu]"}


# --- bounds and hostile texts ---------------------------------------------------------------------


def many(number: int) -> list[ReportedFinding]:
    return [about(UNGUARDED, name=f"claim-{index:04d}") for index in range(number)]


def test_a_report_is_bounded_and_says_how_many_results_are_left_out() -> None:
    report = only_report(*many(MAX_RESULTS + 20), about(TOO_MANY, name="zz-last"))

    *listed, omission = report.results
    assert len(listed) == MAX_RESULTS
    assert listed[0].resources[0].name == "zz-last"
    assert (omission.rule, omission.result, omission.resources) == (OMITTED, "skip", ())
    assert omission.message.startswith("21 more findings")
    assert msgspec.to_builtins(report.summary) == {
        "pass": 0,
        "fail": 1,
        "warn": MAX_RESULTS + 20,
        "error": 0,
        "skip": 1,
    }


def test_a_report_at_the_bound_leaves_nothing_out() -> None:
    report = only_report(*many(MAX_RESULTS))

    assert len(report.results) == MAX_RESULTS
    assert report.summary.skip == 0


@pytest.mark.parametrize(
    "text",
    ["\x1b[2J\x00", '"\\', "\u00e9", "\U0001f600", "\ud800", "\u2028", "a"],
    ids=["control", "quotes", "accents", "emoji", "lone surrogates", "separators", "letters"],
)
def test_the_largest_report_is_stored_whatever_its_texts_are(text: str) -> None:
    longest = text * (4096 // len(text))
    finding = error(Code.INVALID_SELECTOR, FieldPath.of(*[longest] * 8), longest, longest)
    name = "n" * 253
    report = only_report(
        *(
            about(finding, namespace="s" * 63, name=f"{index:03d}{name}"[:253])
            for index in range(999)
        )
    )

    document = as_sent(ReportKind(REPORTS, "Report"), report)

    assert len(msgspec.json.encode(document)) < MAX_OBJECT_BYTES
    for result in report.results:
        assert (result.message + "".join((result.properties or {}).values())).isprintable()
        assert len(result.message.encode()) <= MAX_MESSAGE_BYTES
        assert all(
            len(value.encode()) <= MAX_FIELD_BYTES for value in (result.properties or {}).values()
        )
    assert convert(document, PolicyReport) == report


# --- nothing new ----------------------------------------------------------------------------------


def as_stored(report: PolicyReport) -> PolicyReport:
    """Return a report as the API server gives it back."""
    document = as_sent(ReportKind(REPORTS, "Report"), report)
    document["metadata"] |= {"uid": "u", "resourceVersion": "7", "managedFields": [{}]}
    return convert(document, PolicyReport)


def rebuilt(findings: Iterable[ReportedFinding], before: PolicyReport) -> PolicyReport:
    """Return the report of the next audit."""
    (report,) = build_reports(findings, LATER).values()
    return keep_timestamps(report, before)


def test_findings_that_stay_the_same_are_no_news_in_any_order() -> None:
    findings = [*many(MAX_RESULTS + 5), about(TOO_MANY), about(TOO_MANY, name="larger")]
    before = as_stored(only_report(*findings))

    assert is_current(rebuilt(reversed(findings), before), before)


def test_a_new_finding_has_its_own_time_and_the_others_keep_theirs() -> None:
    before = as_stored(only_report(about(TOO_MANY)))

    after = rebuilt([about(TOO_MANY), about(UNGUARDED)], before)

    assert [result.timestamp for result in after.results] == [NOW, LATER]
    assert not is_current(after, before)


@pytest.mark.parametrize(
    "finding",
    [
        msgspec.structs.replace(TOO_MANY, detail="count 3 is more than 1"),
        msgspec.structs.replace(TOO_MANY, fix="request 1"),
        msgspec.structs.replace(TOO_MANY, path=FieldPath.of("spec")),
        msgspec.structs.replace(TOO_MANY, code=Code.NO_DEVICES),
        warning(TOO_MANY.code, TOO_MANY.path, TOO_MANY.message, TOO_MANY.fix),
    ],
    ids=["message", "fix", "path", "code", "severity"],
)
def test_a_finding_that_has_changed_is_news(finding: Finding) -> None:
    before = as_stored(only_report(about(TOO_MANY)))
    after = rebuilt([about(finding)], before)

    assert not is_current(after, before)
    assert after.results[0].timestamp == LATER


def test_a_report_that_somebody_changed_is_not_current() -> None:
    report = only_report(about(TOO_MANY))
    changed = msgspec.structs.replace(
        report, results=(msgspec.structs.replace(report.results[0], result="pass"),)
    )

    assert is_current(report, as_stored(report))
    assert not is_current(report, as_stored(changed))
    assert not is_current(report, None)


def test_no_format_has_no_kinds() -> None:
    assert {format_: len(kinds) for format_, kinds in REPORT_KINDS.items()} == {
        ReportFormat.NONE: 0,
        ReportFormat.OPEN_REPORTS: 2,
        ReportFormat.POLICY_REPORT: 2,
    }
