"""A dry run of preemption, and the releases that make one needless."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from sidecar.model.protocol import Verdict
from sidecar.model.rejections import Code, Rejection
from sidecar.plan import preemption
from sidecar.plan.decisions import find_nodes
from sidecar.plan.placement import NODE_STEPS, Placement, place
from sidecar.plan.preemption import (
    FILTER_STEPS,
    LATE_FILTER_STEPS,
    DryRunBudget,
    awaited_claims,
    fits_with,
)
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import (
    allocated_claim,
    claim,
    devices,
    node,
    request,
    result,
    slice_of,
)
from testing.device_quotas import device_limit, quota
from testing.sidecar.snapshots import hard_claim, hard_slices, pod, snapshot, used_by

OVERSHOOT = 50
"""Steps by which a search may pass its budget: those of the selectors of one device."""


def rejected(outcome: object) -> Code:
    assert isinstance(outcome, Rejection), outcome
    return outcome.code


def fits(
    cluster: Snapshot,
    *,
    without: Sequence[str] = (),
    beside: Sequence[str] = (),
    dry_run: DryRunBudget | None = None,
) -> Placement | Rejection:
    """Decide if the pod `a` with the claim `gpu` fits on `node-1`."""
    return fits_with(
        pod("gpu"),
        "node-1",
        cluster,
        removed_pods=without,
        added_pods=beside,
        dry_run=dry_run or DryRunBudget(),
    )


def with_victims(asker: Pod, on: str, cluster: Snapshot, *victims: str) -> Placement | Rejection:
    """Decide if a pod fits on a node without some pods."""
    return fits_with(
        asker, on, cluster, removed_pods=victims, added_pods=[], dry_run=DryRunBudget()
    )


def eight_on_each(*claims: ResourceClaim, **fields: Any) -> Snapshot:
    """Three nodes with eight GPUs each."""
    names = [f"node-{number}" for number in (1, 2, 3)]
    gpus = devices(*(f"gpu-{number}" for number in range(8)))
    return snapshot(
        *claims,
        nodes=list(map(node, names)),
        slices=[slice_of(*gpus, pool=name, node=name) for name in names],
        **fields,
    )


def hard_node() -> Snapshot:
    nodes = [node("node-1")]
    return snapshot(hard_claim(), nodes=nodes, slices=hard_slices(nodes))


def test_victims_free_their_devices() -> None:
    cluster = snapshot(
        used_by(allocated_claim(result("gpu-0"), result("gpu-1"), name="held"), "uid-low"),
        claim(request(), name="gpu"),
    )

    assert rejected(fits(cluster)) is Code.NO_DEVICES
    assert isinstance(fits(cluster, without=["uid-low"]), Placement)


def test_a_victim_that_shares_its_claim_with_a_survivor_frees_nothing() -> None:
    claim_ = allocated_claim(result("gpu-0"), result("gpu-1"), name="held")
    cluster = snapshot(used_by(claim_, "uid-low", "uid-other"), claim(request(), name="gpu"))

    assert rejected(fits(cluster, without=["uid-low"])) is Code.NO_DEVICES
    assert isinstance(fits(cluster, without=["uid-low", "uid-other"]), Placement)


def test_nominated_pods_take_their_devices_first() -> None:
    nominated = pod("two", name="b")
    cluster = snapshot(
        claim(request(count=2), name="two"), claim(request(), name="gpu"), pods=[nominated]
    )

    assert rejected(fits(cluster, beside=["uid-b"])) is Code.NO_DEVICES


def test_nominated_pods_that_wait_for_their_victims_keep_what_is_free() -> None:
    pods = [
        pod("two", name="b", priority=10, nominated="node-1"),
        pod("held", name="low", nodeName="node-1", is_deleted=True),
    ]
    cluster = snapshot(
        used_by(allocated_claim(result("gpu-0"), name="held"), "uid-low"),
        claim(request(count=2), name="two"),
        claim(request(), name="gpu"),
        pods=pods,
    )

    assert isinstance(fits(cluster), Placement)
    assert rejected(fits(cluster, beside=["uid-b"])) is Code.NO_DEVICES


def test_a_victim_is_not_evicted_for_the_budget_of_a_pod_that_is_nominated_for_another_node() -> (
    None
):
    """Five devices are allowed: two are for the nominated pod, one is of a pod that stays, and three are too many."""
    rival = pod("two", name="r", priority=100, nominated="node-1")
    cluster = eight_on_each(
        held("node-1/gpu-0", name="of-v0", uid="uid-v0"),
        held("node-1/gpu-1", name="of-o", uid="uid-o"),
        held("node-2/gpu-0", "node-2/gpu-1", name="of-v1", uid="uid-v1"),
        claim(request(count=2), name="two"),
        claim(request(count=3), name="three"),
        quotas=[quota(device_limit(5))],
        pods=[
            pod("of-v0", name="v0", nodeName="node-1", is_deleted=True),
            pod("of-o", name="o", priority=200, nodeName="node-1"),
            pod("of-v1", name="v1", nodeName="node-2"),
            rival,
        ],
    )

    def outcome(priority: int) -> Placement | Rejection:
        return with_victims(pod("three", priority=priority), "node-2", cluster, "uid-v1")

    assert rejected(outcome(100)) is Code.EXCEEDS_DEVICE_QUOTA
    assert isinstance(outcome(101), Placement), "a more important pod takes its budget"
    assert isinstance(
        with_victims(pod("three", priority=100), "node-2", cluster, "uid-v1", "uid-r"), Placement
    )


def test_a_victim_is_not_evicted_for_the_devices_of_a_pod_that_is_nominated_for_another_node() -> (
    None
):
    """All nodes see the three devices, and two are for the nominated pod."""
    fabric = slice_of(*devices("d", "e", "f"), all_nodes=True, pool="fabric")
    rival = pod("other-two", name="r", priority=100, nominated="node-1")
    cluster = snapshot(
        held("fabric/d", name="of-v0", uid="uid-v0"),
        held("fabric/e", name="of-v1", uid="uid-v1"),
        claim(request(count=2), name="two"),
        claim(request(count=2), name="other-two"),
        slices=[fabric],
        pods=[
            pod("of-v0", name="v0", nodeName="node-1", is_deleted=True),
            pod("of-v1", name="v1", nodeName="node-2"),
            rival,
        ],
    )

    def outcome(priority: int) -> Placement | Rejection:
        return with_victims(pod("two", priority=priority), "node-2", cluster, "uid-v1")

    assert rejected(outcome(100)) is Code.NO_DEVICES
    assert isinstance(outcome(101), Placement)


def test_pods_nominated_for_other_nodes_that_share_nothing_cost_no_dry_run_anything() -> None:
    rivals = [
        pod("hard", name="b", priority=10, nominated="node-1"),
        pod("hard", name="c", priority=10, nominated="node-2", namespace="other"),
    ]
    cluster = eight_on_each(
        hard_claim("hard"),
        claim(request(), name="gpu"),
        quotas=[quota(device_limit(8), labels={"team": "b"})],
        namespaces={"default": {}, "other": {"team": "b"}},
        pods=rivals,
    )

    assert isinstance(with_victims(pod("gpu"), "node-3", cluster), Placement)
    assert cluster.cluster.costs.steps <= 8


@pytest.mark.parametrize(
    ("most", "costs"),
    [
        pytest.param(36, True, id="it might not last"),
        pytest.param(37, False, id="it lasts for the pod and both others"),
    ],
)
def test_pods_nominated_for_other_nodes_cost_nothing_if_the_budget_lasts(
    most: int, *, costs: bool
) -> None:
    nodes = [node(f"node-{number}") for number in range(3)]
    names = [node_.metadata.name for node_ in nodes]
    rivals = [pod(f"of-{name}", name=name, nominated=name) for name in names[1:]]
    cluster = snapshot(
        *(hard_claim(f"of-{name}") for name in names[1:]),
        claim(request(capacity={"memory": "1"}), name="gpu"),
        nodes=nodes,
        slices=hard_slices(nodes),
        quotas=[quota(device_limit(most))],
        pods=rivals,
    )

    with_victims(pod("gpu"), "node-0", cluster)

    assert (cluster.cluster.costs.steps > 10) is costs


def test_a_pod_beside_too_many_nominated_pods_counts_as_not_fitting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preemption, "FILTER_STEPS", 100)
    nodes = [node(f"node-{number}") for number in range(4)]
    names = [node_.metadata.name for node_ in nodes]
    rivals = [pod(f"of-{name}", name=name, nominated=name) for name in names[1:]]
    cluster = snapshot(
        *(hard_claim(f"of-{name}") for name in names[1:]),
        claim(request(capacity={"memory": "1"}), name="gpu"),
        nodes=nodes,
        slices=hard_slices(nodes),
        quotas=[quota(device_limit(50))],
        pods=rivals,
    )

    assert rejected(with_victims(pod("gpu"), "node-0", cluster)) is Code.BUDGET_EXHAUSTED
    assert isinstance(with_victims(pod("gpu", priority=1), "node-0", cluster), Placement)


@pytest.mark.parametrize("strategy", ["FirstFit", "BestFit"])
def test_an_answer_about_one_node_costs_a_bounded_number_of_steps(strategy: str) -> None:
    """A search in the order of a strategy that is cut off is repeated in upstream's order."""
    cluster = replace(hard_node(), default_strategy=strategy)
    costs = cluster.cluster.costs

    assert rejected(fits(cluster)) is Code.BUDGET_EXHAUSTED
    assert FILTER_STEPS < costs.steps <= FILTER_STEPS + OVERSHOOT

    before = costs.steps
    assert rejected(place(pod("gpu"), "node-1", cluster)) is Code.BUDGET_EXHAUSTED
    assert costs.steps - before <= NODE_STEPS + OVERSHOOT


