"""Reports of policies in the API server, kept as the findings of the last audit are.

A report is written only when it says something new, and deleted when nothing is left to say. It is
applied without force: what another writer has changed in it stays, and is counted as a conflict.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from controllers.audit.policy_reports import (
    REPORT_KINDS,
    REPORT_NAME,
    ReportedFinding,
    ReportKind,
    build_reports,
    is_current,
    keep_timestamps,
    report_document,
)
from controllers.model.settings import ReportFormat
from kube.api.meta import ObjectHead, ObjectMeta, decode_pruned
from kube.api.policy_reports import PolicyReport, Timestamp
from kube.client.client import Client, PatchType
from kube.errors import Conflict, Forbidden, KubeError, NamespaceTerminating, NotFound
from kube.logs import get_logger
from kube.names import MANAGED_LABEL

FIELD_MANAGER: Final = REPORT_NAME
PAGE: Final = 10
"""Reports of a page, since one may have most of a MiB."""

log = get_logger()


class ReportState(StrEnum):
    """The outcome of a report; the value is that of the label in metrics."""

    CURRENT = "current"
    """It is stored as the audit wants it."""
    CONFLICT = "conflict"
    """Another writer has changed it, and it is left as it is."""
    FAILED = "failed"
    """It was not written, and the next audit tries again."""
    NOT_SERVED = "notServed"
    """The API server does not serve the kind, or the account may not list it."""


class _StoredReport(NamedTuple):
    """A report of ours; the content is None if somebody made something else of it."""

    metadata: ObjectMeta
    content: PolicyReport | None


class PolicyReportWriter:
    """Writes the reports of one format, and deletes those of the others."""

    def __init__(
        self,
        client: Client,
        report_format: ReportFormat,
        show: Callable[[Mapping[str, int]], None],
        *,
        now: Callable[[], datetime],
    ) -> None:
        """Take over the reports that are stored.

        Args:
            show: Called after each audit with the number of reports by state.
        """
        self._client = client
        self._kinds = REPORT_KINDS[report_format]
        self._former_kinds = [
            kind for kinds in REPORT_KINDS.values() for kind in kinds if kind not in self._kinds
        ]
        self._show = show
        self._now = now
        self._states: dict[tuple[str, str], ReportState] = {}
        self._failed_kinds: dict[str, ReportState] = {}

    async def write(self, findings: Iterable[ReportedFinding]) -> None:
        """Bring the stored reports to the findings of an audit; a failure waits for the next audit."""
        await self._delete_former_reports()
        if not self._kinds:
            return
        now = self._now()
        reports = build_reports(
            findings, Timestamp(seconds=int(now.timestamp()), nanos=now.microsecond * 1000)
        )
        states: dict[tuple[str, str], ReportState] = {}
        for kind in self._kinds:
            own = {
                namespace: report
                for namespace, report in reports.items()
                if bool(namespace) is kind.resource.namespaced
            }
            for namespace, state in (await self._reconcile(kind, own)).items():
                states[kind.kind, namespace] = state
        self._states = states
        counts = Counter(states.values())
        self._show({state.value: counts[state] for state in ReportState})

    async def _delete_former_reports(self) -> None:
        """Delete the reports of another setting, once."""
        for kind in tuple(self._former_kinds):
            is_done = True
            try:
                former = [
                    stored_report.metadata async for stored_report in self._stored_reports(kind)
                ]
                for metadata in former:
                    is_done &= await self._delete(kind, metadata)
            except (Forbidden, NotFound):
                pass  # Where the kind is not served, nothing is left of it.
            except KubeError as fault:
                log.warning("reports.not_listed", kind=kind.kind, error=str(fault))
                is_done = False
            if is_done:
                self._former_kinds.remove(kind)

    async def _reconcile(
        self, kind: ReportKind, reports: Mapping[str, PolicyReport]
    ) -> Mapping[str, ReportState]:
        """Write and delete reports of a kind.

        Args:
            kind: The kind.
            reports: Namespace to the report that it should have.
        """
        missing, unwanted = dict(reports), []
        states: dict[str, ReportState] = {}
        try:
            async for stored_report in self._stored_reports(kind):
                namespace = stored_report.metadata.namespace
                report = missing.pop(namespace, None)
                if report is None:
                    unwanted.append(stored_report.metadata)
                elif state := await self._replace(kind, report, stored_report.content):
                    states[namespace] = state
            for metadata in unwanted:
                await self._delete(kind, metadata)
            for namespace, report in missing.items():
                if state := await self._replace(kind, report, None):
                    states[namespace] = state
        except (Forbidden, NotFound) as fault:
            return self._fail_all(kind, reports, ReportState.NOT_SERVED, fault)
        except KubeError as fault:
            return self._fail_all(kind, reports, ReportState.FAILED, fault)
        self._failed_kinds.pop(kind.kind, None)
        return states

    async def _replace(
        self, kind: ReportKind, report: PolicyReport, stored_report: PolicyReport | None
    ) -> ReportState | None:
        """Write a report that differs from the stored one; None if its namespace is gone."""
        report = keep_timestamps(report, stored_report)
        if is_current(report, stored_report):
            return ReportState.CURRENT
        namespace = report.metadata.namespace
        try:
            await self._client.patch(
                kind.resource,
                REPORT_NAME,
                report_document(kind, report),
                PatchType.APPLY,
                msgspec.Raw,
                namespace=namespace,
                field_manager=FIELD_MANAGER,
            )
        except (NamespaceTerminating, NotFound):
            return None
        except Conflict as fault:
            state = ReportState.CONFLICT
            self._log_once(kind, namespace, state, fault)
        except KubeError as fault:
            state = ReportState.FAILED
            self._log_once(kind, namespace, state, fault)
        else:
            state = ReportState.CURRENT
        return state

    async def _delete(self, kind: ReportKind, metadata: ObjectMeta) -> bool:
        """Delete a report of ours; return True if it is gone."""
        try:
            await self._client.delete(
                kind.resource, metadata.name, namespace=metadata.namespace, uid=metadata.uid
            )
        except NotFound:
            pass
        except KubeError as fault:
            log.warning(
                "report.not_deleted",
                kind=kind.kind,
                namespace=metadata.namespace,
                error=str(fault),
            )
            return False
        return True

    async def _stored_reports(self, kind: ReportKind) -> AsyncIterator[_StoredReport]:
        selector = f"{MANAGED_LABEL}=true"
        async for page in self._client.pages(kind.resource, label_selector=selector, limit=PAGE):
            for raw in page.items:
                metadata = decode_pruned(bytes(raw), ObjectHead).metadata
                if metadata.name == REPORT_NAME:
                    yield _StoredReport(metadata, _content(bytes(raw)))

    def _fail_all(
        self,
        kind: ReportKind,
        reports: Mapping[str, PolicyReport],
        state: ReportState,
        fault: KubeError,
    ) -> Mapping[str, ReportState]:
        """Log the fault that prevents all reports of a kind, once; return their states."""
        if self._failed_kinds.get(kind.kind) is not state:
            log.warning("reports.not_written", kind=kind.kind, state=state.value, error=str(fault))
        self._failed_kinds[kind.kind] = state
        return dict.fromkeys(reports, state)

    def _log_once(
        self, kind: ReportKind, namespace: str, state: ReportState, fault: KubeError
    ) -> None:
        """Log a report's new state, unless it was the same after the last audit."""
        if self._states.get((kind.kind, namespace)) is not state:
            log.warning(
                "report.not_written",
                kind=kind.kind,
                namespace=namespace,
                state=state.value,
                error=str(fault),
            )


def _content(raw: bytes) -> PolicyReport | None:
    try:
        return decode_pruned(raw, PolicyReport)
    except msgspec.DecodeError:
        return None
