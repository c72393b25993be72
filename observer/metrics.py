"""Metrics of the observer."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, Histogram

from observer.device_states import DeviceState
from process.serving.metrics import SECONDS


class ObserverMetrics:
    """Shows the number of pending pods, and the cost of explaining them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pending = Gauge(
            "drawbridge_observer_pending_pods",
            "Pods without a node that may wait for devices.",
            registry=registry,
        )
        self._blocked = Gauge(
            "drawbridge_observer_blocked_pods",
            "Pods that wait for devices, by reason; a pod may count for several reasons.",
            ("reason",),
            registry=registry,
        )
        self._explanations = Histogram(
            "drawbridge_observer_explanation_duration_seconds",
            "Time to explain why pods that are equal wait.",
            buckets=SECONDS,
            registry=registry,
        )
        self._devices = Gauge(
            "drawbridge_devices",
            "Devices of complete pools in the whole cluster, by driver and state: free, shared, allocated, "
            "tainted.",
            ("driver", "state"),
            registry=registry,
        )
        self._reasons: set[str] = set()
        self._drivers: set[str] = set()

    def observe_explanation(self, seconds: float) -> None:
        """Count one explanation."""
        self._explanations.observe(seconds)

    def show(self, pending: int, blocked_counts: Mapping[str, int]) -> None:
        """Show the number of waiting pods, and of those for each reason."""
        self._pending.set(pending)
        for reason in self._reasons - blocked_counts.keys():
            self._blocked.labels(reason).set(0)
        for reason, pods in blocked_counts.items():
            self._blocked.labels(reason).set(pods)
        self._reasons |= blocked_counts.keys()

    def show_devices(self, counts: Mapping[tuple[str, DeviceState], int]) -> None:
        """Show the devices of the cluster; a driver that publishes none any more is no longer shown."""
        drivers = {driver for driver, _ in counts}
        for driver in self._drivers - drivers:
            for state in DeviceState:
                self._devices.remove(driver, state)
        self._drivers = drivers
        for (driver, state), number in counts.items():
            self._devices.labels(driver, state).set(number)
