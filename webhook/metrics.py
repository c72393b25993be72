"""What Prometheus gets to see of the webhook.

The first five have the names of controller-runtime, so that dashboards work unchanged; `webhook` is
the path. No label holds a namespace or a name: their number has no bound.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kube.informer import Informer
from webhook.admission import Answer
from webhook.audited import Tally
from webhook.workqueue import WorkQueue

_Measured = GaugeMetricFamily | CounterMetricFamily

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Buckets. Those of controller-runtime begin at ten nanoseconds."""


class Ended(StrEnum):
    """Why we ended a connection, or took none."""

    HANDSHAKE = "handshake"
    """TLS was not agreed."""
    HEAD = "head"
    """A request began and did not get on."""
    MADE_ROOM = "made_room"
    """It was of no use for longest, and all places were taken."""
    REFUSED = "refused"
    """All places were taken, and none could be taken back."""


class WebhookMetrics:
    """Counts reviews."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix, path = "controller_runtime_webhook", ("webhook",)
        self.requests = Counter(
            f"{prefix}_requests", "Requests by HTTP status.", (*path, "code"), registry=registry
        )
        self.latency = Histogram(
            f"{prefix}_latency_seconds",
            "Time to answer, reading included.",
            path,
            buckets=SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            f"{prefix}_requests_in_flight", "Requests being answered.", path, registry=registry
        )
        self.panics = Counter(
            f"{prefix}_panics", "Requests that met a bug.", path, registry=registry
        )
        self.shed = Counter(
            "drawbridge_requests_shed", "Requests beyond maxInFlight.", registry=registry
        )
        self.connections = Gauge(
            "drawbridge_connections", "Open connections of the endpoint.", registry=registry
        )
        self._ended = Counter(
            "drawbridge_connections_ended",
            "Connections that were cut or not taken.",
            ("reason",),
            registry=registry,
        )
        self.late = Counter(
            "drawbridge_judgements_late",
            "Reviews that were answered without the inventory, for want of time.",
            registry=registry,
        )
        self._decisions = Counter(
            "drawbridge_decisions",
            "Reviews by what was decided.",
            ("operation", "decision"),
            registry=registry,
        )
        self._judgements = Counter(
            "drawbridge_judgements",
            "Workloads by what was decided.",
            ("kind", "operation", "decision"),
            registry=registry,
        )
        self._findings = Counter(
            "drawbridge_findings", "Findings told.", ("severity", "code"), registry=registry
        )
        self._operations = Counter(
            "drawbridge_patch_operations", "Steps of patches.", registry=registry
        )

    def ended(self, why: Ended) -> None:
        """Count a connection that was cut or not taken."""
        self._ended.labels(why.value).inc()

    def count(self, operation: str, answer: Answer) -> None:
        """Count one answer about a pod."""
        self._decisions.labels(operation, answer.decision.value).inc()
        self._count_findings(answer)
        if answer.operations:
            self._operations.inc(len(answer.operations))

    def count_judgement(self, kind: str, operation: str, answer: Answer) -> None:
        """Count one answer about a workload.

        Args:
            kind: One of a few: it becomes a label.
        """
        self._judgements.labels(kind, operation, answer.decision.value).inc()
        self._count_findings(answer)

    def _count_findings(self, answer: Answer) -> None:
        for finding in answer.findings:
            self._findings.labels(finding.severity.value, finding.code.value).inc()


class AuditMetrics:
    """Shows what the audit found of stored objects when it last looked."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._objects = Gauge(
            "drawbridge_audit_objects", "Objects looked at.", ("kind",), registry=registry
        )
        self._findings = Gauge(
            "drawbridge_audit_findings",
            "Findings of stored objects.",
            ("kind", "severity", "code"),
            registry=registry,
        )
        self._took = Gauge(
            "drawbridge_audit_seconds", "Time that the last look took.", registry=registry
        )

    def show(self, tally: Tally, took_s: float) -> None:
        """Show what one look found."""
        self._objects.clear()
        self._findings.clear()
        for kind, number in tally.objects.items():
            self._objects.labels(kind).set(number)
        for labels, number in tally.findings.items():
            self._findings.labels(*labels).set(number)
        self._took.set(took_s)


