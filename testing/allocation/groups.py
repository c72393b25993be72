"""Random groups of pods on small clusters, as plain values and as the allocator's question.

Devices are local to a node, or in a pool that every node sees. A member requests devices of a model, perhaps of one root;
members may share a claim.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

from allocator.cluster.cluster import Cluster
from allocator.groups.model import GroupMember, GroupQuestion, MemberOption
from allocator.nodes.amounts import ResourceAmounts
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest
from allocator.search.attempt import AllocatorOptions
from kube.api.resource import Device, ResourceClaim, ResourceSlice
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    attribute_of,
    claim,
    classes,
    device,
    match,
    node,
    request,
    result,
    slice_of,
)

ROOT: Final = f"{DRIVER}/root"
MODEL: Final = f"{DRIVER}/model"
NETWORK_POOL: Final = "network"


class GroupDevice(NamedTuple):
    """A device: its pool, named as the node or NETWORK_POOL, and its attributes."""

    pool: str
    name: str
    root: str
    model: str
    is_free: bool


class GroupClaim(NamedTuple):
    """A claim with one request; `is_aligned` needs one root, and an empty model takes any."""

    name: str
    devices: int
    model: str
    is_aligned: bool


class GroupPod(NamedTuple):
    """A member: its claims by name, its CPU in cores, and the nodes that it may use."""

    name: str
    claims: tuple[GroupClaim, ...]
    cpu: int
    nodes: tuple[str, ...]


class Case(NamedTuple):
    """A group on a cluster; `cpu` is the number of free cores of each node."""

    nodes: tuple[str, ...]
    devices: tuple[GroupDevice, ...]
    cpu: dict[str, int]
    pods: tuple[GroupPod, ...]
    min_count: int


def random_case(seed: int) -> Case:
    """Return one of infinitely many cases of at most 4 pods, 4 nodes, and 4 devices on each."""
    rng = Random(seed)
    nodes = tuple(f"node-{letter}" for letter in "abcd"[: rng.choice((1, 2, 2, 3, 3, 4))])
    devices = [
        _random_device(rng, pool, number)
        for pool in nodes
        for number in range(rng.choice((0, 1, 2, 2, 3, 4)))
    ]
    if rng.random() < 0.3:
        devices += [
            _random_device(rng, NETWORK_POOL, number) for number in range(rng.randint(1, 3))
        ]
    shapes = [_random_shape(rng, nodes) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    common = GroupClaim("common", rng.choice((1, 1, 2)), rng.choice(("", "x")), is_aligned=False)
    has_common = rng.random() < 0.25
    pods = []
    for number in range(rng.choice((1, 2, 3, 4, 4))):
        claims, cpu, allowed = rng.choice(shapes)
        own = tuple(wanted._replace(name=f"pod-{number}-{wanted.name}") for wanted in claims)
        shares = (common,) if has_common and rng.random() < 0.7 else ()
        pods.append(GroupPod(f"pod-{number}", (*own, *shares), cpu, allowed))
    return Case(
        nodes=nodes,
        devices=tuple(devices),
        cpu={name: rng.choice((2, 3, 4, 8)) for name in nodes},
        pods=tuple(pods),
        min_count=rng.randint(max(1, len(pods) - 1), len(pods)),
    )


def _random_device(rng: Random, pool: str, number: int) -> GroupDevice:
    return GroupDevice(
        pool, f"gpu-{number}", rng.choice("ab"), rng.choice("xxy"), is_free=rng.random() < 0.85
    )


def _random_shape(
    rng: Random, nodes: Sequence[str]
) -> tuple[tuple[GroupClaim, ...], int, tuple[str, ...]]:
    claims = tuple(
        GroupClaim(
            f"claim-{number}",
            rng.choice((1, 1, 2, 2, 3)),
            rng.choice(("", "", "x", "y")),
            rng.random() < 0.4,
        )
        for number in range(rng.choice((0, 1, 1, 1, 2)))
    )
    allowed = (
        tuple(nodes)
        if rng.random() < 0.7
        else tuple(sorted(rng.sample(nodes, rng.randint(1, len(nodes)))))
    )
    return claims, rng.choice((0, 1, 1, 2)), allowed


# --- for the allocator ---------------------------------------------------------------------------


def cluster_of(case: Case) -> Cluster:
    """The cluster of a case."""
    in_use = [entry for entry in case.devices if not entry.is_free]
    return Cluster(
        slices=tuple(_slices(case)),
        nodes=[node(name) for name in case.nodes],
        claims=[
            allocated_claim(result(entry.name, pool=entry.pool), name=f"used-{number}")
            for number, entry in enumerate(in_use)
        ],
        classes=classes(),
        options=AllocatorOptions(),
    )


def question_of(case: Case) -> GroupQuestion:
    """The question of a case."""
    return GroupQuestion(
        members=tuple(
            GroupMember(
                name=f"default/{pod.name}",
                options=(MemberOption(nodes=pod.nodes, claims=tuple(map(_claim, pod.claims))),),
                request=cpu_request(pod.cpu),
            )
            for pod in case.pods
        ),
        min_count=case.min_count,
        resources=resources_of(case),
    )


def cpu_request(cores: int) -> PodRequest:
    """A request for CPU alone."""
    return PodRequest(
        amounts=ResourceAmounts(cpu_milli=1000 * cores),
        scored_cpu_milli=1000 * cores,
        scored_memory=0,
        placed_cpu_milli=1000 * cores,
        placed_memory=0,
    )


def resources_of(case: Case) -> dict[str, NodeResources]:
    """The CPU of each node; each takes any number of pods."""
    return {
        name: NodeResources(allocatable=ResourceAmounts(cpu_milli=1000 * cores), max_pods=110)
        for name, cores in case.cpu.items()
    }


def _slices(case: Case) -> Iterator[ResourceSlice]:
    for pool in (*case.nodes, NETWORK_POOL):
        own = [_device(entry) for entry in case.devices if entry.pool == pool]
        if own:
            yield slice_of(*own, pool=pool, all_nodes=True if pool == NETWORK_POOL else None)


def _device(entry: GroupDevice) -> Device:
    return device(entry.name, attributes={"root": entry.root, "model": entry.model})


def _claim(wanted: GroupClaim) -> ResourceClaim:
    expressions = [f'{attribute_of("model")} == "{wanted.model}"'] if wanted.model else []
    return claim(
        request("gpu", *expressions, count=wanted.devices),
        name=wanted.name,
        constraints=(match(ROOT, "gpu"),) if wanted.is_aligned else (),
    )


def shares_devices(case: Case) -> bool:
    """Return True if nodes see devices of each other, or members name one claim."""
    names = [entry.name for pod in case.pods for entry in pod.claims]
    return len(set(names)) < len(names) or any(entry.pool == NETWORK_POOL for entry in case.devices)
