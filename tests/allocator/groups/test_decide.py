"""Decisions about groups: feasibility together, preferences, and the ends of a search."""

from collections.abc import Mapping, Sequence

import pytest

from allocator.cluster.cluster import Cluster
from allocator.groups.decide import GroupSearch, decide_group
from allocator.groups.model import (
    MAX_MEMBERS,
    Arrangement,
    GroupDoesNotFit,
    GroupMember,
    GroupPlan,
    GroupQuestion,
    GroupUndecided,
    MemberOption,
)
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Node
from kube.api.resource import DeviceRequest, ResourceClaim, ResourceSlice
from kube.cel.scope import metered
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    amount,
    attribute_of,
    claim,
    classes,
    device,
    match,
    node,
    request,
    result,
    slice_of,
)
from testing.allocation.groups import Case, cpu_request, resources_of

ROOT = f"{DRIVER}/root"


def gpus(pool: str, *roots: str) -> ResourceSlice:
    """A node's GPUs, each under the root at its place."""
    return slice_of(
        *[device(f"gpu-{number}", attributes={"root": root}) for number, root in enumerate(roots)],
        pool=pool,
    )


def cluster(
    *slices: ResourceSlice, nodes: Sequence[Node] = (), claims: Sequence[ResourceClaim] = ()
) -> Cluster:
    names = [slice_.spec.node_name for slice_ in slices if slice_.spec.node_name]
    return Cluster(
        slices=slices,
        nodes=nodes or [node(name) for name in names],
        claims=claims,
        classes=classes(),
        options=AllocatorOptions(),
    )


def member(
    name: str,
    *requests: DeviceRequest,
    on: Sequence[str],
    aligned: bool = False,
    shared: ResourceClaim | None = None,
    cpu: int | None = None,
) -> GroupMember:
    """A member with a claim of its own, if it requests something, and perhaps a shared one."""
    constraints = (match(ROOT),) if aligned else ()
    own = [claim(*requests, name=name, constraints=constraints)] if requests else []
    claims = (*own, *([shared] if shared is not None else []))
    return GroupMember(
        name=name,
        options=(MemberOption(nodes=tuple(on), claims=claims),),
        request=None if cpu is None else cpu_request(cpu),
    )


def members(
    count: int, *requests: DeviceRequest, on: Sequence[str], **same: object
) -> tuple[GroupMember, ...]:
    return tuple(
        member(f"pod-{number}", *requests, on=on, **same)  # type: ignore[arg-type]
        for number in range(count)
    )


def placed(
    cluster: Cluster, group: Sequence[GroupMember], least: int | None = None, **question: object
) -> Mapping[str, str]:
    """The nodes of a group that must fit."""
    outcome = decide_group(
        cluster,
        GroupQuestion(
            members=tuple(group),
            min_count=len(group) if least is None else least,
            **question,  # type: ignore[arg-type]
        ),
    )
    assert isinstance(outcome, GroupPlan), outcome
    return outcome.nodes


# --- whether a group fits -------------------------------------------------------------------------


def test_a_group_that_first_fit_turns_away_is_placed_kubernetes_138765() -> None:
    # Pod by pod, the small member takes the only node that the large one can use.
    world = cluster(gpus("node-a", "r", "r"), gpus("node-b", "r"))
    both = ("node-a", "node-b")
    group = (
        member("small", request(count=1), on=both),
        member("large", request(count=2), on=both),
    )

    assert placed(world, group) == {"small": "node-b", "large": "node-a"}


def test_the_devices_of_one_member_are_chosen_with_the_others_in_view() -> None:
    # First fit gives the small member gpu-0, and no two devices under one root are left.
    world = cluster(gpus("node-a", "one", "one", "two"))
    group = (
        member("small", request(), on=["node-a"]),
        member("pair", request(count=2), on=["node-a"], aligned=True),
    )

    assert placed(world, group) == {"small": "node-a", "pair": "node-a"}


