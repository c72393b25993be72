"""Devices that a group keeps after it has waited for long, and the pods that have to leave them alone."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat, starmap
from typing import Any

import pytest
from msgspec.structs import replace

from allocator.model.plan import Budget
from kube.api.core import Pod
from kube.api.ownership import KeptGroup
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kube.cel.scope import STEPS_PER_LOOK, Meter, evaluating
from sidecar.groups import starvation
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.infeasible import InfeasibleGroups
from sidecar.groups.kept import kept_devices, kept_group
from sidecar.groups.memory import MAX_KEEPS, GroupMemory, choose_keeps
from sidecar.groups.places import Places
from sidecar.groups.starvation import (
    find_keep,
    has_waited,
    keep_without_devices,
    waits_for_devices,
)
from sidecar.groups.waking import find_placeable
from sidecar.model.protocol import GroupRequest
from sidecar.model.rejections import Code, Rejection, unresolvable
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.nominations import place_beside_rivals
from sidecar.plan.occupancy import Keep
from sidecar.plan.placement import Placement
from sidecar.plan.preemption import DryRunBudget, awaited_claims, fits_with
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
from testing.device_quotas import device_limit, quota
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import pod, snapshot, used_by

LONG_AGO = "2026-11-20T23:00:00Z"
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def gpus(name: str, count: int) -> ResourceSlice:
    return slice_of(*devices(*(f"gpu-{number}" for number in range(count))), pool=name, node=name)


def busy(name: str, on: str, *numbers: int) -> ResourceClaim:
    """A claim of pod `name` with these devices of a node."""
    chosen = [result(f"gpu-{number}", pool=on) for number in numbers]
    return used_by(allocated_claim(*chosen, name=name), f"uid-{name}")


def cluster(per_node: Mapping[str, int], *claims: ResourceClaim, **fields: Any) -> Snapshot:
    """A cluster with so many GPUs on each node."""
    return snapshot(
        *claims,
        nodes=[node(name) for name in per_node],
        slices=[gpus(name, count) for name, count in per_node.items()],
        **fields,
    )


def created(pod_: Pod, at: str = LONG_AGO) -> Pod:
    return replace(pod_, metadata=replace(pod_.metadata, creation_timestamp=at))


def ring(*names: str, name: str = "ring", **spec: Any) -> GroupRequest:
    """A group of pods that have waited, each with a claim of its name."""
    pods = [created(member(pod_, pod_, group=name, **spec)) for pod_ in names]
    return group_request(*pods, name=name)


def kept(keep: Keep | None) -> list[str]:
    """The devices that are kept, as pool/device."""
    assert keep is not None
    return sorted(
        f"{chosen.pool}/{chosen.device}"
        for claim_ in keep.claims
        if claim_.status is not None and claim_.status.allocation is not None
        for chosen in claim_.status.allocation.devices.results or ()
    )


def small(name: str = "small") -> ResourceClaim:
    return claim(request(), name=name)


def sized(name: str, count: int) -> ResourceClaim:
    return claim(request(count=count), name=name)


def large(*names: str, count: int = 2) -> list[ResourceClaim]:
    return [claim(request(count=count), name=name) for name in names]


# --- what is kept ---------------------------------------------------------------------------------


def test_a_group_keeps_the_least_used_nodes_on_which_it_fits() -> None:
    world = cluster(
        {"node-a": 2, "node-b": 2, "node-c": 2},
        *large("r0", "r1"),
        busy("s0", "node-a", 0),
        busy("s1", "node-a", 1),
        busy("s2", "node-b", 0),
    )

    keep = find_keep(ring("r0", "r1"), world, None)

    assert kept(keep) == ["node-b/gpu-0", "node-b/gpu-1", "node-c/gpu-0", "node-c/gpu-1"]


def test_what_a_group_keeps_is_shown_with_its_name_and_its_nodes() -> None:
    world = cluster({"node-a": 2, "node-b": 2}, *large("r0", "r1"), busy("s0", "node-a", 0))
    keep = find_keep(ring("r0", "r1"), world, None)
    assert keep is not None

    assert kept_devices(keep) == [
        f"{DRIVER}/{node}/gpu-{number}" for node in ("node-a", "node-b") for number in range(2)
    ]
    assert kept_group(keep) == KeptGroup(
        group_uid="group-ring",
        namespace="default",
        group="ring",
        since=LONG_AGO,
        devices=4,
        nodes=("node-a", "node-b"),
    )


def test_a_group_that_fits_on_no_idle_cluster_keeps_nothing() -> None:
    world = cluster({"node-a": 2, "node-b": 2}, *large("r0", "r1", count=3))

    assert find_keep(ring("r0", "r1"), world, None) is None


def test_a_group_that_exceeds_its_quota_on_an_idle_cluster_keeps_nothing() -> None:
    limit = quota(device_limit(3))
    world = cluster({"node-a": 2, "node-b": 2}, *large("r0", "r1"), quotas=[limit])

    assert find_keep(ring("r0", "r1"), world, None) is None
    assert find_keep(ring("r0", "r1"), replace(world, quotas=None), None) is not None


def test_pods_beyond_the_minimum_keep_nothing() -> None:
    request_ = ring("r0", "r1", "r2")
    request_ = replace(request_, group=replace(request_.group, min_count=1))
    world = cluster({"node-a": 2, "node-b": 2}, *large("r0", "r1", "r2"))

    assert len(kept(find_keep(request_, world, None))) == 2


def test_what_the_pods_of_the_group_have_is_theirs() -> None:
    request_ = ring("r1")
    placed = group_request(*request_.pods, name="ring", placed=["node-a"])
    own = used_by(busy("r0", "node-a", 0, 1), "placed-0")
    world = cluster({"node-a": 2, "node-b": 2}, own, *large("r1"), busy("s", "node-b", 0))

    assert kept(find_keep(placed, world, None)) == ["node-b/gpu-0", "node-b/gpu-1"]


def test_of_equal_nodes_those_stay_that_are_kept() -> None:
    world = cluster({"node-a": 2, "node-b": 2}, *large("r0"), busy("s", "node-a", 0))
    keep = find_keep(ring("r0"), world, None)
    assert kept(keep) == ["node-b/gpu-0", "node-b/gpu-1"]

    equal = cluster({"node-a": 2, "node-b": 2}, *large("r0"))

    assert kept(find_keep(ring("r0"), equal, keep)) == ["node-b/gpu-0", "node-b/gpu-1"]
    assert kept(find_keep(ring("r0"), equal, None)) == ["node-a/gpu-0", "node-a/gpu-1"]


def test_a_younger_group_keeps_devices_beside_those_of_an_older_one() -> None:
    world = cluster({"node-a": 2, "node-b": 2}, *large("r0", "q0"))
    keep = find_keep(ring("r0"), world, None)
    assert keep is not None
    younger = ring("q0", name="young")
    younger = replace(younger, group=replace(younger.group, created="2026-11-20T23:30:00Z"))

    with_keep = replace(world, keeps=(keep,))

    assert kept(find_keep(younger, with_keep, None)) == ["node-b/gpu-0", "node-b/gpu-1"]


def test_a_claim_that_the_group_has_is_not_taken_to_be_released() -> None:
    """The PodGroup is in `reservedFor` of a claim of all its pods."""
    placed = group_request(*ring("r1").pods, name="ring", placed=["node-a"])
    shared = used_by(busy("all", "node-a", 0, 1), "group-ring")
    world = cluster({"node-a": 2, "node-b": 3}, shared, *large("r1"), busy("s", "node-b", 0, 1, 2))

    assert kept(find_keep(placed, world, None)) == ["node-b/gpu-0", "node-b/gpu-1"]


# --- how long the search takes --------------------------------------------------------------------


def over_after(looks: int) -> Meter:
    """A meter of an answer that has time for so many looks at the clock."""
    results = chain(repeat(False, looks), repeat(True))
    return Meter(is_over=lambda: next(results))


@pytest.mark.parametrize("has_earlier", [True, False])
def test_devices_stay_kept_while_there_is_no_answer(has_earlier: bool) -> None:
    world = cluster({"node-a": 2, "node-b": 2}, *large("r0"), busy("s", "node-a", 0))
    earlier = find_keep(ring("r0"), world, None) if has_earlier else None

    with evaluating(meter=over_after(0)):
        assert find_keep(ring("r0"), world, earlier) == earlier


def test_devices_stay_kept_while_the_search_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six pods fill two nodes of ten, but not if each takes the first node with enough devices."""
    counts = {"r0": 5, "r1": 4, "r2": 4, "r3": 3, "r4": 2, "r5": 2}
    world = cluster({"node-a": 10, "node-b": 10}, *starmap(sized, counts.items()))
    keep = find_keep(ring(*counts), world, None)
    assert len(kept(keep)) == 20

    monkeypatch.setattr(starvation, "KEEP_BUDGET", Budget(steps=1))

    assert find_keep(ring(*counts), world, keep) is keep
    assert find_keep(ring(*counts), world, None) is None


