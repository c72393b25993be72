"""Metrics of the webhook.

Requests, their latency and panics have the names of controller-runtime, so that its dashboards work
unchanged; the label `webhook` is the path. No label holds a namespace or a name: their number has no
bound.
"""

from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from admission.pods import Answer, Decision
from process.serving.connections import CloseReason
from process.serving.metrics import SECONDS

_OUTCOMES: Final = frozenset({Decision.TRANSLATED, Decision.VALIDATED, Decision.REFUSED})
"""The decisions by which translations are counted; the others translate nothing."""


class WebhookMetrics:
    """Counts reviews and connections."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix, path = "controller_runtime_webhook", ("webhook",)
        self.requests = Counter(
            f"{prefix}_requests",
            "Total admission requests by HTTP status code.",
            (*path, "code"),
            registry=registry,
        )
        self.latency = Histogram(
            f"{prefix}_latency_seconds",
            "Latency of admission requests, including the time to read them.",
            path,
            buckets=SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            f"{prefix}_requests_in_flight",
            "Admission requests being served.",
            path,
            registry=registry,
        )
        self.panics = Counter(
            f"{prefix}_panics",
            "Total admission requests that ended with an internal error.",
            path,
            registry=registry,
        )
        self.shed = Counter(
            "drawbridge_requests_shed",
            "Total requests answered with 503, without a place in maxInFlight or maxBytesInFlight.",
            registry=registry,
        )
        self.unknown_paths = Counter(
            "drawbridge_requests_to_unknown_paths",
            "Total requests answered with 404, whose path has no valid key; one in 10 s is our own check.",
            registry=registry,
        )
        self.over_budget = Counter(
            "drawbridge_requests_over_budget",
            "Total reviews postponed (pods) or not validated, since user or namespace took too much time.",
            registry=registry,
        )
        self.connections = Gauge(
            "drawbridge_connections", "Open connections of the HTTPS endpoint.", registry=registry
        )
        self._closed = Counter(
            "drawbridge_connections_closed",
            "Total connections that the endpoint closed or did not accept, by reason.",
            ("reason",),
            registry=registry,
        )
        self.validation_timeouts = Counter(
            "drawbridge_validation_timeouts",
            "Total reviews that took too long: pods are postponed, others answered without the inventory.",
            registry=registry,
        )
        reviews = Counter(
            "drawbridge_reviews",
            "Total reviews by kind of object, operation and decision.",
            ("kind", "operation", "decision"),
            registry=registry,
        )
        # Few combinations, and finding one's counter takes longer than to count.
        self._by_decision = cache(
            lambda kind, operation, decision: reviews.labels(kind, operation, decision.value)
        )
        self._shadow_reviews = Counter(
            "drawbridge_shadow_reviews",
            "Total reviews in mode Shadow by kind of object, operation and the decision without it.",
            ("kind", "operation", "decision"),
            registry=registry,
        )
        self._findings = Counter(
            "drawbridge_findings",
            "Total findings in answers, by severity and code.",
            ("severity", "code"),
            registry=registry,
        )
        self._translations = Counter(
            "drawbridge_translations",
            "Total translations by the vocabulary of the keys, the driver that serves it, and the outcome: "
            "translated (pods), validated (workloads whose pods will be translated) or refused (both). The driver "
            "is empty where none was chosen. Keys of several vocabularies count for each; a pod that is denied after "
            "its translation counts as translated and as refused. What is denied for its size, or since it or its "
            "record cannot be read, does not count.",
            ("vocabulary", "driver", "outcome"),
            registry=registry,
        )
        self._claims = Counter(
            "drawbridge_translated_claims",
            "Total claims that pods got in translations; kube-controller-manager creates each for its pod.",
            registry=registry,
        )
        self._operations = Counter(
            "drawbridge_patch_operations",
            "Total JSON Patch operations in answers.",
            registry=registry,
        )

    def count_closed(self, reason: CloseReason) -> None:
        """Count a connection that was closed or not accepted."""
        self._closed.labels(reason.value).inc()

    def count_shadow_review(self, kind: str, operation: str, answer: Answer) -> None:
        """Count the answer that another mode would have given.

        Args:
            kind: The kind that `count_review` takes.
        """
        self._shadow_reviews.labels(kind, operation, answer.decision.value).inc()

    def count_review(self, kind: str, operation: str, answer: Answer) -> None:
        """Count one answer.

        Args:
            kind: The object's kind; a value from a small set, since it becomes a label.
        """
        self._by_decision(kind, operation, answer.decision).inc()
        for finding in answer.findings:
            self._findings.labels(finding.severity.value, finding.code.value).inc()
        if answer.decision is Decision.TRANSLATED:
            self._claims.inc(len(answer.claims))
        if answer.decision in _OUTCOMES:
            # Vocabularies are ours, and drivers those of the profiles in force: few, whatever users write.
            for vocabulary, driver in answer.drivers:
                self._translations.labels(vocabulary, driver, answer.decision.value).inc()
        if answer.operations:
            self._operations.inc(len(answer.operations))
