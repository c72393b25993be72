"""The wait of a scheduler for the decision about a group: 16 pods of two devices under one root, on a partly used cluster.

At first a count of small groups that are placed, of those that have a placement at all: every one is tried, without
the allocator. Beside it is the count of those that upstream places, pod by pod.

Every node has other CPU left, so that no two are equal. What a group gets is in use for the next one. It is CPU time,
which on a core that does nothing else is the time of a decision.
"""

from collections.abc import Iterator, Sequence
from random import Random
from statistics import quantiles
from time import process_time
from typing import Final

from msgspec.structs import replace

from allocator.groups.decide import decide_group
from allocator.groups.model import GroupPlan
from allocator.nodes.headroom import Headroom
from bench.report import Result, below
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from process.running.garbage import exempt_caches
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import Places
from sidecar.model.protocol import GroupRequest
from sidecar.plan.room import Room
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    device,
    match,
    node,
    request,
    result,
    slice_of,
)
from testing.allocation.groups import cluster_of, question_of, random_case
from testing.oracle.group_placements import most_members, placed_pod_by_pod
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import snapshot

SMALL_GROUPS: Final = 3_000
"""Groups of at most 4 pods, on at most 4 nodes of at most 4 devices."""
GROUPS: Final = 101
MEMBERS: Final = 16
DEVICES: Final = 8
SIZES: Final = ((1_000, 50.0), (5_000, 200.0))
"""Nodes of a cluster, and the goal for p99 in ms."""
USED: Final = {"fit": (0, 1, 2, 3, 5, 6, 7, 8), "do not fit": (7, 8)}
"""Whether groups fit, and how many devices of a node may be in use."""
STRATEGIES: Final = ("FirstFit", "FragmentationAware")
_CONTAINER: Final = {"resources": {"requests": {"cpu": "2"}}}


def measure() -> Iterator[Result]:
    """Yield p50 and p99 of the decisions about groups that fit, and about some that do not."""
    yield _placed_small_groups()
    for nodes, goal_ms in SIZES:
        for title, used in USED.items():
            for strategy in STRATEGIES:
                world, requests = _cluster(nodes, used, strategy)
                exempt_caches()
                took_s = [_decision_s(request_, world) for request_ in requests]
                p50_ms, p99_ms = (quantiles(took_s[1:], n=100)[at] * 1000 for at in (49, 98))
                name = f"groups of {MEMBERS} pods that {title} {nodes:,} nodes, {strategy}"
                yield below(f"{name}: p99 of CPU in ms", p99_ms, goal_ms)
                yield below(f"{name}: p50 of CPU in ms", p50_ms, None)
                yield below(f"{name}: the first one, in ms", took_s[0] * 1000, None)


def _placed_small_groups() -> Result:
    """Return the number of groups that have a placement and are not placed, beside upstream's."""
    ours = upstream = fitting = 0
    for case in map(random_case, range(SMALL_GROUPS)):
        if most_members(case) < case.min_count:
            continue
        fitting += 1
        ours += not isinstance(decide_group(cluster_of(case), question_of(case)), GroupPlan)
        upstream += placed_pod_by_pod(case) < case.min_count
    return below(f"{fitting:,} small groups that fit: not placed", ours, 1.0, anchor=upstream)


def _decision_s(request_: GroupRequest, world: Snapshot) -> float:
    """Return the seconds of CPU of a decision; the devices that it gives are in use afterwards."""
    began_s = process_time()
    outcome = decide(request_, world, Attempt())
    took_s = process_time() - began_s
    for planned in outcome.claims.values() if isinstance(outcome, Places) else ():
        world.cluster.allocate(planned.claim)
    return took_s


def _cluster(
    nodes: int, used: Sequence[int], strategy: str
) -> tuple[Snapshot, Sequence[GroupRequest]]:
    """Return a cluster with devices in use at random, and the groups that come."""
    random = Random(nodes)
    names = [f"node-{number:04}" for number in range(nodes)]
    published = [
        device(f"gpu-{number}", attributes={"root": f"root-{number // 2}"})
        for number in range(DEVICES)
    ]
    in_use = [
        allocated_claim(result(f"gpu-{number}", pool=name), name=f"used-{name}-{number}")
        for name in names
        for number in random.sample(range(DEVICES), random.choice(used))
    ]
    groups = [_group(f"group-{number}") for number in range(GROUPS)]
    world = snapshot(
        *in_use,
        *(claim_ for pods in groups for claim_ in map(_claim, pods)),
        nodes=[node(name) for name in names],
        slices=[slice_of(*published, pool=name, node=name) for name in names],
    )
    headroom = {
        name: Headroom(cpu_milli=random.randrange(4_000, 64_000), memory=1 << 40, pods=100)
        for name in names
    }
    requests = [
        group_request(*pods, name=f"group-{number}", with_resources=True)
        for number, pods in enumerate(groups)
    ]
    return replace(world, room=Room(headroom=headroom), default_strategy=strategy), requests


def _group(name: str) -> Sequence[Pod]:
    return [
        member(f"{name}-{number}", f"{name}-{number}", group=name, containers=[_CONTAINER])
        for number in range(MEMBERS)
    ]


def _claim(pod: Pod) -> ResourceClaim:
    aligned = (match(f"{DRIVER}/root"),)
    return claim(request(count=2), name=pod.metadata.name, constraints=aligned)
