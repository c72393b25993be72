"""Claims that several pods of a replay share: allocated with the first, and freed with the last."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from allocator.replay.replay import replay
from allocator.replay.workload import Order, ReplayGroup, ReplayPod
from kube.api.core import Container, Pod, PodSpec, ResourceRequirements
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import ResourceClaim
from kube.quantity import Quantity
from testing.allocation.builders import DRIVER, claim, request
from testing.replays import counts, members, whole_devices
from testing.simulated_cluster import pinned

STOCK, OURS = "stock", "CompactFirst"
STRATEGIES = (STOCK, OURS, "FirstFit", "FragmentationAware")


def sharing(*names: str, count: int = 1, fabric: str = "fabric", cpu: int = 0) -> list[ReplayPod]:
    """Pods without devices of their own that share a claim."""
    requests = {"cpu": Quantity(cpu)}
    container = Container(name="main", resources=ResourceRequirements(requests=requests))
    return [
        ReplayPod(
            pod=Pod(
                metadata=ObjectMeta(name=name, namespace="default"),
                spec=PodSpec(containers=(container,)),
            ),
            shared=(claim(request(count=count), name=fabric),),
        )
        for name in names
    ]


def in_group(pods: Sequence[ReplayPod], min_count: int) -> list[ReplayPod]:
    group = ReplayGroup(name="ring", min_count=min_count)
    return [replace(pod, group=group) for pod in pods]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("min_count", [0, 1, 4])
def test_pods_share_one_claim(strategy: str, order: Order, min_count: int) -> None:
    pods = sharing("a", "b", "c", "d", count=2)
    pods = in_group(pods, min_count) if min_count else pods

    result = replay(strategy, pods, whole_devices(x=2, y=0), order=order, keeps_places=True)

    assert counts(result) == (4, {})
    assert result.devices.in_use == 2
    assert isinstance(result.placements, tuple)
    assert {place.node for place in result.placements} == {"x"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pods_have_claims_of_their_own_beside_a_shared_one(strategy: str) -> None:
    own = members(None, 1, 1, 1)
    pods = [replace(pod, shared=(claim(request(), name="fabric"),)) for pod in own]

    assert counts(replay(strategy, pods, whole_devices(x=3)))[0] == 2
    assert counts(replay(strategy, in_group(pods, 3), whole_devices(x=3))) == (
        0,
        {"groupDoesNotFit": 3},
    )
    assert counts(replay(strategy, in_group(pods, 3), whole_devices(x=4))) == (3, {})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_shared_claim_keeps_later_pods_on_its_node(strategy: str) -> None:
    """The second pod needs a whole node's CPU, and only the first one's node has the devices."""
    first, second = sharing("a", "b", cpu=40)

    result = replay(strategy, [first, second], whole_devices(x=1, y=1))

    assert counts(result) == (1, {"cpu": 1})
    assert result.devices.in_use == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_last_pod_frees_a_shared_claim(strategy: str) -> None:
    """A pod with the only device comes when the first of two leaves, and gets it with the second."""
    first, second = sharing("a", "b")
    (waiting,) = members(None, 1)
    pods = [
        replace(first, arrival=0.0, departure=10.0),
        replace(second, arrival=5.0, departure=30.0),
        replace(waiting, arrival=8.0),
    ]

    result = replay(strategy, pods, whole_devices(x=1), order=Order.ARRIVAL)

    assert counts(result) == (3, {})
    assert result.waiting_seconds.p99 == 22.0
    assert result.over_time
    assert result.over_time.mean_in_use == 1


def test_a_claim_that_was_freed_is_allocated_anew() -> None:
    first, second = sharing("a", "b")
    pods = [
        replace(first, arrival=0.0, departure=10.0),
        replace(second, arrival=20.0, departure=30.0),
        *(replace(pod, arrival=40.0) for pod in members(None, 1)),
    ]

    result = replay(OURS, pods, whole_devices(x=1), order=Order.ARRIVAL)

    assert (counts(result), result.waiting_seconds.p99) == ((3, {}), 0.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("min_count", [0, 2])
def test_a_claim_that_is_allocated_already_limits_the_nodes(strategy: str, min_count: int) -> None:
    held = convert(
        {
            "metadata": {"name": "fabric", "namespace": "default"},
            "status": {
                "allocation": {
                    "devices": {
                        "results": [
                            {"request": "req-0", "driver": DRIVER, "pool": "y", "device": "gpu-0"}
                        ]
                    },
                    **pinned("y"),
                }
            },
        },
        ResourceClaim,
    )
    pods = [replace(pod, shared=(), allocated=(held,)) for pod in sharing("a", "b")]
    pods = in_group(pods, min_count) if min_count else pods
    inventory = replace(whole_devices(x=1, y=1), claims=(held,))

    outcome = replay(strategy, pods, inventory, keeps_places=True)

    assert (counts(outcome), outcome.devices.in_use) == ((2, {}), 1)
    assert isinstance(outcome.placements, tuple)
    assert {place.node for place in outcome.placements} == {"y"}


def test_each_copy_has_its_own() -> None:
    pods = [*sharing("a", "b", fabric="one"), *sharing("c", "d", fabric="two")]

    assert replay(OURS, pods, whole_devices(x=2)).devices.in_use == 2
    assert counts(replay(OURS, pods, whole_devices(x=1))) == (2, {"noDevices": 2})
