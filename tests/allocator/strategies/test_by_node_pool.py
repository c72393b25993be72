"""The default strategies of pools of nodes: the first node, and the first of its devices."""

from collections.abc import Sequence

import pytest

from allocator.cluster.cluster import Cluster
from allocator.features.consumer_limits import consumer_limits
from allocator.model.plan import Plan
from allocator.search.attempt import AllocatorOptions
from allocator.strategies.by_node_pool import by_node_pool, pool_strategies
from allocator.strategies.capacity_weights import NO_WEIGHTS, driver_weights
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.low_load_first import LOW_LOAD_FIRST
from kube.api.ownership import NodePool, OwnedDriver
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    classes,
    device,
    device_class,
    node,
    node_pool,
    request,
    result,
    slice_of,
)

NIC = "nic.example.com"
SIZE = {"memory": "80Gi", "cores": "100"}
IN_USE: dict[str, str | int] = {"memory": "40Gi", "cores": 50}
REQUESTED: dict[str, str | int] = {"memory": "8Gi", "cores": 5}


def owned(*pools: NodePool, driver: str = DRIVER) -> OwnedDriver:
    return OwnedDriver(name=driver, pools=pools)


def cluster(*drivers: OwnedDriver) -> Cluster:
    """A node of each pool, with two GPUs, the second half in use, and two NICs alike."""
    names = ("packed", "spread", "other")
    return Cluster(
        slices=[
            slice_of(
                *(device(f"{kind}-{number}", shared=True, capacity=SIZE) for number in (0, 1)),
                driver=driver,
                pool=name,
                node=name,
                name=f"{name}-{kind}",
            )
            for name in names
            for driver, kind in ((DRIVER, "gpu"), (NIC, "nic"))
        ],
        nodes=[node(name, pool=name) for name in names],
        claims=[
            allocated_claim(
                result(f"{kind}-1", driver=driver, pool=name, share="s", consumed=IN_USE),
                name=f"{name}-{kind}",
            )
            for name in names
            for driver, kind in ((DRIVER, "gpu"), (NIC, "nic"))
        ],
        classes=classes(
            device_class("gpu", f"device.driver == '{DRIVER}'"),
            device_class("nic", f"device.driver == '{NIC}'"),
        ),
        options=AllocatorOptions(consumer_limits=consumer_limits(drivers)),
    )


def placed(
    drivers: Sequence[OwnedDriver], requested: Sequence[str] = ("gpu",)
) -> dict[str, tuple[int, ...]]:
    """The score of each node, and the numbers of the devices that a small claim gets there."""
    cluster_ = cluster(*drivers)
    pending = cluster_.resolve(
        [claim(*(request(name, device_class_name=name, capacity=REQUESTED) for name in requested))]
    )
    strategy = by_node_pool(FIRST_FIT, pool_strategies(drivers), driver_weights(drivers))
    scores = dict(cluster_.rank_nodes(pending, strategy=strategy).nodes)
    numbers: dict[str, tuple[int, ...]] = {}
    for name in cluster_.nodes:
        plan = cluster_.verdict(pending, name, strategy=strategy)
        assert isinstance(plan, Plan)
        chosen = (int(choice.device.id.device[-1]) for choice in plan.choices[0])
        numbers[name] = (scores[name], *chosen)
    return numbers


PACKED = node_pool("packed", defaultStrategy="CompactFirst")
SPREAD = node_pool("spread", defaultStrategy="LowLoadFirst")


@pytest.mark.parametrize(
    ("drivers", "requested", "expected"),
    [
        pytest.param(
            [owned(PACKED, SPREAD)],
            ["gpu"],
            {"packed": (30, 1), "spread": (70, 0), "other": (50, 0)},
            id="each pool its own",
        ),
        pytest.param(
            [owned(node_pool("all", nodeSelector={}), PACKED)],
            ["gpu"],
            {"packed": (50, 0), "spread": (50, 0), "other": (50, 0)},
            id="the first pool of a node names none",
        ),
        pytest.param(
            [
                owned(PACKED, SPREAD),
                owned(node_pool("packed", defaultStrategy="LowLoadFirst"), driver=NIC),
            ],
            ["nic"],
            {"packed": (70, 0), "spread": (50, 0), "other": (50, 0)},
            id="the driver of the devices counts",
        ),
        pytest.param(
            [owned(PACKED), owned(node_pool("packed", defaultStrategy="LowLoadFirst"), driver=NIC)],
            ["gpu", "nic"],
            {"packed": (50, 1, 0), "spread": (50, 0, 0), "other": (50, 0, 0)},
            id="devices of two drivers by two strategies, the score is the mean",
        ),
    ],
)
def test_devices_and_scores_are_those_of_the_strategy_of_the_pool(
    drivers: Sequence[OwnedDriver], requested: Sequence[str], expected: dict[str, tuple[int, ...]]
) -> None:
    assert expected == placed(drivers, requested)


def test_without_strategies_of_pools_the_default_is_used_itself() -> None:
    """FirstFit is compared by identity, to spare the work of other strategies."""
    pools = pool_strategies([owned(node_pool("a"), node_pool("b", defaultStrategy="unknown"))])

    assert by_node_pool(FIRST_FIT, pools, NO_WEIGHTS) is FIRST_FIT
    assert by_node_pool(LOW_LOAD_FIRST, pools, NO_WEIGHTS) is LOW_LOAD_FIRST


def test_weights_of_a_pool_count_on_its_nodes_alone() -> None:
    """60 % of the memory are in use then, the fullest capacity, and 55 % of the cores."""
    weighted = node_pool("packed", defaultStrategy="CompactFirst", capacityWeights={"cores": 1})
    other = node_pool("other", defaultStrategy="CompactFirst")

    scores = placed([owned(weighted, other)])

    assert (scores["packed"], scores["other"]) == ((27, 1), (30, 1))


@pytest.mark.parametrize(
    ("own_weights", "expected"),
    [(None, {"memory": 2}), ({}, {}), ({"cores": 1}, {"cores": 1})],
    ids=["as the driver", "none", "others"],
)
def test_a_pool_has_its_own_weights_or_the_drivers(
    own_weights: dict[str, int] | None, expected: dict[str, int]
) -> None:
    settings = {} if own_weights is None else {"capacityWeights": own_weights}
    driver = OwnedDriver(
        name=DRIVER, capacity_weights={"memory": 2}, pools=(node_pool("packed", **settings),)
    )
    devices = cluster(driver).node_devices("packed")

    assert expected == driver_weights([driver]).weights_on(devices, DRIVER)
