"""Metrics of the audit."""

from collections.abc import Mapping

from prometheus_client import (
    CollectorRegistry,
    Gauge,
)

from controllers.audit.report import Tally


class AuditMetrics:
    """Shows the findings of the last audit."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._objects = Gauge(
            "drawbridge_audit_objects",
            "Stored objects that the last audit validated, by kind.",
            ("kind",),
            registry=registry,
        )
        self._findings = Gauge(
            "drawbridge_audit_findings",
            "Findings of the last audit, by kind of object, severity and code.",
            ("kind", "severity", "code"),
            registry=registry,
        )
        self._reports = Gauge(
            "drawbridge_audit_reports",
            "Reports of policies that the last audit has findings for, by what became of them.",
            ("state",),
            registry=registry,
        )
        self._duration = Gauge(
            "drawbridge_audit_duration_seconds",
            "Duration of the last audit, pauses included.",
            registry=registry,
        )

    def show(self, tally: Tally, took_s: float) -> None:
        """Show the findings of an audit."""
        self._objects.clear()
        self._findings.clear()
        for kind, number in tally.objects.items():
            self._objects.labels(kind).set(number)
        for labels, number in tally.findings.items():
            self._findings.labels(*labels).set(number)
        self._duration.set(took_s)

    def show_reports(self, numbers: Mapping[str, int]) -> None:
        """Show the number of reports by state."""
        for state, number in numbers.items():
            self._reports.labels(state).set(number)
