"""Metrics of the certificate authority and of the path keys."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from itertools import groupby
from operator import attrgetter

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from process.certificates.webhook_paths import PathKeys


class CertificateAuthorityCollector(Collector):
    """Shows the progress of a rotation of the certificate authority."""

    def __init__(self, trusted_count: Callable[[], int], is_current: Callable[[], bool]) -> None:
        """Show a rotation.

        Args:
            trusted_count: Returns the number of trusted authorities.
            is_current: Returns True if every caBundle holds exactly these.
        """
        self._trusted = trusted_count
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


class ConfigurationCollector(Collector):
    """Shows the state of the webhook configurations, and the lead of the clock."""

    def __init__(
        self,
        clock_skew: Callable[[], timedelta],
        configurations: Callable[[], Mapping[str, bool]],
    ) -> None:
        """Show configurations.

        Args:
            clock_skew: Returns the time by which the clock is ahead of the API server's.
            configurations: Kind of webhook configuration to whether it is as it has to be.
        """
        self._clock_skew = clock_skew
        self._configurations = configurations

    def collect(self) -> Iterator[Metric]:
        """Yield two gauges."""
        yield GaugeMetricFamily(
            "drawbridge_clock_skew_seconds",
            "How far this clock is ahead of the API server's. Beyond an hour no certificate changes.",
            value=self._clock_skew().total_seconds(),
        )
        current = GaugeMetricFamily(
            "drawbridge_webhook_configuration_current",
            "Whether the webhook configuration exists and is that of this version (1) or not (0).",
            labels=("kind",),
        )
        for kind, is_current in self._configurations().items():
            current.add_metric((kind,), float(is_current))
        yield current


class PathKeyCollector(Collector):
    """Shows the age of the keys of the webhook's paths."""

    def __init__(self, path_keys: Callable[[], PathKeys]) -> None:
        """Show keys.

        Args:
            path_keys: Returns all valid keys; none before the Secret was read.
        """
        self._path_keys = path_keys

    def collect(self) -> Iterator[Metric]:
        """Yield two gauges."""
        count = GaugeMetricFamily(
            "drawbridge_path_keys",
            "Valid keys of a path of the webhook; more than two during a rotation.",
            labels=("path",),
        )
        created = GaugeMetricFamily(
            "drawbridge_path_key_created_timestamp_seconds",
            "Creation of the newest key of a path, Unix time. Each rotation creates one.",
            labels=("path",),
        )
        by_path = attrgetter("path")
        for path, keys in groupby(sorted(self._path_keys(), key=by_path), by_path):
            times = [key.created.timestamp() for key in keys]
            count.add_metric((path,), len(times))
            created.add_metric((path,), max(times))
        yield count
        yield created
