"""The devices that are kept for pods that others were evicted for."""

from typing import Any

import pytest
from msgspec.structs import replace

from kube.api.core import Pod
from sidecar.model.protocol import MAX_NODES, Verdict
from sidecar.model.rejections import Code, Rejection
from sidecar.plan import decisions, nominations
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.nominations import place_beside_rivals
from sidecar.plan.occupancy import Keep
from sidecar.plan.placement import Placement
from sidecar.plan.preemption import DryRunBudget, fits_with
from sidecar.state.projections import project_pod
from testing.allocation.builders import (
    allocated_claim,
    alternative,
    claim,
    device,
    devices,
    first_of,
    node,
    request,
    result,
    slice_of,
)
from testing.device_quotas import device_limit, quota
from testing.sidecar.snapshots import hard_claim, hard_slices, pod, snapshot, used_by

BIG = "device.attributes['gpu.example.com'].model == 'big'"


def names(outcome: object) -> list[str]:
    assert isinstance(outcome, Fits), outcome
    return [node_.name for node_ in outcome.nodes]


def rejected(outcome: object) -> tuple[Verdict, Code]:
    assert isinstance(outcome, Rejection), outcome
    return outcome.verdict, outcome.code


def placed(outcome: object) -> list[str]:
    assert isinstance(outcome, Placement), outcome
    return [
        chosen.device
        for _, allocation in outcome.allocations
        for chosen in allocation.devices.results or ()
    ]


@pytest.mark.parametrize(
    ("own_priority", "expected"),
    [
        pytest.param(0, ["node-2"], id="a less important pod leaves them the devices"),
        pytest.param(10, ["node-2"], id="one that is as important does, too"),
        pytest.param(11, ["node-1", "node-2"], id="a more important one does not"),
    ],
)
def test_devices_are_kept_for_the_pod_that_others_were_evicted_for(
    own_priority: int, expected: list[str]
) -> None:
    rival = pod("two", name="b", priority=10, nominated="node-1")
    cluster = snapshot(
        claim(request(count=2), name="two"), claim(request(), name="gpu"), pods=[rival]
    )

    assert names(find_nodes(pod("gpu", priority=own_priority), cluster)) == expected
    assert names(find_nodes(rival, cluster)) == ["node-1", "node-2"]


def test_a_node_with_devices_beside_those_of_a_nominated_pod_fits() -> None:
    rival = pod("one", name="b", priority=10, nominated="node-1")
    cluster = snapshot(claim(request(), name="one"), claim(request(), name="gpu"), pods=[rival])

    assert names(find_nodes(pod("gpu"), cluster)) == ["node-1", "node-2"]


@pytest.mark.parametrize(
    "never_tried",
    [
        pytest.param({"schedulingGates": [{"name": "example.com/never"}]}, id="a gate holds it"),
        pytest.param({"is_deleted": True}, id="it is being deleted"),
    ],
)
def test_nothing_is_kept_for_a_pod_that_the_scheduler_does_not_try(
    never_tried: dict[str, Any],
) -> None:
    rival = pod("two", name="b", priority=10, nominated="node-1", **never_tried)
    cluster = snapshot(
        claim(request(count=2), name="two"), claim(request(), name="gpu"), pods=[rival]
    )

    assert names(find_nodes(pod("gpu"), cluster)) == ["node-1", "node-2"]


def test_of_gates_the_sidecar_remembers_that_there_are_some() -> None:
    spec = (
        b'{"resourceClaims": [{"name": "gpu"}], "schedulingGates": [{"name": "a"}, {"name": "b"}]}'
    )

    projected = project_pod(b'{"metadata": {"name": "p"}, "spec": %b}' % spec)

    assert projected is not None
    assert len(projected.spec.scheduling_gates or ()) == 1


def test_a_pod_is_turned_away_if_all_free_devices_are_kept_for_nominated_pods() -> None:
    rivals = [pod("two", name="b", priority=10, nominated="node-1")]
    cluster = snapshot(
        claim(request(count=2), name="two"),
        claim(request(), name="gpu"),
        nodes=[node("node-1")],
        pods=rivals,
    )

    assert rejected(find_nodes(pod("gpu"), cluster)) == (Verdict.UNRESOLVABLE, Code.NO_DEVICES)


def test_the_hundred_best_nodes_are_chosen_among_those_that_are_not_kept() -> None:
    """All nodes are looked at if each of the best is kept for a nominated pod."""
    nodes = [node(f"node-{number:03}") for number in range(MAX_NODES + 1)]
    rivals = [
        pod("two", name=f"b{number}", priority=10, nominated=known.metadata.name)
        for number, known in enumerate(nodes[:MAX_NODES])
    ]
    claims = [claim(request(count=2), name="two"), claim(request(), name="gpu")]

    outcome = find_nodes(pod("gpu"), snapshot(*claims, nodes=nodes, pods=rivals))

    assert names(outcome) == [nodes[-1].metadata.name]