def test_a_group_that_does_not_fit_names_the_largest_placement() -> None:
    world = cluster(gpus("node-a", "r", "r"), gpus("node-b", "r"))
    group = members(4, request(), on=["node-a", "node-b"])

    outcome = decide_group(world, GroupQuestion(members=group, min_count=4))

    assert isinstance(outcome, GroupDoesNotFit)
    assert outcome.closest.nodes == {"pod-0": "node-a", "pod-1": "node-a", "pod-2": "node-b"}
    assert outcome.closest.unplaced == ("pod-3",)
    assert outcome.needed == 4


def test_members_beyond_the_minimum_may_stay_without_a_node() -> None:
    world = cluster(gpus("node-a", "r", "r"))
    group = members(4, request(), on=["node-a"])

    outcome = decide_group(world, GroupQuestion(members=group, min_count=2))

    assert isinstance(outcome, GroupPlan)
    assert list(outcome.nodes) == ["pod-0", "pod-1"]
    assert outcome.unplaced == ("pod-2", "pod-3")


def test_members_that_are_placed_count_for_the_minimum() -> None:
    in_use = allocated_claim(result("gpu-0", pool="node-a"), name="pod-9")
    world = cluster(gpus("node-a", "r", "r"), claims=[in_use])
    group = members(2, request(), on=["node-a"])

    assert placed(world, group, least=2, placed=("node-a",)) == {"pod-0": "node-a"}


def test_a_group_that_is_complete_is_never_turned_away() -> None:
    world = cluster(gpus("node-a"))
    group = members(1, request(), on=["node-a"])

    assert placed(world, group, least=1, placed=("node-a",)) == {}


def test_cpu_counts_for_all_members_of_a_node() -> None:
    world = cluster(gpus("node-a", *"rrrr"), gpus("node-b", *"rrrr"))
    resources = resources_of(Case((), (), {"node-a": 3, "node-b": 4}, (), 1))
    group = members(3, request(), on=["node-a", "node-b"], cpu=2)

    assert placed(world, group, resources=resources) == {
        "pod-0": "node-a",
        "pod-1": "node-b",
        "pod-2": "node-b",
    }


def test_a_member_without_claims_needs_a_node_as_well() -> None:
    world = cluster(gpus("node-a", "r"))
    resources = resources_of(Case((), (), {"node-a": 2}, (), 1))
    group = (
        member("launcher", on=["node-a"], cpu=1),
        member("worker", request(), on=["node-a"], cpu=2),
    )

    outcome = decide_group(world, GroupQuestion(members=group, min_count=2, resources=resources))

    assert isinstance(outcome, GroupDoesNotFit)


def test_a_node_whose_plan_has_devices_of_other_drivers_counts_as_one_without() -> None:
    world = cluster(gpus("node-a", "r"), gpus("node-b", "r"))
    group = members(1, request(), on=["node-a", "node-b"])

    assert placed(world, group, drivers=frozenset({DRIVER})) == {"pod-0": "node-a"}
    outcome = decide_group(
        world,
        GroupQuestion(members=group, min_count=1, drivers=frozenset({"nic.example.com"})),
    )
    assert isinstance(outcome, GroupDoesNotFit)


# --- what several nodes or members share ----------------------------------------------------------


def test_a_claim_of_all_members_is_allocated_once() -> None:
    network = slice_of(device("channel-0"), pool="network", all_nodes=True)
    channel = claim(request("channel"), name="channel")
    names = [f"node-{number:03}" for number in range(100)]
    world = cluster(network, nodes=[node(name) for name in names])
    resources = resources_of(Case((), (), dict.fromkeys(names, 3), (), 1))
    group = members(300, on=names, shared=channel, cpu=1)

    outcome = decide_group(world, GroupQuestion(members=group, min_count=300, resources=resources))

    assert isinstance(outcome, GroupPlan)
    assert len(outcome.nodes) == 300
    claims = [entry.metadata.name for share in outcome.shares for entry in share.pending.claims]
    assert claims == ["channel"]


