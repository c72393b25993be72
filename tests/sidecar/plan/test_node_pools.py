"""Pools of nodes as decisions see them: victims help only below a cap, and a pod's own strategy wins."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import pytest
from msgspec.structs import replace

from kube.api.core import Pod
from kube.api.ownership import NodePool, OwnedDriver
from kube.api.resource import DeviceClass, ResourceClaim
from kube.names import STRATEGY_ANNOTATION
from sidecar.groups.waking import find_placeable
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.placement import Placement, choose_strategy, place
from sidecar.plan.preemption import DryRunBudget, fits_with
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.waking import WaitingPod
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    device_class,
    devices,
    node,
    node_pool,
    request,
    result,
    slice_of,
)
from testing.sidecar.snapshots import pod, snapshot, used_by

OTHER = "nic.example.com"
NODES = (node("node-1", pool="a"), node("node-2", pool="b"))


Named = TypeVar("Named", Pod, DeviceClass)


def named(object_: Named, strategy: str) -> Named:
    """An object with the annotation of a strategy, if one is given."""
    annotations = {STRATEGY_ANNOTATION: strategy} if strategy else None
    return replace(object_, metadata=replace(object_.metadata, annotations=annotations))


def cluster(
    *held: ResourceClaim,
    pools: Sequence[NodePool],
    of_class: str = "",
) -> Snapshot:
    """Two nodes with two shared GPUs and a NIC each; the claim `gpu` waits."""
    names = [node_.metadata.name for node_ in NODES]
    return snapshot(
        *held,
        claim(request(), name="gpu"),
        nodes=NODES,
        slices=[
            slice_of(
                *devices(*published, shared=True),
                driver=driver,
                pool=name,
                node=name,
                name=f"{name}-{driver}",
            )
            for name in names
            for driver, published in ((DRIVER, ("gpu-0", "gpu-1")), (OTHER, ("nic-0",)))
        ],
        classes=[named(device_class("gpu", f"device.driver == '{DRIVER}'"), of_class)],
        drivers=(DRIVER, OTHER),
        settings=[OwnedDriver(name=DRIVER, pools=tuple(pools))],
    )


def consumer(
    name: str, device: str = "gpu-0", *, of_node: str = "node-1", driver: str = DRIVER
) -> ResourceClaim:
    """A claim with a share that the pod of its name uses."""
    share = result(device, driver=driver, pool=of_node, share=name)
    return used_by(allocated_claim(share, name=name), f"uid-{name}")


def names(outcome: object) -> list[str]:
    assert isinstance(outcome, Fits), outcome
    return [fit.name for fit in outcome.nodes]


def without(now: Snapshot, *victims: str) -> Placement | Rejection:
    """The placement of the pod on node-1 if others were evicted."""
    return fits_with(
        pod("gpu"),
        "node-1",
        now,
        removed_pods=[f"uid-{name}" for name in victims],
        added_pods=[],
        dry_run=DryRunBudget(),
    )


def test_a_full_node_of_one_pool_is_none_and_an_equal_one_of_another_is() -> None:
    held = [
        consumer(f"{name}-{number}", of_node=name)
        for name in ("node-1", "node-2")
        for number in (0, 1)
    ]
    pools = [node_pool("a", maxConsumersPerNode=2), node_pool("b", maxConsumersPerNode=3)]

    assert names(find_nodes(pod("gpu"), cluster(*held, pools=pools))) == ["node-2"]


@pytest.mark.parametrize(
    ("settings", "victims", "helps"),
    [
        pytest.param({"maxConsumersPerNode": 3}, ["x"], True, id="one below the cap"),
        pytest.param({"maxConsumersPerNode": 2}, ["x"], False, id="the node is still full"),
        pytest.param({"maxConsumersPerNode": 2}, ["x", "y"], True, id="two of three"),
        pytest.param({"maxConsumersPerNode": 3}, ["nic"], False, id="of another driver"),
        pytest.param({"maxConsumersPerNode": 3}, ["there"], False, id="on another node"),
        pytest.param({"maxConsumersPerDevice": 1}, ["x"], False, id="the device has another"),
        pytest.param({"maxConsumersPerDevice": 1}, ["z"], True, id="the device is free then"),
    ],
)
def test_a_victim_helps_if_it_makes_room_below_the_cap(
    settings: Mapping[str, int], victims: Sequence[str], *, helps: bool
) -> None:
    held = [
        consumer("x"),
        consumer("y"),
        consumer("z", "gpu-1"),
        consumer("nic", "nic-0", driver=OTHER),
        consumer("there", of_node="node-2"),
    ]
    now = cluster(*held, pools=[node_pool("a", **settings)])

    assert isinstance(without(now), Rejection)
    outcome = without(now, *victims)

    assert isinstance(outcome, Placement) is helps
    if isinstance(outcome, Rejection):
        assert outcome.code is Code.NO_DEVICES


def test_as_many_pods_are_tried_again_as_places_are_left_below_the_caps() -> None:
    claims = [claim(request(), name=f"gpu-{number}") for number in range(5)]
    pools = [node_pool("a", maxConsumersPerNode=1), node_pool("b", maxConsumersPerNode=2)]
    waiting = [WaitingPod(pod(f"gpu-{number}", name=f"w{number}"), number) for number in range(5)]

    woken = find_placeable(waiting, cluster(*claims, pools=pools))

    assert [item.metadata.name for item in woken.pods] == ["w0", "w1", "w2"]


SPREAD = node_pool("a", defaultStrategy="LowLoadFirst")


@pytest.mark.parametrize(
    ("own", "of_class", "pools", "expected"),
    [
        pytest.param("", "", [SPREAD], "gpu-1", id="the pool"),
        pytest.param("FirstFit", "", [SPREAD], "gpu-0", id="the pod comes before the pool"),
        pytest.param("", "FirstFit", [SPREAD], "gpu-0", id="the class comes before the pool"),
        pytest.param(
            "", "", [node_pool("b", defaultStrategy="LowLoadFirst")], "gpu-0", id="another pool"
        ),
        pytest.param(
            "", "", [node_pool("a", defaultStrategy="unknown")], "gpu-0", id="an unknown name"
        ),
    ],
)
def test_the_pool_of_the_node_has_the_strategy_unless_the_pod_or_its_class_names_one(
    own: str, of_class: str, pools: Sequence[NodePool], expected: str
) -> None:
    now = cluster(consumer("x"), pools=pools, of_class=of_class)

    placement = place(named(pod("gpu"), own), "node-1", now)

    assert isinstance(placement, Placement)
    ((_, allocation),) = placement.allocations
    assert [result_.device for result_ in allocation.devices.results or ()] == [expected]


def test_nodes_of_a_pool_are_scored_by_its_strategy() -> None:
    """Three quarters of an empty node are free afterwards; FirstFit, of other nodes, is in the middle."""
    now = cluster(pools=[SPREAD])
    outcome = find_nodes(pod("gpu"), now)

    assert isinstance(outcome, Fits)
    assert [(fit.name, fit.score) for fit in outcome.nodes] == [("node-1", 75), ("node-2", 50)]
    strategy = choose_strategy(pod("gpu"), [claim(request(), name="gpu")], now)
    assert strategy.name == "FirstFit (gpu.example.com: LowLoadFirst)"
