"""Metrics of the driver."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from driver.plan.checkpoint import Checkpoint
from process.serving.metrics import SECONDS

OK: Final = "ok"


class DriverMetrics:
    """Counters of the kubelet's calls and of writes of slices."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "drawbridge_driver_call_seconds",
            "Duration of a call of the kubelet.",
            ("method",),
            buckets=SECONDS,
            registry=registry,
        )
        self._claims = Counter(
            "drawbridge_driver_claims",
            "Claims by call and outcome: ok, or why they were refused.",
            ("method", "outcome"),
            registry=registry,
        )
        self._writes = Counter(
            "drawbridge_driver_slice_writes",
            "Writes of ResourceSlices by kind: applied, deleted or failed.",
            ("result",),
            registry=registry,
        )
        self._published_devices = Gauge(
            "drawbridge_driver_devices_published",
            "Devices in the published inventory.",
            registry=registry,
        )
        self._tainted_devices = Gauge(
            "drawbridge_driver_devices_tainted",
            "Devices by the taint that the driver set.",
            ("taint",),
            registry=registry,
        )
        self._inventory_problem = Gauge(
            "drawbridge_driver_inventory_broken",
            "1 while the source of devices cannot be read, and the last good inventory is used.",
            registry=registry,
        )

    def observe_call(self, method: str, seconds: float) -> None:
        """Count one call of the kubelet."""
        self._seconds.labels(method).observe(seconds)

    def claim(self, method: str, outcome: str) -> None:
        """Count one claim of a call."""
        self._claims.labels(method, outcome).inc()

    def wrote(self, result: str, count: int = 1) -> None:
        """Count writes of slices."""
        self._writes.labels(result).inc(count)

    def show_devices(self, device_count: int, tainted_counts: Mapping[str, int]) -> None:
        """Show the numbers of published devices, and of those with a taint of the driver."""
        self._published_devices.set(device_count)
        self._tainted_devices.clear()
        for taint, count in tainted_counts.items():
            self._tainted_devices.labels(taint).set(count)

    def show_inventory_problem(self, problem: str) -> None:
        """Show the source of devices as broken or not."""
        self._inventory_problem.set(1 if problem else 0)


class PreparedCollector(Collector):
    """A collector of the claim and the pods of each prepared device, read on each scrape."""

    def __init__(self, load: Callable[[], Checkpoint], node: str) -> None:
        """Initialize the collector.

        Args:
            load: Returns what is prepared; may raise OSError.
            node: The node's name.
        """
        self._load = load
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """Yield one gauge with a sample per device of each claim."""
        gauge = GaugeMetricFamily(
            "drawbridge_driver_device_prepared",
            "1 for each device that is prepared for a claim, with the pods that it was prepared for.",
            labels=("node", "pool", "device", "share_id", "namespace", "claim", "request", "pods"),
        )
        try:
            claims = self._load().claims
        except OSError:
            claims = {}
        for record in claims.values():
            for result in record.results:
                gauge.add_metric(
                    (
                        self._node,
                        result.pool,
                        result.device,
                        result.share_id or "",
                        record.namespace,
                        record.name,
                        result.request,
                        record.pods_text(),
                    ),
                    1,
                )
        yield gauge