def test_nominated_pods_and_the_pod_itself_share_the_steps_of_an_answer() -> None:
    nodes = [node("node-1")]
    rival = pod("hard", name="b", priority=10)
    cluster = snapshot(
        hard_claim(), hard_claim("hard"), nodes=nodes, slices=hard_slices(nodes), pods=[rival]
    )

    assert rejected(fits(cluster, beside=["uid-b"])) is Code.BUDGET_EXHAUSTED
    assert cluster.cluster.costs.steps <= FILTER_STEPS + OVERSHOOT


def test_a_dry_run_of_a_claim_that_is_hard_to_search_costs_a_bounded_number_of_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dry_run_steps, answers = 3 * FILTER_STEPS, 10
    monkeypatch.setattr(preemption, "DRY_RUN_STEPS", dry_run_steps)
    cluster, dry_run = hard_node(), DryRunBudget()
    costs = cluster.cluster.costs

    for _ in range(answers):
        assert rejected(fits(cluster, dry_run=dry_run)) is Code.BUDGET_EXHAUSTED

    assert costs.steps <= dry_run_steps + answers * (LATE_FILTER_STEPS + OVERSHOOT)
    assert dry_run.next_steps == LATE_FILTER_STEPS
    # Claims that are not hard to search are answered to the end.
    easy = snapshot(claim(request(count=2), name="gpu"))
    assert isinstance(fits(easy, dry_run=dry_run), Placement)


