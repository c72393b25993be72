"""The dashboard for Grafana, from a table of panels."""

import json
import re
from typing import Any, Final, NamedTuple

PATH: Final = "manifests/dashboards/drawbridge.json"
_WIDTH: Final = 24
_HEIGHT: Final = 7
_SERIES: Final = re.compile(
    r"\b((?:drawbridge|workqueue|controller_runtime|leader_election)_[a-z0-9_]+)(\{)?"
)
_CHOICES: Final = {"cluster": "Cluster", "namespace": "Namespace"}
"""Labels of what is scraped that people choose by, to the title of the choice."""


class Panel(NamedTuple):
    """A panel: its title, expressions by legend, the unit of Grafana, and the number of panels in a line."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    per_line: int = 3


def _quantiles(histogram: str, by: str = "") -> dict[str, str]:
    labels = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return {
        f"p{percent}{legend}": f"histogram_quantile(0.{percent}, "
        f"sum by ({labels}) (rate({histogram}_bucket[5m])))"
        for percent in (50, 99)
    }


SECTIONS: Final[dict[str, tuple[Panel, ...]]] = {
    "Admission": (
        Panel(
            "Ready replicas of the webhook",
            {
                "ready": "count((min by (instance) (drawbridge_readiness_check) == 1) "
                "and on (instance) drawbridge_requests_shed_total)"
            },
            kind="stat",
            per_line=4,
        ),
        Panel(
            "caBundles are current",
            {"current": "min(drawbridge_ca_bundle_current)"},
            kind="stat",
            per_line=4,
        ),
        Panel(
            "Certificates expire in",
            {
                "{{kind}}": "min by (kind) (drawbridge_certificate_expiration_timestamp_seconds)"
                " - time()"
            },
            "s",
            kind="stat",
            per_line=4,
        ),
        Panel(
            "Versions",
            {"{{version}}": "count by (version) (drawbridge_build_info)"},
            kind="stat",
            per_line=4,
        ),
        Panel(
            "Reviews by decision",
            {"{{decision}}": "sum by (decision) (rate(drawbridge_reviews_total[5m]))"},
            "reqps",
        ),
        Panel(
            "Reviews in mode Shadow",
            {"{{decision}}": "sum by (decision) (rate(drawbridge_shadow_reviews_total[5m]))"},
            "reqps",
        ),
        Panel("Latency", _quantiles("controller_runtime_webhook_latency_seconds", "webhook"), "s"),
        Panel(
            "Findings",
            {"{{code}}": "topk(10, sum by (code) (rate(drawbridge_findings_total[5m])))"},
            "ops",
        ),
        Panel(
            "Translations",
            {
                "{{vocabulary}} by {{driver}}": "sum by (vocabulary, driver) "
                '(rate(drawbridge_translations_total{outcome="translated"}[5m]))'
            },
            "ops",
        ),
        Panel(
            "Refused translations",
            {
                "{{vocabulary}}": "sum by (vocabulary) "
                '(rate(drawbridge_translations_total{outcome="refused"}[5m]))'
            },
            "ops",
        ),
        Panel(
            "Requests that were not served",
            {
                "too many": "sum(rate(drawbridge_requests_shed_total[5m]))",
                "over budget": "sum(rate(drawbridge_requests_over_budget_total[5m]))",
                "unknown path": "sum(rate(drawbridge_requests_to_unknown_paths_total[5m]))",
                "validated too late": "sum(rate(drawbridge_validation_timeouts_total[5m]))",
            },
            "reqps",
        ),
        Panel(
            "Claims of translations",
            {"claims": "sum(rate(drawbridge_translated_claims_total[5m]))"},
            "ops",
        ),
        Panel(
            "Connections",
            {
                "open": "sum(drawbridge_connections)",
                "closed: {{reason}}": "sum by (reason) (rate(drawbridge_connections_closed_total[5m]))",
            },
        ),
    ),
    "Controllers": (
        Panel(
            "Leaders",
            {"{{name}}": 'sum by (name) (leader_election_master_status{name=~"drawbridge-.*"})'},
        ),
        Panel(
            "Work that waits",
            {"{{name}}": "max by (name) (workqueue_depth and on (instance) drawbridge_build_info)"},
        ),
        Panel(
            "Retries",
            {
                "{{name}}": "sum by (name) (rate(workqueue_retries_total[5m]) "
                "and on (instance) drawbridge_build_info)"
            },
            "ops",
        ),
        Panel(
            "Age of caches",
            {"{{resource}}": "max by (resource) (drawbridge_cache_age_seconds)"},
            "s",
        ),
        Panel(
            "Findings of the audit",
            {"{{severity}} {{code}}": "max by (severity, code) (drawbridge_audit_findings)"},
        ),
        Panel(
            "Events", {"{{result}}": "sum by (result) (rate(drawbridge_events_total[5m]))"}, "ops"
        ),
    ),
    "Migration": (
        Panel("Waves", {"{{state}}": "max by (state) (drawbridge_migration_waves)"}),
        Panel("Nodes", {"{{state}}": "max by (state) (drawbridge_migration_nodes)"}),
        Panel("Workloads", {"{{state}}": "max by (state) (drawbridge_migration_workloads)"}),
    ),
    "Pods that wait for devices": (
        Panel("Pending pods", {"pending": "max(drawbridge_observer_pending_pods)"}),
        Panel("By reason", {"{{reason}}": "max by (reason) (drawbridge_observer_blocked_pods)"}),
        Panel(
            "Devices in use",
            {"{{driver}} {{state}}": "max by (driver, state) (drawbridge_devices)"},
        ),
    ),
    "Device quotas": (
        Panel(
            "Used and promised",
            {
                "{{quota}} {{limit}}": "max by (quota, limit) (sum by (instance, quota, limit) "
                '(drawbridge_device_quota_usage{state!="waiting"}) '
                "/ on (instance, quota, limit) drawbridge_device_quota_max)"
            },
            "percentunit",
        ),
        Panel(
            "Waiting, as a part of the limit",
            {
                "{{quota}} {{limit}}": "max by (quota, limit) (sum by (instance, quota, limit) "
                '(drawbridge_device_quota_usage{state="waiting"}) '
                "/ on (instance, quota, limit) drawbridge_device_quota_max)"
            },
            "percentunit",
        ),
        Panel(
            "Oldest promise",
            {
                "{{quota}} {{limit}}": "max by (quota, limit) (drawbridge_device_quota_promised_seconds)"
            },
            "s",
        ),
    ),
    "Node driver": (
        Panel(
            "Devices",
            {
                "published": "sum(drawbridge_driver_devices_published)",
                "tainted: {{taint}}": "sum by (taint) (drawbridge_driver_devices_tainted)",
            },
        ),
        Panel(
            "Claims",
            {
                "{{method}} {{outcome}}": "sum by (method, outcome) (rate(drawbridge_driver_claims_total[5m]))"
            },
            "ops",
        ),
        Panel("Calls of the kubelet", _quantiles("drawbridge_driver_call_seconds", "method"), "s"),
    ),
    "Bridge": (
        Panel("Decisions", _quantiles("drawbridge_sidecar_decision_duration_seconds", "kind"), "s"),
        Panel(
            "Writes of claims",
            {"{{result}}": "sum by (result) (rate(drawbridge_sidecar_claim_writes_total[5m]))"},
            "ops",
        ),
        Panel(
            "Rejections",
            {"{{code}}": "topk(10, sum by (code) (rate(drawbridge_sidecar_rejections_total[5m])))"},
            "ops",
        ),
        Panel("Promises", {"{{step}}": "max by (step) (drawbridge_sidecar_holds)"}),
        Panel("Lag of the event loop", _quantiles("drawbridge_sidecar_loop_lag_seconds"), "s"),
        Panel("Devices held back", {"claims": "max(drawbridge_sidecar_held_back_claims)"}),
    ),
}


def dashboard() -> str:
    """Return the dashboard as JSON."""
    document = {
        "title": "Drawbridge",
        "uid": "drawbridge",
        "tags": ["drawbridge", "dra"],
        "schemaVersion": 41,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "type": "datasource",
                    "query": "prometheus",
                    "label": "Prometheus",
                },
                *(_choice(label, title) for label, title in _CHOICES.items()),
            ]
        },
        "panels": _panels(),
    }
    return json.dumps(document, indent=1) + "\n"


def _choice(label: str, title: str) -> dict[str, Any]:
    """Return a choice among the values of a label; all of them, and series without the label, unless somebody chooses."""
    return {
        "name": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values(drawbridge_build_info, {label})",
        "label": title,
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _chosen(expression: str) -> str:
    """Return an expression about the chosen series.

    >>> _chosen("min(drawbridge_ca_bundle_current)")
    'min(drawbridge_ca_bundle_current{cluster=~"$cluster", namespace=~"$namespace"})'
    """
    matchers = ", ".join(f'{label}=~"${label}"' for label in _CHOICES)
    return _SERIES.sub(
        lambda match: f"{match[1]}{{{matchers}{', ' if match[2] else '}'}", expression
    )


def _panels() -> list[dict[str, Any]]:
    """Return the panels, line by line, under a row for each section."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, members in SECTIONS.items():
        place = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": place})
        top, left = top + 1, 0
        for panel in members:
            width = _WIDTH // panel.per_line
            if left + width > _WIDTH:
                top, left = top + _HEIGHT, 0
            place = {"x": left, "y": top, "w": width, "h": _HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, place))
            left += width
        top += _HEIGHT
    return panels


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": _chosen(expression), "legendFormat": legend}
            for index, (legend, expression) in enumerate(panel.queries.items())
        ],
    }
