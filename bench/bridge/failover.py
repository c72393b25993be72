"""The time from the end of the leading replica until the next pod is bound, by the other one.

Scheduler and sidecar of a replica end together, as the containers of a pod do: by SIGTERM, as in an
upgrade, or by SIGKILL. The other replica stands by with the settings of the manifests.
"""

import asyncio
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.bridge import load
from bench.bridge.measure import bench_bridge, bench_cluster
from bench.bridge.scenarios import NOWHERE, SCENARIOS, device_class
from bench.report import Result, below
from e2e.bridge import Bridge
from e2e.cluster import Cluster
from e2e.inventory import kwok_nodes
from kube.api.urls import DEVICE_CLASSES, NODES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES
from kube.client.client import Client
from kube.names import SCHEDULER_NAME

ROUNDS: Final = 3
NODE_COUNT: Final = 20
TIMEOUT_S: Final = 120.0
STANDBY_S: Final = 4.0
"""The time until the other replica waits for the Lease, and no informer is behind."""
LEASE_S: Final = 15.0
WRITE_TIMEOUT_S: Final = 5.0
GOALS_S: Final = {signal.SIGTERM: 5.0, signal.SIGKILL: LEASE_S + WRITE_TIMEOUT_S + 5.0}
WORDS: Final = {signal.SIGTERM: "ends in good order", signal.SIGKILL: "is killed"}
_SCENARIO: Final = SCENARIOS["one device"]

Object = dict[str, Any]


def measure() -> Iterator[Result]:
    """Yield the median of some rounds of each kind."""
    with tempfile.TemporaryDirectory() as folder, bench_cluster(Path(folder)) as cluster:
        bridge = bench_bridge(cluster)
        bridge.install()
        cluster.children["kube-scheduler"].stop()
        asyncio.run(_publish(cluster))
        for number in (signal.SIGTERM, signal.SIGKILL):
            rounds_s = [
                _round(cluster, bridge, number, f"{number.name.lower()}-{index}")
                for index in range(ROUNDS)
            ]
            name = f"failover, {NODE_COUNT} nodes: the leader {WORDS[number]}, seconds until a pod is bound"
            yield below(name, median(rounds_s), GOALS_S[number])


def _round(cluster: Cluster, bridge: Bridge, number: signal.Signals, prefix: str) -> float:
    """Return the seconds of one failover.

    Args:
        prefix: The prefix of the pods' names.
    """
    bridge.start("a")
    bridge.wait_working("a")
    bridge.start("b")
    asyncio.run(_bind(cluster, f"{prefix}-before"))
    asyncio.run(_drain(cluster))  # Or this pod would count as the one after the failover.
    time.sleep(STANDBY_S)
    began = time.perf_counter()
    for part in ("scheduler", "sidecar"):
        bridge.child(part, "a").signal(number)
    asyncio.run(_bind(cluster, f"{prefix}-after"))
    seconds = time.perf_counter() - began
    bridge.stop("a")
    bridge.stop("b")
    asyncio.run(_drain(cluster))
    return seconds


async def _publish(cluster: Cluster) -> None:
    nodes = kwok_nodes(NODE_COUNT)
    names = [node["metadata"]["name"] for node in nodes]
    async with await _client(cluster) as client:
        await load.store(client, NODES, nodes)
        await load.store(client, DEVICE_CLASSES, [device_class()])
        slices = [piece for name in names for piece in _SCENARIO.slices(name)]
        await load.store(client, RESOURCE_SLICES, slices)
        templates = load.templates_of(_SCENARIO, NOWHERE)
        await load.store(client, RESOURCE_CLAIM_TEMPLATES, templates)


async def _bind(cluster: Cluster, prefix: str) -> None:
    """Create a pod and wait until it is bound."""
    async with await _client(cluster) as client:
        pods = load.pods_of(_SCENARIO, 1, SCHEDULER_NAME, prefix)
        await load.schedule(client, pods, timeout_s=TIMEOUT_S)


async def _drain(cluster: Cluster) -> None:
    async with await _client(cluster) as client:
        await load.drain(client)


async def _client(cluster: Cluster) -> Client:
    return await Client.from_kubeconfig(str(cluster.kubeconfig))