@pytest.mark.parametrize(
    ("victim", "expected"),
    [
        pytest.param(
            {"is_deleted": True}, ["node-2"], id="one is free, and its victim has the other"
        ),
        pytest.param(None, ["node-2"], id="its victim is gone, and the claim is not released"),
        pytest.param({}, ["node-1", "node-2"], id="the other is of a pod that stays"),
        pytest.param(
            {"is_deleted": True, "priority": 10},
            ["node-1", "node-2"],
            id="the other is of a pod that ends, and that it could not evict",
        ),
        pytest.param(
            {"is_deleted": True, "nodeName": "node-2"},
            ["node-1", "node-2"],
            id="the other is of a pod that ends on another node",
        ),
    ],
)
def test_a_free_device_is_kept_for_a_pod_whose_victim_has_the_other_one(
    victim: dict[str, Any] | None, expected: list[str]
) -> None:
    rival = pod("two", name="b", priority=10, nominated="node-1")
    fields: dict[str, Any] = {"nodeName": "node-1", "priority": 1, **(victim or {})}
    cluster = snapshot(
        used_by(allocated_claim(result("gpu-0"), name="held"), "uid-low"),
        claim(request(count=2), name="two"),
        claim(request(), name="gpu"),
        pods=[rival, *([] if victim is None else [pod("held", name="low", **fields)])],
    )

    assert names(find_nodes(pod("gpu"), cluster)) == expected


def test_a_claim_that_a_terminating_pod_shares_with_another_does_not_end() -> None:
    rival = pod("two", name="b", priority=10, nominated="node-1")
    victims = [
        pod("held", name=name, nodeName="node-1", is_deleted=name == "low")
        for name in ("low", "other")
    ]
    cluster = snapshot(
        used_by(allocated_claim(result("gpu-0"), name="held"), "uid-low", "uid-other"),
        claim(request(count=2), name="two"),
        claim(request(), name="gpu"),
        pods=[rival, *victims],
    )

    assert names(find_nodes(pod("gpu"), cluster)) == ["node-1", "node-2"]


def test_a_reserved_pod_gets_other_devices_than_the_pod_that_is_nominated_for_its_node() -> None:
    """The first device is the only one for the nominated pod."""
    slices = [
        slice_of(
            device("gpu-0", attributes={"model": "big"}),
            device("gpu-1", attributes={"model": "small"}),
        )
    ]
    rival = pod("big", name="b", priority=10, nominated="node-1")
    wants_big = claim(request("req-0", BIG), name="big")
    cluster = snapshot(
        wants_big,
        claim(request(), name="gpu"),
        claim(request(count=2), name="both"),
        nodes=[node("node-1")],
        slices=slices,
        pods=[rival],
    )
    assert names(find_nodes(pod("gpu"), cluster)) == ["node-1"]

    assert placed(place_beside_rivals(pod("gpu"), "node-1", cluster)) == ["gpu-1"]
    assert placed(place_beside_rivals(pod("gpu", priority=11), "node-1", cluster)) == ["gpu-0"]
    # It was decided before the other one was nominated.
    assert placed(place_beside_rivals(pod("both"), "node-1", cluster)) == ["gpu-0", "gpu-1"]


def test_a_pod_that_is_nominated_for_a_node_with_a_pool_in_common_is_a_rival() -> None:
    shared_pool = slice_of(
        device("gpu-0", attributes={"model": "big"}),
        device("gpu-1", attributes={"model": "small"}),
        all_nodes=True,
        pool="shared",
    )
    rival = pod("big", name="b", priority=10, nominated="node-2")
    wants_big = claim(request("req-0", BIG), name="big")
    cluster = snapshot(wants_big, claim(request(), name="gpu"), slices=[shared_pool], pods=[rival])

    assert placed(place_beside_rivals(pod("gpu"), "node-1", cluster)) == ["gpu-1"]


@pytest.mark.parametrize(
    "rivals",
    [
        pytest.param([], id="nobody is nominated"),
        pytest.param([pod("one", name="b", priority=10, nominated="node-1")], id="a pod is"),
        pytest.param([pod("one", name="b", priority=10, nominated="gone")], id="a pod is for it"),
    ],
)
def test_a_pod_on_a_node_that_is_gone_gets_nothing(rivals: list[Pod]) -> None:
    """The scheduler asks about a node that it has not seen the deletion of."""
    keep = Keep(
        group="ring",
        name="ring",
        priority=10,
        since="2026-11-21T00:00:00Z",
        namespace="default",
        claims=(allocated_claim(result("gpu-1", pool="node-2"), name="kept"),),
        nodes=frozenset({"node-2"}),
    )
    cluster = snapshot(
        claim(request(), name="one"),
        claim(request(), name="gpu"),
        quotas=[quota(device_limit(2))],
        pods=rivals,
    )
    cluster = replace(cluster, keeps=(keep,))

    for outcome in (
        place_beside_rivals(pod("gpu"), "gone", cluster),
        fits_with(
            pod("gpu"),
            "gone",
            cluster,
            removed_pods=["uid-low"],
            added_pods=[rival.metadata.uid for rival in rivals],
            dry_run=DryRunBudget(),
        ),
    ):
        assert rejected(outcome) == (Verdict.UNSCHEDULABLE, Code.CLAIM_NOT_AVAILABLE)


