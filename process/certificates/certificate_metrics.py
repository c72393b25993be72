"""Metrics of certificates."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class CertificateCollector(Collector):
    """Shows when certificates expire."""

    def __init__(self, not_after: Callable[[], Mapping[str, datetime]]) -> None:
        """Show certificates.

        Args:
            not_after: "ca", "next-ca" or "serving" to its expiry; those that do not exist are left
                out.
        """
        self._not_after = not_after

    def collect(self) -> Iterator[Metric]:
        """Yield one gauge."""
        gauge = GaugeMetricFamily(
            "drawbridge_certificate_expiration_timestamp_seconds",
            "Expiry of the certificate, Unix time.",
            labels=("kind",),
        )
        for kind, end in sorted(self._not_after().items()):
            gauge.add_metric((kind,), end.timestamp())
        yield gauge
