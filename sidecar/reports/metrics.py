"""Metrics of the sidecar."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from allocator.cluster.verdict_cache import SearchCosts
from process.serving.metrics import SECONDS
from sidecar.commit.writes import Outcome

WRITTEN = "written"
CACHED, SEARCHED = "cached", "searched"
DECISION_SECONDS = (
    0.00025,
    0.0005,
    0.001,
    0.002,
    0.003,
    0.004,
    0.005,
    0.0075,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    1,
    5,
)
"""Buckets around the goals of a decision: 2 ms at 1,000 nodes, 5 ms at 5,000, 50 ms for a new question."""


class SidecarMetrics:
    """Counts calls of the scheduler, reservations and writes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Histogram(
            "drawbridge_sidecar_call_duration_seconds",
            "Time to answer a call of the scheduler, by extension point and verdict.",
            ("point", "verdict"),
            buckets=SECONDS,
            registry=registry,
        )
        self._decisions = Histogram(
            "drawbridge_sidecar_decision_duration_seconds",
            "Time of a decision itself, without waiting for its turn, by kind.",
            ("kind",),
            buckets=DECISION_SECONDS,
            registry=registry,
        )
        self._verdicts = Counter(
            "drawbridge_sidecar_verdicts",
            "Total verdicts on nodes that decisions needed, by whether they were known.",
            ("result",),
            registry=registry,
        )
        for result in (CACHED, SEARCHED):
            self._verdicts.labels(result)
        self._steps = Counter(
            "drawbridge_sidecar_search_steps",
            "Total steps of the searches of decisions.",
            registry=registry,
        )
        self._waits = Histogram(
            "drawbridge_sidecar_version_wait_seconds",
            "Time that PreFilter waited for a claim that the scheduler had seen before us.",
            buckets=SECONDS,
            registry=registry,
        )
        self._rejections = Counter(
            "drawbridge_sidecar_rejections",
            "Total pods that PreFilter rejected, by code.",
            ("code",),
            registry=registry,
        )
        self._reservations = Gauge(
            "drawbridge_sidecar_reservations",
            "Reservations of the scheduler that are in force.",
            registry=registry,
        )
        self._holds = Gauge(
            "drawbridge_sidecar_holds",
            "Claims with devices that are promised and not seen in the API, by step.",
            ("step",),
            registry=registry,
        )
        self._held_back = Gauge(
            "drawbridge_sidecar_held_back_claims",
            "Claims of pods that were deleted by force whose devices nobody gets for now.",
            registry=registry,
        )
        self._unfenced = Gauge(
            "drawbridge_sidecar_unfenced_drivers",
            "Owned drivers whose devices are not given, since the fence does not keep others from them.",
            registry=registry,
        )
        self._waiting_for_quota = Gauge(
            "drawbridge_sidecar_pods_waiting_for_quota",
            "Pods that wait until a DeviceQuota leaves enough to their tenant.",
            registry=registry,
        )
        self._keeps = Gauge(
            "drawbridge_sidecar_groups_keeping_devices",
            "Groups of pods that have waited for long, so that devices are kept for them.",
            registry=registry,
        )
        self._drift = Counter(
            "drawbridge_sidecar_drift",
            "Total checks after which the devices in use had to be counted anew.",
            registry=registry,
        )
        self._lag = Histogram(
            "drawbridge_sidecar_loop_lag_seconds",
            "How much later than it was due the event loop came to a task.",
            buckets=SECONDS,
            registry=registry,
        )
        self._writes = Counter(
            "drawbridge_sidecar_claim_writes",
            "Total writes of claims, by result.",
            ("result",),
            registry=registry,
        )
        for result in (WRITTEN, *Outcome):
            self._writes.labels(result)
        self._group_commits = Histogram(
            "drawbridge_sidecar_group_commit_duration_seconds",
            "Time in which the claims of a group's pods were written, and taken back in vain, by code.",
            ("code",),
            buckets=SECONDS,
            registry=registry,
        )

    def observe_call(self, point: str, verdict: str, seconds: float) -> None:
        """Count one call."""
        self._calls.labels(point, verdict).observe(seconds)

    def observe_decision(self, kind: str, seconds: float) -> None:
        """Count one decision."""
        self._decisions.labels(kind).observe(seconds)

    @contextmanager
    def measuring(self, kind: str, clock: Callable[[], float]) -> Iterator[None]:
        """Measure a decision for a block, if it has a kind."""
        began_s = clock()
        try:
            yield
        finally:
            if kind:
                self.observe_decision(kind, clock() - began_s)

    @contextmanager
    def counting(self, costs: SearchCosts) -> Iterator[None]:
        """Count the verdicts that the decisions of a block need, and the steps of their searches."""
        cached, searched, steps = costs.cached, costs.searched, costs.steps
        try:
            yield
        finally:
            self._verdicts.labels(CACHED).inc(costs.cached - cached)
            self._verdicts.labels(SEARCHED).inc(costs.searched - searched)
            self._steps.inc(costs.steps - steps)

    def observe_wait(self, seconds: float) -> None:
        """Count one wait for a version."""
        self._waits.observe(seconds)

    def count_rejection(self, code: str) -> None:
        """Count one rejected pod."""
        self._rejections.labels(code).inc()

    def count_write(self, outcome: Outcome | None) -> None:
        """Count one write by its outcome, None for success."""
        self._writes.labels(WRITTEN if outcome is None else outcome.value).inc()

    def observe_group_commit(self, code: str, seconds: float) -> None:
        """Count one commit of a group by the code of its failure, empty for success."""
        self._group_commits.labels(code).observe(seconds)

    def show_reservations(self, count: Callable[[], int]) -> None:
        """Show the number of reservations in force."""
        self._reservations.set_function(lambda: float(count()))

    def show_holds(self, step: str, count: Callable[[], int]) -> None:
        """Show the number of holds at a step."""
        self._holds.labels(step).set_function(lambda: float(count()))

    def show_held_back(self, count: Callable[[], int]) -> None:
        """Show the number of claims with devices that are held back."""
        self._held_back.set_function(lambda: float(count()))

    def show_unfenced(self, count: Callable[[], int]) -> None:
        """Show the number of owned drivers that the fence keeps nobody from."""
        self._unfenced.set_function(lambda: float(count()))

    def show_waiting_for_quota(self, count: Callable[[], int]) -> None:
        """Show the number of pods that wait for a DeviceQuota."""
        self._waiting_for_quota.set_function(lambda: float(count()))

    def show_keeps(self, count: Callable[[], int]) -> None:
        """Show the number of groups that devices are kept for."""
        self._keeps.set_function(lambda: float(count()))

    def count_drift(self) -> None:
        """Count one check that found drift."""
        self._drift.inc()

    def observe_lag(self, seconds: float) -> None:
        """Observe one delay of the event loop."""
        self._lag.observe(seconds)