def test_more_nodes_than_are_needed_are_kept_if_there_is_no_time_for_fewer() -> None:
    """The first node with a device is known to do once the second look ends the search for fewer."""
    world = cluster({"node-a": 2, "node-b": 2}, *large("r0"), busy("s", "node-a", 0))
    earlier = replace(keep_without_devices(ring("r0")), nodes=frozenset({"node-a", "node-b"}))

    with evaluating(meter=over_after(1)):
        in_haste = find_keep(ring("r0"), world, earlier)

    assert kept(in_haste) == ["node-a/gpu-0", "node-a/gpu-1"]
    with evaluating(meter=over_after(1)):
        assert find_keep(ring("r0"), world, None) == in_haste
    assert kept(find_keep(ring("r0"), world, earlier)) == ["node-b/gpu-0", "node-b/gpu-1"]


@pytest.mark.parametrize("begin", range(1, 9))
def test_the_fewest_nodes_are_found_from_any_number(begin: int) -> None:
    """Five nodes of one GPU for five pods; the one in use comes last."""
    names = [f"node-{number}" for number in range(8)]
    world = cluster(dict.fromkeys(names, 1), *large(*"abcde", count=1), busy("s", "node-0", 0))
    earlier = replace(keep_without_devices(ring(*"abcde")), nodes=frozenset(names[:begin]))

    keep = find_keep(ring(*"abcde"), world, earlier)

    assert keep is not None
    expected = sorted(names[1:], key=lambda name: (name not in earlier.nodes, name))[:5]
    assert sorted(keep.nodes) == sorted(expected)


