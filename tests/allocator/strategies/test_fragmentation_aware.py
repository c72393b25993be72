"""FragmentationAware: the places left for a usual pod decide, row by row."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.cluster.cluster import Cluster
from allocator.model.plan import Plan
from allocator.nodes.headroom import UNLIMITED, Headroom
from allocator.search.attempt import AllocatorOptions
from allocator.strategies.capacity_weights import capacity_weights
from allocator.strategies.fragmentation_aware import FragmentationAware
from allocator.strategies.pod_kinds import (
    MAX_KINDS,
    DeviceDemand,
    KindSlots,
    KindTable,
    PodKind,
    potential,
)
from allocator.strategies.registry import with_weights
from kube.api.resource import Device, ResourceClaim
from kube.quantity import Quantity
from testing.allocation.builders import (
    DRIVER,
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

WHOLE = DeviceDemand()
FORTY = {"memory": "40Gi"}
HALF = DeviceDemand(amounts=(("memory", Quantity("40Gi")),))


def gpu(name: str) -> Device:
    """A GPU of 80Gi that can be shared."""
    return device(name, shared=True, capacity={"memory": amount("80Gi")})


def share(name: str, gibibytes: int) -> ResourceClaim:
    """A claim that has a share of a GPU."""
    consumed = {"memory": f"{gibibytes}Gi"}
    return allocated_claim(
        result(name, share=f"share-of-{name}-{gibibytes}", consumed=consumed), name=f"on-{name}"
    )


def cluster_of(devices: Sequence[Device], claims: Sequence[ResourceClaim] = ()) -> Cluster:
    """One node with these devices."""
    return Cluster(
        slices=[slice_of(*devices)],
        nodes=[node()],
        claims=claims,
        classes=classes(),
        options=AllocatorOptions(),
    )


NODE = node().metadata.name


def plan_of(cluster: Cluster, strategy: FragmentationAware, **capacity: str) -> Plan:
    """The plan for one claim for a share, or for a whole GPU."""
    pending = cluster.resolve([claim(request(capacity=capacity or None))])
    plan = cluster.verdict(pending, NODE, strategy=strategy)
    assert isinstance(plan, Plan)
    return plan


def device_of(plan: Plan) -> str:
    """The first device of a plan."""
    return plan.choices[0][0].device.id.device


class SlotCase(NamedTuple):
    name: str
    want: tuple[tuple[int, int], ...]
    demand: DeviceDemand
    devices: tuple[Device, ...] = (gpu("gpu-0"), gpu("gpu-1"))
    claims: tuple[ResourceClaim, ...] = ()


SLOT_CASES = (
    SlotCase("two free GPUs are two whole ones", ((2, 1_000_000),), WHOLE),
    SlotCase("or four halves", ((4, 500_000),), HALF),
    SlotCase(
        "a GPU with a share of another pod is no whole one",
        ((1, 1_000_000),),
        WHOLE,
        claims=(share("gpu-0", 10),),
    ),
    SlotCase("but has room for half", ((3, 500_000),), HALF, claims=(share("gpu-0", 10),)),
    SlotCase("or none", ((2, 500_000),), HALF, claims=(share("gpu-0", 50),)),
    SlotCase(
        "a GPU in exclusive use has none",
        ((2, 500_000),),
        HALF,
        claims=(allocated_claim(result("gpu-0")),),
    ),
    SlotCase("a pod may want both", ((1, 2_000_000),), DeviceDemand(count=2)),
    SlotCase("three are more than there are", (), DeviceDemand(count=3)),
    SlotCase(
        "a selector counts",
        ((1, 1_000_000),),
        DeviceDemand(selectors=(f"device.attributes['{DRIVER}'].model == 'A'",)),
        (device("gpu-0", attributes={"model": "A"}), device("gpu-1", attributes={"model": "B"})),
    ),
    SlotCase(
        "a device that cannot be shared is one slot of any size",
        ((1, 1_000_000),),
        HALF,
        (
            device("gpu-0", capacity={"memory": "80Gi"}),
            device("gpu-1", capacity={"memory": "20Gi"}),
        ),
    ),
)


@pytest.mark.parametrize("case", SLOT_CASES, ids=lambda case: case.name)
def test_kind_slots(case: SlotCase) -> None:
    cluster = cluster_of(case.devices, case.claims)
    kinds = (PodKind(demands=(case.demand,)),)
    rows = KindTable(kinds).slots(cluster.node_devices(NODE), cluster.usage)
    assert tuple((row.slots, row.value) for row in rows) == case.want


class PotentialCase(NamedTuple):
    name: str
    want: int
    cpu: int | None
    memory: int | None


POTENTIAL_CASES = (
    PotentialCase("without limits the devices count", 8 * 10 + 16 * 3, None, None),
    PotentialCase("CPU bounds each kind", 2 * 10 + 11 * 3, 11, None),
    PotentialCase("so does memory", 3 * 10 + 16 * 3, None, 7),
    PotentialCase("nothing left is nothing", 0, 0, 0),
)


@pytest.mark.parametrize("case", POTENTIAL_CASES, ids=lambda case: case.name)
def test_potential(case: PotentialCase) -> None:
    rows = (
        KindSlots(cpu_milli=5, memory=2, slots=8, value=10),
        KindSlots(cpu_milli=1, memory=0, slots=16, value=3),
    )
    assert potential(rows, case.cpu, case.memory) == case.want


def test_a_share_goes_where_the_usual_pods_lose_least() -> None:
    cluster = cluster_of((gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2")), [share("gpu-1", 40)])
    wholes = FragmentationAware(kinds=(PodKind(demands=(WHOLE,)),))
    assert device_of(plan_of(cluster, wholes, memory="20Gi")) == "gpu-1"
    halves = FragmentationAware(kinds=(PodKind(demands=(HALF,)),))
    # A quarter of any GPU costs half a GPU, and the fullest is as good as the others.
    assert device_of(plan_of(cluster, halves, memory="20Gi")) == "gpu-1"


def test_a_rest_that_nobody_wants_is_taken_first() -> None:
    cluster = cluster_of((gpu("gpu-0"), gpu("gpu-1")), [share("gpu-0", 20), share("gpu-1", 50)])
    halves = FragmentationAware(kinds=(PodKind(demands=(HALF,)),))
    assert device_of(plan_of(cluster, halves, memory="30Gi")) == "gpu-1"


def test_the_example_of_the_docstring() -> None:
    kinds = (PodKind(demands=(WHOLE,), weight=600), PodKind(demands=(HALF,), weight=400))
    strategy = FragmentationAware(kinds=kinds)
    cluster = cluster_of((gpu("gpu-0"), gpu("gpu-1")), [share("gpu-1", 40)])
    before = strategy.slots(cluster.node_devices(NODE), cluster.usage)
    losses = []
    for more in (
        allocated_claim(result("gpu-1", share="b", consumed=FORTY), name="more"),
        share("gpu-0", 40),
    ):
        after = cluster_of((gpu("gpu-0"), gpu("gpu-1")), [share("gpu-1", 40), more])
        slots = strategy.slots(after.node_devices(NODE), after.usage)
        losses.append(strategy.loss(before, slots, UNLIMITED, UNLIMITED) // 1_000_000)
    assert losses == [200, 800]


class LossCase(NamedTuple):
    name: str
    want: int
    before: Headroom
    after: Headroom


LOSS_CASES = (
    LossCase("a pod as usual takes its place", 1, Headroom(cpu_milli=40), Headroom(cpu_milli=30)),
    LossCase("a GPU without CPU is worth nothing", 0, Headroom(cpu_milli=9), Headroom(cpu_milli=0)),
    LossCase("CPU beside GPUs costs them", 2, Headroom(cpu_milli=40), Headroom(cpu_milli=20)),
    LossCase("so does memory", 3, Headroom(memory=8), Headroom(memory=3)),
)


@pytest.mark.parametrize("case", LOSS_CASES, ids=lambda case: case.name)
def test_loss_of_a_pod_without_devices(case: LossCase) -> None:
    rows = (KindSlots(cpu_milli=10, memory=2, slots=4, value=1),)
    assert FragmentationAware().loss(rows, rows, case.before, case.after) == case.want


def test_without_kinds_a_shared_device_is_preferred_to_a_whole_one() -> None:
    strategy, scores = FragmentationAware(), []
    for claims in ([], [share("gpu-1", 20)]):
        cluster = cluster_of((gpu("gpu-0"), gpu("gpu-1")), claims)
        plan = plan_of(cluster, strategy, memory="40Gi")
        scores.append(strategy.score(cluster.node_devices(NODE), cluster.usage, plan))
    assert scores == [33, 100]


def test_kinds_beyond_the_limit_and_without_devices_are_left_out() -> None:
    plain = PodKind(demands=())
    many = [PodKind(demands=(WHOLE,), cpu_milli=number) for number in range(MAX_KINDS + 5)]
    assert FragmentationAware(kinds=[plain, *many]).kinds == tuple(many[:MAX_KINDS])


def test_weights_of_capacities_are_those_of_other_strategies() -> None:
    weights = capacity_weights({DRIVER: {"memory": 1}})
    weighted = with_weights(FragmentationAware(), weights)
    assert (weighted.name, weighted.weights) == ("FragmentationAware", weights)


def test_another_distribution_is_another_question() -> None:
    cluster = cluster_of((gpu("gpu-0"), gpu("gpu-1")), [share("gpu-1", 20)])
    pending = cluster.resolve([claim(request(capacity={"memory": "40Gi"}))])
    wholes = FragmentationAware(kinds=(PodKind(demands=(WHOLE,)),))
    halves = FragmentationAware(kinds=(PodKind(demands=(HALF,)),))
    scores = [
        cluster.rank_nodes(pending, strategy=strategy).nodes[0][1] for strategy in (wholes, halves)
    ]
    assert scores == [100, 50]
