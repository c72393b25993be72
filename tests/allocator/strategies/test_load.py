"""Load of devices and of nodes, as thousandths."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from allocator.model.devices import NodeDevices
from allocator.model.requests import PendingClaims
from allocator.strategies.best_fit import BEST_FIT
from allocator.strategies.capacity_weights import capacity_weights
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.load import FULL, device_loads, node_load
from allocator.strategies.registry import ALL, with_weights
from allocator.strategies.strategy import Strategy
from kube.api.resource import DeviceCapacity, DeviceRequestAllocationResult
from testing.allocation.builders import (
    DRIVER,
    amount,
    consumes,
    counter_set,
    device,
    devices,
    node_with,
    pool_of,
    result,
)
from testing.allocation.placing import cards, held_results, share, sharing, usage, whole

NIC = "nic.example.com"


class Row(NamedTuple):
    name: str
    node: NodeDevices
    held: Sequence[DeviceRequestAllocationResult]
    loads: list[int]
    node_load: int


def two(capacity: Mapping[str, str | DeviceCapacity] | None = None) -> NodeDevices:
    """Two equal devices that can be shared."""
    return node_with(pool_of(*devices("gpu-0", "gpu-1", shared=True, capacity=capacity)))


MIXED = {"memory": amount("80Gi"), "cores": amount("100")}
SHAREABLE_CARD = node_with(
    pool_of(
        device("gpu-0", consumes(slots=4), shared=True, capacity={"memory": "80Gi"}),
        device("half-0", consumes(slots=2)),
        counters=[counter_set(slots=4)],
    )
)
UNMEASURED = tuple(result("gpu-0", share=f"share-{number}") for number in range(3))

ROWS = (
    Row("nothing is held", whole(2), (), [0, 0], 0),
    Row("a device held alone is full", whole(2), held_results("gpu-1"), [0, 1000], 500),
    Row(
        "a share counts by what it consumes",
        sharing(2),
        (share("gpu-0", memory="20Gi"),),
        [250, 0],
        125,
    ),
    Row(
        "the fullest capacity decides",
        two(MIXED),
        (share("gpu-0", memory="8Gi", cores=75),),
        [750, 0],
        375,
    ),
    Row(
        "more than there is counts as full",
        sharing(2),
        (share("gpu-0", memory="200Gi"),),
        [1000, 0],
        500,
    ),
    Row(
        "a capacity of zero, or that is no longer published, measures nothing",
        two({"memory": "0"}),
        (share("gpu-0", memory="1Gi", gone=1),),
        [500, 0],
        250,
    ),
    Row("shares that measure nothing count by number", two(), UNMEASURED, [750, 0], 375),
    Row(
        "devices of the pool that are gone count for nothing",
        whole(2),
        held_results("gone"),
        [0, 0],
        0,
    ),
    Row(
        "a partition fills its whole card as far as it goes",
        cards(1),
        held_results("card-0-1g-0"),
        [142, 1000, *[142] * 8],
        142,
    ),
    Row(
        "other cards are left as they are",
        cards(2),
        held_results("card-1-3g-0", "card-1-3g-4"),
        [*[0] * 10, *[857] * 8, 1000, 1000],
        428,
    ),
    Row(
        "a card that is itself shared is as full as its shares",
        SHAREABLE_CARD,
        (share("gpu-0", memory="20Gi"),),
        [250, 250],
        250,
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_loads(row: Row) -> None:
    use = usage(*row.held)

    loads = [load * 1000 // FULL for load in device_loads(row.node, use)]

    assert row.loads == loads
    assert row.node_load == node_load(row.node, use, [DRIVER]) * 1000 // FULL


WEIGHTED_ROWS = (
    ({"memory": 1, "cores": 1}, {"memory": "8Gi", "cores": 75}, 425),
    ({"memory": 3, "cores": 1}, {"memory": "8Gi", "cores": 75}, 262),
    ({"memory": 1}, {"memory": "8Gi", "cores": 75}, 100),
    ({"cores": 1}, {"memory": "8Gi"}, 0),
    ({"other": 1}, {"memory": "8Gi", "cores": 75}, 750),
    ({"memory": 0, "cores": 1}, {"memory": "80Gi", "cores": 75}, 750),
)


@pytest.mark.parametrize(("weights", "consumed", "expected"), WEIGHTED_ROWS)
def test_capacities_count_by_their_weights(
    weights: Mapping[str, int], consumed: Mapping[str, str | int], expected: int
) -> None:
    node, use = two(MIXED), usage(share("gpu-0", **consumed))
    of_driver = capacity_weights({DRIVER: weights})

    loads = [load * 1000 // FULL for load in device_loads(node, use, of_driver)]

    assert [expected, 0] == loads
    assert expected // 2 == node_load(node, use, [DRIVER], of_driver) * 1000 // FULL
    of_others = capacity_weights({NIC: weights})
    assert device_loads(node, use) == device_loads(node, use, of_others)


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
def test_strategies_that_order_by_load_order_by_weights(strategy: Strategy) -> None:
    """One device with little memory left, and one with few cores."""
    node = two(MIXED)
    pending = PendingClaims(claims=(), requests=())
    use = usage(share("gpu-0", memory="60Gi", cores=10), share("gpu-1", memory="10Gi", cores=60))
    orders = [
        with_weights(strategy, capacity_weights({DRIVER: {name: 1}})).order(node, use, pending)
        for name in ("memory", "cores")
    ]

    if strategy in {FIRST_FIT, BEST_FIT}:  # Upstream's order, and free memory first of all.
        assert orders[0] == orders[1]
    else:
        assert sorted(map(tuple, filter(None, orders))) == [(0, 1), (1, 0)]


def test_a_node_counts_only_hardware_of_the_drivers_that_are_used() -> None:
    gpus = pool_of(device("gpu-0"), device("gpu-1"))
    nics = pool_of(device("nic-0"), driver=NIC)
    use = usage(result("gpu-0"), result("nic-0", driver=NIC))

    loads = [node_load(node_with(gpus, nics), use, drivers) for drivers in ([DRIVER], [NIC], [])]

    assert [FULL // 2, FULL, 0] == loads


def test_devices_of_other_nodes_consume_shared_counters() -> None:
    pool = pool_of(
        device("half-0", consumes(slots=2)),
        counters=[counter_set(slots=4)],
        elsewhere=[device("half-1", consumes(slots=2))],
    )

    assert [FULL // 2] == device_loads(node_with(pool), usage(result("half-1")))
