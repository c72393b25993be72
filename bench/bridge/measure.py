"""Runs the scenarios, each on both sides in turn on the same control plane.

Both schedulers have the same client limits and Kubernetes' default feature gates, and only one of them
runs at a time. Nodes are simulated by kwok. The clock runs from the first pod's creation until the
last one is bound, or turned away where it fits nowhere.
"""

import asyncio
import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from bench.bridge import load
from bench.bridge.scenarios import (
    DRIVER,
    NOWHERE,
    SCENARIOS,
    Object,
    Scenario,
    device_class,
    fill_claims,
)
from bench.bridge.sides import (
    METRICS_FLAG,
    InTree,
    Ours,
    Sample,
    Side,
    cpu_seconds,
    quantile,
    rss_mb,
    total,
    without_bind,
)
from bench.report import Result, below, informative, times
from e2e.bridge import Bridge
from e2e.cluster import Cluster
from e2e.inventory import kwok_nodes
from kube.api.urls import (
    DEVICE_CLASSES,
    NODES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kube.client.client import Client
from sidecar.answers.decision_maker import FIND_NODES, NEW, PLACE

CLIENT_QPS: Final = 1000
"""The rate of each scheduler's and of the controller manager's client; twice as many in a burst."""
DEFAULT_SCHEDULER_QPS: Final = 50
"""The rate of a scheduler's client, by Kubernetes' default; twice as many in a burst."""
DEFAULT_CONTROLLER_FLAGS: Final = ("--kube-api-qps=20", "--kube-api-burst=30")
"""The defaults of kube-controller-manager."""
NODE_LEASE_S: Final = 240
"""The Lease of each node, renewed every 60 s: heartbeats of 5,000 nodes are 83 writes a second."""
TURN_TIMEOUT_S: Final = 200.0
WARM_UP_PODS: Final = 50
ENOUGH_PODS: Final = 200
"""The number of pods in all turns of a side, if there is not room for them in one."""
GOALS: Final[Mapping[bool, Mapping[int, float]]] = {
    False: {100: 1.0, 1_000: 1.7, 5_000: 2.2},
    True: {100: 1.0, 1_000: 3.0, 5_000: 10.0},
}
"""Whether the cluster is full, or pods fit nowhere, to nodes to the goal."""
DEFAULT_LEASE: Final = {
    "leaderElection": {"leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "1s"},
    "writeTimeout": "5s",
}
POINTS: Final = (
    "PreFilter",
    "Filter",
    "PostFilter",
    "PreScore",
    "Score",
    "Reserve",
    "PreBind",
    "Bind",
)
CALLS: Final = ("prefilter", "prebind", "postfilter")
_POINT: Final = "scheduler_framework_extension_point_duration_seconds"
_ALGORITHM: Final = "scheduler_scheduling_algorithm_duration_seconds"
_CALL: Final = "drawbridge_sidecar_call_duration_seconds"
_DECISION: Final = "drawbridge_sidecar_decision_duration_seconds"
DECISION_GOALS_MS: Final = {1_000: 2.0, 5_000: 5.0}
NEW_DECISION_GOAL_MS: Final = 50.0


class Anchor(Enum):
    """A scheduler that the bridge is compared with."""

    IN_TREE = "in-tree"
    PRE_BIND = "prebind"
    """The bridge itself, with a profile that leaves Bind to the default binder."""


class Options(NamedTuple):
    """The options of a measurement.

    Attributes:
        nodes: Sizes of the cluster.
        pods: The number of pods in each turn.
        scenarios: Names of some; all if empty.
        rounds: Turns of each side, at least; the median counts.
        against: The other side.
        has_default_limits: All clients are limited as Kubernetes does it by default, so that these limits
            decide; there is no goal then.
    """

    nodes: Sequence[int] = (100, 1_000)
    pods: int = 400
    scenarios: Sequence[str] = ()
    rounds: int = 1
    against: Anchor = Anchor.IN_TREE
    has_default_limits: bool = False


class Turn(NamedTuple):
    """One side's work on one scenario.

    Attributes:
        pods: The number of pods that were bound or turned away, at least one.
        seconds: The seconds until all were, or `TURN_TIMEOUT_S`.
        metrics: The metrics after it, of a scheduler that was started before it.
        cpu: Seconds of CPU by process.
        memory_mb: The memory of the sidecar afterwards; 0 without one.
    """

    pods: int
    seconds: float
    metrics: Sequence[Sample]
    cpu: Mapping[str, float]
    memory_mb: float

    @property
    def rate(self) -> float:
        """Pods per second."""
        return self.pods / self.seconds


def measure(options: Options) -> Iterator[Result]:
    """Yield the results; a control plane is started for each size."""
    for nodes in options.nodes:
        defaults = options.has_default_limits
        with (
            tempfile.TemporaryDirectory() as folder,
            bench_cluster(Path(folder), has_default_limits=defaults) as cluster,
        ):
            qps = DEFAULT_SCHEDULER_QPS if defaults else CLIENT_QPS
            bridge = bench_bridge(cluster, qps)
            bridge.install()
            anchor: Side = InTree(cluster)
            if options.against is Anchor.PRE_BIND:
                other = bench_bridge(cluster, qps, profiles=[without_bind(bridge.profile)])
                anchor = Ours(other, replica="b", name="prebind")
            yield from Comparison(cluster, (Ours(bridge), anchor), nodes, options).run()


def bench_bridge(
    cluster: Cluster,
    qps: int = CLIENT_QPS,
    flags: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    **scheduler: Any,
) -> Bridge:
    """Return the bridge before its start.

    Args:
        qps: The rate of the scheduler's client; twice as many in a burst.
        flags: Further flags of the scheduler.
        settings: Further settings of the sidecar.
        scheduler: Further fields of its configuration.
    """
    limits = {"clientConnection": {"qps": qps, "burst": 2 * qps}}
    return Bridge(
        cluster,
        drivers=[DRIVER],
        settings={**DEFAULT_LEASE, **(settings or {})},
        scheduler={**limits, **scheduler},
        scheduler_flags=(METRICS_FLAG, *flags),
    )


def bench_cluster(
    folder: Path, *, has_default_limits: bool = False, **control_plane: Any
) -> Cluster:
    """Return a control plane before its start.

    Args:
        control_plane: Further arguments of `Cluster`.
    """
    return Cluster(
        folder,
        client_qps=DEFAULT_SCHEDULER_QPS if has_default_limits else CLIENT_QPS,
        node_lease_s=NODE_LEASE_S,
        controller_manager_flags=(
            f"--node-monitor-grace-period={3 * NODE_LEASE_S}s",
            *(DEFAULT_CONTROLLER_FLAGS if has_default_limits else ()),
        ),
        scheduler_flags=(METRICS_FLAG,),
        **control_plane,
    )


class Comparison:
    """All scenarios on one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        sides: tuple[Side, Side],
        nodes: int,
        options: Options,
        scenarios: Mapping[str, Scenario] = SCENARIOS,
    ) -> None:
        """Compare two sides.

        Args:
            scenarios: Name to scenario; all count that the options do not leave out.
        """
        self._scenarios = scenarios
        self._cluster = cluster
        self._names = [f"node-{number}" for number in range(nodes)]
        self._options = options
        self._sides = sides
        self._turns = itertools.count()

    def run(self) -> Iterator[Result]:
        """Yield the results of all scenarios."""
        self._cluster.children["kube-scheduler"].stop()
        asyncio.run(self._add_nodes())
        names = self._options.scenarios or self._scenarios
        for number, name in enumerate(names):
            scenario = self._scenarios[name]
            asyncio.run(self._prepare(scenario))
            count = self._pod_count(scenario)
            if not number:  # A cluster that has just been filled is slow.
                for side in self._sides:
                    asyncio.run(self._turn(scenario, side, min(count, WARM_UP_PODS)))
            rounds = [
                [asyncio.run(self._turn(scenario, side, count)) for side in self._sides]
                for _ in range(max(self._options.rounds, self._rounds_for(count)))
            ]
            yield from self._results(scenario, [ours for ours, _ in rounds], [t for _, t in rounds])

    async def _add_nodes(self) -> None:
        nodes = [
            {**node, "metadata": {**node["metadata"], "name": name}}
            for name, node in zip(self._names, kwok_nodes(len(self._names)), strict=True)
        ]
        async with await self._client() as client:
            await load.store(client, NODES, nodes)
            await load.store(client, DEVICE_CLASSES, [device_class()])

    async def _prepare(self, scenario: Scenario) -> None:
        """Publish the scenario's devices in place of those of the one before."""
        _say(f"{len(self._names)} nodes: {scenario.name}")
        async with await self._client() as client:
            for resource in (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES):
                await load.remove_all(client, resource)
            slices = [piece for name in self._names for piece in scenario.slices(name)]
            await load.store(client, RESOURCE_SLICES, slices)
            templates = load.templates_of(scenario, NOWHERE)
            await load.store(client, RESOURCE_CLAIM_TEMPLATES, templates)
            if scenario.is_full:
                await load.store(client, RESOURCE_CLAIMS, fill_claims(self._names))

    async def _turn(self, scenario: Scenario, side: Side, count: int) -> Turn:
        pods = load.pods_of(scenario, count, side.scheduler, f"turn-{next(self._turns)}")
        await asyncio.to_thread(side.start)
        try:
            async with await self._client() as client:
                before = cpu_seconds(self._cluster)
                decided, seconds = await _schedule(client, pods)
                after = cpu_seconds(self._cluster)
                metrics = await asyncio.to_thread(side.metrics)
                memory_mb = self._memory_mb()
        finally:
            await asyncio.to_thread(side.stop)
        async with await self._client() as client:
            await load.drain(client)
        cpu = {name: used - before.get(name, 0.0) for name, used in after.items()}
        turn = Turn(decided, seconds, metrics, cpu, memory_mb)
        _say(f"  {side.name}: {turn.rate:.1f} pods/s, {decided} of {len(pods)}")
        return turn

    def _pod_count(self, scenario: Scenario) -> int:
        room = len(self._names) * scenario.pods_per_node
        if scenario.is_full:
            room = sum(
                8 - len(claim["status"]["allocation"]["devices"]["results"])
                for claim in fill_claims(self._names)
            )
        return min(self._options.pods, room)

    def _rounds_for(self, count: int) -> int:
        """Return the sufficient number of turns of so many pods: one of few pods is over in half a second."""
        return ceil(min(self._options.pods, ENOUGH_PODS) / count)

    def _memory_mb(self) -> float:
        child = self._cluster.children.get("sidecar-a")
        record = child.record if child is not None else None
        return rss_mb(record.pid) if record is not None else 0.0

    async def _client(self) -> Client:
        return await Client.from_kubeconfig(str(self._cluster.kubeconfig))

    def _results(
        self, scenario: Scenario, ours: Sequence[Turn], anchors: Sequence[Turn]
    ) -> Iterator[Result]:
        nodes = len(self._names)
        title = f"{nodes:,} nodes, {scenario.name}"
        goals = GOALS[scenario.is_full or scenario.has_nowhere]
        rate, anchor = (median(turn.rate for turn in turns) for turns in (ours, anchors))
        name = f"{title}: pods/s"
        goal = goals.get(nodes) if scenario.at_least is None else scenario.at_least
        has_goal = goal is not None and self._options.against is Anchor.IN_TREE
        if goal is not None and has_goal and not self._options.has_default_limits:
            yield times(name, rate, anchor, at_least=goal)
        else:
            yield informative(name, rate, anchor)
        yield from _shares(title, ours[-1], anchors[-1])
        metrics = ours[-1].metrics
        for kind, words, goal_ms in (
            (FIND_NODES, "decision", DECISION_GOALS_MS.get(nodes)),
            (FIND_NODES + NEW, "decision about new requests", NEW_DECISION_GOAL_MS),
        ):
            if total(metrics, f"{_DECISION}_count", kind=kind):
                p99_ms = quantile(metrics, _DECISION, 0.99, kind=kind) * 1000
                yield below(f"{title}: {words}, p99 in ms", p99_ms, goal_ms)
        yield below(f"{title}: memory of the sidecar in MB", ours[-1].memory_mb, 300.0)


async def _schedule(client: Client, pods: Sequence[Object]) -> tuple[int, float]:
    """Return the number of decided pods, and the seconds for them; the rest takes too long."""
    try:
        seconds = await load.schedule(client, pods, timeout_s=TURN_TIMEOUT_S)
    except load.UnfinishedError as error:
        return max(1, error.decided), TURN_TIMEOUT_S
    return len(pods), seconds


def _shares(title: str, ours: Turn, anchor: Turn) -> Iterator[Result]:
    """Yield the parts of each pod's time, in ms a pod."""

    def per_pod(turn: Turn, metric: str, **labels: str) -> float:
        return total(turn.metrics, f"{metric}_sum", **labels) / turn.pods * 1000

    def row(part: str, own: float, others: float) -> Result:
        result = below(f"{title}: {part}, ms a pod", own, None)
        return informative(result.name, own, others) if others else result

    yield row("scheduling algorithm", per_pod(ours, _ALGORITHM), per_pod(anchor, _ALGORITHM))
    for point in POINTS:
        own, others = (per_pod(turn, _POINT, extension_point=point) for turn in (ours, anchor))
        yield row(point, own, others)
    for call in CALLS:
        yield row(f"sidecar's {call}", per_pod(ours, _CALL, point=call), 0.0)
    for kind in (FIND_NODES, FIND_NODES + NEW, PLACE):
        yield row(f"decision {kind}", per_pod(ours, _DECISION, kind=kind), 0.0)
    processes = sorted(ours.cpu.keys() | anchor.cpu.keys())
    for process in processes:
        own, others = (turn.cpu.get(process, 0.0) / turn.pods * 1000 for turn in (ours, anchor))
        yield row(f"CPU of {process}", own, others)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
