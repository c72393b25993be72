"""Groups per second: 64 groups of 16 pods through the bridge, and through kube-scheduler with the same gates.

Both schedulers bind whole groups by Kubernetes' group cycle. The clock runs from the first pod's creation until
the last one is bound. There are devices and CPU for all groups, so all are to be placed.
"""

import asyncio
import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench.bridge import load
from bench.bridge.measure import bench_bridge, bench_cluster
from bench.bridge.scenarios import NOWHERE, SCENARIOS, Object, device_class, gpus
from bench.bridge.sides import InTree, Ours, Side
from bench.report import Result, below, times
from e2e import groups
from e2e.cluster import Cluster
from e2e.inventory import kwok_nodes
from kube.api.urls import (
    DEVICE_CLASSES,
    NODES,
    POD_GROUPS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
)
from kube.client.client import Client

GOALS: Final[Mapping[int, float]] = {100: 1.0, 1_000: 1.5}
"""Nodes to the least number of times as many groups per second."""
GROUPS: Final = 64
MEMBERS: Final = 16
DEVICES_PER_NODE: Final = 16
ROUNDS: Final = 3
TIMEOUT_S: Final = 300.0


class Turn(NamedTuple):
    """The groups that one side placed, and the seconds for them."""

    placed: float
    seconds: float


def measure() -> Iterator[Result]:
    """Yield the results; a control plane is started for each size."""
    for node_count, goal in GOALS.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            bench_cluster(Path(folder), **groups.CLUSTER) as cluster,
        ):
            bridge = bench_bridge(cluster, flags=groups.SCHEDULER_FLAGS)
            bridge.install()
            cluster.children["kube-scheduler"].stop()
            asyncio.run(_publish(cluster, node_count))
            sides: tuple[Side, Side] = (Ours(bridge), InTree(cluster))
            numbers = itertools.count()
            for side in sides:  # A cluster that has just been filled is slow.
                asyncio.run(_turn(cluster, side, next(numbers), 4))
            rounds = [
                [asyncio.run(_turn(cluster, side, next(numbers), GROUPS)) for side in sides]
                for _ in range(ROUNDS)
            ]
            title = f"{node_count:,} nodes, {GROUPS} groups of {MEMBERS} pods"
            ours, anchor = (
                median(turn[side].placed / turn[side].seconds for turn in rounds)
                for side in range(len(sides))
            )
            yield times(f"{title}: groups/s", ours, anchor, at_least=goal)
            unplaced, anchor_unplaced = (
                max(GROUPS - turn[side].placed for turn in rounds) for side in range(len(sides))
            )
            name = f"{title}: groups that were not placed"
            yield below(name, unplaced, 1.0, anchor=anchor_unplaced)


async def _publish(cluster: Cluster, node_count: int) -> None:
    nodes = kwok_nodes(node_count)
    async with await _client(cluster) as client:
        await load.store(client, NODES, nodes)
        await load.store(client, DEVICE_CLASSES, [device_class()])
        slices = (
            piece for node in nodes for piece in gpus(node["metadata"]["name"], DEVICES_PER_NODE)
        )
        await load.store(client, RESOURCE_SLICES, slices)
        templates = load.templates_of(SCENARIOS["one device"], NOWHERE)
        await load.store(client, RESOURCE_CLAIM_TEMPLATES, templates)


async def _turn(cluster: Cluster, side: Side, number: int, group_count: int) -> Turn:
    names = [f"turn-{number}-{group:02d}" for group in range(group_count)]
    pods = [pod for name in names for pod in _members(name, side.scheduler)]
    await asyncio.to_thread(side.start)
    try:
        async with await _client(cluster) as client:
            pod_groups = [groups.pod_group(name, MEMBERS) for name in names]
            await load.store(client, POD_GROUPS, pod_groups)
            placed, seconds = await _schedule(client, pods)
    finally:
        await asyncio.to_thread(side.stop)
    async with await _client(cluster) as client:
        await load.drain(client)
        await load.remove_all(client, POD_GROUPS)
    turn = Turn(placed / MEMBERS, seconds)
    text = (
        f"  {side.name}: {turn.placed / seconds:.2f} groups/s, {turn.placed:g} of {group_count}\n"
    )
    sys.stderr.write(text)
    return turn


def _members(group: str, scheduler: str) -> Sequence[Object]:
    pods = load.pods_of(SCENARIOS["one device"], MEMBERS, scheduler, group)
    return [groups.member(pod, group) for pod in pods]


async def _schedule(client: Client, pods: Sequence[Object]) -> tuple[int, float]:
    """Return the number of bound pods, and the seconds for them."""
    try:
        return len(pods), await load.schedule(client, pods, timeout_s=TIMEOUT_S)
    except load.UnfinishedError as error:
        return error.decided, TIMEOUT_S


async def _client(cluster: Cluster) -> Client:
    return await Client.from_kubeconfig(str(cluster.kubeconfig))
