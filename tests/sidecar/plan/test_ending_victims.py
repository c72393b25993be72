"""The devices and amounts kept for nominated pods while their victims end: those beside their victims'."""

from collections.abc import Sequence

import pytest

from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import Places
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.nominations import place_beside_rivals
from sidecar.plan.placement import Placement
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import (
    allocated_claim,
    claim,
    device,
    devices,
    node,
    request,
    result,
    slice_of,
)
from testing.device_quotas import device_limit, quota
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import pod, snapshot, used_by

VICTIM = pod("of-victim", name="victim", nodeName="node-1", is_deleted=True)
"""It ends on node-1."""


def nominated(*, name: str = "first", on: str = "node-1") -> Pod:
    """A nominated pod."""
    return pod(name, name=name, priority=100, nominated=on)


def asking(*, on: str = "") -> Pod:
    """An equal pod."""
    return pod("second", name="second", priority=100, nominated=on)


def using(pod_: Pod, *names: str) -> ResourceClaim:
    """The claim of a pod, with devices such as `node-1/gpu-0`."""
    results = [result(device_, pool=pool) for pool, device_ in (name.split("/") for name in names)]
    return used_by(allocated_claim(*results, name=f"of-{pod_.metadata.name}"), pod_.metadata.uid)


def names_of(outcome: object) -> list[str]:
    return [node_.name for node_ in outcome.nodes] if isinstance(outcome, Fits) else []


def devices_of(outcome: object) -> list[str]:
    assert isinstance(outcome, Placement), outcome
    return [
        chosen.device
        for _, allocation in outcome.allocations
        for chosen in allocation.devices.results or ()
    ]


def five_nodes(ended: int) -> tuple[Snapshot, Pod]:
    """A budget of five and a device on each of five nodes; of four nominated pods so many have no victim any more."""
    names = [f"node-{number}" for number in range(5)]
    pods = [nominated(name=f"p{number}", on=names[number]) for number in range(4)]
    claims = [claim(request(), name=pod_.metadata.name) for pod_ in pods]
    low = pod("of-x", name="x", nodeName=names[4])
    victims = [
        pod(f"of-v{number}", name=f"v{number}", nodeName=names[number], is_deleted=True)
        for number in range(ended, 4)
    ]
    used = [using(victim, f"{victim.spec.node_name}/gpu-0") for victim in [*victims, low]]
    cluster = snapshot(
        *claims,
        *used,
        nodes=list(map(node, names)),
        slices=[slice_of(*devices("gpu-0"), pool=name, node=name) for name in names],
        quotas=[quota(device_limit(5))],
        pods=[*pods, *victims, low],
    )
    return cluster, pods[0]


@pytest.mark.parametrize("ended", [1, 2, 3, 4])
def test_the_pod_whose_victim_has_ended_waits_for_nobody_elses(ended: int) -> None:
    cluster, first = five_nodes(ended)

    assert names_of(find_nodes(first, cluster)) == ["node-0"]
    assert devices_of(place_beside_rivals(first, "node-0", cluster)) == ["gpu-0"]


def in_a_pool(*pods: Pod, count: int = 1) -> Snapshot:
    """Three devices that all nodes see: one is free, the victim has one, and a pod that stays the other."""
    other = pod("of-other", name="other", nodeName="node-2")
    return snapshot(
        using(VICTIM, "fabric/gpu-1"),
        using(other, "fabric/gpu-2"),
        claim(request(count=count), name="first"),
        claim(request(), name="second"),
        slices=[slice_of(*devices("gpu-0", "gpu-1", "gpu-2"), all_nodes=True, pool="fabric")],
        pods=[VICTIM, other, *pods],
    )


