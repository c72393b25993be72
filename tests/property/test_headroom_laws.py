"""The resources left order nodes and reject none; values kept up to date equal those computed anew."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.cluster.ranking import RankedNodes
from allocator.model.plan import Plan
from allocator.nodes.headroom import UNLIMITED
from allocator.search.attempt import AllocatorOptions
from allocator.search.results import allocations, share_ids
from allocator.strategies import registry
from allocator.strategies.fragmentation_aware import FragmentationAware
from allocator.strategies.pod_kinds import DeviceDemand, PodKind
from allocator.strategies.strategy import Strategy
from kube.api.resource import ResourceClaim, ResourceClaimStatus
from kube.quantity import Quantity
from sidecar.model.protocol import HeadroomChanges, NodeHeadroom, ResourceRequests
from sidecar.plan.room import LossOrders, Room, with_ranks
from sidecar.state.pod_room import PodRoom
from testing.allocation.builders import (
    amount,
    claim,
    classes,
    device,
    node,
    request,
    slice_of,
)

pytestmark = pytest.mark.property

SIZES = ("20Gi", "40Gi", "80Gi")
NODES = 6

kinds = st.lists(
    st.builds(
        PodKind,
        demands=st.builds(
            lambda size: (DeviceDemand(amounts=(("memory", Quantity(size)),)),),
            st.sampled_from(SIZES),
        ),
        cpu_milli=st.integers(0, 8),
        memory=st.integers(0, 8),
        weight=st.integers(1, 1000),
    ),
    max_size=4,
)
names = st.sampled_from([strategy.name for strategy in registry.ALL])
lefts = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 3))


class Step(NamedTuple):
    """A pod that is asked about and placed on the best node, and a node that changes before.

    Attributes:
        size: Memory of a GPU that it requests.
        requests: Its CPU and memory.
        changed: Number of the node.
        left: The resources left on this node from now on; None if it is gone.
    """

    size: str
    requests: tuple[int, int]
    changed: int
    left: tuple[int, int, int] | None


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(SIZES),
        st.tuples(st.integers(0, 9), st.integers(0, 9)),
        st.integers(0, NODES - 1),
        st.none() | lefts,
    ),
    min_size=1,
    max_size=8,
)


def new_cluster() -> Cluster:
    """Nodes of one to three GPUs that can be shared."""
    names = [f"node-{number}" for number in range(NODES)]
    return Cluster(
        slices=[
            slice_of(
                *(
                    device(f"gpu-{gpu}", shared=True, capacity={"memory": amount("80Gi")})
                    for gpu in range(1 + number % 3)
                ),
                pool=name,
            )
            for number, name in enumerate(names)
        ],
        nodes=[node(name) for name in names],
        claims=(),
        classes=classes(),
        options=AllocatorOptions(),
    )


def changes_of(step: Step, number: int) -> HeadroomChanges:
    name = f"node-{step.changed}"
    if step.left is None:
        return HeadroomChanges(number=number, since=number - 1, removed=(name,))
    cpu_milli, memory, pods = step.left
    left = NodeHeadroom(name=name, cpu_milli=cpu_milli, memory=memory, pods=pods)
    return HeadroomChanges(number=number, since=number - 1, nodes=(left,))


def room_with(known: PodRoom, strategy: FragmentationAware, cluster: Cluster) -> Room:
    """The view for decisions, with orders that nothing was asked of yet."""
    orders = LossOrders(strategy, cluster, known.headroom, known.changes)
    return Room(headroom=known.headroom, strategy=strategy, orders=orders)


def rank(
    cluster: Cluster, room: Room, strategy: Strategy, pod: ResourceClaim, step: Step
) -> RankedNodes:
    cpu_milli, memory = step.requests
    requests = ResourceRequests(cpu_milli=cpu_milli, memory=memory)
    preference, strategy = room.preference(requests, strategy)
    pending = cluster.resolve([pod])
    ranked_nodes = cluster.rank_nodes(pending, strategy=strategy, preference=preference)
    return with_ranks(ranked_nodes, preference)


def named(name: str, fragmentation: FragmentationAware) -> Strategy:
    """A strategy by name; FragmentationAware is the given one."""
    strategies: dict[str, Strategy] = {strategy.name: strategy for strategy in registry.ALL}
    return {**strategies, fragmentation.name: fragmentation}[name]


def place(cluster: Cluster, strategy: Strategy, pod: ResourceClaim, name: str) -> ResourceClaim:
    pending = cluster.resolve([pod])
    plan = cluster.verdict(pending, name, strategy=strategy)
    assert isinstance(plan, Plan)
    (allocation,) = allocations(plan, pending, cluster.options.features, share_ids(name))
    placed = replace(pod, status=ResourceClaimStatus(allocation=allocation))
    cluster.allocate(placed)
    return placed


@settings(max_examples=60, deadline=None)
@given(steps, kinds, names)
def test_a_pod_that_fits_is_never_left_out_and_those_with_room_come_first(
    story: list[Step], usual: list[PodKind], name: str
) -> None:
    cluster, known, fragmentation = new_cluster(), PodRoom(), FragmentationAware(usual)
    strategy = named(name, fragmentation)
    for number, step in enumerate(story, start=1):
        known.take(changes_of(step, number) if number > 1 else replace_all(step))
        room = room_with(known, fragmentation, cluster)
        pod = claim(request(capacity={"memory": step.size}), name=f"pod-{number}")
        ranked_nodes = rank(cluster, room, strategy, pod, step)

        without_room = cluster.rank_nodes(cluster.resolve([pod]), strategy=strategy)
        assert {node for node, _ in ranked_nodes.nodes} == {node for node, _ in without_room.nodes}
        has_room = [
            room.headroom.get(node, UNLIMITED).takes(*step.requests)
            for node, _ in ranked_nodes.nodes
        ]
        assert has_room == sorted(has_room, reverse=True)
        assert ranked_nodes.preferred == sum(has_room)
        if ranked_nodes.nodes:
            place(cluster, strategy, pod, ranked_nodes.nodes[0][0])


@settings(max_examples=60, deadline=None)
@given(steps, kinds, names)
def test_an_order_that_follows_changes_is_that_of_one_made_anew(
    story: list[Step], usual: list[PodKind], name: str
) -> None:
    cluster, known, fragmentation = new_cluster(), PodRoom(), FragmentationAware(usual)
    strategy = named(name, fragmentation)
    room = room_with(known, fragmentation, cluster)
    for number, step in enumerate(story, start=1):
        known.take(changes_of(step, number) if number > 1 else replace_all(step))
        pod = claim(request(capacity={"memory": step.size}), name=f"pod-{number}")
        kept = rank(cluster, room, strategy, pod, step)
        anew = room_with(known, fragmentation, cluster)
        assert kept == rank(cluster, anew, strategy, pod, step)
        if kept.nodes:
            place(cluster, strategy, pod, kept.nodes[0][0])


@settings(max_examples=60, deadline=None)
@given(steps, kinds, names)
def test_equal_class_and_equal_headroom_have_equal_scores(
    story: list[Step], usual: list[PodKind], name: str
) -> None:
    cluster, known, fragmentation = new_cluster(), PodRoom(), FragmentationAware(usual)
    strategy = named(name, fragmentation)
    for number, step in enumerate(story, start=1):
        known.take(changes_of(step, number) if number > 1 else replace_all(step))
        room = room_with(known, fragmentation, cluster)
        pod = claim(request(capacity={"memory": step.size}), name=f"pod-{number}")
        ranked_nodes = rank(cluster, room, strategy, pod, step)
        _, own_strategy = room.preference(ResourceRequests(), strategy)
        plans = cluster.node_plans(cluster.resolve([pod]), strategy=own_strategy)
        ranks: dict[object, set[int]] = {}
        for node_name, score in ranked_nodes.nodes:
            key = plans.class_of[node_name], room.headroom.get(node_name)
            ranks.setdefault(key, set()).add(score)
        assert all(len(values) == 1 for values in ranks.values())
        if ranked_nodes.nodes:
            place(cluster, strategy, pod, ranked_nodes.nodes[-1][0])


@settings(max_examples=60, deadline=None)
@given(steps, kinds, names)
def test_after_a_release_the_scores_are_what_they_were(
    story: list[Step], usual: list[PodKind], name: str
) -> None:
    cluster, known, fragmentation = new_cluster(), PodRoom(), FragmentationAware(usual)
    strategy = named(name, fragmentation)
    known.take(replace_all(story[0]))
    room = room_with(known, fragmentation, cluster)
    before, placed = [], []
    for number, step in enumerate(story):
        pod = claim(request(capacity={"memory": step.size}), name=f"pod-{number}")
        ranked_nodes = rank(cluster, room, strategy, pod, step)
        before.append((pod, step, ranked_nodes.nodes))
        if ranked_nodes.nodes:
            placed.append(place(cluster, strategy, pod, ranked_nodes.nodes[0][0]))
    for pod in placed:
        cluster.release(pod)
    pod, step, nodes = before[0]
    assert rank(cluster, room, strategy, pod, step).nodes == nodes


def replace_all(step: Step) -> HeadroomChanges:
    """All nodes with the resources that the first step gives one of them."""
    cpu_milli, memory, pods = step.left or (8, 8, 2)
    return HeadroomChanges(
        number=1,
        nodes=tuple(
            NodeHeadroom(
                name=f"node-{number}", cpu_milli=cpu_milli + number // 2, memory=memory, pods=pods
            )
            for number in range(NODES)
        ),
    )