INFEASIBLE = {"node-a": 2, "node-b": 2}


def test_a_group_that_fits_on_no_idle_cluster_is_asked_about_once() -> None:
    world = cluster({f"node-{number:02}": 2 for number in range(64)}, *large("r0", count=3))
    infeasible = InfeasibleGroups()

    with evaluating(meter=(meter := Meter())):
        assert find_keep(ring("r0"), world, None, infeasible) is None
    assert meter.steps < 2 * STEPS_PER_LOOK, "all nodes at once, and not a doubling after the other"

    with evaluating(meter=(meter := Meter())):
        assert find_keep(ring("r0"), world, None, infeasible) is None
    assert meter.steps == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"busy": [busy("s", "node-a", 0)]}, True, id="other pods come"),
        pytest.param({"nodes": INFEASIBLE | {"node-b": 3}}, False, id="a slice changes"),
        pytest.param({"nodes": INFEASIBLE | {"node-c": 2}}, False, id="a node comes"),
        pytest.param({"classes": [device_class("other")]}, False, id="a class changes"),
        pytest.param({"claims": large("r0")}, False, id="a claim is another one"),
        pytest.param({"group": ring("r0", "r1")}, False, id="a pod comes"),
        pytest.param({"group": ring("r0", nodeSelector={"a": "b"})}, False, id="a pod changes"),
    ],
)
def test_a_group_is_asked_about_again_when_it_might_fit(
    change: Mapping[str, Any], expected: bool
) -> None:
    claims = {claim_.metadata.name: claim_ for claim_ in large("r0", count=3)}
    world, infeasible = cluster(INFEASIBLE, *claims.values()), InfeasibleGroups()
    assert find_keep(ring("r0"), world, None, infeasible) is None
    assert infeasible.has(ring("r0"), world)

    changed = in_place(world, **change)

    assert infeasible.has(change.get("group", ring("r0")), changed) is expected


