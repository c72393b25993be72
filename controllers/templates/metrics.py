"""Metrics of the controller of templates."""

from prometheus_client import CollectorRegistry, Counter


class TemplateMetrics:
    """Counts pods that no template is created for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._unsigned = Counter(
            "drawbridge_unsigned_pods",
            "Total pods with a translation record and without a valid signature of the webhook.",
            ("reason",),
            registry=registry,
        )

    def count_unsigned(self, reason: str) -> None:
        """Count a pod.

        Args:
            reason: One of the values of `SignatureStatus`.
        """
        self._unsigned.labels(reason).inc()
