"""Findings of the audit as reports of policies, in the kinds that policy engines use."""

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from controllers.audit.policy_reports import REPORT_KINDS, REPORT_NAME, ReportKind
from controllers.model.settings import ReportFormat
from e2e import report_definitions
from e2e.access import Access, Object
from e2e.drawbridge import CONTROLLER, Drawbridge
from e2e.small_inventory import add_nodes, asking, claim, class_of, created, gpu
from kube.api.urls import REPORTS
from kube.names import MANAGED_LABEL
from testing.documents import api_object, resource_quota
from testing.long_runs import beginning_with

TIMEOUT_S: Final = 90.0
CLASS: Final = "adopt-reports-everything"
DEVICES: Final = (gpu("gpu-0", "80Gi"), gpu("gpu-1", "80Gi"))
MERGE: Final = "application/merge-patch+json"
POLICY: Final = "its reports are called"
"""A part of the message of the policy that binds the account."""
BLIND: Final = ("ResourceQuota", "gpus", "claimsNotSeen")
QUIET_AUDITS: Final = 4
"""Audits in which nothing is new; one comes every three seconds."""


@pytest.fixture
def kinds(cluster: Access) -> Iterator[None]:
    """The kinds of both formats, for one story."""
    report_definitions.install(cluster)
    yield
    report_definitions.remove(cluster)


def quota(namespace: str) -> Object:
    """A quota that counts device keys, and so does not see claims."""
    return resource_quota({"requests.nvidia.com/gpu": "4"}, namespace=namespace)


def report_document(namespace: str, name: str, **labels: str) -> Object:
    """A report of somebody else."""
    return api_object(
        "Report",
        name,
        namespace,
        api_version="openreports.io/v1alpha1",
        labels=labels,
        summary={"pass": 7},
    )


def find_report(cluster: Access, kind: ReportKind, namespace: str = "") -> Object | None:
    """The report of a namespace, or of the cluster."""
    path = kind.resource.path(namespace=namespace, name=REPORT_NAME)
    status, body = cluster.request("GET", path)
    if status == http.client.NOT_FOUND:
        return None
    assert status == http.client.OK, body
    document: Object = json.loads(body)
    return document


def rules(report: Object | None) -> set[tuple[str, str, str]]:
    """Kind and name of the object, and the rule, of each result."""
    return {
        (result["resources"][0]["kind"], result["resources"][0]["name"], result["rule"])
        for result in (report or {}).get("results", ())
    }


def wait_rules(
    cluster: Access,
    kind: ReportKind,
    namespace: str,
    *expected: tuple[str, str, str],
    fail: int = 0,
) -> Object:
    """The report of a namespace, once it has exactly these results, and so many failures."""
    report: Object = {}

    def is_as_expected() -> bool:
        nonlocal report
        report = find_report(cluster, kind, namespace) or {}
        return rules(report) == {*expected} and report["summary"]["fail"] == fail

    cluster.wait_until(
        is_as_expected, f"the report of {namespace} has {expected}", timeout_s=TIMEOUT_S
    )
    return report


def wait_gone(cluster: Access, kind: ReportKind, namespace: str = "") -> None:
    """Wait until there is no report any more."""
    cluster.wait_until(
        lambda: find_report(cluster, kind, namespace) is None,
        f"the report of {namespace} is deleted",
        timeout_s=TIMEOUT_S,
    )


def wait_audits(cluster: Access, drawbridge: Drawbridge, number: int) -> None:
    """Return after so many more audits."""

    def audits() -> int:
        return drawbridge.log(CONTROLLER).count("audit.completed")

    before = audits()
    cluster.wait_until(
        lambda: audits() >= before + number, f"{number} more audits", timeout_s=TIMEOUT_S
    )


def reports_in_state(drawbridge: Drawbridge, state: str) -> int:
    """Return the number of reports that the metric counts."""
    line = rf'^drawbridge_audit_reports{{state="{state}"}} (\S+)$'
    match = re.search(line, drawbridge.metrics(CONTROLLER), re.MULTILINE)
    return int(float(match[1])) if match else 0


