from collections.abc import Sequence
from typing import NamedTuple

import pytest

from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.requests import resolve_requests
from allocator.strategies.topology_packed import TOPOLOGY_PACKED
from kube.api.resource import DeviceConstraint, DeviceRequestAllocationResult
from testing.allocation.builders import (
    claim,
    classes,
    device,
    device_class,
    distinct,
    node_with,
    pool_of,
    request,
    result,
)
from testing.allocation.placing import (
    ROOT,
    Placed,
    held_results,
    placed,
    rooted_node_devices,
    share,
    sharing,
    usage,
    whole,
)

NIC = "nic.example.com"


class Row(NamedTuple):
    name: str
    node: NodeDevices
    held: Sequence[DeviceRequestAllocationResult]
    wanted: int
    want: str


ODD = rooted_node_devices("a", "a", "b", "c", "c")
TWO_SOCKETS = rooted_node_devices("a", "b", "b", "c", "d", "d", numa=(0, 0, 0, 1, 1, 1))

ROWS = (
    Row("one goes where nothing is left over", ODD, (), 1, "gpu-2"),
    Row("two go under one root", ODD, (), 2, "gpu-0 gpu-1"),
    Row("three take a root and what just fits", ODD, (), 3, "gpu-0 gpu-1 gpu-2"),
    Row("a root in use is finished first", ODD, held_results("gpu-2", "gpu-3"), 1, "gpu-4"),
    Row("a root that cannot have all is behind", ODD, held_results("gpu-0"), 2, "gpu-3 gpu-4"),
    Row("three stay on one socket", TWO_SOCKETS, held_results("gpu-0"), 3, "gpu-4 gpu-5 gpu-3"),
    Row("four take a socket and one more", TWO_SOCKETS, (), 4, "gpu-1 gpu-2 gpu-0 gpu-3"),
    Row("more than there is anywhere takes all", ODD, (), 5, "gpu-0 gpu-1 gpu-3 gpu-4 gpu-2"),
    Row(
        "no known root is no root",
        rooted_node_devices("?", "", "?", "c", "c"),
        (),
        2,
        "gpu-3 gpu-4",
    ),
    Row(
        "nor does it hold anything together",
        rooted_node_devices("?", "", "c"),
        (),
        2,
        "gpu-2 gpu-0",
    ),
    Row(
        "-1 is no NUMA node",
        rooted_node_devices("?", "?", "?", "?", numa=(-1, -1, 3, 3)),
        (),
        2,
        "gpu-2 gpu-3",
    ),
    Row("without topology the fullest first", whole(3), held_results("gpu-0"), 1, "gpu-1"),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_devices(row: Row) -> None:
    got_placed = placed(TOPOLOGY_PACKED, row.node, [claim(request(count=row.wanted))], row.held)

    assert row.want == got_placed.devices


class Score(NamedTuple):
    name: str
    node: NodeDevices
    held: Sequence[DeviceRequestAllocationResult]
    wanted: int
    constraints: Sequence[DeviceConstraint]
    want: int


PAIRS = rooted_node_devices("a", "a", "b", "b", numa=(0, 0, 0, 0))
FAR = rooted_node_devices("a", "a", "b", "b", numa=(0, 0, 1, 1))
APART = (distinct(ROOT),)

SCORES = (
    Score("beside a neighbour", PAIRS, held_results("gpu-3"), 1, (), 95),
    Score("of a free root", PAIRS, (), 1, (), 62),
    Score("a whole root", PAIRS, (), 2, (), 95),
    Score("two roots of one socket", PAIRS, (), 2, APART, 35),
    Score("two sockets", FAR, (), 2, APART, 5),
    Score("two roots that nobody places", rooted_node_devices("a", "a", "b", "b"), (), 2, APART, 5),
    Score(
        "both neighbours of a socket in use", PAIRS, held_results("gpu-1", "gpu-3"), 2, APART, 70
    ),
    Score("no topology at all", whole(4), (), 2, (), 95),
)


@pytest.mark.parametrize("row", SCORES, ids=lambda row: row.name)
def test_score(row: Score) -> None:
    claims = [claim(request(count=row.wanted), constraints=row.constraints)]

    assert row.want == placed(TOPOLOGY_PACKED, row.node, claims, row.held).score


def test_gpu_and_nic_come_from_the_root_that_has_both() -> None:
    gpus = pool_of(*[device(f"gpu-{root}", attributes={ROOT: root}) for root in "abc"])
    nics = pool_of(*[device(f"nic-{root}", attributes={ROOT: root}) for root in "dcb"], driver=NIC)
    classes_ = classes(
        device_class("gpu", 'device.driver == "gpu.example.com"'),
        device_class("nic", 'device.driver == "nic.example.com"'),
    )
    both = claim(request("gpu"), request("nic", device_class_name="nic"))
    node = node_with(gpus, nics)

    free = placed(TOPOLOGY_PACKED, node, [both], known_device_classes=classes_)
    busy = placed(
        TOPOLOGY_PACKED, node, [both], [result("nic-b", driver=NIC)], known_device_classes=classes_
    )
    split = placed(
        TOPOLOGY_PACKED,
        node,
        [both],
        [result("nic-b", driver=NIC), result("nic-c", driver=NIC)],
        known_device_classes=classes_,
    )

    assert free == Placed("gpu-b nic-b", 93)
    assert busy == Placed("gpu-c nic-c", 95)
    assert split.devices == "gpu-a nic-d"


def test_under_one_root_the_fullest_share_comes_first() -> None:
    node = sharing(2)
    capacity = node.devices[0].device.capacity
    attributes = {ROOT: "a"}
    rooted_shares = node_with(
        pool_of(
            *[
                device(name, shared=True, capacity=dict(capacity or {}), attributes=attributes)
                for name in ("gpu-0", "gpu-1")
            ]
        )
    )

    got_placed = placed(
        TOPOLOGY_PACKED, rooted_shares, [claim(request())], [share("gpu-1", memory="8Gi")]
    )

    assert got_placed.devices == "gpu-1"


def test_a_failing_selector_selects_nothing() -> None:
    broken_pending_claims = resolve_requests(
        [claim(request("req-0", "device.attributes['a'].b == 1"))], classes(), Features()
    )

    assert sorted(TOPOLOGY_PACKED.order(ODD, usage(), broken_pending_claims) or ()) == [
        0,
        1,
        2,
        3,
        4,
    ]