def test_members_with_a_claim_for_a_local_device_are_on_its_node() -> None:
    world = cluster(gpus("node-a", "r"), gpus("node-b", "r", "r", "r"))
    shared = claim(request(), name="shared")
    group = members(2, request(), on=["node-a", "node-b"], shared=shared)

    assert placed(world, group) == {"pod-0": "node-b", "pod-1": "node-b"}


def test_devices_that_all_nodes_see_are_given_to_one_member() -> None:
    network = slice_of(device("nic-0"), device("nic-1"), pool="network", all_nodes=True)
    names = ["node-a", "node-b", "node-c"]
    world = cluster(network, nodes=[node(name) for name in names])
    group = members(3, request(), on=names)

    outcome = decide_group(world, GroupQuestion(members=group, min_count=3))

    assert isinstance(outcome, GroupDoesNotFit)
    assert len(outcome.closest.nodes) == 2


def test_too_few_devices_that_all_nodes_see_are_noticed_at_once() -> None:
    nics = [device(f"nic-{number}", attributes={"rail": number}) for number in range(19)]
    names = [f"node-{number}" for number in range(20)]
    world = cluster(
        slice_of(*nics, pool="network", all_nodes=True), nodes=[node(name) for name in names]
    )
    group = members(20, request(), on=names)

    outcome = decide_group(world, GroupQuestion(members=group, min_count=20))

    assert isinstance(outcome, GroupDoesNotFit)
    assert len(outcome.closest.nodes) == 19
    assert outcome.steps < 2_000


def test_members_with_admin_access_share_a_device_that_all_nodes_see() -> None:
    names = ["node-a", "node-b", "node-c"]
    world = cluster(
        slice_of(device("nic-0"), pool="network", all_nodes=True),
        nodes=[node(name) for name in names],
    )
    group = members(3, request(admin_access=True), on=names)

    assert len(placed(world, group)) == 3


def test_a_share_of_a_device_that_all_nodes_see_is_never_a_wrong_no() -> None:
    names = ["node-a", "node-b", "node-c"]
    memory = {"memory": amount("80Gi", "1Gi", min="1Gi")}
    world = cluster(
        slice_of(device("pool-0", shared=True, capacity=memory), pool="network", all_nodes=True),
        nodes=[node(name) for name in names],
    )
    two, three = (
        members(count, request(capacity={"memory": "40Gi"}), on=names) for count in (2, 3)
    )

    assert len(placed(world, two)) == 2
    outcome = decide_group(world, GroupQuestion(members=three, min_count=3))
    assert isinstance(outcome, GroupUndecided)
    assert outcome.why == "not every way to share the devices that several nodes see was tried"


# --- what is preferred ----------------------------------------------------------------------------


def racks() -> Cluster:
    """Two racks: of two nodes with one GPU each, and of one node with two; names in no order of room."""
    return cluster(
        gpus("node-a", "r"),
        gpus("node-b", "r"),
        gpus("node-c", "r", "r"),
        nodes=[
            node("node-a", rack="one"),
            node("node-b", rack="two"),
            node("node-c", rack="two"),
        ],
    )


@pytest.mark.parametrize(
    ("nodes", "arrangement"),
    [
        (["node-a", "node-b"], Arrangement.FIRST_FIT),
        (["node-c", "node-c"], Arrangement.PACKED),
        (["node-a", "node-c"], Arrangement.SPREAD),
    ],
)
def test_an_arrangement_chooses_among_nodes(nodes: list[str], arrangement: Arrangement) -> None:
    group = members(2, request(), on=["node-a", "node-b", "node-c"])

    chosen = placed(racks(), group, arrangement=arrangement)

    assert sorted(chosen.values()) == nodes


