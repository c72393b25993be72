"""Replays on small clusters: the places of pods, the reasons of failures, and the counts."""

import random
from typing import NamedTuple

import pytest

from allocator.replay.device_use import CapacityUse, DeviceCounts
from allocator.replay.replay import STRATEGIES, replay
from allocator.replay.results import PodCounts, StrategyResult
from allocator.replay.workload import Order, ReplayPod
from kube.api.core import Pod, PodSpec
from kube.api.meta import ObjectMeta
from testing.allocation.builders import (
    DRIVER,
)
from testing.replays import Machine, inventory, pods_of


def counts(outcome: StrategyResult) -> tuple[int, dict[str, int]]:
    """Return the number of placed pods, and those that failed by reason."""
    return outcome.pods.placed, dict(outcome.failed_by)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_fills_a_small_cluster(name: str) -> None:
    pods = pods_of(*(f"p{number},1,gpu,milli=500" for number in range(5)), "plain,1,,")
    outcome = replay(name, pods, inventory(Machine("a"), Machine("b")))

    assert (outcome.name, outcome.pods) == (name, PodCounts(placed=5, failed=1))
    assert outcome.failed_by == {"noDevices": 1}
    assert outcome.devices == DeviceCounts(total=2, in_use=2, whole_idle=0)
    assert outcome.capacities == (
        CapacityUse(driver=DRIVER, name="milli", total=2000, allocated=2000),
        CapacityUse(driver=DRIVER, name="memory", total=2 * 80 * 2**30, allocated=0),
    )
    assert outcome.capacities[0].percent == 100


class ReasonCase(NamedTuple):
    name: str
    want: dict[str, int]
    row: str
    machines: tuple[Machine, ...] = (Machine("a"), Machine("b"))


REASON_CASES = (
    ReasonCase("no node is eligible", {"noEligibleNode": 1}, "p,1,gpu,milli=1,host=c"),
    ReasonCase("no node has devices", {"noDevices": 1}, "p,1,gpu,milli=1001,"),
    ReasonCase("nodes with devices lack CPU", {"cpu": 1}, "p,9,gpu,milli=1,"),
    ReasonCase(
        "CPU where there are no devices does not help",
        {"cpu": 1},
        "p,9,gpu,milli=1,",
        (Machine("a"), Machine("b", gpus=0, cpu=100)),
    ),
    ReasonCase("a pod without devices lacks CPU", {"cpu": 1}, "p,9,,,"),
    ReasonCase("there is no such class", {"invalidClaim": 1}, "p,1,tpu,,"),
)


@pytest.mark.parametrize("strategy", ["stock", "CompactFirst", "FragmentationAware"])
@pytest.mark.parametrize("case", REASON_CASES, ids=lambda case: case.name)
def test_reasons(case: ReasonCase, strategy: str) -> None:
    pods = pods_of(case.row, columns="name,cpu,class,capacity,nodeSelector")
    assert counts(replay(strategy, pods, inventory(*case.machines))) == (0, case.want)


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_selector_that_fails_on_a_device_ends_the_attempt_of_its_pod_alone(
    strategy: str, order: Order
) -> None:
    selector = f"device.attributes['{DRIVER}'].absent == 'x'"
    pods = pods_of(f"bad,1,gpu,{selector}", "good,1,gpu,", columns="name,cpu,class,selector")
    outcome = replay(strategy, pods, inventory(Machine("a"), Machine("b")), order=order)
    assert counts(outcome) == (1, {"attemptFailed": 1})


def test_what_runs_already_counts() -> None:
    bound = Pod(
        metadata=ObjectMeta(name="old"),
        spec=PodSpec(node_name="b", containers=pods_of("x,8,,")[0].pod.spec.containers),
    )
    cluster = inventory(Machine("a"), Machine("b"), pods=[bound], busy=["a"])
    outcome = replay("stock", pods_of("p,1,gpu,milli=1"), cluster)
    assert counts(outcome) == (0, {"cpu": 1})
    assert outcome.capacities[0].allocated == 1000


def test_stock_spreads_and_compact_first_packs() -> None:
    pods = pods_of("p,1,gpu,milli=100", "q,1,gpu,milli=100")
    cluster = inventory(Machine("a"), Machine("b"))
    in_use = {
        name: replay(name, pods, cluster).devices.in_use
        for name in ("stock", "stock-most-allocated", "CompactFirst", "LowLoadFirst")
    }
    assert in_use == {"stock": 2, "stock-most-allocated": 1, "CompactFirst": 1, "LowLoadFirst": 2}