def in_place(
    world: Snapshot,
    *,
    nodes: Mapping[str, int] = INFEASIBLE,
    busy: Sequence[ResourceClaim] = (),
    claims: Sequence[ResourceClaim] = (),
    classes: Sequence[DeviceClass] = (),
    group: GroupRequest | None = None,
) -> Snapshot:
    """The same cluster after a change."""
    del group
    for claim_ in busy:
        world.cluster.allocate(claim_)
    for name, count in nodes.items():
        if name not in world.cluster.nodes:
            world.cluster.replace_node(name, node(name))
        elif INFEASIBLE[name] != count:
            world.cluster.replace_slices([(gpus(name, INFEASIBLE[name]), gpus(name, count))])
    changed_claims = {
        ("default", claim_.metadata.name): replace(
            claim_, metadata=replace(claim_.metadata, uid="other")
        )
        for claim_ in claims
    }
    known_classes = {**world.classes, **{class_.metadata.name: class_ for class_ in classes}}
    return replace(world, claims={**world.claims, **changed_claims}, classes=known_classes)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"keeps": True}, id="an older group keeps the devices"),
        pytest.param({"nominated": "node-a"}, id="they are for a nominated pod"),
        pytest.param({"quotas": [quota(device_limit(1))]}, id="its quota is too small"),
    ],
)
def test_a_group_that_others_or_its_quota_keep_out_is_asked_about_again(
    fields: Mapping[str, Any],
) -> None:
    rival = pod("two", name="two", priority=9, nominated=fields.get("nominated", ""))
    world = cluster(
        {"node-a": 2}, *large("r0", "two"), pods=[rival], quotas=fields.get("quotas", ())
    )
    if fields.get("keeps"):
        older = find_keep(ring("two", name="older"), world, None)
        assert older is not None
        world = replace(world, keeps=(replace(older, since="2026-11-20T22:00:00Z"),))
    infeasible = InfeasibleGroups()

    assert find_keep(ring("r0"), world, None, infeasible) is None
    assert not infeasible.has(ring("r0"), world)


def test_a_group_with_a_pod_that_may_get_a_chance_is_asked_about_again() -> None:
    request_ = ring("r0", "r1", "unknown")
    request_ = replace(request_, group=replace(request_.group, min_count=2))
    world, infeasible = cluster(INFEASIBLE, *large("r0", "r1", count=3)), InfeasibleGroups()

    assert find_keep(request_, world, None, infeasible) is None
    assert not infeasible.has(request_, world)


