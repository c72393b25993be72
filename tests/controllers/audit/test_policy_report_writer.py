"""Reports of policies in an API server: written when they say something new, deleted when nothing."""

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from controllers.audit.policy_report_writer import FIELD_MANAGER, PAGE, PolicyReportWriter
from controllers.audit.policy_reports import LABELS, REPORT_KINDS, REPORT_NAME, ReportedFinding
from controllers.model.settings import ReportFormat
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.api.policy_reports import ReportSubject
from kube.api.urls import CLUSTER_POLICY_REPORTS, CLUSTER_REPORTS, POLICY_REPORTS, REPORTS
from kube.client.client import Client
from testing.fake_api_server import Call, FakeApiServer

TOO_MANY: Final = error(Code.EXCEEDS_LARGEST_NODE, FieldPath.of("spec"), "count 3 is more than 2")
SELECTS_ALL: Final = warning(Code.SELECTS_EVERYTHING, FieldPath.of("spec"), "no selectors")
BEGIN: Final = datetime(2026, 11, 20, tzinfo=UTC)
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def claim(namespace: str, finding: Finding = TOO_MANY) -> ReportedFinding:
    subject = ReportSubject(
        api_version="resource.k8s.io/v1", kind="ResourceClaim", namespace=namespace, name="large"
    )
    return ReportedFinding(subject, finding)


DEVICE_CLASS: Final = ReportedFinding(
    ReportSubject(api_version="resource.k8s.io/v1", kind="DeviceClass", name="all"), SELECTS_ALL
)


class Audits:
    """A writer, the server that it writes to, and a clock that an audit moves."""

    def __init__(self, server: FakeApiServer, client: Client, report_format: ReportFormat) -> None:
        self.server = server
        self.states: Mapping[str, int] = {}
        self._now = BEGIN
        self._writer = PolicyReportWriter(client, report_format, self._show, now=lambda: self._now)

    async def audit(self, *findings: ReportedFinding) -> list[tuple[str, str]]:
        """Report the findings of an audit; return method and path of each write."""
        before = len(self.server.calls)
        await self._writer.write(findings)
        self._now += timedelta(minutes=10)
        return [
            (call.method, call.path) for call in self.server.calls[before:] if call.method in WRITES
        ]

    def counts(self) -> dict[str, int]:
        """Return the states that some reports have."""
        return {state: number for state, number in self.states.items() if number}

    def _show(self, states: Mapping[str, int]) -> None:
        self.states = states


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        yield api_server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with server.client() as open_client:
        yield open_client


@pytest.fixture
def audits(server: FakeApiServer, client: Client) -> Audits:
    return Audits(server, client, ReportFormat.OPEN_REPORTS)


def namespaces(documents: Iterable[Mapping[str, Any]]) -> list[str]:
    return [document["metadata"].get("namespace", "") for document in documents]


def writes_to(path: str) -> Any:
    return lambda call: call.method in WRITES and path in call.path


def lists(plural: str) -> Any:
    def matches(call: Call) -> bool:
        return call.method == "GET" and call.path.endswith(f"/{plural}")

    return matches


# --- written and deleted --------------------------------------------------------------------------


@pytest.mark.parametrize("report_format", [ReportFormat.OPEN_REPORTS, ReportFormat.POLICY_REPORT])
async def test_a_namespace_and_the_cluster_get_a_report(
    server: FakeApiServer, client: Client, report_format: ReportFormat
) -> None:
    audits = Audits(server, client, report_format)

    await audits.audit(claim("team-a"), claim("team-b"), DEVICE_CLASS)

    namespaced, of_cluster = REPORT_KINDS[report_format]
    assert namespaces(server.objects(namespaced.resource)) == ["team-a", "team-b"]
    (report,) = server.objects(of_cluster.resource)
    assert (report["apiVersion"], report["kind"]) == (
        f"{of_cluster.resource.group}/{of_cluster.resource.version}",
        of_cluster.kind,
    )
    assert report["results"][0]["timestamp"] == {"seconds": int(BEGIN.timestamp()), "nanos": 0}
    assert audits.counts() == {"current": 3}


async def test_a_report_is_applied_without_force_under_our_name(
    server: FakeApiServer, audits: Audits
) -> None:
    await audits.audit(claim("team-a"))

    (write,) = (call for call in server.calls if call.method == "PATCH")
    assert write.content_type == "application/apply-patch+yaml"
    assert dict(write.query) == {"fieldManager": FIELD_MANAGER, "force": "false"}