@pytest.mark.parametrize(
    ("node", "arrangement"), [("node-b", Arrangement.PACKED), ("node-a", Arrangement.SPREAD)]
)
def test_members_that_are_placed_count_in_an_arrangement(
    node: str, arrangement: Arrangement
) -> None:
    world = cluster(*[gpus(name, "r", "r") for name in ("node-a", "node-b")])
    group = members(1, request(), on=["node-a", "node-b"])

    assert placed(world, group, least=2, placed=("node-b",), arrangement=arrangement) == {
        "pod-0": node
    }


def test_a_group_is_kept_in_one_rack_where_that_is_possible() -> None:
    group = members(3, request(), on=["node-a", "node-b", "node-c"])

    assert sorted(placed(racks(), group, domain="rack").values()) == ["node-b", "node-c", "node-c"]


def test_a_group_that_fits_no_rack_is_placed_in_several() -> None:
    group = members(4, request(), on=["node-a", "node-b", "node-c"])

    assert len(placed(racks(), group, domain="rack")) == 4


def test_a_group_that_needs_one_rack_is_not_placed_in_several() -> None:
    group = members(4, request(), on=["node-a", "node-b", "node-c"])
    question = GroupQuestion(members=group, min_count=4, domain="rack", needs_one_domain=True)

    outcome = decide_group(racks(), question)

    assert isinstance(outcome, GroupDoesNotFit)
    assert set(outcome.closest.nodes.values()) == {"node-b", "node-c"}


def test_the_rack_is_that_of_the_members_which_are_placed() -> None:
    group = members(1, request(), on=["node-a", "node-b", "node-c"])

    chosen = placed(
        racks(), group, least=2, placed=("node-b",), domain="rack", needs_one_domain=True
    )

    assert chosen == {"pod-0": "node-b"}


def test_another_rack_with_room_for_more_than_the_minimum_is_preferred() -> None:
    """By preference the first pod takes the device that the second one needs, so both racks had room for one."""
    model = attribute_of("model")
    slices = [
        slice_of(device("gpu", attributes={"model": name}), pool=pool)
        for pool, name in (("node-a", "x"), ("node-b", "y"), ("node-c", "x"))
    ]
    names = ("node-a", "node-b", "node-c")
    nodes = [node(name, rack="one" if name == "node-a" else "two") for name in names]
    group = [
        member("any", request(), on=names),
        member("picky", request("gpu", f'{model} == "y"'), on=names),
    ]

    assert placed(
        cluster(*slices, nodes=nodes), group, least=1, domain="rack", needs_one_domain=True
    ) == {"any": "node-c", "picky": "node-b"}


def test_an_earlier_plan_is_kept_while_it_holds() -> None:
    group = members(2, request(), on=["node-a", "node-b", "node-c"])

    chosen = placed(racks(), group, earlier={"pod-0": "node-c", "pod-1": "node-b"})

    assert chosen == {"pod-0": "node-c", "pod-1": "node-b"}


def test_the_rest_of_an_earlier_plan_is_placed_around_what_holds() -> None:
    in_use = allocated_claim(result("gpu-0", pool="node-b"), name="other")
    world = cluster(gpus("node-a", "r"), gpus("node-b", "r"), gpus("node-c", "r"), claims=[in_use])
    group = members(2, request(), on=["node-a", "node-b", "node-c"])

    chosen = placed(world, group, earlier={"pod-0": "node-c", "pod-1": "node-b"})

    assert chosen == {"pod-0": "node-c", "pod-1": "node-a"}


# --- what a decision costs ------------------------------------------------------------------------


def hard_group() -> tuple[Cluster, GroupQuestion]:
    """Six kinds of members on nodes that each take some of them; one device is missing."""
    names = [f"node-{number}" for number in range(6)]
    world = cluster(
        *[
            slice_of(
                *[device(f"gpu-{place}", attributes={"size": place}) for place in range(7)],
                pool=name,
            )
            for name in names
        ]
    )
    group = [
        member(
            f"pod-{number}",
            request("gpu", f"{attribute_of('size')} >= {number % 6}", count=1 + number % 3),
            on=names[number % 2 :],
        )
        for number in range(24)
    ]
    return world, GroupQuestion(members=tuple(group), min_count=24)


