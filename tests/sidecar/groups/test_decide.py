"""Decisions about groups for the scheduler: the verdict of simulate, and a scheduler's additions to it."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from allocator.declarations.collect import collect_groups
from allocator.declarations.pod_group import PodGroup
from allocator.groups.model import MAX_MEMBERS
from allocator.model.plan import Budget
from allocator.nodes.headroom import Headroom
from allocator.nodes.node_resources import node_resources
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.simulate import simulate_in_order
from kube.api.core import Node, Pod
from kube.api.meta import convert
from kube.api.node_selector import NodeSelector
from kube.api.resource import ResourceClaim, ResourceSlice
from kube.cel.scope import STEPS_PER_LOOK, Meter, evaluating
from sidecar.groups import candidates
from sidecar.groups import decide as decisions
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import GroupOutcome, Places
from sidecar.groups.searches import GroupSearches
from sidecar.model.protocol import GroupRequest, Verdict
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.decisions import NoDevicesNeeded
from sidecar.plan.room import Room
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    device,
    devices,
    match,
    node,
    request,
    result,
    slice_of,
)
from testing.device_quotas import capacity_limit, device_limit, quota
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import hard_claim, hard_slices, pod, snapshot, used_by


def gpus(name: str, count: int) -> ResourceSlice:
    return slice_of(*devices(*(f"gpu-{number}" for number in range(count))), pool=name, node=name)


def cluster(per_node: Mapping[str, int], *claims: ResourceClaim, **fields: Any) -> Snapshot:
    """A cluster with so many GPUs on each node."""
    return snapshot(
        *claims,
        nodes=[node(name) for name in per_node],
        slices=[gpus(name, count) for name, count in per_node.items() if count],
        **fields,
    )


def claims_of(pods: Sequence[Pod], count: int = 1) -> list[ResourceClaim]:
    """A claim for each of the pods, of its name."""
    return [claim(request(count=count), name=pod_.metadata.name) for pod_ in pods]


def members(*names: str, **spec: Any) -> list[Pod]:
    """Pods with a claim of their name."""
    return [member(name, name, **spec) for name in names]


def nodes_of(outcome: GroupOutcome) -> dict[str, str]:
    assert isinstance(outcome, Places), outcome
    return {uid.removeprefix("uid-"): name for uid, name in outcome.nodes.items()}


def rejection_of(outcome: GroupOutcome) -> Rejection:
    assert isinstance(outcome, Rejection), outcome
    return outcome


def decided(request_: GroupRequest, world: Snapshot, **attempt: Any) -> GroupOutcome:
    """The decision; the cluster is as before after it."""
    usage = world.cluster.usage
    outcome = decide(request_, world, Attempt(**attempt))
    assert world.cluster.usage == usage
    return outcome


# --- the verdict of simulate ----------------------------------------------------------------------


def test_a_group_that_first_fit_turns_away_is_placed_kubernetes_138765() -> None:
    # Pod by pod, the small one takes the only node that the large one can use.
    small, large = members("small", "large")
    world = cluster({"node-a": 2, "node-b": 1}, *claims_of([small]), *claims_of([large], 2))

    outcome = decided(group_request(small, large), world)

    assert nodes_of(outcome) == {"small": "node-b", "large": "node-a"}


def test_the_devices_of_one_pod_are_chosen_with_the_others_in_view() -> None:
    # First fit gives the small one gpu-0, and no two devices under one root are left.
    small, pair = members("small", "pair")
    published = [device(f"gpu-{root}", attributes={"root": root[0]}) for root in ("aa", "ab", "b")]
    aligned = claim(
        request(count=2),
        name="pair",
        constraints=(match(f"{DRIVER}/root"),),
    )
    world = snapshot(
        *claims_of([small]),
        aligned,
        nodes=[node("node-a")],
        slices=[slice_of(*published, pool="node-a", node="node-a")],
    )

    outcome = decided(group_request(small, pair), world)

    assert isinstance(outcome, Places)
    chosen = {
        name: [choice.device.id.device for choice in planned.choices]
        for (_, name), planned in outcome.claims.items()
    }
    assert chosen == {"small": ["gpu-b"], "pair": ["gpu-aa", "gpu-ab"]}


@pytest.mark.parametrize("seed", range(150))
def test_the_verdict_is_that_of_simulate(seed: int) -> None:
    rng = Random(seed)
    per_node = {f"node-{number}": rng.randrange(4) for number in range(rng.randint(1, 4))}
    cores = {name: rng.choice((2, 3, 8)) for name in per_node}
    shared = claim(request(), name="shared")
    pods: list[Pod] = []
    claims: list[ResourceClaim] = []
    for number in range(rng.randint(1, 5)):
        count = rng.choice((0, 1, 1, 2, 3))
        names = ([f"p{number}"] if count else []) + (["shared"] if rng.random() < 0.2 else [])
        claims += [claim(request(count=count), name=f"p{number}")] if count else []
        container = {"resources": {"requests": {"cpu": str(rng.choice((0, 1, 2)))}}}
        pods.append(member(f"p{number}", *names, containers=[container]))
    needs = rng.randint(1, len(pods))
    claims.append(shared)
    if not any(pod_.spec.resource_claims for pod_ in pods):
        return  # The sidecar leaves such a group to others.

    world = cluster(per_node, *claims)
    headroom = {
        name: Headroom(cpu_milli=1000 * count, memory=1 << 40, pods=9)
        for name, count in cores.items()
    }
    outcome = decided(
        group_request(*pods, needs=needs, with_resources=True),
        replace(world, room=Room(headroom=headroom)),
    )
    gang = convert(
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "metadata": {"name": "ring", "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": needs}}},
        },
        PodGroup,
    )
    simulated = simulate_in_order(
        world.cluster,
        SimulationInput(
            pods=tuple(pods),
            known={("default", claim_.metadata.name): claim_ for claim_ in claims},
            templates={},
            classes=world.classes,
            resources={
                name: node_resources(
                    convert(
                        {
                            "status": {
                                "allocatable": {"cpu": str(count), "memory": "1Ti", "pods": "9"}
                            }
                        },
                        Node,
                    )
                )
                for name, count in cores.items()
            },
            groups=collect_groups(pods, (), (gang,)),
        ),
        SimulationOptions(),
    )

    (group,) = simulated.groups
    if isinstance(outcome, Places):
        assert len(outcome.nodes) == group.placed
        assert nodes_of(outcome) == {
            pod_.name: pod_.node for pod_ in simulated.pods if pod_.node is not None
        }
    else:
        rejection = rejection_of(outcome)
        assert group.placed == 0
        assert rejection.message.startswith(group.reason)


def test_three_of_four_fit_and_the_sentence_is_that_of_simulate() -> None:
    pods = members(*"abcd")
    world = cluster({"node-a": 2, "node-b": 1}, *claims_of(pods))

    rejection = rejection_of(decided(group_request(*pods), world))

    assert (rejection.verdict, rejection.code) == (
        Verdict.UNRESOLVABLE,
        Code.GROUP_DOES_NOT_FIT,
    )
    assert rejection.message == (
        "3 of 4 pods fit, and 4 are needed; default/d fits nowhere beside them"
    )


# --- members ---------------------------------------------------------------------------------------


def test_a_pod_above_the_minimum_fails_nobody() -> None:
    pods = members(*"abc")
    world = cluster({"node-a": 2}, *claims_of(pods))

    outcome = decided(group_request(*pods, needs=2), world)

    assert nodes_of(outcome) == {"a": "node-a", "b": "node-a"}
    assert isinstance(outcome, Places)
    assert outcome.rejections["uid-c"].code is Code.GROUP_NOT_NEEDED


def test_placed_pods_count_and_no_further_pod_may_fit() -> None:
    pods = members("c")
    in_use = allocated_claim(result("gpu-0", pool="node-a"), name="other")
    world = cluster({"node-a": 1}, in_use, *claims_of(pods))

    rejection = rejection_of(decided(group_request(*pods, needs=1, placed=["node-a"]), world))

    assert rejection.code is Code.GROUP_NOT_NEEDED
    assert rejection.message == "1 of 2 pods fits, and 1 are needed; no further pod fits"


def test_every_pod_uses_nodes_by_its_own_rules() -> None:
    a, b = member("a", "a", nodeSelector={"disk": "fast"}), member("b", "b")
    world = snapshot(
        *claims_of([a, b]),
        nodes=[node("node-a"), node("node-b", disk="fast")],
        slices=[gpus("node-a", 1), gpus("node-b", 1)],
    )

    assert nodes_of(decided(group_request(b, a), world)) == {"a": "node-b", "b": "node-a"}


def test_a_pod_without_a_chance_gives_its_reason_to_the_group() -> None:
    pods = members("a", "b")
    world = cluster({"node-a": 2}, *claims_of(pods[:1]))

    rejection = rejection_of(decided(group_request(*pods), world))
    assert rejection.code is Code.CLAIM_NOT_FOUND
    assert rejection.message == "pod b of the group: ResourceClaim b not found"

    outcome = decided(group_request(*pods, needs=1), world)
    assert nodes_of(outcome) == {"a": "node-a"}
    assert isinstance(outcome, Places)
    assert outcome.rejections["uid-b"].code is Code.CLAIM_NOT_FOUND


def test_allocated_claims_pin_their_pods() -> None:
    pods = [member("a", "shared", "a"), member("b", "b")]
    held = allocated_claim(result("nic-0", driver="nic.example.com", pool="node-b"), name="shared")
    held = pinned_to(held, "node-b")
    world = cluster({"node-a": 1, "node-b": 1}, held, *claims_of(pods))

    assert nodes_of(decided(group_request(*pods), world)) == {"a": "node-b", "b": "node-a"}


def test_a_claim_of_all_pods_is_allocated_once() -> None:
    pods = [member(name, "shared") for name in "abc"]
    world = cluster({"node-a": 0, "node-b": 1}, claim(request(), name="shared"))

    outcome = decided(group_request(*pods), world)

    assert nodes_of(outcome) == dict.fromkeys("abc", "node-b")
    assert isinstance(outcome, Places)
    assert [name for _, name in outcome.claims] == ["shared"]


def test_a_claim_is_for_256_pods_at_most() -> None:
    pods = [member(f"p{number:03}", "shared") for number in range(257)]
    world = cluster({"node-a": 1}, claim(request(), name="shared"))

    outcome = decided(group_request(*pods, needs=256), world)

    assert isinstance(outcome, Places)
    assert len(outcome.nodes) == 256
    assert outcome.rejections["uid-p256"].code is Code.TOO_MANY_CONSUMERS
    assert rejection_of(decided(group_request(*pods), world)).code is Code.TOO_MANY_CONSUMERS


def test_a_group_without_claims_is_left_to_others() -> None:
    pods = [member("a"), member("b")]

    assert decided(group_request(*pods), cluster({"node-a": 1})) == NoDevicesNeeded()


def test_a_launcher_without_claims_needs_a_node_as_well() -> None:
    launcher, worker = member("launcher", containers=[cores(1)]), member("worker", "worker")
    world = cluster({"node-a": 1}, *claims_of([worker]))
    room = Room(headroom={"node-a": Headroom(cpu_milli=1000, memory=1 << 30, pods=1)})

    assert nodes_of(decided(group_request(launcher, worker), world)) == {
        "launcher": "node-a",
        "worker": "node-a",
    }
    rejection = rejection_of(
        decided(group_request(launcher, worker, with_resources=True), replace(world, room=room))
    )
    assert (rejection.verdict, rejection.code) == (
        Verdict.UNSCHEDULABLE,
        Code.GROUP_LACKS_RESOURCES,
    )


def pinned_to(claim_: ResourceClaim, name: str) -> ResourceClaim:
    """An allocated claim that can be used on one node."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    selector = convert({"nodeSelectorTerms": [term]}, NodeSelector)
    assert claim_.status is not None
    assert claim_.status.allocation is not None
    allocation = replace(claim_.status.allocation, node_selector=selector)
    return replace(claim_, status=replace(claim_.status, allocation=allocation))