def test_a_node_whose_search_is_cut_off_keeps_no_pod_from_victims_on_others() -> None:
    nodes = [node("node-1"), node("node-2")]
    slices = hard_slices(nodes)
    victim = pod("held", name="low", nodeName="node-2")
    in_use = [result(name, pool="node-2") for name in "abcdef"]
    cluster = snapshot(
        used_by(allocated_claim(*in_use, name="held"), "uid-low"),
        hard_claim(),
        nodes=nodes,
        slices=slices,
        pods=[victim],
    )

    outcome = find_nodes(pod("gpu", priority=10), cluster)
    while isinstance(outcome, Rejection) and outcome.verdict is Verdict.ERROR:
        outcome = find_nodes(pod("gpu", priority=10), cluster)

    assert isinstance(outcome, Rejection)
    assert (outcome.verdict, outcome.code) == (Verdict.UNSCHEDULABLE, Code.BUDGET_EXHAUSTED)
    alone = find_nodes(pod("gpu"), cluster)
    assert isinstance(alone, Rejection)
    assert alone.verdict is Verdict.UNRESOLVABLE, "it may preempt nobody"


# --- releases -------------------------------------------------------------------------------------

GONE = "uid-gone"


def held(
    *places: str, name: str = "held", uid: str = GONE, driver: str = "gpu.example.com"
) -> ResourceClaim:
    """A claim with devices such as `node-1/gpu-0`, of a pod that is gone unless another is named."""
    results = [
        result(place_.split("/")[1], pool=place_.split("/")[0], driver=driver) for place_ in places
    ]
    return used_by(allocated_claim(*results, name=name), uid)


def awaited(cluster: Snapshot, asker: Pod | None = None) -> list[str]:
    return sorted(name for _, name in awaited_claims(asker or pod("gpu", priority=5), cluster))


STAYS = pod("stays", name="stays", nodeName="node-1")


def test_a_release_that_leaves_enough_devices_is_waited_for() -> None:
    cluster = snapshot(
        held("node-1/gpu-0"),
        held("node-1/gpu-1", name="other"),
        held("node-2/gpu-0", "node-2/gpu-1", name="stays", uid="uid-stays"),
        claim(request(count=2), name="gpu"),
        pods=[STAYS],
    )

    assert awaited(cluster) == ["held", "other"]