async def test_nothing_is_written_while_nothing_is_new(audits: Audits) -> None:
    await audits.audit(claim("team-a"), DEVICE_CLASS)

    assert await audits.audit(claim("team-a"), DEVICE_CLASS) == []
    assert audits.counts() == {"current": 2}


async def test_the_next_leader_writes_nothing_either(
    server: FakeApiServer, client: Client, audits: Audits
) -> None:
    await audits.audit(claim("team-a"))

    next_leader = Audits(server, client, ReportFormat.OPEN_REPORTS)
    assert await next_leader.audit(claim("team-a")) == []


async def test_a_new_finding_is_written_and_the_old_one_keeps_its_time(
    server: FakeApiServer, audits: Audits
) -> None:
    await audits.audit(claim("team-a"))
    await audits.audit(claim("team-a"), claim("team-a", SELECTS_ALL))

    (report,) = server.objects(REPORTS)
    assert [result["timestamp"]["seconds"] for result in report["results"]] == [
        int(BEGIN.timestamp()),
        int(BEGIN.timestamp()) + 600,
    ]


async def test_a_report_without_findings_is_deleted(server: FakeApiServer, audits: Audits) -> None:
    await audits.audit(claim("team-a"), claim("team-b"), DEVICE_CLASS)

    assert await audits.audit(claim("team-b")) == [
        ("DELETE", f"/apis/openreports.io/v1alpha1/namespaces/team-a/reports/{REPORT_NAME}"),
        ("DELETE", f"/apis/openreports.io/v1alpha1/clusterreports/{REPORT_NAME}"),
    ]
    assert namespaces(server.objects(REPORTS)) == ["team-b"]
    assert audits.counts() == {"current": 1}


async def test_a_report_that_somebody_deleted_is_written_again(
    server: FakeApiServer, audits: Audits
) -> None:
    await audits.audit(claim("team-a"))
    server.remove(REPORTS, REPORT_NAME, "team-a")

    await audits.audit(claim("team-a"))

    assert namespaces(server.objects(REPORTS)) == ["team-a"]


async def test_more_reports_than_a_page_are_kept(audits: Audits) -> None:
    findings = [claim(f"team-{number:02d}") for number in range(2 * PAGE + 1)]
    await audits.audit(*findings)

    assert await audits.audit(*findings) == []
    assert len(await audits.audit(*findings[1:])) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ReportFormat.OPEN_REPORTS, ReportFormat.NONE),
        (ReportFormat.OPEN_REPORTS, ReportFormat.POLICY_REPORT),
        (ReportFormat.POLICY_REPORT, ReportFormat.NONE),
        (ReportFormat.POLICY_REPORT, ReportFormat.OPEN_REPORTS),
    ],
)
async def test_the_reports_of_another_setting_are_deleted_once(
    server: FakeApiServer, client: Client, before: ReportFormat, after: ReportFormat
) -> None:
    await Audits(server, client, before).audit(claim("team-a"), DEVICE_CLASS)
    audits = Audits(server, client, after)

    await audits.audit(claim("team-a"), DEVICE_CLASS)
    for kind in REPORT_KINDS[before]:
        assert server.objects(kind.resource) == []
    for kind in REPORT_KINDS[after]:
        assert len(server.objects(kind.resource)) == 1

    server.calls.clear()
    await audits.audit(claim("team-a"), DEVICE_CLASS)
    assert len(server.calls) == len(REPORT_KINDS[after])


async def test_former_reports_that_cannot_be_deleted_are_deleted_after_the_next_audit(
    server: FakeApiServer, client: Client
) -> None:
    await Audits(server, client, ReportFormat.OPEN_REPORTS).audit(claim("team-a"), DEVICE_CLASS)
    audits = Audits(server, client, ReportFormat.NONE)
    server.fail(500, matches=lists("reports"))
    server.fail(500, matches=writes_to("/clusterreports/"))

    await audits.audit()
    assert len(server.objects(REPORTS)) == len(server.objects(CLUSTER_REPORTS)) == 1

    await audits.audit()
    assert server.objects(REPORTS) == server.objects(CLUSTER_REPORTS) == []


# --- other writers --------------------------------------------------------------------------------


def foreign(name: str, namespace: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "summary": {"pass": 7},
    }


