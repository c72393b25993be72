"""Potentials: nodes that are alike lose alike, nothing is gained by a pod, and a release undoes it."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.model.plan import Plan
from allocator.nodes.headroom import Headroom
from allocator.search.attempt import AllocatorOptions
from allocator.search.results import allocations, share_ids
from allocator.strategies.fragmentation_aware import FragmentationAware
from allocator.strategies.load import usage_after
from allocator.strategies.pod_kinds import DeviceDemand, PodKind
from kube.api.resource import ResourceClaim, ResourceClaimStatus
from kube.quantity import Quantity
from testing.allocation.builders import (
    allocated_claim,
    amount,
    claim,
    classes,
    device,
    node,
    request,
    result,
    slice_of,
)

pytestmark = pytest.mark.property

SIZES = ("20Gi", "35Gi", "40Gi", "80Gi")

amounts = st.sampled_from((None, *SIZES))
demands = st.builds(
    lambda count, size: DeviceDemand(
        count=count, amounts=None if size is None else (("memory", Quantity(size)),)
    ),
    st.integers(1, 3),
    amounts,
)
kinds = st.lists(
    st.builds(
        PodKind,
        demands=st.lists(demands, min_size=1, max_size=2).map(tuple),
        cpu_milli=st.integers(0, 8000),
        memory=st.integers(0, 64),
        weight=st.integers(1, 1000),
    ),
    max_size=5,
)
headrooms = st.builds(
    Headroom,
    cpu_milli=st.none() | st.integers(0, 40_000),
    memory=st.none() | st.integers(0, 256),
)

shapes = st.tuples(st.integers(1, 2), amounts)


class Use(NamedTuple):
    """A share of a GPU that is in use; all of it without an amount."""

    gpu: int
    size: str | None


uses = st.lists(
    st.builds(Use, st.integers(0, 2), amounts), max_size=2, unique_by=lambda use: use.gpu
)


def cluster_of(nodes: list[list[Use]]) -> Cluster:
    """Nodes of three GPUs that can be shared."""
    names = {f"node-{number}": entry for number, entry in enumerate(nodes)}
    gpus = [
        device(f"gpu-{number}", shared=True, capacity={"memory": amount("80Gi")})
        for number in range(3)
    ]
    return Cluster(
        slices=[slice_of(*gpus, pool=name) for name in names],
        nodes=[node(name) for name in names],
        claims=[
            allocated_claim(
                result(
                    f"gpu-{use.gpu}",
                    pool=name,
                    share=None if use.size is None else f"{name}-{use.gpu}",
                    consumed=None if use.size is None else {"memory": use.size},
                ),
                name=f"{name}-{use.gpu}",
            )
            for name, entry in names.items()
            for use in entry
        ],
        classes=classes(),
        options=AllocatorOptions(),
    )


def claim_for(count: int, size: str | None) -> ResourceClaim:
    """A claim for shares, or for whole GPUs."""
    return claim(request(count=count, capacity=None if size is None else {"memory": size}))


@settings(max_examples=100)
@given(st.lists(uses, min_size=2, max_size=5), kinds, st.tuples(headrooms, headrooms), shapes)
def test_nodes_of_one_class_with_one_headroom_lose_the_same(
    nodes: list[list[Use]],
    usual: list[PodKind],
    left: tuple[Headroom, Headroom],
    shape: tuple[int, str | None],
) -> None:
    cluster, strategy = cluster_of([*nodes, *nodes]), FragmentationAware(usual)
    pending = cluster.resolve([claim_for(*shape)])
    for verdict in cluster.class_verdicts(pending, strategy=strategy):
        losses = set()
        for name in verdict.nodes:
            plan = cluster.verdict(pending, name, strategy=strategy)
            if isinstance(plan, Plan):
                devices = cluster.node_devices(name)
                before = strategy.slots(devices, cluster.usage)
                after = strategy.slots(devices, usage_after(devices, cluster.usage, plan))
                losses.add(strategy.loss(before, after, *left))
        assert len(losses) <= 1


@settings(max_examples=100)
@given(
    uses,
    kinds,
    headrooms,
    st.tuples(st.integers(0, 9000), st.integers(0, 70)),
    shapes,
)
def test_a_pod_never_adds_to_the_potential(
    node_uses: list[Use],
    usual: list[PodKind],
    headroom: Headroom,
    pod: tuple[int, int],
    shape: tuple[int, str | None],
) -> None:
    cpu_milli, memory = pod
    cluster, strategy = cluster_of([node_uses]), FragmentationAware(usual)
    pending = cluster.resolve([claim_for(*shape)])
    plan = cluster.verdict(pending, "node-0", strategy=strategy)
    if not isinstance(plan, Plan):
        return
    headroom_after = Headroom(
        cpu_milli=None if headroom.cpu_milli is None else max(0, headroom.cpu_milli - cpu_milli),
        memory=None if headroom.memory is None else max(0, headroom.memory - memory),
    )
    devices = cluster.node_devices("node-0")
    before = strategy.slots(devices, cluster.usage)
    after = strategy.slots(devices, usage_after(devices, cluster.usage, plan))
    assert strategy.loss(before, after, headroom, headroom_after) >= 0


@settings(max_examples=100)
@given(st.lists(uses, min_size=1, max_size=4), kinds, shapes)
def test_after_a_release_the_scores_are_what_they_were(
    nodes: list[list[Use]], usual: list[PodKind], shape: tuple[int, str | None]
) -> None:
    cluster, strategy = cluster_of(nodes), FragmentationAware(usual)
    pending = cluster.resolve([claim_for(*shape)])
    ranked_nodes = cluster.rank_nodes(pending, strategy=strategy)
    for name, _ in ranked_nodes.nodes:
        plan = cluster.verdict(pending, name, strategy=strategy)
        assert isinstance(plan, Plan)
        (allocation,) = allocations(plan, pending, cluster.options.features, share_ids(name))
        allocated = replace(pending.claims[0], status=ResourceClaimStatus(allocation=allocation))
        cluster.allocate(allocated)
        cluster.release(allocated)
        assert cluster.rank_nodes(pending, strategy=strategy).nodes == ranked_nodes.nodes