@pytest.mark.parametrize(
    ("count", "fields"),
    [
        pytest.param(1, {"nodeSelector": {"zone": "b"}}, id="on a node that the pod may not use"),
        pytest.param(2, {}, id="of too few devices"),
    ],
)
def test_a_release_that_does_not_help_is_not_waited_for(count: int, fields: dict[str, Any]) -> None:
    cluster = snapshot(
        held("node-1/gpu-0"),
        held("node-1/gpu-1", "node-2/gpu-0", "node-2/gpu-1", name="stays", uid="uid-stays"),
        claim(request(count=count), name="gpu"),
        pods=[STAYS],
    )

    assert awaited(cluster, pod("gpu", priority=5, **fields)) == []


def test_a_release_of_devices_that_are_not_given_is_not_waited_for() -> None:
    """Another scheduler's, such as a claim for extended resources."""
    slices = [
        slice_of(*devices("gpu-0"), driver="other.example.com", pool="node-1", node="node-1"),
    ]
    cluster = snapshot(
        held("node-1/gpu-0", driver="other.example.com"),
        claim(request(), name="gpu"),
        slices=slices,
    )

    assert awaited(cluster) == []


def test_no_release_is_waited_for_by_a_pod_whose_devices_are_free() -> None:
    """It lacks something else, such as CPU."""
    cluster = snapshot(held("node-1/gpu-0"), claim(request(), name="gpu"))

    assert awaited(cluster) == []


def test_no_release_is_waited_for_by_a_pod_that_has_its_devices() -> None:
    cluster = snapshot(held("node-1/gpu-0"), held("node-2/gpu-0", name="gpu", uid="uid-a"))

    assert awaited(cluster) == []


@pytest.mark.parametrize(
    ("freed", "expected"),
    [
        pytest.param(["gpu-0"], [], id="all of it is for the nominated pod"),
        pytest.param(["gpu-0", "gpu-1"], ["held"], id="something is left"),
    ],
)
def test_what_is_released_for_a_nominated_pod_helps_no_other(
    freed: Sequence[str], expected: list[str]
) -> None:
    rival = pod("one", name="b", priority=10, nominated="node-1")
    kept = [name for name in ("gpu-0", "gpu-1") if name not in freed]
    cluster = snapshot(
        held(*(f"node-1/{name}" for name in freed)),
        *(
            [held(*(f"node-1/{name}" for name in kept), name="stays", uid="uid-stays")]
            if kept
            else []
        ),
        claim(request(), name="one"),
        claim(request(), name="gpu"),
        nodes=[node("node-1")],
        pods=[STAYS, rival],
    )

    assert awaited(cluster) == expected


@pytest.mark.parametrize(
    ("nominated", "expected"),
    [
        pytest.param("node-1", ["held"], id="its victim"),
        pytest.param("node-2", [], id="not on another node"),
        pytest.param("", [], id="nor by a pod that is nominated for none"),
    ],
)
def test_the_end_of_a_victim_is_waited_for(nominated: str, expected: list[str]) -> None:
    """The scheduler does not look for another one while it knows of this one, though it may be gone."""
    cluster = snapshot(
        held("node-1/gpu-0", uid="uid-low"),
        held("node-1/gpu-1", "node-2/gpu-0", "node-2/gpu-1", name="stays", uid="uid-stays"),
        claim(request(), name="gpu"),
        pods=[STAYS, pod("held", name="low", nodeName="node-1", is_deleted=True)],
    )

    assert awaited(cluster, pod("gpu", priority=5, nominated=nominated)) == expected


def test_what_is_released_for_the_budget_of_a_nominated_pod_helps_no_other() -> None:
    """Two devices are allowed. The nominated pod needs one of them, on another node."""
    rival = pod("one", name="r", priority=10, nominated="node-1")
    cluster = eight_on_each(
        held("node-2/gpu-0", "node-2/gpu-1"),
        claim(request(), name="one"),
        claim(request(count=2), name="gpu"),
        quotas=[quota(device_limit(2))],
        pods=[rival],
    )

    assert awaited(cluster, pod("gpu", priority=10)) == []
    assert awaited(cluster, pod("gpu", priority=11)) == ["held"]


def test_looking_for_a_release_that_helps_costs_a_bounded_number_of_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [node(f"node-{number}") for number in range(12)]
    cluster = snapshot(
        *(held(f"{node_.metadata.name}/a", name=node_.metadata.name) for node_ in nodes),
        hard_claim(),
        nodes=nodes,
        slices=hard_slices(nodes),
    )
    monkeypatch.setattr(preemption, "RELEASE_STEPS", 5_000)

    assert awaited(cluster) == []
    assert cluster.cluster.costs.steps <= 5_000 + OVERSHOOT