# --- when -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "times", "group_created"),
    [
        pytest.param(True, [LONG_AGO, LONG_AGO], LONG_AGO, id="all are old"),
        pytest.param(False, [LONG_AGO, "2026-11-20T23:59:00Z"], "", id="one came a minute ago"),
        pytest.param(False, [LONG_AGO] * 2, "2026-11-20T23:59:00Z", id="the group is new"),
        pytest.param(
            True,
            [LONG_AGO, LONG_AGO, "2026-11-20T23:59:00Z"],
            "",
            id="one above the minimum is new",
        ),
        pytest.param(False, [LONG_AGO, ""], "", id="no time is known"),
        pytest.param(False, [LONG_AGO, "soon"], "", id="the time is none"),
    ],
)
def test_a_group_waits_since_so_many_pods_exist_as_it_needs(
    expected: bool, times: Sequence[str], group_created: str
) -> None:
    pods = [created(member(f"r{number}"), time) for number, time in enumerate(times)]
    request_ = group_request(*pods, needs=2)
    request_ = replace(request_, group=replace(request_.group, created=group_created))

    assert has_waited(request_, timedelta(minutes=10), NOW) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Code.GROUP_DOES_NOT_FIT, True),
        (Code.KEPT_FOR_GROUP, True),
        (Code.GROUP_LACKS_RESOURCES, False),
        (Code.EXCEEDS_DEVICE_QUOTA, False),
        (Code.GROUP_NOT_NEEDED, False),
        (Code.BUDGET_EXHAUSTED, False),
    ],
)
def test_devices_are_kept_by_groups_that_wait_for_devices(code: Code, expected: bool) -> None:
    assert waits_for_devices(unresolvable(code, "")) is expected
    assert not waits_for_devices(Places())


def test_few_groups_keep_devices_and_one_of_each_namespace() -> None:
    def keep(number: int, namespace: str, priority: int = 0) -> Keep:
        return Keep(
            group=f"g{number}",
            name=f"g{number}",
            priority=priority,
            since=f"2026-11-20T23:0{number}:00Z",
            namespace=namespace,
            claims=(),
            nodes=frozenset(),
        )

    keeps = [keep(number, f"n{number}") for number in range(6)]
    chosen = choose_keeps([*reversed(keeps), keep(7, "n5", priority=3), keep(8, "n0")])

    assert [entry.group for entry in chosen] == ["g7", "g0", "g1", "g2"]
    assert len(chosen) == MAX_KEEPS


def test_a_group_that_four_more_important_ones_come_before_keeps_nothing() -> None:
    """Nor does a younger one of a namespace; nothing is searched for them."""

    def candidate(name: str, namespace: str, priority: int = 0) -> Keep:
        keep = keep_without_devices(ring("r0", name=name))
        return replace(keep, namespace=namespace, priority=priority)

    memory = GroupMemory()
    for number in range(MAX_KEEPS):
        assert memory.may_keep(candidate(f"g{number}", f"n{number}"))
        memory.replace_keep(f"group-g{number}", candidate(f"g{number}", f"n{number}"))

    assert not memory.may_keep(candidate("young", "other", priority=-1))
    assert not memory.may_keep(candidate("young", "n0", priority=-1))
    assert memory.may_keep(candidate("important", "other", priority=1))
    assert memory.may_keep(candidate("important", "n3", priority=1))
    assert memory.may_keep(candidate("g3", "n3")), "its own devices do not come before it"


def test_a_keep_ends_with_its_group() -> None:
    world = cluster({"node-a": 2}, *large("r0"))
    keep, memory = find_keep(ring("r0"), world, None), GroupMemory()

    assert memory.replace_keep("group-ring", keep)
    assert not memory.replace_keep("group-ring", find_keep(ring("r0"), world, keep))
    assert not memory.end_keeps(lambda uid: uid == "group-ring")
    assert memory.end_keeps(lambda _: False)
    assert memory.keeps == ()


# --- what it means for others -----------------------------------------------------------------------


def waiting_world(*claims: ResourceClaim, **fields: Any) -> Snapshot:
    """A cluster of four GPUs, one in use, with a group that keeps the two of node-b."""
    world = cluster(
        {"node-a": 2, "node-b": 2}, *large("r0"), busy("s", "node-a", 0), *claims, **fields
    )
    keep = find_keep(ring("r0"), world, None)
    assert kept(keep) == ["node-b/gpu-0", "node-b/gpu-1"]
    assert keep is not None
    return replace(world, keeps=(keep,))


