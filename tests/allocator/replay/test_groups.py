"""Groups in a replay: their pods are placed together, or none is."""

import pytest
from msgspec.structs import replace

from allocator.features.consumer_limits import ConsumerLimit
from allocator.replay.replay import replay
from allocator.replay.workload import Inventory, Order, ReplayGroup
from allocator.search.attempt import AllocatorOptions
from testing.allocation.builders import DRIVER, claim, device, node, request, slice_of
from testing.replays import counts, members, whole_devices

STOCK, OURS = "stock", "CompactFirst"


@pytest.mark.parametrize("strategy", [STOCK, OURS, "FirstFit", "FragmentationAware"])
@pytest.mark.parametrize("order", Order)
def test_a_group_is_placed_whole_or_not_at_all(strategy: str, order: Order) -> None:
    group = ReplayGroup(name="ring", min_count=3)
    pods = members(group, 2, 2, 2)

    fits = replay(strategy, pods, whole_devices(a=4, b=2), order=order)
    lacks = replay(strategy, pods, whole_devices(a=4, b=1), order=order)

    assert counts(fits) == (3, {})
    assert counts(lacks) == (0, {"groupDoesNotFit": 3})
    assert lacks.devices.in_use == 0
    assert lacks.idle_because == {"groupDoesNotFit": 4, "tooFewDevices": 1}


def test_a_group_that_is_turned_away_one_by_one_is_placed_by_the_bridge() -> None:
    """kubernetes#138765: the small pod takes a device of the only node that has four."""
    pods = members(ReplayGroup(name="evaluation", min_count=2), 1, 4)
    # Both nodes have equal scores, and the seed has the small pod take the larger one.
    results = [replay(STOCK, pods, whole_devices(a=4, b=1), seed=seed) for seed in range(8)]

    assert {counts(result)[0] for result in results} == {0, 2}
    for strategy in (OURS, "FirstFit", "LowLoadFirst"):
        assert counts(replay(strategy, pods, whole_devices(a=4, b=1))) == (2, {})


@pytest.mark.parametrize("strategy", [STOCK, OURS])
def test_pods_beyond_the_minimum_fail_nobody(strategy: str) -> None:
    pods = members(ReplayGroup(name="ring", min_count=2), 2, 2, 2)

    assert counts(replay(strategy, pods, whole_devices(a=4))) == (2, {"groupDoesNotFit": 1})


@pytest.mark.parametrize("strategy", [STOCK, OURS])
def test_a_group_waits_for_its_pods_and_those_that_run_count(strategy: str) -> None:
    incomplete = members(ReplayGroup(name="ring", min_count=3), 1, 1)
    complete = members(ReplayGroup(name="ring", min_count=3, placed=("a",)), 1, 1)

    assert counts(replay(strategy, incomplete, whole_devices(a=4))) == (0, {"groupIncomplete": 2})
    assert counts(replay(strategy, complete, whole_devices(a=4))) == (2, {})


@pytest.mark.parametrize("strategy", [STOCK, OURS])
def test_a_group_takes_its_turn_when_its_last_pod_comes(strategy: str) -> None:
    """The single pod comes between the pods of the group, and is placed before it."""
    first, second = members(ReplayGroup(name="ring", min_count=2), 2, 2)
    (single,) = members(None, 1, prefix="single")

    result = replay(strategy, [first, single, second], whole_devices(a=4))

    assert counts(result) == (1, {"groupDoesNotFit": 2})


def test_a_group_stays_in_one_rack() -> None:
    racks = {"a": "x", "b": "y", "c": "y"}
    inventory = whole_devices(a=2, b=2, c=2)
    nodes = tuple(node(name, rack=rack) for name, rack in racks.items())
    labelled = Inventory(nodes=nodes, slices=inventory.slices, classes=inventory.classes)
    group = ReplayGroup(name="ring", min_count=2, domain="rack", needs_one_domain=True)

    assert counts(replay(OURS, members(group, 2, 2), labelled)) == (2, {})
    assert counts(replay(OURS, members(group, 2, 2, 2), labelled)) == (2, {"groupDoesNotFit": 1})


@pytest.mark.parametrize("strategy", ["FirstFit", OURS])
@pytest.mark.parametrize(
    "group", [None, ReplayGroup(name="ring", min_count=1), ReplayGroup(name="ring", min_count=2)]
)
def test_later_pods_of_a_group_count_as_further_consumers(
    strategy: str, group: ReplayGroup | None
) -> None:
    """Ten shares of a device that four may share, each with a pod that comes by itself."""
    shared = device("gpu-0", shared=True, capacity={"memory": "80Gi"})
    inventory = replace(whole_devices(a=1), slices=(slice_of(shared, pool="a", node="a"),))
    pods = [
        replace(pod, claims=(claim(request(capacity={"memory": "1Gi"}), name=f"share-{number}"),))
        for number, pod in enumerate(members(group, *[1] * 10))
    ]
    options = AllocatorOptions(consumer_limits={DRIVER: ConsumerLimit(per_device=4)})

    assert replay(strategy, pods, inventory, options=options).pods.placed == 4


@pytest.mark.parametrize("strategy", [STOCK, OURS, "FirstFit"])
def test_an_error_of_one_pod_takes_its_group_back(strategy: str) -> None:
    first, second = members(ReplayGroup(name="ring", min_count=2), 1, 1)
    selector = "device.attributes['x.example.com'].none"
    broken = claim(request("req-0", selector), name="broken")

    result = replay(strategy, [first, replace(second, claims=(broken,))], whole_devices(a=4))

    assert (result.pods.placed, result.devices.in_use) == (0, 0)
