"""Limits of the number of claims that use a device, or the devices of a node."""

from collections.abc import Sequence

import pytest

from allocator.cluster.cluster import Cluster
from allocator.cluster.equivalence import published_key
from allocator.features.consumer_limits import ConsumerLimit, consumer_limits
from allocator.model.devices import Pool, PoolId, PoolState
from allocator.model.feature_gates import Features
from allocator.model.outcome import DoesNotFit, Reason
from allocator.model.plan import Plan
from allocator.model.requests import resolve_requests
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions, lay_out
from allocator.search.search import allocate
from kube.api.ownership import NodePool, OwnedDriver
from kube.api.resource import DeviceRequest, DeviceRequestAllocationResult
from testing.allocation.builders import (
    DRIVER,
    NODE,
    allocated_claim,
    claim,
    classes,
    device,
    devices,
    node,
    node_pool,
    node_with,
    pool_of,
    request,
    result,
    slice_of,
)
from testing.allocation.placing import usage

GATES = Features()
OTHER_DRIVER = "nic.example.com"
SHARED = node_with(pool_of(*devices("a", "b", shared=True)))
WHOLE = node_with(pool_of(*devices("a", "b")))


def shares(device_name: str, count: int) -> list[DeviceRequestAllocationResult]:
    return [result(device_name, share=f"{device_name}-{number}") for number in range(count)]


def chosen(
    used: Usage, limit: ConsumerLimit, *, count: int = 1, admin: bool = False, driver: str = DRIVER
) -> Sequence[str] | None:
    """The devices of a claim on the node with two shared devices; None if it does not fit."""
    pending = resolve_requests(
        [claim(request(count=count, admin_access=admin or None))], classes(), GATES
    )
    options = AllocatorOptions(consumer_limits={driver: limit})
    plan = allocate(SHARED, pending, used, options)
    if isinstance(plan, DoesNotFit):
        return None
    assert isinstance(plan, Plan)
    return [choice.device.id.device for choice in plan.choices[0]]


@pytest.mark.parametrize(
    ("used", "limit", "expected"),
    [
        pytest.param([], ConsumerLimit(), ["a"], id="no limit"),
        pytest.param(shares("a", 1), ConsumerLimit(per_device=2), ["a"], id="one left"),
        pytest.param(shares("a", 2), ConsumerLimit(per_device=2), ["b"], id="the next device"),
        pytest.param(
            shares("a", 2) + shares("b", 2),
            ConsumerLimit(per_device=2),
            None,
            id="all devices full",
        ),
        pytest.param(shares("a", 3), ConsumerLimit(per_node=4), ["a"], id="one left on the node"),
        pytest.param(
            shares("a", 3) + shares("b", 1), ConsumerLimit(per_node=4), None, id="the node is full"
        ),
        pytest.param(
            [result("a"), *shares("b", 1)],
            ConsumerLimit(per_node=2),
            None,
            id="a device that is not shared has one consumer",
        ),
        pytest.param(
            shares("a", 3), ConsumerLimit(per_device=2, per_node=4), ["b"], id="more than the limit"
        ),
    ],
)
def test_a_device_goes_to_no_more_consumers_than_its_limits_say(
    used: Sequence[DeviceRequestAllocationResult],
    limit: ConsumerLimit,
    expected: Sequence[str] | None,
) -> None:
    assert chosen(usage(*used), limit) == expected


def test_the_consumers_of_one_attempt_count_together() -> None:
    limit = ConsumerLimit(per_device=1)

    assert chosen(Usage(), limit, count=2) == ["a", "b"]
    assert chosen(Usage(), limit, count=3) is None
    assert chosen(Usage(), ConsumerLimit(per_node=1), count=2) is None


def test_admin_access_is_no_consumer() -> None:
    assert chosen(usage(*shares("a", 2)), ConsumerLimit(per_node=2), admin=True) == ["a"]


def test_limits_of_another_driver_do_not_count() -> None:
    limit = ConsumerLimit(per_device=1, per_node=1)

    assert chosen(usage(*shares("a", 1)), limit, driver="other.example.com") == ["a"]


