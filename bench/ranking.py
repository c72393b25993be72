"""The wait of a scheduler in its serial cycle: the hundred best nodes, after one allocation changed.

The cost of an answer must not grow with the nodes of a cluster, nor with the kinds of them, nor with the
nodes that see the pool of an allocation. The anchor is the verdict about every class, which the answer
was made from before there were rankings.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from statistics import quantiles
from typing import Final

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.cluster.ranking import RankedNodes
from allocator.model.requests import PendingClaims
from bench.allocator_runs import build_cluster, seconds
from bench.report import Result, below, informative
from kube.api.resource import DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceSlice
from process.running.garbage import exempt_caches
from sidecar.model.protocol import MAX_NODES
from sidecar.plan.decisions import ANSWER_LIMITS
from testing.allocation.builders import (
    allocated_claim,
    claim,
    device_class,
    devices,
    result,
    slice_of,
)
from testing.oracle import ours, workloads

QUESTIONS: Final = 500
NEW_QUESTIONS: Final = 20
SIZES: Final = ((1_000, 2.0), (5_000, 5.0))
"""Nodes of a cluster, and the goal for p99 in ms."""
NEW_GOAL_MS: Final = 50.0
CLUSTERS: Final = (
    ("varied", "a random half of each node allocated"),
    ("different", "the same, each node with other amounts"),
)
NETWORK_DEVICES: Final = 64
NETWORK_DRIVER: Final = "network.example.com"
NETWORK_IN_USE: Final = 16
"""Devices of the network pool that are in use, of which the oldest is released for the next one."""
NETWORK_CLAIMS: Final = (
    ("devices of nodes", ("own",), True),
    ("a device of the network", ("network",), True),
    # The use of the network is part of the state of every class, and each state has a search.
    ("both", ("own", "network"), False),
)
"""The subject of a question, its claims, and True if the goal applies."""


def measure() -> Iterator[Result]:
    """Yield p50 and p99 of questions that were asked before, and of new ones."""
    for nodes, goal_ms in SIZES:
        for name, title in CLUSTERS:
            yield from _ranking_results(
                name, f"best {MAX_NODES} of {nodes:,} nodes, {title}", nodes, goal_ms
            )
        yield from _network_results(nodes, goal_ms)


def _ranking_results(name: str, title: str, nodes: int, goal_ms: float) -> Iterator[Result]:
    objects = ours.objects(workloads.WORKLOADS[name][0](nodes))
    cluster = build_cluster(objects)
    exempt_caches()  # As the sidecar does, once it is in sync.
    pending = cluster.resolve(objects.claims)

    def ask(claims: PendingClaims = pending) -> RankedNodes:
        return cluster.rank_nodes(claims, limit=MAX_NODES, limits=ANSWER_LIMITS)

    first_s = seconds(ask)
    while not ask().is_known:
        pass
    changing = cycle(objects.allocated_claims)

    def after_a_change(question: Callable[[], object]) -> float:
        claim = next(changing)
        cluster.release(claim)
        took_s = seconds(question)
        cluster.allocate(claim)
        return took_s

    answers = [after_a_change(ask) for _ in range(QUESTIONS)]
    every = [
        after_a_change(lambda: list(cluster.class_verdicts(pending))) for _ in range(NEW_QUESTIONS)
    ]
    p50_ms, p99_ms = (quantiles(answers, n=100)[at] * 1000 for at in (49, 98))
    yield below(f"{title}: p99 in ms", p99_ms, goal_ms)
    yield informative(f"{title}: p50 in ms", p50_ms, quantiles(every, n=100)[49] * 1000)
    yield below(f"{title}: not asked for before, in ms", first_s * 1000, NEW_GOAL_MS)


def _network_results(nodes: int, goal_ms: float) -> Iterator[Result]:
    """Yield p50 and p99 of answer and allocation, with each pod getting a device that all nodes see."""
    network = _network()
    objects = ours.objects(workloads.WORKLOADS["varied"][0](nodes))
    network_class = device_class(NETWORK_DRIVER, f'device.driver == "{NETWORK_DRIVER}"')
    classes = {**objects.classes, NETWORK_DRIVER: network_class}
    cluster = build_cluster(replace(objects, slices=(*objects.slices, network), classes=classes))
    exempt_caches()
    exactly = ExactDeviceRequest(device_class_name=NETWORK_DRIVER, count=1)
    claims = {
        "own": objects.claims,
        "network": (claim(DeviceRequest(name="network", exactly=exactly)),),
    }
    for title, names, has_goal in NETWORK_CLAIMS:
        pending = cluster.resolve([claim_ for name in names for claim_ in claims[name]])
        took_s = _after_network_allocations(cluster, pending)
        p50_ms, p99_ms = (quantiles(took_s, n=100)[at] * 1000 for at in (49, 98))
        name = f"best {MAX_NODES} of {nodes:,} nodes that share {NETWORK_DEVICES} devices, {title}"
        yield below(f"{name}: p99 in ms", p99_ms, goal_ms if has_goal else None)
        yield below(f"{name}: p50 in ms", p50_ms, None)


def _after_network_allocations(cluster: Cluster, pending: PendingClaims) -> Sequence[float]:
    """Return the seconds of each answer with the allocation of a network device before it."""

    def ask() -> RankedNodes:
        return cluster.rank_nodes(pending, limit=MAX_NODES, limits=ANSWER_LIMITS)

    while not ask().is_known:
        pass
    held: deque[ResourceClaim] = deque()
    answers = []
    for number in range(QUESTIONS):
        device_result = result(
            f"device-{number % NETWORK_DEVICES}", driver=NETWORK_DRIVER, pool="network"
        )
        held.append(allocated_claim(device_result, name=f"network-{number}"))
        answers.append(seconds(cluster.allocate, held[-1]) + seconds(ask))
        if len(held) > NETWORK_IN_USE:
            cluster.release(held.popleft())
    while held:
        cluster.release(held.popleft())
    return answers


def _network() -> ResourceSlice:
    """Return a pool that every node sees."""
    names = [f"device-{number}" for number in range(NETWORK_DEVICES)]
    return slice_of(*devices(*names), driver=NETWORK_DRIVER, pool="network", all_nodes=True)