def test_a_pod_gets_devices_beside_those_that_are_kept() -> None:
    world = waiting_world(small())

    outcome = find_nodes(pod("small"), world)

    assert isinstance(outcome, Fits)
    assert [node_.name for node_ in outcome.nodes] == ["node-a"]


def test_a_pod_that_would_take_them_waits_and_is_told_why() -> None:
    world = waiting_world(*large("two"))

    outcome = find_nodes(pod("two"), world)

    assert isinstance(outcome, Rejection)
    assert (outcome.verdict, outcome.code) == ("unresolvable", "keptForGroup")
    assert outcome.message == (
        "free devices are kept for a group of pods that has waited for long; the pod gets devices beside them, or "
        "when the group has its own"
    )


@pytest.mark.parametrize(
    ("fields", "passes"),
    [
        pytest.param({"priority": 1}, True, id="a more important pod takes them"),
        pytest.param({"priority": -1}, False, id="a less important one does not"),
        pytest.param({"nominated": "node-b"}, True, id="one that others were evicted for does"),
        pytest.param(
            {"nominated": "node-a"}, False, id="one that they were for elsewhere does not"
        ),
    ],
)
def test_priority_counts(fields: Mapping[str, Any], passes: bool) -> None:
    outcome = find_nodes(pod("two", **fields), waiting_world(*large("two")))

    assert isinstance(outcome, Fits) is passes


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        pytest.param(3, Code.EXCEEDS_DEVICE_QUOTA, id="devices are free beside them"),
        pytest.param(5, Code.KEPT_FOR_GROUP, id="the devices are too few"),
    ],
)
def test_a_pod_that_only_the_budget_of_a_group_keeps_out_waits_for_quota(
    most: int, expected: Code
) -> None:
    count = 2 if expected is Code.EXCEEDS_DEVICE_QUOTA else 3
    world = cluster(
        {"node-a": 4}, *large("r0"), sized("single", count), quotas=[quota(device_limit(most))]
    )
    keep = find_keep(ring("r0"), world, None)
    assert keep is not None

    outcome = find_nodes(pod("single"), replace(world, keeps=(keep,)))

    assert isinstance(outcome, Rejection)
    assert outcome.code is expected


def test_a_pod_waits_for_its_victim_and_leaves_the_devices_of_other_nodes_alone() -> None:
    victim = pod("s", name="s", priority=-5, nodeName="node-a", is_deleted=True)
    world = waiting_world(*large("two"), pods=[victim])
    asker = pod("two", nominated="node-a")

    def fits(node_name: str) -> bool:
        outcome = fits_with(
            asker,
            node_name,
            world,
            removed_pods=["uid-s"],
            added_pods=[],
            dry_run=DryRunBudget(),
        )
        return isinstance(outcome, Placement)

    assert not isinstance(find_nodes(asker, world), Fits)
    assert fits("node-a")
    assert not fits("node-b")
    assert {("default", "s")} == awaited_claims(asker, world)


def test_what_is_kept_of_the_nominated_node_keeps_no_pod_from_it() -> None:
    """Its victim's devices were kept before it was evicted, or are kept since."""
    victim = pod("s", name="s", priority=-5, nodeName="node-a", is_deleted=True)
    world = cluster({"node-a": 2}, *large("r0", "two"), busy("s", "node-a", 0), pods=[victim])
    keep = find_keep(ring("r0"), world, None)
    assert keep is not None
    world = replace(world, keeps=(keep,))

    assert awaited_claims(pod("two", nominated="node-a"), world) == {("default", "s")}