def audited(report_format: ReportFormat) -> dict[str, Any]:
    """The setting, as in a file."""
    return {"controllers": {"auditReports": report_format.value}}


@pytest.mark.parametrize(
    "report_format", beginning_with(1, [ReportFormat.OPEN_REPORTS, ReportFormat.POLICY_REPORT])
)
def test_findings_are_reported_until_they_are_cured(
    cluster: Access,
    drawbridge: Drawbridge,
    namespace: str,
    kinds: None,
    report_format: ReportFormat,
) -> None:
    of_namespace, of_cluster = REPORT_KINDS[report_format]
    large = ("ResourceClaim", "wanted", "exceedsLargestNode")
    # The high-water mark remembers what a driver has published.
    driver = f"{report_format.lower()}.adopt.example.com"
    cluster.apply([class_of(driver), quota(namespace)])
    # Before there are devices, nothing proves that the claim is too large.
    assert created(cluster, claim(asking(driver, count=3)), namespace)[0] == 0
    nodes = add_nodes(cluster, driver, {f"adopt-{report_format.lower()}": DEVICES})
    try:
        with drawbridge.configured(audited(report_format)):
            report = wait_rules(cluster, of_namespace, namespace, large, BLIND, fail=1)
            assert report["kind"] == of_namespace.kind
            assert report["metadata"]["labels"][MANAGED_LABEL] == "true"
            assert report["summary"] == {"pass": 0, "fail": 1, "warn": 1, "error": 0, "skip": 0}
            assert {entry["manager"] for entry in report["metadata"]["managedFields"]} == {
                REPORT_NAME
            }
            (failure, _) = report["results"]
            assert failure["properties"] == {"field": "spec.devices.requests[0].exactly.count"}
            assert failure["resources"][0]["namespace"] == namespace

            # Nothing new: nothing is written.
            wait_audits(cluster, drawbridge, QUIET_AUDITS)
            unchanged = find_report(cluster, of_namespace, namespace)
            assert unchanged is not None
            assert unchanged["metadata"]["resourceVersion"] == report["metadata"]["resourceVersion"]

            cluster.apply({**class_of(driver, name=CLASS), "spec": {}})
            in_cluster = ("DeviceClass", CLASS, "selectsEverything")
            cluster.wait_until(
                lambda: in_cluster in rules(find_report(cluster, of_cluster)),
                "the class is in the report of the cluster",
                timeout_s=TIMEOUT_S,
            )
            cluster.kubectl("delete", "deviceclass", CLASS)
            cluster.wait_until(
                lambda: in_cluster not in rules(find_report(cluster, of_cluster)),
                "the class is not in the report of the cluster any more",
                timeout_s=TIMEOUT_S,
            )

            cluster.kubectl("delete", "resourceclaim", "wanted", "-n", namespace)
            wait_rules(cluster, of_namespace, namespace, BLIND)
            cluster.kubectl("delete", "resourcequota", "gpus", "-n", namespace)
            wait_gone(cluster, of_namespace, namespace)

            cluster.apply(quota(namespace))
            wait_rules(cluster, of_namespace, namespace, BLIND)
        # Without the setting, what it made is deleted.
        wait_gone(cluster, of_namespace, namespace)
        wait_gone(cluster, of_cluster)
    finally:
        cluster.remove_nodes(nodes)
        cluster.kubectl("delete", "deviceclass", driver, CLASS, "--ignore-not-found")