def test_fragmentation_aware_keeps_cpu_where_the_gpus_are() -> None:
    # A pod usually wants a GPU and a third of the CPU of a node; a plain pod fits either node.
    rows = ["p1,4,gpu,milli=1000", "plain,4,,", "p2,4,gpu,milli=1000", "p3,4,gpu,milli=1000"]
    cluster = inventory(Machine("a", gpus=3, cpu=12), Machine("b", gpus=0, cpu=12))
    assert counts(replay("FragmentationAware", pods_of(*rows), cluster)) == (4, {})
    assert counts(replay("stock-most-allocated", pods_of(*rows), cluster)) == (3, {"cpu": 1})


def test_pods_without_devices_are_ranked_among_the_nodes_that_kube_scheduler_looked_at() -> None:
    # It looks at 72 of 150, so not at the last one, where the plain pod would cost no GPU.
    machines = [Machine(f"node-{number:03}", cpu=4) for number in range(149)]
    cluster = inventory(*machines, Machine("other", gpus=0, cpu=4))
    usual = [f"p{number},4,gpu,milli=1000" for number in range(149)]
    outcome = replay("FragmentationAware", pods_of(usual[0], "plain,4,,", *usual[1:]), cluster)
    assert counts(outcome) == (149, {"cpu": 1})


def test_a_hundred_nodes_without_cpu_come_after_the_one_that_has_it() -> None:
    """And if none has it, all are no better than a hundred."""
    machines = [Machine(f"node-{number:03}", cpu=1) for number in range(100)]
    cluster = inventory(*machines, Machine("other", cpu=8))
    outcome = replay("CompactFirst", pods_of("p,4,gpu,milli=100", "q,9,gpu,milli=1"), cluster)
    assert (counts(outcome), outcome.second_attempts) == ((1, {"cpu": 1}), 0)
    outcome = replay("FragmentationAware", pods_of("p,4,gpu,milli=100"), cluster)
    assert (outcome.pods.placed, outcome.second_attempts) == (1, 0)


# --- time -----------------------------------------------------------------------------------------

TIMES = "name,cpu,class,capacity,priority,arrival,departure"


@pytest.mark.parametrize("strategy", ["stock", "FirstFit", "FragmentationAware"])
def test_pods_that_wait_are_tried_when_one_leaves(strategy: str) -> None:
    pods = pods_of(
        "late,1,gpu,milli=1000,0,20,30",
        "first,1,gpu,milli=1000,0,0,100",
        "low,1,gpu,milli=1000,0,10,15",
        "high,1,gpu,milli=1000,9,12,42",
        "never,1,gpu,milli=2000,0,1,2",
        columns=TIMES,
    )
    outcome = replay(strategy, pods, inventory(Machine("a")), order=Order.ARRIVAL)

    # high at 100 for 30 seconds, low at 130 for 5, late at 135.
    assert counts(outcome) == (4, {"noDevices": 1})
    waits = outcome.waiting_seconds
    assert (waits.p50, waits.p99) == (115, 120)
    assert outcome.devices.in_use == 0


def test_with_the_order_of_the_file_nothing_leaves() -> None:
    pods = pods_of("a,1,gpu,milli=1000,0,50,60", "b,1,gpu,milli=1000,0,70,80", columns=TIMES)
    assert counts(replay("stock", pods, inventory(Machine("a")))) == (1, {"noDevices": 1})
    outcome = replay("stock", pods, inventory(Machine("a")), order=Order.ARRIVAL)
    assert counts(outcome) == (2, {})


# --- many pods ------------------------------------------------------------------------------------


def many_pods(seed: int) -> list[ReplayPod]:
    """Return pods that request some GPUs, shares, or none, and stay for some time."""
    chance = random.Random(seed)
    rows = []
    for number in range(120):
        count, milli = chance.choice(((1, 1000), (1, 500), (1, 300), (2, 1000), (0, 0)))
        devices = f"gpu,{count},milli={milli}" if count else ",,"
        leaves = number + chance.randrange(40) if chance.random() < 0.7 else ""
        rows.append(f"p{number},{chance.choice((1, 2, 6))},{devices},{number},{leaves}")
    return pods_of(*rows, columns="name,cpu,class,count,capacity,arrival,departure")