def cores(count: int) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": str(count)}}}


@pytest.mark.parametrize(
    ("count", "code"), [(MAX_MEMBERS, None), (MAX_MEMBERS + 1, Code.GROUP_TOO_LARGE)]
)
def test_a_group_has_512_pods_without_a_node_at_most(count: int, code: Code | None) -> None:
    pods = members(*(f"p{number}" for number in range(count)))
    world = cluster({f"node-{number}": 8 for number in range(64)}, *claims_of(pods))

    outcome = decided(group_request(*pods), world)

    if code is None:
        assert isinstance(outcome, Places)
        assert len(outcome.nodes) == MAX_MEMBERS
    else:
        rejection = rejection_of(outcome)
        assert (rejection.verdict, rejection.code) == (Verdict.UNRESOLVABLE, code)


def test_a_group_has_only_so_many_different_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at on every node; those that differ in names alone are one."""
    equal = members(*(f"e{number}" for number in range(20)))
    by_rules = [
        member(f"r{number}", f"r{number}", nodeSelector={"disk": str(number)})
        for number in range(4)
    ]
    by_cpu = [member(f"c{number}", f"c{number}", containers=[cores(number)]) for number in range(4)]
    by_claims = members(*(f"d{number}" for number in range(4)))
    every_claim = [
        *claims_of([*equal, *by_rules, *by_cpu]),
        *(claim(request(count=number + 1), name=f"d{number}") for number in range(4)),
    ]
    world = cluster({"node-a": 40, "node-b": 40}, *every_claim)
    monkeypatch.setattr(candidates, "MAX_KIND_NODES", 2 * 3)

    for different in (by_rules, by_cpu, by_claims):
        rejection = rejection_of(decided(group_request(*different, with_resources=True), world))
        assert (rejection.verdict, rejection.code) == (
            Verdict.UNRESOLVABLE,
            Code.GROUP_TOO_LARGE,
        )
    assert len(nodes_of(decided(group_request(*equal, with_resources=True), world))) == 20


def test_excluded_nodes_do_not_make_pods_too_different(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = members(*"abc")
    world = cluster({f"node-{number}": 1 for number in range(6)}, *claims_of(pods))
    excluded = {f"uid-{name}": (f"node-{number}",) for number, name in enumerate("abc")}
    request_ = group_request(*pods, excluded=excluded)

    assert nodes_of(decided(request_, world)) == {"a": "node-1", "b": "node-0", "c": "node-3"}
    monkeypatch.setattr(candidates, "MAX_KIND_NODES", 6 * 2)
    assert nodes_of(decided(request_, world)) == {"a": "node-3", "b": "node-4", "c": "node-5"}


def test_pods_of_several_groups_are_not_supported() -> None:
    pods = [member("a", "a"), member("b", "b", group="other")]

    rejection = rejection_of(decided(group_request(*pods), cluster({"node-a": 2})))

    assert (rejection.verdict, rejection.code) == (Verdict.UNRESOLVABLE, Code.GROUP_UNSUPPORTED)


def test_a_group_of_which_pods_are_missing_waits_for_them() -> None:
    pods = members("a")

    rejection = rejection_of(decided(group_request(*pods, needs=3), cluster({"node-a": 2})))

    assert rejection.code is Code.GROUP_INCOMPLETE
    assert rejection.message == "the group needs 3 pods, and 1 exists"


def test_a_topology_label_keeps_a_group_in_one_domain() -> None:
    pods = members("a", "b")
    racks = [node("node-a", rack="1"), node("node-b", rack="2"), node("node-c", rack="2")]
    world = snapshot(
        *claims_of(pods), nodes=racks, slices=[gpus(f"node-{letter}", 1) for letter in "abc"]
    )

    outcome = decided(group_request(*pods, topology="rack"), world)

    assert sorted(nodes_of(outcome).values()) == ["node-b", "node-c"]


# --- other pods ------------------------------------------------------------------------------------


def test_devices_are_kept_for_nominated_pods_that_are_as_important() -> None:
    pods = members("a", priority=5)
    rivals = {
        priority: pod("rival", name="rival", nominated="node-a", priority=priority)
        for priority in (4, 5)
    }
    all_claims = [*claims_of(pods), claim(request(), name="rival")]

    weak = cluster({"node-a": 1}, *all_claims, pods=[rivals[4]])
    strong = cluster({"node-a": 1}, *all_claims, pods=[rivals[5]])

    assert nodes_of(decided(group_request(*pods), weak)) == {"a": "node-a"}
    assert rejection_of(decided(group_request(*pods), strong)).code is Code.GROUP_DOES_NOT_FIT


def test_nominated_pods_of_the_group_itself_are_no_rivals() -> None:
    a = pod("a", name="a", nominated="node-a", schedulingGroup={"podGroupName": "ring"})
    world = cluster({"node-a": 1}, *claims_of([a]), pods=[a])

    assert nodes_of(decided(group_request(a), world)) == {"a": "node-a"}


def test_only_devices_of_owned_drivers_are_given() -> None:
    pods = members("a")
    world = cluster({"node-a": 1}, *claims_of(pods), drivers=["nic.example.com"])

    assert rejection_of(decided(group_request(*pods), world)).code is Code.DRIVER_NOT_OWNED


# --- what if ---------------------------------------------------------------------------------------


def busy_cluster(*pods: Pod) -> Snapshot:
    """Two nodes with two GPUs each; node-a's are a victim's."""
    victims = [pod(f"gpu-{number}", name=f"v{number}", nodeName="node-a") for number in range(2)]
    in_use = [
        used_by(
            allocated_claim(result(f"gpu-{number}", pool="node-a"), name=f"gpu-{number}"),
            f"uid-v{number}",
        )
        for number in range(2)
    ]
    return cluster({"node-a": 2, "node-b": 2}, *in_use, *claims_of(pods), pods=victims)


def test_victims_make_room_for_the_whole_group() -> None:
    pods = members(*"abcd", priority=5)
    world = busy_cluster(*pods)
    whole = group_request(*pods)

    rejection = rejection_of(decided(whole, world))
    assert (rejection.verdict, rejection.code) == (Verdict.UNSCHEDULABLE, Code.GROUP_DOES_NOT_FIT)
    without_one = replace(whole, what_if=True, removed=("uid-v0",))
    assert isinstance(decided(without_one, world), Rejection)
    without_both = replace(whole, what_if=True, removed=("uid-v0", "uid-v1"))
    assert (
        sorted(nodes_of(decided(without_both, world)).values()) == ["node-a"] * 2 + ["node-b"] * 2
    )


def test_what_nodes_have_left_does_not_count_without_their_victims() -> None:
    """The nodes are as they were with them."""
    container = {"resources": {"requests": {"cpu": "2"}}}
    pods = members(*"abcd", priority=5, containers=[container])
    full = Headroom(cpu_milli=0, memory=1 << 30, pods=0)
    room = Room(headroom={"node-a": full, "node-b": full})
    whole = group_request(*pods, with_resources=True, what_if=True, removed=("uid-v0", "uid-v1"))

    assert len(nodes_of(decided(whole, replace(busy_cluster(*pods), room=room)))) == 4


def test_pods_are_asked_about_where_they_are() -> None:
    pods = members("a", "b", priority=5)
    world = busy_cluster(*pods)

    def fits(removed: Sequence[str], **pinned: str) -> bool:
        uids = {f"uid-{name}": place.replace("_", "-") for name, place in pinned.items()}
        request_ = group_request(*pods, what_if=True, removed=tuple(removed), pinned=uids)
        return isinstance(decided(request_, world), Places)

    assert fits([], a="node-b", b="node-b")
    assert not fits([], a="node-a", b="node-b")
    assert not fits(["uid-v0"], a="node-a", b="node-a")
    assert fits(["uid-v0", "uid-v1"], a="node-a", b="node-a")
    assert fits(["uid-v0"], a="node-a", b="node-b")
    # Only pods that have a node are asked about.
    assert fits(["uid-v0"], a="node-a")
    assert not fits([], a="node-a")


def test_pods_without_claims_fit_where_they_are() -> None:
    pods = [*members("a", priority=5), member("launcher", priority=5)]
    request_ = group_request(*pods, what_if=True, pinned={"uid-launcher": "node-a"})

    assert nodes_of(decided(request_, busy_cluster(*pods[:1]))) == {"launcher": "node-a"}


def test_a_victim_that_shares_its_claim_with_a_pod_that_stays_frees_nothing() -> None:
    pods = members("a", "b", priority=5)
    victims = [pod("shared", name=f"v{number}", nodeName="node-a") for number in range(2)]
    shared = used_by(
        allocated_claim(result("gpu-0", pool="node-a"), name="shared"), "uid-v0", "uid-v1"
    )
    world = cluster({"node-a": 2}, shared, *claims_of(pods), pods=victims)
    pinned = {"uid-a": "node-a", "uid-b": "node-a"}
    for pins in ({}, pinned):
        one = group_request(*pods, what_if=True, removed=("uid-v0",), pinned=pins)
        both = replace(one, removed=("uid-v0", "uid-v1"))
        assert isinstance(decided(one, world), Rejection)
        assert isinstance(decided(both, world), Places)


def test_devices_that_are_held_back_are_no_victims() -> None:
    """Nobody has them any more, but their containers may run."""
    pods = members("a", "b", priority=5)
    held_back = allocated_claim(result("gpu-0", pool="node-a"), name="held-back")
    world = cluster({"node-a": 2}, held_back, *claims_of(pods))
    pinned = {"uid-a": "node-a", "uid-b": "node-a"}

    for pins in ({}, pinned):
        request_ = group_request(*pods, what_if=True, removed=("uid-gone",), pinned=pins)
        assert isinstance(decided(request_, world), Rejection)


# --- quotas ----------------------------------------------------------------------------------------


def test_a_group_is_charged_as_one() -> None:
    pods = members(*"abcd")
    world = cluster({"node-a": 2, "node-b": 2}, *claims_of(pods), quotas=[quota(device_limit(3))])

    rejection = rejection_of(decided(group_request(*pods), world))
    assert (rejection.verdict, rejection.code) == (
        Verdict.UNRESOLVABLE,
        Code.EXCEEDS_DEVICE_QUOTA,
    )
    assert rejection.message.startswith("3 of 4 pods fit, and 4 are needed: DeviceQuota team")

    outcome = decided(group_request(*pods, needs=3), world)
    assert len(nodes_of(outcome)) == 3
    assert isinstance(outcome, Places)
    (left,) = outcome.rejections.values()
    assert left.code is Code.EXCEEDS_DEVICE_QUOTA


def test_a_launcher_without_claims_is_not_what_a_quota_leaves_out() -> None:
    pods = [*members("a", "b"), member("launcher")]
    world = cluster({"node-a": 2}, *claims_of(pods[:2]), quotas=[quota(device_limit(1))])

    outcome = decided(group_request(*pods, needs=2), world)

    assert nodes_of(outcome) == {"a": "node-a", "launcher": "node-a"}


def test_a_node_is_searched_for_devices_that_the_quota_leaves() -> None:
    pods = members("a", "b")
    cards = [
        device(f"gpu-{number}", capacity={"memory": memory})
        for number, memory in enumerate(("80Gi", "80Gi", "40Gi", "40Gi"))
    ]
    world = snapshot(
        *claims_of(pods),
        nodes=[node("node-a")],
        slices=[slice_of(*cards, pool="node-a", node="node-a")],
        quotas=[quota(capacity_limit("memory", "100Gi"))],
    )

    outcome = decided(group_request(*pods), world)

    assert isinstance(outcome, Places)
    chosen = sorted(
        choice.device.id.device for planned in outcome.claims.values() for choice in planned.choices
    )
    assert chosen == ["gpu-2", "gpu-3"]


@pytest.mark.parametrize(
    ("zone_of_b", "expected"),
    [
        pytest.param("east", {"a": "node-a", "b": "node-a"}, id="both see the smaller card"),
        pytest.param("west", None, id="one of them does not see it"),
    ],
)
def test_a_quota_moves_no_shared_claim_out_of_the_reach_of_a_pod(
    zone_of_b: str, expected: dict[str, str] | None
) -> None:
    """All nodes see a card of 80Gi, more than the quota allows, and node-a one of 40Gi."""
    zones = {"a": "east", "b": zone_of_b}
    pods = [member(name, "shared", nodeSelector={"zone": zone}) for name, zone in zones.items()]
    world = snapshot(
        claim(request(), name="shared"),
        nodes=[node("node-a", zone="east"), node("node-b", zone="west")],
        slices=[
            slice_of(device("big", capacity={"memory": "80Gi"}), pool="fabric", all_nodes=True),
            slice_of(device("small", capacity={"memory": "40Gi"}), pool="local", node="node-a"),
        ],
        quotas=[quota(capacity_limit("memory", "50Gi"))],
    )

    outcome = decided(group_request(*pods), world)

    if expected is not None:
        assert nodes_of(outcome) == expected
    else:
        assert rejection_of(outcome).code is Code.EXCEEDS_DEVICE_QUOTA


# --- cost ------------------------------------------------------------------------------------------


def test_a_search_goes_on_where_its_budget_ended_it() -> None:
    pods, world = hard_group()
    searches = GroupSearches()
    whole = group_request(*pods)
    attempts = 0
    while True:
        attempts += 1
        outcome = decided(whole, world, searches=searches, budget=Budget(steps=40))
        if not (isinstance(outcome, Rejection) and outcome.is_unfinished):
            break
        assert outcome.code is Code.BUDGET_EXHAUSTED
    assert 1 < attempts <= 10
    assert nodes_of(outcome) == nodes_of(decided(whole, world, budget=Budget(steps=200_000)))


def test_a_search_begins_anew_when_something_has_changed() -> None:
    pods, world = hard_group()
    searches = GroupSearches()
    for version in range(20):
        outcome = decided(
            group_request(*pods), world, version=version, searches=searches, budget=Budget(steps=1)
        )
        assert rejection_of(outcome).is_unfinished


def test_a_search_that_takes_too_many_steps_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pods, world = hard_group()
    searches = GroupSearches()
    monkeypatch.setattr(decisions, "MAX_STEPS", 20)
    outcomes: list[Rejection] = []
    while not outcomes or outcomes[-1].is_unfinished:
        outcome = decided(group_request(*pods), world, searches=searches, budget=Budget(steps=1))
        outcomes.append(rejection_of(outcome))

    assert len(outcomes) > 1
    assert outcomes[-1].message.startswith("not decided: ")


def test_a_search_that_takes_too_much_time_takes_fewer_steps_then() -> None:
    pods, world = hard_group()
    searches = GroupSearches()
    looks = iter([True])  # The first look at the clock says that time is over.
    meter = Meter(is_over=lambda: next(looks, False))
    with evaluating(meter=meter):
        meter.steps = STEPS_PER_LOOK - 1
        interrupted = decided(group_request(*pods), world, searches=searches)
    assert rejection_of(interrupted).is_unfinished

    uid = group_request(*pods).group.uid
    assert searches.budget(uid, decisions.ATTEMPT_BUDGET).steps == 5_000
    assert isinstance(decided(group_request(*pods), world, searches=searches), Places)


def test_a_search_that_always_takes_too_much_time_is_given_up() -> None:
    pods, world = hard_group()
    searches = GroupSearches()
    outcomes: list[Rejection] = []
    while not outcomes or outcomes[-1].is_unfinished:
        meter = Meter(is_over=lambda: True)
        with evaluating(meter=meter):
            meter.steps = STEPS_PER_LOOK - 1
            outcomes.append(rejection_of(decided(group_request(*pods), world, searches=searches)))

    assert 1 < len(outcomes) < 10
    assert outcomes[-1].message == decisions.TOO_SLOW


def hard_group() -> tuple[list[Pod], Snapshot]:
    """A group that takes some hundred steps."""
    pods = members(*(f"p{number}" for number in range(6)))
    claims = [claim(request(count=1 + number % 3), name=f"p{number}") for number in range(6)]
    return pods, cluster({f"node-{number}": 2 + number % 2 for number in range(5)}, *claims)


def test_a_claim_that_is_hard_to_search_does_not_decide_for_ever() -> None:
    pods = members("gpu", "b")
    nodes = [node("node-1"), node("node-2")]
    world = snapshot(hard_claim(), *claims_of(pods[1:]), nodes=nodes, slices=hard_slices(nodes))

    searches = GroupSearches()
    outcomes: list[Rejection] = []
    while not outcomes or outcomes[-1].is_unfinished:
        outcomes.append(rejection_of(decided(group_request(*pods), world, searches=searches)))

    assert {outcome.code for outcome in outcomes} == {Code.BUDGET_EXHAUSTED}
    assert outcomes[-1].message.startswith(
        "not decided: the search of a node was cut off by its budget; "
    )
    assert len(outcomes) < 5