@pytest.mark.long
def test_other_writers_are_left_alone(
    cluster: Access, drawbridge: Drawbridge, namespace: str, kinds: None
) -> None:
    of_namespace, _ = REPORT_KINDS[ReportFormat.OPEN_REPORTS]
    here = ("reports.openreports.io", "-n", namespace)
    cluster.apply([quota(namespace), report_document(namespace, "cpol-limits")])
    foreign = cluster.get("reports.openreports.io", "cpol-limits", namespace)
    with drawbridge.configured(audited(ReportFormat.OPEN_REPORTS)):
        wait_rules(cluster, of_namespace, namespace, BLIND)
        patch = json.dumps({"summary": {"warn": 99}})
        cluster.kubectl("patch", *here, REPORT_NAME, "--type=merge", "-p", patch)
        cluster.wait_until(
            lambda: reports_in_state(drawbridge, "conflict") == 1,
            "the conflict is counted",
            timeout_s=TIMEOUT_S,
        )
        changed = find_report(cluster, of_namespace, namespace)
        assert changed is not None
        assert changed["summary"]["warn"] == 99

        cluster.kubectl("delete", *here, REPORT_NAME)
        cluster.wait_until(
            lambda: reports_in_state(drawbridge, "conflict") == 0,
            "there is no conflict any more",
            timeout_s=TIMEOUT_S,
        )
        assert wait_rules(cluster, of_namespace, namespace, BLIND)["summary"]["warn"] == 1
        assert cluster.get("reports.openreports.io", "cpol-limits", namespace) == foreign


def test_the_account_changes_no_report_but_ours(
    cluster: Access, drawbridge: Drawbridge, namespace: str, kinds: None
) -> None:
    account = f"system:serviceaccount:{drawbridge.namespace}:{CONTROLLER}"
    # The first audit of a leader deletes what an earlier setting has left.
    wait_audits(cluster, drawbridge, 2)
    cluster.apply([report_document(namespace, "others"), report_document(namespace, REPORT_NAME)])
    mine = {MANAGED_LABEL: "true"}

    def answer(method: str, name: str = "", document: Object | None = None) -> str:
        status, body = cluster.request(
            method,
            REPORTS.path(namespace=namespace, name=name),
            document,
            content_type=MERGE if method == "PATCH" else "application/json",
            user=account,
        )
        return "" if status < http.client.BAD_REQUEST else body.decode()

    change: Object = {"summary": {"pass": 0}}
    for document in (
        report_document(namespace, "another", **mine),
        report_document(namespace, "another"),
    ):
        assert POLICY in answer("POST", document=document)
    assert "cannot patch resource" in answer("PATCH", "others", change)
    assert "cannot delete resource" in answer("DELETE", "others")
    # Of our name, but without our label.
    assert POLICY in answer("PATCH", REPORT_NAME, change)
    assert POLICY in answer("PATCH", REPORT_NAME, {"metadata": {"labels": mine}})
    assert POLICY in answer("DELETE", REPORT_NAME)

    cluster.kubectl("delete", "reports.openreports.io", "-n", namespace, REPORT_NAME)
    assert POLICY in answer("POST", document=report_document(namespace, REPORT_NAME))
    assert answer("POST", document=report_document(namespace, REPORT_NAME, **mine)) == ""
    assert POLICY in answer("PATCH", REPORT_NAME, {"metadata": {"labels": None}})
    assert answer("PATCH", REPORT_NAME, change) == ""
    assert answer("DELETE", REPORT_NAME) == ""


@pytest.mark.long
def test_a_kind_that_is_installed_later_is_used_then(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    of_namespace, _ = REPORT_KINDS[ReportFormat.OPEN_REPORTS]
    cluster.apply(quota(namespace))
    log_before = len(drawbridge.log(CONTROLLER))
    with drawbridge.configured(audited(ReportFormat.OPEN_REPORTS)):
        cluster.wait_until(
            lambda: reports_in_state(drawbridge, "notServed") >= 1,
            "it is counted that nothing serves the report",
            timeout_s=TIMEOUT_S,
        )
        wait_audits(cluster, drawbridge, QUIET_AUDITS)
        complaints = [
            line
            for line in drawbridge.log(CONTROLLER)[log_before:].splitlines()
            if "reports.not_written" in line and '"Report"' in line
        ]
        # Once by each leader; the same one leads nearly always.
        assert 1 <= len(complaints) < QUIET_AUDITS
        try:
            report_definitions.install(cluster)
            wait_rules(cluster, of_namespace, namespace, BLIND)
        finally:
            report_definitions.remove(cluster)