MACHINES = inventory(
    *(Machine(f"big-{number}", gpus=4, cpu=32) for number in range(3)),
    *(Machine(f"small-{number}", gpus=2, cpu=8) for number in range(4)),
    Machine("plain", gpus=0, cpu=16),
)


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("strategy", ["stock", "FirstFit", "BestFit", "FragmentationAware"])
def test_a_seed_decides_everything(strategy: str, order: Order) -> None:
    pods = many_pods(1)
    first = replay(strategy, pods, MACHINES, order=order, seed=3)
    assert first == replay(strategy, pods, MACHINES, order=order, seed=3)
    assert first.pods.placed + first.pods.failed == len(pods)
    assert first.pods.placed > 20
    for capacity in first.capacities:
        assert 0 <= capacity.allocated <= capacity.total


def test_fragmentation_aware_has_room_for_more_than_packing_by_devices() -> None:
    shares = {
        strategy: sum(
            replay(strategy, many_pods(seed), MACHINES).capacities[0].allocated for seed in range(4)
        )
        for strategy in ("FragmentationAware", "CompactFirst", "stock")
    }
    assert max(shares, key=lambda name: shares[name]) == "FragmentationAware", shares


class LeftCase(NamedTuple):
    name: str
    want: dict[str, int]
    rows: tuple[str, ...]
    machines: tuple[Machine, ...]


LEFT_CASES = (
    LeftCase(
        "a single idle device is the reason of one pod, and not of all",
        {"cpu": 1, "noDevices": 2},
        ("big,8,gpu,milli=1000", "a,4,gpu,milli=1000", "b,4,gpu,milli=1000", "c,4,gpu,milli=1000"),
        (Machine("a", gpus=2),),
    ),
    LeftCase(
        "shares of a device are as many reasons as there are",
        {"cpu": 2, "noDevices": 1},
        ("big,8,gpu,milli=1000", "a,4,gpu,milli=500", "b,4,gpu,milli=500", "c,4,gpu,milli=500"),
        (Machine("a", gpus=2),),
    ),
    LeftCase(
        "a large pod that does not fit leaves the devices to a small one",
        {"cpu": 2, "noDevices": 1},
        ("big,8,gpu,milli=1000", "a,4,gpu,milli=800", "b,4,gpu,milli=300", "c,4,gpu,milli=100"),
        (Machine("a", gpus=2),),
    ),
    LeftCase(
        "pods without devices fail by what their nodes lack, all of them",
        {"cpu": 3},
        ("big,8,,", "a,4,,", "b,4,,", "c,4,,"),
        (Machine("a"),),
    ),
)


@pytest.mark.parametrize("case", LEFT_CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("name", ["stock", "CompactFirst", "FragmentationAware"])
def test_a_resource_is_the_reason_of_as_many_pods_as_would_get_devices(
    name: str, case: LeftCase
) -> None:
    outcome = replay(name, pods_of(*case.rows), inventory(*case.machines))

    assert outcome.failed_by == case.want
    assert outcome.devices.in_use == outcome.devices.total - sum(outcome.idle_because.values())


def test_the_shapes_of_pods_that_failed() -> None:
    rows = (
        *("a,1,gpu,milli=600", "b,1,gpu,milli=600", "c,1,gpu,milli=600"),
        *("d,1,gpu,milli=1000", "e,20,,"),
    )

    got = replay("stock", pods_of(*rows), inventory(Machine("a"), Machine("b")))

    assert [
        (shape.devices, shape.pods, shape.failed, shape.failed_by) for shape in got.failed_shapes
    ] == [
        ("1 gpu with milli 600", 3, 1, {"noDevices": 1}),
        ("1 gpu with milli 1k", 1, 1, {"noDevices": 1}),
        ("no devices", 1, 1, {"cpu": 1}),
    ]


@pytest.mark.parametrize("order", list(Order))
def test_the_place_of_each_pod_is_told_where_it_is_asked_for(order: Order) -> None:
    pods = pods_of("a,1,gpu,milli=600", "b,1,nosuch,", "c,1,gpu,milli=600", "d,1,gpu,milli=100")
    cluster = inventory(Machine("a"))

    got = replay("stock", pods, cluster, order=order, keeps_places=True)

    assert not replay("stock", pods, cluster).placements
    places = {place.name: (place.node, place.reason) for place in got.placements or ()}
    assert set(places) == {"a", "b", "c", "d"}
    assert places["b"] == ("", "invalidClaim")
    assert sum(node == "a" for node, _ in places.values()) == got.pods.placed == 2
    assert sorted(reason for node, reason in places.values() if not node) == [
        "invalidClaim",
        "noDevices",
    ]