@pytest.mark.parametrize(
    ("on", "count", "expected"),
    [
        pytest.param("node-2", 1, ["node-1", "node-2"], id="the other one gets its victim's"),
        pytest.param("node-2", 2, [], id="it needs both"),
        pytest.param("", 1, [], id="for a pod that nobody was evicted for it need not wait"),
    ],
)
def test_a_free_device_is_for_the_nominated_pod_that_waits_for_none(
    on: str, count: int, expected: list[str]
) -> None:
    """Each would otherwise keep the device from the other until the last victim has ended."""
    asks = asking(on=on)
    cluster = in_a_pool(nominated(), asks, count=count)

    assert names_of(find_nodes(asks, cluster)) == expected


def with_budget(most: int, *pods: Pod, victim_has: int, needs: int) -> Snapshot:
    """Two nodes with eight devices each, and a budget of so many."""
    gpus = devices(*(f"gpu-{number}" for number in range(8)))
    return snapshot(
        using(VICTIM, *(f"node-1/gpu-{number}" for number in range(victim_has))),
        claim(request(count=needs), name="first"),
        claim(request(), name="second"),
        slices=[slice_of(*gpus, pool=name, node=name) for name in ("node-1", "node-2")],
        quotas=[quota(device_limit(most))],
        pods=[VICTIM, *pods],
    )


@pytest.mark.parametrize(
    ("most", "victim_has", "needs", "expected"),
    [
        pytest.param(4, 2, 3, ["node-1", "node-2"], id="one of three beside its victim's two"),
        pytest.param(3, 2, 3, [], id="the only one that is left beside these"),
        pytest.param(3, 2, 1, ["node-1", "node-2"], id="less than its victim has"),
        pytest.param(2, 2, 1, [], id="what its victim does not leave yet is nobody's"),
    ],
)
@pytest.mark.parametrize("is_group", [False, True])
def test_the_part_of_a_budget_that_victims_free_is_charged_once(
    most: int, victim_has: int, needs: int, expected: list[str], *, is_group: bool
) -> None:
    first, asks = nominated(), asking(on="node-2")
    if is_group:
        asks = member("second", "second", priority=100, nominated="node-2")
    cluster = with_budget(most, first, asks, victim_has=victim_has, needs=needs)

    if is_group:
        outcome = decide(group_request(asks), cluster, Attempt())
        assert isinstance(outcome, Places) == bool(expected), outcome
    else:
        assert names_of(find_nodes(asks, cluster)) == expected


def test_two_pods_do_not_count_on_the_same_victim() -> None:
    """The victim has one device. Of the two that are free, one is for the second of them."""
    pods: Sequence[Pod] = [nominated(), nominated(name="third"), asking(on="node-2")]
    cluster = snapshot(
        using(VICTIM, "node-1/gpu-0"),
        claim(request(), name="first"),
        claim(request(), name="third"),
        claim(request(count=2), name="second"),
        slices=[slice_of(*devices("gpu-0", "gpu-1", "gpu-2"), pool="node-1", node="node-1")],
        pods=[VICTIM, *pods],
    )

    assert names_of(find_nodes(asking(on="node-2"), cluster)) == []
    assert names_of(find_nodes(pods[2], cluster)) == []
    # One device is left beside them.
    single = pod("first", name="single", priority=100, nominated="node-2")
    assert names_of(find_nodes(single, cluster)) == ["node-1"]


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        pytest.param(2, ["node-1"], id="what is left beside the larger share"),
        pytest.param(3, [], id="more"),
    ],
)
def test_the_capacity_that_the_share_of_a_victim_frees_counts_once(
    needs: int, expected: list[str]
) -> None:
    """The victim has a share of four of ten, and the pod needs one of eight."""
    shared = device("gpu-0", shared=True, capacity={"memory": "10"})
    share = allocated_claim(result("gpu-0", share="1", consumed={"memory": "4"}), name="of-victim")
    cluster = snapshot(
        used_by(share, VICTIM.metadata.uid),
        claim(request(capacity={"memory": "8"}), name="first"),
        claim(request(capacity={"memory": needs}), name="second"),
        nodes=[node("node-1")],
        slices=[slice_of(shared, pool="node-1", node="node-1")],
        pods=[VICTIM, nominated()],
    )

    assert names_of(find_nodes(asking(), cluster)) == expected