@pytest.mark.parametrize(
    ("limit", "detail"),
    [
        (ConsumerLimit(per_device=1), f"consumers 1 (the limit of {DRIVER} per device)"),
        (ConsumerLimit(per_node=1), f"consumers on the node 1 (the limit of {DRIVER} per node)"),
    ],
)
def test_the_limit_is_named(limit: ConsumerLimit, detail: str) -> None:
    pending = resolve_requests([claim(request())], classes(), GATES)
    options = AllocatorOptions(consumer_limits={DRIVER: limit})
    attempt = lay_out(SHARED, pending, usage(*shares("a", 1)), options)
    (constraint,) = [
        constraint
        for constraint in attempt.constraints
        if constraint.rejection(pending.requests[0][0][0], 0, further_share=True) is not None
    ]

    rejection = constraint.rejection(pending.requests[0][0][0], 0, further_share=True)

    assert rejection is not None
    assert (rejection.reason, rejection.detail) == (Reason.CONSUMER_LIMIT, detail)


def test_nodes_with_equal_free_devices_differ_by_their_consumers() -> None:
    """The verdict about one is not taken for the other."""
    names = ("busy", "idle")
    claim_ = allocated_claim(result("spare", pool="busy"), name="held")
    pools = {"busy": ("a", "spare"), "idle": ("a",)}
    cluster = Cluster(
        slices=[
            slice_of(*(device(name_) for name_ in pools[name]), pool=name, node=name)
            for name in names
        ],
        nodes=[node(name) for name in names],
        claims=[claim_],
        classes=classes(),
        options=AllocatorOptions(consumer_limits={DRIVER: ConsumerLimit(per_node=1)}),
    )

    ranked_nodes = cluster.rank_nodes(cluster.resolve([claim(request())]))

    assert [name for name, _ in ranked_nodes.nodes] == ["idle"]


@pytest.mark.parametrize(
    ("expected", "drivers"),
    [
        pytest.param(["node-1"], {"node-1": OTHER_DRIVER, "node-2": DRIVER}, id="other first"),
        pytest.param(["node-2"], {"node-1": DRIVER, "node-2": OTHER_DRIVER}, id="other last"),
    ],
)
def test_what_an_incomplete_pool_has_in_use_counts_for_its_driver(
    expected: Sequence[str], drivers: dict[str, str]
) -> None:
    """The nodes differ only in the driver of a pool that has no devices now."""
    names = tuple(drivers)
    broken_pools = {name: f"{name}-broken" for name in names}
    cluster = Cluster(
        slices=[slice_of(device("gpu", shared=True), pool=name, node=name) for name in names]
        + [
            slice_of(device("dev"), pool=broken_pools[name], node=name, driver=driver, count=2)
            for name, driver in drivers.items()
        ],
        nodes=[node(name) for name in names],
        claims=[
            allocated_claim(result("dev", pool=broken_pools[name], driver=driver), name=name)
            for name, driver in drivers.items()
        ],
        classes=classes(),
        options=AllocatorOptions(consumer_limits={DRIVER: ConsumerLimit(per_node=2)}),
    )

    verdicts = cluster.verdicts(cluster.resolve([claim(*more(2))]))

    assert expected == [name for name, outcome, _ in verdicts if isinstance(outcome, Plan)]


def test_a_pool_without_devices_of_one_node_differs_from_one_of_many() -> None:
    """The use of the latter counts against no limit of a node."""
    keys = {
        published_key(
            node_with(
                Pool(
                    id=PoolId(DRIVER, "pool"),
                    state=PoolState.INCOMPLETE,
                    names_no_node=names_no_node,
                )
            ),
            AllocatorOptions(),
        )
        for names_no_node in (True, False)
    }

    assert len(keys) == 2


def pooled(
    *pools: NodePool, per_node: int = 0, labels: dict[str, str], used: int = 0, driver: str = DRIVER
) -> Cluster:
    """One node with these labels and two shared devices; the first one has shares in use."""
    owned = OwnedDriver(name=driver, max_consumers_per_node=per_node, pools=pools or None)
    return Cluster(
        slices=[slice_of(*devices("a", "b", shared=True))],
        nodes=[node(**labels)],
        claims=[allocated_claim(*shares("a", used))] if used else [],
        classes=classes(),
        options=AllocatorOptions(consumer_limits=consumer_limits([owned])),
    )


def most(cluster: Cluster) -> int:
    """The largest number of shares, of up to 5, that one more claim gets."""
    numbers = [
        number
        for number in range(1, 6)
        if cluster.rank_nodes(cluster.resolve([claim(request(count=1), *more(number - 1))])).nodes
    ]
    return max(numbers, default=0)


def more(number: int) -> list[DeviceRequest]:
    return [request(f"more-{index}") for index in range(number)]