def test_a_reserved_pod_with_a_victim_elsewhere_gets_other_devices_of_the_node() -> None:
    world = cluster({"node-a": 3, "node-b": 1}, *large("r0"), small())
    keep = find_keep(ring("r0"), world, None)
    assert kept(keep) == ["node-a/gpu-0", "node-a/gpu-1"]
    assert keep is not None
    world = replace(world, keeps=(keep,))

    def device_of(nominated: str) -> list[str]:
        placement = place_beside_rivals(pod("small", nominated=nominated), "node-a", world)
        assert isinstance(placement, Placement)
        ((_, allocation),) = placement.allocations
        return [chosen.device for chosen in allocation.devices.results or ()]

    assert device_of("node-b") == ["gpu-2"]
    assert device_of("node-a") == ["gpu-0"]


def test_a_reserved_pod_gets_other_devices_of_the_node() -> None:
    world = cluster({"node-a": 3}, *large("r0"), small())
    keep = find_keep(ring("r0"), world, None)
    assert kept(keep) == ["node-a/gpu-0", "node-a/gpu-1"]
    assert keep is not None

    placement = place_beside_rivals(pod("small"), "node-a", replace(world, keeps=(keep,)))

    assert isinstance(placement, Placement)
    ((_, allocation),) = placement.allocations
    assert [chosen.device for chosen in allocation.devices.results or ()] == ["gpu-2"]


def test_nobody_is_evicted_for_devices_that_are_kept() -> None:
    victim = pod("s", name="s", priority=-5, nodeName="node-a")
    world = cluster({"node-a": 2}, *large("r0", "two"), busy("s", "node-a", 0), pods=[victim])
    keep = find_keep(ring("r0"), world, None)
    assert keep is not None

    def fits(keeps: tuple[Keep, ...]) -> bool:
        outcome = fits_with(
            pod("two"),
            "node-a",
            replace(world, keeps=keeps),
            removed_pods=["uid-s"],
            added_pods=[],
            dry_run=DryRunBudget(),
        )
        return isinstance(outcome, Placement)

    assert fits(())
    assert not fits((keep,))


def test_a_younger_group_is_told_why_it_waits() -> None:
    world = waiting_world(*large("q0"))
    younger = ring("q0", name="young")
    younger = replace(younger, group=replace(younger.group, created="2026-11-20T23:30:00Z"))

    outcome = decide(younger, world, Attempt())

    assert isinstance(outcome, Rejection)
    assert outcome.code is Code.KEPT_FOR_GROUP
    # The group itself, an older one and a more important one get the devices.
    assert isinstance(decide(ring("r0"), world, Attempt()), Places)
    older = replace(younger, group=replace(younger.group, created="2026-11-20T22:00:00Z"))
    pods = tuple(created(pod_, "2026-11-20T22:00:00Z") for pod_ in older.pods)
    assert isinstance(decide(replace(older, pods=pods), world, Attempt()), Places)
    important = replace(younger, group=replace(younger.group, priority=1))
    assert isinstance(decide(important, world, Attempt()), Places)


def test_a_release_wakes_the_group_that_keeps_devices_and_no_pod_for_them() -> None:
    busy_claims = [busy("s0", "node-a", 0), busy("s1", "node-a", 1)]
    full = cluster({"node-a": 2}, *large("r0"), small(), *busy_claims)
    keep = find_keep(ring("r0"), full, None)
    assert keep is not None
    single = WaitingPod(pod("small", name="small"), 1)
    group = WaitingPod(ring("r0").pods[0], 2, group=ring("r0"), code=Code.GROUP_DOES_NOT_FIT)

    def woken(*in_use: ResourceClaim, keeps: tuple[Keep, ...]) -> list[str]:
        world = cluster({"node-a": 2}, *large("r0"), small(), *in_use)
        answer = find_placeable([single, group], replace(world, keeps=keeps))
        return [name for entry in answer.entries for name in entry.names]

    assert woken(busy_claims[0], keeps=()) == ["default/small"]
    assert woken(busy_claims[0], keeps=(keep,)) == []
    assert woken(keeps=(keep,)) == ["default/r0"]
    # The group was not asked about: its wait goes on.
    answer = find_placeable([single], replace(full, keeps=(keep,)))
    assert answer.entries == ()