@pytest.mark.parametrize(
    ("victim_of", "expected"),
    [
        pytest.param("", Verdict.UNRESOLVABLE, id="nobody could be evicted for it"),
        pytest.param("default", Verdict.UNSCHEDULABLE, id="a pod of its tenant could be"),
        pytest.param("other", Verdict.UNRESOLVABLE, id="a pod of another tenant is none"),
    ],
)
def test_a_pod_that_the_budget_of_a_nominated_pod_keeps_out_waits_for_quota(
    victim_of: str, expected: Verdict
) -> None:
    """Devices are free on both nodes. Two are allowed, and one is for the nominated pod."""
    rival = pod("one", name="b", priority=10, nominated="node-1")
    victim = pod("held", name="low", nodeName="node-2", namespace=victim_of or "default")
    held = allocated_claim(result("gpu-1", pool="node-2"), name="held")
    held = replace(held, metadata=replace(held.metadata, namespace=victim_of or "default"))
    cluster = snapshot(
        claim(request(), name="one"),
        claim(request(count=2), name="gpu"),
        *([used_by(held, "uid-low")] if victim_of else []),
        slices=[
            slice_of(*devices(*(f"gpu-{n}" for n in range(8))), pool=f"node-{number}")
            for number in (1, 2)
        ],
        quotas=[quota(device_limit(3 if victim_of == "default" else 2), labels={"team": "a"})],
        namespaces={"default": {"team": "a"}, "other": {}},
        pods=[rival, *([victim] if victim_of else [])],
    )

    outcome = find_nodes(pod("gpu", priority=5), cluster)

    assert rejected(outcome) == (expected, Code.EXCEEDS_DEVICE_QUOTA)
    assert isinstance(outcome, Rejection)
    assert outcome.message.endswith(
        "2 devices needed, 1 of {} devices left; what is kept for pods that others were evicted for, and for groups, "
        "counts".format(3 if victim_of == "default" else 2)
    )


def test_a_pod_that_lacks_devices_on_some_node_is_told_of_devices() -> None:
    """The only node with two devices keeps one of them."""
    rival = pod("one", name="b", priority=10, nominated="node-1")
    cluster = snapshot(
        claim(request(), name="one"),
        claim(request(count=2), name="gpu"),
        used_by(allocated_claim(result("gpu-0", pool="node-2"), name="held"), "uid-low"),
        quotas=[quota(device_limit(4))],
        pods=[rival],
    )

    assert rejected(find_nodes(pod("gpu"), cluster)) == (Verdict.UNRESOLVABLE, Code.NO_DEVICES)


def test_a_reserved_pod_leaves_the_budget_to_a_pod_that_is_nominated_for_another_node() -> None:
    either = first_of("gpu", alternative("two", count=2), alternative("one", count=1))
    rival = pod("one", name="b", priority=10, nominated="node-1")
    cluster = snapshot(
        claim(request(), name="one"),
        claim(either, name="gpu"),
        quotas=[quota(device_limit(2))],
        pods=[rival],
    )

    assert placed(place_beside_rivals(pod("gpu"), "node-2", cluster)) == ["gpu-0"]
    assert placed(place_beside_rivals(pod("gpu", priority=11), "node-2", cluster)) == [
        "gpu-0",
        "gpu-1",
    ]


def test_nominated_pods_with_claims_that_are_hard_to_search_cost_a_bounded_number_of_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them is given up on, so it keeps nobody from its node; the last ones are not reached."""
    nodes = [node(f"node-{number:02}") for number in range(12)]
    slices = [
        *hard_slices(nodes),
        *(
            slice_of(*devices("x"), pool=f"x-{n.metadata.name}", node=n.metadata.name)
            for n in nodes
        ),
    ]
    rivals = [
        pod(
            f"hard-{node_.metadata.name}",
            name=f"b-{node_.metadata.name}",
            priority=10,
            nominated=node_.metadata.name,
        )
        for node_ in nodes
    ]
    cluster = snapshot(
        claim(request(), name="gpu"),
        *(hard_claim(f"hard-{node_.metadata.name}") for node_ in nodes),
        nodes=nodes,
        slices=slices,
        pods=rivals,
    )
    monkeypatch.setattr(nominations, "RIVAL_STEPS", 300)
    monkeypatch.setattr(decisions, "ANSWER_STEPS", 2_000)

    outcome = find_nodes(pod("gpu"), cluster)

    assert cluster.cluster.costs.steps < 3_000
    found = names(outcome)
    assert found[0] == "node-00"
    assert 4 <= len(found) < len(nodes)