def test_a_budget_that_ends_is_no_answer_and_the_search_goes_on_later() -> None:
    world, question = hard_group()
    whole = decide_group(world, question, Budget(steps=2_000_000))
    search = GroupSearch(world, question)

    outcomes = [search.decide(Budget(steps=20))]
    while isinstance(outcomes[-1], GroupUndecided):
        outcomes.append(search.decide(Budget(steps=2_000)))

    assert isinstance(outcomes[0], GroupUndecided)
    assert "the search ended after" in outcomes[0].why
    assert type(outcomes[-1]) is type(whole)


def test_steps_are_charged_to_the_answer() -> None:
    world, question = hard_group()

    with metered() as meter:
        outcome = decide_group(world, question)

    assert meter.steps >= outcome.steps > 0


def test_equal_members_and_equal_nodes_are_one_question() -> None:
    names = [f"node-{number:03}" for number in range(200)]
    world = cluster(*[gpus(name, *"rrrr") for name in names])
    group = members(64, request(count=3), on=names)

    outcome = decide_group(world, GroupQuestion(members=group, min_count=64))

    assert isinstance(outcome, GroupPlan)
    assert len(set(outcome.nodes.values())) == 64
    # One member fits a node, and two do not; the rest is the search for each node's own devices.
    assert world.costs.searched <= 2 + 64


def test_nodes_with_other_devices_in_use_are_one_question() -> None:
    names = [f"node-{number:03}" for number in range(100)]
    in_use = [
        allocated_claim(result(f"gpu-{number % 4}", pool=name), name=f"held-{number}")
        for number, name in enumerate(names)
    ]
    world = cluster(*[gpus(name, *"rrrr") for name in names], claims=in_use)
    group = members(8, request(count=2), on=names)

    placed(world, group, arrangement=Arrangement.PACKED)

    assert world.costs.searched <= 2 + 8


def test_a_group_of_equal_members_that_does_not_fit_costs_no_search_of_placements() -> None:
    names = [f"node-{number:03}" for number in range(200)]
    world = cluster(*[gpus(name, *"rrrr") for name in names])
    group = members(201, request(count=3), on=names)

    outcome = decide_group(world, GroupQuestion(members=group, min_count=201))

    assert isinstance(outcome, GroupDoesNotFit)
    assert len(outcome.closest.nodes) == 200
    assert outcome.steps < 20_000


def test_a_group_has_a_largest_size() -> None:
    world = cluster(gpus("node-a", "r"))
    group = members(MAX_MEMBERS + 1, request(), on=["node-a"])

    with pytest.raises(ValueError, match="at most 512 members"):
        decide_group(world, GroupQuestion(members=group, min_count=1))


# --- errors ---------------------------------------------------------------------------------------


def test_a_node_that_ends_the_attempt_counts_only_where_the_group_fits_no_others() -> None:
    bad = slice_of(device("odd", attributes={"size": "text"}), pool="node-a")
    good = slice_of(device("fine", attributes={"size": 2}), pool="node-b")
    world = cluster(bad, good)
    selector = f"{attribute_of('size')} > 1"
    one, two = (
        members(count, request("gpu", selector), on=["node-a", "node-b"]) for count in (1, 2)
    )

    assert placed(world, one) == {"pod-0": "node-b"}
    with pytest.raises(AttemptFailed):
        decide_group(world, GroupQuestion(members=two, min_count=2))


def test_a_missing_class_is_an_error() -> None:
    world = cluster(gpus("node-a", "r"))
    group = members(1, request(device_class_name="absent"), on=["node-a"])

    with pytest.raises(AttemptFailed, match="absent"):
        decide_group(world, GroupQuestion(members=group, min_count=1))