async def test_the_reports_of_others_are_left_alone(server: FakeApiServer, audits: Audits) -> None:
    others = [
        server.put(REPORTS, foreign("cpol-require-limits", "team-a")),
        server.put(REPORTS, foreign("another", "team-b", **LABELS)),
        server.put(REPORTS, foreign(REPORT_NAME, "team-c")),
    ]

    assert await audits.audit() == []
    assert server.objects(REPORTS) == sorted(
        others, key=lambda report: report["metadata"]["namespace"]
    )


async def test_what_another_writer_changed_stays_and_is_reported_once(
    server: FakeApiServer, audits: Audits
) -> None:
    server.fail(409, times=2, matches=writes_to("team-a"))
    with capture_logs() as logs:
        await audits.audit(claim("team-a"), claim("team-b"))
        assert audits.counts() == {"conflict": 1, "current": 1}
        await audits.audit(claim("team-a"), claim("team-b"))

    (line,) = logs
    assert (line["event"], line["namespace"], line["state"]) == (
        "report.not_written",
        "team-a",
        "conflict",
    )
    await audits.audit(claim("team-a"), claim("team-b"))
    assert audits.counts() == {"current": 2}


async def test_a_report_that_was_made_something_else_is_applied_again(
    server: FakeApiServer, audits: Audits
) -> None:
    await audits.audit(claim("team-a"))
    (report,) = server.objects(REPORTS)
    report["results"][0]["timestamp"] = "yesterday"
    server.put(REPORTS, report)

    await audits.audit(claim("team-a"))

    (report,) = server.objects(REPORTS)
    assert report["results"][0]["timestamp"]["seconds"] == int(BEGIN.timestamp()) + 600


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 404])
async def test_a_kind_that_is_not_served_is_reported_once(
    server: FakeApiServer, audits: Audits, status: int
) -> None:
    server.fail(status, times=2, matches=lists("reports"))
    with capture_logs() as logs:
        assert await audits.audit(claim("team-a")) == []
        assert audits.counts() == {"notServed": 1}
        assert await audits.audit(claim("team-a"), claim("team-b")) == []
        assert audits.counts() == {"notServed": 2}

    (line,) = logs
    assert (line["event"], line["kind"], line["state"]) == (
        "reports.not_written",
        "Report",
        "notServed",
    )
    await audits.audit(claim("team-a"))
    assert audits.counts() == {"current": 1}


async def test_a_kind_that_is_gone_again_is_reported_again(
    server: FakeApiServer, audits: Audits
) -> None:
    with capture_logs() as logs:
        for _ in range(2):
            server.fail(404, matches=lists("clusterreports"))
            await audits.audit()
            await audits.audit()

    assert len(logs) == 2


async def test_one_report_that_is_rejected_does_not_keep_the_others_from_being_written(
    server: FakeApiServer, audits: Audits
) -> None:
    server.fail(422, matches=writes_to("team-a"))

    await audits.audit(claim("team-a"), claim("team-b"), DEVICE_CLASS)

    assert audits.counts() == {"failed": 1, "current": 2}
    await audits.audit(claim("team-a"), claim("team-b"), DEVICE_CLASS)
    assert audits.counts() == {"current": 3}


@pytest.mark.parametrize("cause", ["", "NamespaceTerminating"])
async def test_a_namespace_that_ends_needs_no_report(
    server: FakeApiServer, audits: Audits, cause: str
) -> None:
    server.fail(403 if cause else 404, cause=cause, matches=writes_to("team-a"))
    with capture_logs() as logs:
        await audits.audit(claim("team-a"))

    assert audits.counts() == {}
    assert logs == []


async def test_an_api_server_that_does_not_answer_fails_all_reports(
    server: FakeApiServer, audits: Audits
) -> None:
    server.fail(500, times=2, matches=lambda call: "openreports" in call.path)

    await audits.audit(claim("team-a"), claim("team-b"), DEVICE_CLASS)

    assert audits.counts() == {"failed": 3}


async def test_without_reports_nothing_is_asked_for_after_the_first_audit(
    server: FakeApiServer, client: Client
) -> None:
    audits = Audits(server, client, ReportFormat.NONE)

    await audits.audit(claim("team-a"))
    resources = {call.path.rpartition("/")[2] for call in server.calls}
    server.calls.clear()
    await audits.audit(claim("team-a"))

    assert resources == {
        kind.plural for kind in (REPORTS, CLUSTER_REPORTS, POLICY_REPORTS, CLUSTER_POLICY_REPORTS)
    }
    assert server.calls == []
    assert audits.states == {}