class ObserverMetrics:
    """Counts what the observer finds and says."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waiting = Gauge(
            "drawbridge_observer_pods_waiting",
            "Pods without a node that may wait for devices.",
            registry=registry,
        )
        self._reasons = Gauge(
            "drawbridge_observer_pods",
            "Waiting pods by what is in the way; a pod may meet several reasons.",
            ("reason",),
            registry=registry,
        )
        self._took = Histogram(
            "drawbridge_observer_explanation_seconds",
            "Time to find out why pods that are equal wait.",
            buckets=SECONDS,
            registry=registry,
        )
        self._events = Counter(
            "drawbridge_observer_events",
            "Answers by what became of them.",
            ("result",),
            registry=registry,
        )
        self._shown: set[str] = set()

    def explained(self, seconds: float) -> None:
        """Count one explanation."""
        self._took.observe(seconds)

    def count(self, result: str) -> None:
        """Count one answer: sent, repeated, suppressed or failed."""
        self._events.labels(result).inc()

    def show(self, waiting: int, reasons: Mapping[str, int]) -> None:
        """Show how many pods wait, and how many of them meet each reason."""
        self._waiting.set(waiting)
        for reason in self._shown - reasons.keys():
            self._reasons.labels(reason).set(0)
        for reason, pods in reasons.items():
            self._reasons.labels(reason).set(pods)
        self._shown |= reasons.keys()


class CacheCollector(Collector):
    """Tells how far each informer follows, when somebody asks."""

    def __init__(self, informers: Mapping[str, Informer[Any]]) -> None:
        self._informers = informers

    def collect(self) -> Iterator[Metric]:
        """Yield one gauge per property."""
        measures: Mapping[str, tuple[str, Callable[[Informer[Any]], float]]] = {
            "synced": ("Whether the first list is complete.", lambda i: float(i.synced.is_set())),
            "age_seconds": ("Since the API server last said anything.", lambda i: i.contact_age_s),
            "objects": ("Objects kept.", lambda i: float(len(i.store))),
            "unreadable": ("Objects that could not be read.", lambda i: float(i.unreadable)),
        }
        for name, (help_text, measure) in measures.items():
            gauge = GaugeMetricFamily(f"drawbridge_cache_{name}", help_text, labels=("resource",))
            for resource, informer in self._informers.items():
                gauge.add_metric((resource,), measure(informer))
            yield gauge


class QueueCollector(Collector):
    """Tells how much work waits, by the names of client-go, when somebody asks."""

    def __init__(self, queues: Mapping[str, WorkQueue[Any]]) -> None:
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        """Yield two gauges and two counters."""
        metrics: Sequence[tuple[type[_Measured], str, str, Callable[[WorkQueue[Any]], int]]] = (
            (GaugeMetricFamily, "depth", "Keys that wait.", len),
            (GaugeMetricFamily, "active", "Keys that are worked on.", lambda q: q.active),
            (CounterMetricFamily, "adds", "Keys that came.", lambda q: q.added),
            (CounterMetricFamily, "retries", "Keys that came again.", lambda q: q.retried),
        )
        for family, name, help_text, measure in metrics:
            metric = family(f"workqueue_{name}", help_text, labels=("name",))
            for queue, each in self._queues.items():
                metric.add_metric((queue,), measure(each))
            yield metric


class CertificateCollector(Collector):
    """Tells when certificates end."""

    def __init__(self, not_after: Callable[[], Mapping[str, datetime]]) -> None:
        """Remember whom to ask.

        Args:
            not_after: "ca", "next-ca" or "leaf" to its end; what does not exist is left out.
        """
        self._not_after = not_after

    def collect(self) -> Iterator[Metric]:
        """Yield one gauge."""
        gauge = GaugeMetricFamily(
            "drawbridge_certificate_not_after_timestamp_seconds",
            "When the certificate ends.",
            labels=("kind",),
        )
        for kind, end in sorted(self._not_after().items()):
            gauge.add_metric((kind,), end.timestamp())
        yield gauge


class TrustCollector(Collector):
    """Tells how far a rotation of the certificate authority has come."""

    def __init__(self, trusted: Callable[[], int], is_told: Callable[[], bool]) -> None:
        """Remember whom to ask.

        Args:
            trusted: How many authorities are trusted.
            is_told: Whether every caBundle holds them.
        """
        self._trusted = trusted
        self._is_told = is_told

    def collect(self) -> Iterator[Metric]:
        """Yield two gauges."""
        yield GaugeMetricFamily(
            "drawbridge_authorities_trusted",
            "Certificate authorities that are trusted; more than one during a rotation.",
            value=self._trusted(),
        )
        yield GaugeMetricFamily(
            "drawbridge_ca_bundle_current",
            "Whether every caBundle holds what is trusted.",
            value=float(self._is_told()),
        )


def process_registry() -> CollectorRegistry:
    """Return a registry that knows this process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
