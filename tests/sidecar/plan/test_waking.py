"""Waiting pods that can be placed together are tried again, the most important first."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from allocator.cluster.cluster import Cluster
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import ResourceClaim
from kube.cel.scope import Meter, evaluating
from sidecar.groups.candidates import FREE_CLAIMS, STEPS_PER_CLAIM
from sidecar.groups.waking import find_placeable
from sidecar.plan import waking
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.placement import Placement, place, with_allocation
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.waking import WaitingPod
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    device_class,
    devices,
    node,
    request,
    result,
    slice_of,
)
from testing.sidecar import snapshots

NODES = ("node-0", "node-1", "node-2")


def pod(name: str, priority: int = 0, node_name: str = "") -> Pod:
    selector = {"hostname": node_name} if node_name else None
    return convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimName": f"gpu-{name}"}],
                "priority": priority,
                "nodeSelector": selector,
            },
        },
        Pod,
    )


def snapshot(claims: Sequence[ResourceClaim], per_node: Mapping[str, int]) -> Snapshot:
    classes = {"gpu": device_class()}
    nodes = [node(name, hostname=name) for name in per_node]
    slices = [
        slice_of(*devices(*(f"gpu-{index}" for index in range(count))), pool=name, node=name)
        for name, count in per_node.items()
    ]
    options = AllocatorOptions()
    return Snapshot(
        cluster=Cluster(
            slices=slices, nodes=nodes, claims=claims, classes=classes, options=options
        ),
        claims={(item.metadata.namespace, item.metadata.name): item for item in claims},
        classes=classes,
        extended_resources={},
        pods={},
        drivers=frozenset({DRIVER}),
    )


def placed_one_by_one(
    waiting: Sequence[Pod], claims: Sequence[ResourceClaim], per_node: Mapping[str, int]
) -> list[str]:
    """Return the pods that get devices if each is tried alone, on a cluster built anew each time."""
    by_name = {item.metadata.name: item for item in claims}
    placed = []
    for tried in sorted(waiting, key=lambda item: -(item.spec.priority or 0)):
        now = snapshot(list(by_name.values()), per_node)
        answer = find_nodes(tried, now)
        if isinstance(answer, Fits):
            placement = place(tried, answer.nodes[0].name, now)
            assert isinstance(placement, Placement)
            for stored, result in placement.allocations:
                by_name[stored.metadata.name] = with_allocation(stored, result)
            placed.append(tried.metadata.name)
    return placed


@pytest.mark.parametrize("seed", range(30))
def test_it_is_what_trying_all_of_them_would_come_to(seed: int) -> None:
    rng = Random(seed)
    per_node = {name: rng.randrange(4) for name in NODES}
    waiting = [
        pod(f"p{number}", rng.randrange(3), rng.choice(["", "", *NODES])) for number in range(12)
    ]
    claims = [
        claim(request(count=rng.choice([1, 1, 2])), name=f"gpu-{item.metadata.name}")
        for item in waiting
    ]

    woken = find_placeable(
        [WaitingPod(item, number) for number, item in enumerate(waiting)],
        snapshot(claims, per_node),
    )

    expected = placed_one_by_one(waiting, claims, per_node)
    assert expected == [item.metadata.name for item in woken.pods]
    assert not woken.more


def test_a_part_of_them_leaves_more() -> None:
    waiting = [WaitingPod(pod(f"p{number}"), number) for number in range(4)]
    claims = [claim(request(), name=f"gpu-p{number}") for number in range(4)]

    woken = find_placeable(waiting, snapshot(claims, {"node-0": 3}), limit=2)

    assert ["p0", "p1"] == [item.metadata.name for item in woken.pods]
    assert woken.more


def test_pods_that_a_plan_does_not_reach_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has a question of its own, with the answer no."""
    waiting = [WaitingPod(pod(f"p{number}"), number) for number in range(4)]
    claims = [claim(request(count=2 + number), name=f"gpu-p{number}") for number in range(4)]
    cluster = snapshot(claims, {"node-0": 1})

    assert () == find_placeable(waiting, cluster).pods
    for limit, tried in (("MAX_QUESTIONS", ["p2", "p3"]), ("MAX_SEARCHES", [])):
        with monkeypatch.context() as patch:
            patch.setattr(waking, limit, 2)
            woken = find_placeable(waiting, cluster)
        assert tried == [item.metadata.name for item in woken.pods]
    with monkeypatch.context() as patch:
        patch.setattr(waking, "MAX_SEARCHES", 2)
        woken = find_placeable(waiting, snapshot(claims, {"node-0": 1, "node-1": 1}))
    assert ["p3"] == [item.metadata.name for item in woken.pods]