A, B = {"pool": "a"}, {"pool": "b"}
EVERY_NODE: dict[str, object] = {}


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param(pooled(per_node=2, labels=A), 2, id="a driver without pools"),
        pytest.param(
            pooled(node_pool("a", maxConsumersPerNode=3), per_node=2, labels=A),
            3,
            id="the pool comes before the driver",
        ),
        pytest.param(
            pooled(node_pool("a", maxConsumersPerNode=3), per_node=2, labels=B),
            2,
            id="a node of no pool has the driver's limits",
        ),
        pytest.param(
            pooled(node_pool("a"), per_node=2, labels=A), 2, id="a pool says nothing of a limit"
        ),
        pytest.param(
            pooled(node_pool("a", maxConsumersPerNode=0), per_node=2, labels=A),
            5,
            id="a pool takes a limit away",
        ),
        pytest.param(
            pooled(
                node_pool("b", maxConsumersPerNode=1),
                node_pool("all", nodeSelector=EVERY_NODE, maxConsumersPerNode=4),
                node_pool("a", maxConsumersPerNode=2),
                labels=A,
            ),
            4,
            id="the first pool that selects the node counts",
        ),
        pytest.param(
            pooled(node_pool("a", maxConsumersPerDevice=1), labels=A), 2, id="one per device"
        ),
        pytest.param(
            pooled(node_pool("a", maxConsumersPerNode=3), labels=A, used=2), 1, id="two in use"
        ),
        pytest.param(pooled(node_pool("a", maxConsumersPerNode=3), labels=A, used=3), 0, id="full"),
        pytest.param(
            pooled(node_pool("a", maxConsumersPerNode=1), labels=A, driver="other.example.com"),
            5,
            id="another driver's pool",
        ),
    ],
)
def test_the_first_pool_of_a_node_has_the_limits(cluster: Cluster, expected: int) -> None:
    assert expected == most(cluster)


def test_a_node_that_is_relabelled_changes_its_pool_and_what_it_has_stays() -> None:
    cluster = pooled(
        node_pool("a", maxConsumersPerNode=1),
        node_pool("b", maxConsumersPerNode=3),
        labels=A,
        used=2,
    )
    assert most(cluster) == 0

    cluster.replace_node(NODE, node(pool="b"))
    assert most(cluster) == 1


def test_a_device_that_is_published_no_more_counts_on_its_node_until_its_claim_ends() -> None:
    cluster = pooled(node_pool("a", maxConsumersPerNode=2), labels=A, used=2)
    before = slice_of(*devices("a", "b", shared=True))

    cluster.replace_slices([(before, slice_of(*devices("b", shared=True)))])
    assert most(cluster) == 0

    cluster.release(allocated_claim(*shares("a", 2)))
    assert most(cluster) == 2


def test_equal_nodes_of_several_pools_are_of_several_classes() -> None:
    """Nothing but the label differs, and no selector reads it."""
    pools = (node_pool("a", maxConsumersPerNode=1), node_pool("b", maxConsumersPerNode=2))
    names = ("a-1", "a-2", "b-1", "none")
    cluster = Cluster(
        slices=[slice_of(device("gpu", shared=True), pool=name, node=name) for name in names],
        nodes=[node(name, pool=name.partition("-")[0]) for name in names],
        claims=[],
        classes=classes(),
        options=AllocatorOptions(
            consumer_limits=consumer_limits([OwnedDriver(name=DRIVER, pools=pools)])
        ),
    )

    def fitting(number: int) -> list[str]:
        pending = cluster.resolve([claim(*more(number))])
        return [name for name, _ in cluster.rank_nodes(pending).nodes]

    assert fitting(1) == ["a-1", "a-2", "b-1", "none"]
    assert fitting(2) == ["b-1", "none"]
    assert fitting(3) == ["none"]
    assert len(set(cluster.feasibility_keys(cluster.resolve([claim(request())])).values())) == 3


def test_the_pool_is_named() -> None:
    cluster = pooled(node_pool("a", maxConsumersPerNode=2), labels=A, used=2)
    pending = cluster.resolve([claim(request())])
    attempt = lay_out(cluster.node_devices(NODE), pending, cluster.usage, cluster.options)
    rejections = [
        constraint.rejection(pending.requests[0][0][0], 0, further_share=True)
        for constraint in attempt.constraints
    ]

    assert [rejection.detail for rejection in rejections if rejection is not None] == [
        f"consumers on the node 2 (the limit of {DRIVER} per node in pool a)"
    ]
