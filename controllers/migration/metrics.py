"""Metrics of a migration: waves, nodes and workloads."""

from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from clusterstate.wave_record import WaveRecord


class MigrationMetrics:
    """Shows the position; without a migration there are no values."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Add the metrics to a registry."""
        self._parts: Final = tuple(
            Gauge(f"drawbridge_migration_{part}", text, ("state",), registry=registry)
            for part, text in (
                (
                    "waves",
                    "Waves of the plan that `drawbridge wave` goes through: all, and reached.",
                ),
                ("nodes", "Nodes of that plan: all, and switched."),
                ("workloads", "Workloads of that plan: all, and those whose pods have changed."),
            )
        )

    def show(self, record: WaveRecord | None) -> None:
        """Show a position; None if there is none."""
        for gauge in self._parts:
            gauge.clear()
        if record is None:
            return
        numbers = (
            (record.waves, record.wave),
            (record.nodes_total, record.nodes),
            (record.workloads_total, record.workloads),
        )
        for gauge, (total, done) in zip(self._parts, numbers, strict=True):
            gauge.labels("all").set(total)
            gauge.labels("done").set(done)