def test_a_pod_that_was_woken_takes_its_device() -> None:
    waiting = [WaitingPod(pod("p0"), 0, woken_s=1.0), WaitingPod(pod("p1"), 1)]
    claims = [claim(request(), name=f"gpu-p{number}") for number in range(2)]

    woken = find_placeable(waiting, snapshot(claims, {"node-0": 1}))

    assert () == woken.pods


@pytest.mark.parametrize(("free", "expected"), [({"node-0": 1}, []), ({"node-1": 1}, ["p0"])])
def test_devices_help_nobody_on_nodes_that_were_tried(
    free: dict[str, int], expected: list[str]
) -> None:
    """The pod fits there by its devices, and was turned away for its CPU."""
    waiting = [WaitingPod(pod("p0"), 0, tried=frozenset({"node-0"}))]
    everywhere = {"node-0": 0, "node-1": 0}

    woken = find_placeable(
        waiting, snapshot([claim(request(), name="gpu-p0")], {**everywhere, **free})
    )

    assert expected == [item.metadata.name for item in woken.pods]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([], [], id="its pod is gone, and it is not released"),
        pytest.param([{"is_deleted": True}], [], id="its pod terminates"),
        pytest.param([{}], ["a"], id="it is another pod's now"),
    ],
)
def test_a_pod_is_tried_again_when_the_release_that_it_waits_for_is_over(
    pods: Sequence[Mapping[str, Any]], expected: list[str]
) -> None:
    everything = snapshots.snapshot(
        snapshots.used_by(
            allocated_claim(result("gpu-0"), result("gpu-1"), name="held"), "uid-low"
        ),
        claim(request(), name="gpu"),
        nodes=[node("node-1")],
        pods=[snapshots.pod("held", name="low", nodeName="node-1", **fields) for fields in pods],
    )
    waiting = WaitingPod(snapshots.pod("gpu"), 0, awaited=frozenset({("default", "held")}))

    woken = find_placeable([waiting], everything)

    assert expected == [item.metadata.name for item in woken.pods]


def test_a_pod_that_costs_much_keeps_no_other_asleep() -> None:
    """Its claim is allocated elsewhere; to compare its affinity with all nodes takes all the time of a plan."""
    everything = snapshots.snapshot(
        allocated_claim(result("gpu-0", pool="elsewhere"), name="held"),
        claim(request(), name="gpu"),
        nodes=[node(f"node-{number}") for number in range(50)],
        slices=[slice_of(*devices("gpu-0"), pool="node-1", node="node-1")],
    )
    waiting = [
        WaitingPod(snapshots.pod("held", name="costly", affinity=snapshots.affinity(1_000)), 0),
        WaitingPod(snapshots.pod("gpu", name="other"), 1),
    ]

    with evaluating(meter=Meter(is_over=lambda: True)):
        woken = find_placeable(waiting, everything)

    assert ["costly", "other"] == [pod_.metadata.name for pod_ in woken.pods]


def test_the_claims_of_a_pod_are_charged_to_the_plan() -> None:
    names = [f"gpu-{number}" for number in range(100)]
    world = snapshots.snapshot(*(claim(request(), name=name) for name in names))
    meter = Meter()

    with evaluating(meter=meter):
        find_placeable([WaitingPod(snapshots.pod(*names), 0)], world)

    assert meter.steps >= STEPS_PER_CLAIM * (len(names) - FREE_CLAIMS)


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        pytest.param(100, ["nominated"], id="as important"),
        pytest.param(101, ["other"], id="more important"),
    ],
)
def test_the_pod_that_a_device_is_kept_for_is_woken_before_one_that_waits_for_longer(
    priority: int, expected: list[str]
) -> None:
    """The other one would be turned away, since the device is kept."""
    nominated = snapshots.pod("one", name="nominated", priority=100, nominated="node-1")
    other = snapshots.pod("two", name="other", priority=priority)
    cluster = snapshots.snapshot(
        claim(request(), name="one"),
        claim(request(), name="two"),
        nodes=[node("node-1")],
        slices=[slice_of(*devices("gpu-0"))],
        pods=[nominated, other],
    )
    assert isinstance(find_nodes(other, cluster), Fits) == (expected == ["other"])

    woken = find_placeable([WaitingPod(other, 1), WaitingPod(nominated, 2)], cluster)

    assert [pod_.metadata.name for pod_ in woken.pods] == expected
