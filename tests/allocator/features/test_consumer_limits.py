"""Limits of how many claims may use a device, or the devices of a node."""

from collections.abc import Sequence

import pytest

from allocator.cluster.cluster import Cluster
from allocator.features.consumer_limits import ConsumerLimit
from allocator.model.feature_gates import Features
from allocator.model.outcome import DoesNotFit, Reason
from allocator.model.plan import Plan
from allocator.model.requests import resolve_requests
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions, lay_out
from allocator.search.search import allocate
from kube.api.resource import DeviceRequestAllocationResult
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    classes,
    device,
    devices,
    node,
    node_with,
    pool_of,
    request,
    result,
    slice_of,
)
from testing.allocation.placing import usage

GATES = Features()
SHARED = node_with(pool_of(*devices("a", "b", shared=True)))
WHOLE = node_with(pool_of(*devices("a", "b")))


def shares(device_name: str, count: int) -> list[DeviceRequestAllocationResult]:
    return [result(device_name, share=f"{device_name}-{number}") for number in range(count)]


def chosen(
    used: Usage, limit: ConsumerLimit, *, count: int = 1, admin: bool = False, driver: str = DRIVER
) -> Sequence[str] | None:
    """The devices of a claim on the node with two shared devices; None where it does not fit."""
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
