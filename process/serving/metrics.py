"""Metrics that every process has: informers, work queues, the process itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kube.names import DISTRIBUTION
from kube.runtime.controller import Controller
from kube.runtime.events import EventResult
from kube.runtime.informers import Informer, InformerFactory
from kube.runtime.work_queue import WorkQueue

_Measured = GaugeMetricFamily | CounterMetricFamily
_Informers = dict[str, list[Informer]]
_CacheMeasure = tuple[type[_Measured], str, str, _Informers, Callable[[list[Informer]], float]]


SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Buckets of histograms. Those of controller-runtime begin at ten nanoseconds."""


class CacheCollector(Collector):
    """Shows the progress of the informers of a process, by resource.

    A resource that the cluster does not have, such as one of another project, has no state and no age.
    """

    def __init__(self, factory: InformerFactory) -> None:
        self._factory = factory

    def collect(self) -> Iterator[Metric]:
        """Yield three gauges and a counter; several informers of a resource are one sample."""
        by_resource: _Informers = {}
        served: _Informers = {}
        for informer in self._factory.informers:
            by_resource.setdefault(informer.resource.plural, []).append(informer)
            if informer.availability.is_served:
                served.setdefault(informer.resource.plural, []).append(informer)
        metrics: Sequence[_CacheMeasure] = (
            (
                GaugeMetricFamily,
                "synced",
                "Whether the initial list of the resource is complete (1) or not (0).",
                served,
                lambda informers: float(all(informer.synced.is_set() for informer in informers)),
            ),
            (
                GaugeMetricFamily,
                "age_seconds",
                "Seconds since the last response or event from the API server.",
                served,
                lambda informers: max(informer.contact_age_s for informer in informers),
            ),
            (
                GaugeMetricFamily,
                "objects",
                "Objects in the cache.",
                by_resource,
                lambda informers: sum(map(len, informers)),
            ),
            (
                CounterMetricFamily,
                "decode_errors",
                "Total objects that could not be decoded.",
                by_resource,
                lambda informers: sum(informer.decode_errors for informer in informers),
            ),
        )
        for family, name, help_text, measured, measure in metrics:
            metric = family(f"drawbridge_cache_{name}", help_text, labels=("resource",))
            for resource, informers in sorted(measured.items()):
                metric.add_metric((resource,), measure(informers))
            yield metric


class QueueCollector(Collector):
    """Shows the amount of waiting work, by the names of client-go."""

    def __init__(self, controllers: Sequence[Controller[Any]]) -> None:
        self._controllers = controllers

    def collect(self) -> Iterator[Metric]:
        """Yield two gauges and two counters."""
        metrics: Sequence[tuple[type[_Measured], str, str, Callable[[WorkQueue[Any]], int]]] = (
            (GaugeMetricFamily, "depth", "Current depth of the work queue.", len),
            (
                GaugeMetricFamily,
                "active",
                "Keys of the work queue being processed.",
                lambda queue: queue.active,
            ),
            (
                CounterMetricFamily,
                "adds",
                "Total adds handled by the work queue.",
                lambda queue: queue.added,
            ),
            (
                CounterMetricFamily,
                "retries",
                "Total retries handled by the work queue.",
                lambda queue: queue.retried,
            ),
        )
        for family, name, help_text, measure in metrics:
            metric = family(f"workqueue_{name}", help_text, labels=("name",))
            for controller in self._controllers:
                metric.add_metric((controller.name,), measure(controller.queue))
            yield metric


def event_counter(registry: CollectorRegistry) -> Callable[[EventResult], None]:
    """Return a function that counts the results of an event recorder."""
    counter = Counter(
        "drawbridge_events", "Total events by result.", ("result",), registry=registry
    )
    for result in EventResult:
        counter.labels(result.value)
    return lambda result: counter.labels(result.value).inc()


class ReadinessCollector(Collector):
    """Readiness checks of this process."""

    def __init__(self, checks: Mapping[str, Callable[[], str]]) -> None:
        """Remember the checks.

        Args:
            checks: Name to a function that returns why the process is not ready, empty if it is.
        """
        self._checks = checks

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metric of each readiness check: 1 if it passes, else 0."""
        passes = GaugeMetricFamily(
            "drawbridge_readiness_check",
            "Whether a readiness check passes (1) or not (0); the log has the reason.",
            labels=("check",),
        )
        for name, check in self._checks.items():
            passes.add_metric((name,), float(not check()))
        yield passes


def stopped_counter(registry: CollectorRegistry) -> Callable[[], None]:
    """Return a function that counts lost workers; workers evaluate expressions."""
    counter = Counter(
        "drawbridge_selectors_stopped",
        "Total lost workers: a selector took too much, or the worker was killed or did not start.",
        registry=registry,
    )
    return counter.inc


def leader_gauge(registry: CollectorRegistry, name: str, is_leading: Callable[[], bool]) -> None:
    """Show that this process leads or not, by the name of client-go.

    Args:
        name: The Lease's name.
    """
    gauge = Gauge(
        "leader_election_master_status",
        "Whether this process is the leader (1) or not (0).",
        ("name",),
        registry=registry,
    )
    gauge.labels(name).set_function(lambda: float(is_leading()))


def build_gauge(registry: CollectorRegistry) -> None:
    """Show the version of this process."""
    build = Gauge(
        "drawbridge_build_info",
        "The version of this process; the value is always 1.",
        ("version",),
        registry=registry,
    )
    build.labels(version(DISTRIBUTION)).set(1)


def process_registry() -> CollectorRegistry:
    """Return a registry with the metrics of this process and its build."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # Series that nobody reads.
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    build_gauge(registry)
    return registry
