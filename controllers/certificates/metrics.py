"""Metrics of the certificate authority."""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class CertificateAuthorityCollector(Collector):
    """Shows how far a rotation of the certificate authority has come."""

    def __init__(self, trusted: Callable[[], int], is_current: Callable[[], bool]) -> None:
        """Show a rotation.

        Args:
            trusted: How many authorities are trusted.
            is_current: Whether every caBundle holds exactly these.
        """
        self._trusted = trusted
        self._is_current = is_current

    def collect(self) -> Iterator[Metric]:
        """Yield two gauges."""
        yield GaugeMetricFamily(
            "drawbridge_trusted_certificate_authorities",
            "Certificate authorities that are trusted; more than one during a rotation.",
            value=self._trusted(),
        )
        yield GaugeMetricFamily(
            "drawbridge_ca_bundle_current",
            "Whether every caBundle holds exactly the trusted authorities (1) or not (0).",
            value=float(self._is_current()),
        )
