"""Groups among the waiting pods: woken whole, in their turn, and for no less than they need."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from allocator.model.plan import Budget
from allocator.nodes.headroom import Headroom
from kube.api.resource import ResourceClaim
from kube.cel.scope import Meter, evaluating
from sidecar.groups import waking
from sidecar.groups.waking import Unplaceable, find_placeable
from sidecar.model.protocol import ResourceRequests
from sidecar.model.rejections import Code
from sidecar.plan.room import Room
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.waking import MAX_STEPS, WaitingPod
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
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import affinity, pod, snapshot


def gpus(count: int, *claims: ResourceClaim, **fields: object) -> Snapshot:
    names = [f"gpu-{number}" for number in range(count)]
    return snapshot(
        *claims,
        nodes=[node("node-1")],
        slices=[slice_of(*devices(*names), pool="node-1", node="node-1")] if names else [],
        **fields,  # type: ignore[arg-type]
    )


def single(name: str, number: int, priority: int = 0) -> WaitingPod:
    return WaitingPod(pod(name, name=name, priority=priority), number)


def group(
    name: str,
    number: int,
    size: int,
    *,
    needs: int | None = None,
    priority: int = 0,
    namespace: str = "default",
    code: Code = Code.GROUP_DOES_NOT_FIT,
) -> WaitingPod:
    spec: dict[str, Any] = {"group": name, "priority": priority, "namespace": namespace}
    pods = [member(f"{name}{index}", f"{name}{index}", **spec) for index in range(size)]
    request_ = group_request(*pods, name=name, needs=needs, with_resources=True)
    request_ = replace(request_, group=replace(request_.group, namespace=namespace))
    return WaitingPod(pods[0], number, group=request_, code=code)


def claims_of(*entries: WaitingPod, namespace: str = "default") -> list[ResourceClaim]:
    names = [name.split("/")[1] for entry in entries for name in entry.names]
    return [claim(request(), name=name, namespace=namespace) for name in names]


def woken(count: int, *entries: WaitingPod, **fields: object) -> list[str]:
    """The names of the pods that are woken with so many GPUs."""
    world = gpus(count, *claims_of(*entries), **fields)
    answer = find_placeable(entries, world)
    return [name.split("/")[1] for entry in answer.entries for name in entry.names]


def test_a_group_is_woken_when_all_of_it_fits_and_not_before() -> None:
    ring = group("r", 1, 3)

    assert woken(2, ring) == []
    assert woken(3, ring) == ["r0", "r1", "r2"]


def test_a_group_takes_its_turn_among_pods() -> None:
    entries = [single("first", 1), group("r", 2, 2), single("last", 3)]

    assert woken(1, *entries) == ["first"]
    assert woken(3, *entries) == ["first", "r0", "r1"]
    assert woken(4, *entries) == ["first", "r0", "r1", "last"]
    # A group that does not fit keeps nobody waiting.
    assert woken(2, *entries) == ["first", "last"]


def test_the_more_important_comes_first() -> None:
    entries = [single("p", 1), group("r", 2, 2, priority=5)]

    assert woken(2, *entries) == ["r0", "r1"]
    assert woken(3, *entries) == ["r0", "r1", "p"]


def test_groups_do_not_get_the_same_devices() -> None:
    entries = [group("a", 1, 2), group("b", 2, 2), group("c", 3, 2)]

    assert woken(2, *entries) == ["a0", "a1"]
    assert woken(5, *entries) == ["a0", "a1", "b0", "b1"]


def test_a_group_that_was_woken_keeps_its_devices_and_is_not_woken_again() -> None:
    entries = [group("a", 1, 2)._replace(woken_s=0.0), group("b", 2, 2)]

    assert woken(2, *entries) == []
    assert woken(4, *entries) == ["b0", "b1"]


def test_enough_of_a_group_wakes_it() -> None:
    assert woken(2, group("a", 1, 4, needs=2)) == ["a0", "a1", "a2", "a3"]


def test_a_group_is_charged_to_its_quota() -> None:
    entries = [group("a", 1, 2), group("b", 2, 2), single("p", 3)]

    assert woken(8, *entries, quotas=[quota(device_limit(3))]) == ["a0", "a1", "p"]


def test_old_news_of_cpu_keep_only_those_asleep_that_lacked_cpu() -> None:
    def with_cpu(cpu_milli: int, code: Code) -> Sequence[WaitingPod]:
        ring = group("r", 1, 2, code=code)
        assert ring.group is not None
        core = ResourceRequests(cpu_milli=1000)
        requests = {pod_.metadata.uid: core for pod_ in ring.group.pods}
        ring = ring._replace(group=replace(ring.group, requests=requests))
        world = gpus(2, *claims_of(ring))
        headroom = {"node-1": Headroom(cpu_milli=cpu_milli, memory=1, pods=9)}
        return find_placeable([ring], replace(world, room=Room(headroom=headroom))).entries

    assert not with_cpu(1000, Code.GROUP_LACKS_RESOURCES)
    assert with_cpu(2000, Code.GROUP_LACKS_RESOURCES)
    assert with_cpu(1000, Code.GROUP_DOES_NOT_FIT)


def test_a_part_of_them_leaves_more() -> None:
    entries = [group("a", 1, 2), group("b", 2, 2), group("c", 3, 2)]
    world = gpus(6, *claims_of(*entries))

    answer = find_placeable(entries, world, limit=3)

    assert [entry.uid for entry in answer.entries] == ["group-a", "group-b"]
    assert answer.more


def test_groups_have_their_turns_over_several_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks at all nodes. One that had its turn is not asked about again while nothing changes."""
    sizes = {"a": 4, "b": 5, "c": 2, "d": 6, "e": 1}
    entries = [group(name, number, size) for number, (name, size) in enumerate(sizes.items())]
    world = gpus(3, *claims_of(*entries))
    unplaceable: set[str] = set()
    monkeypatch.setattr(waking, "MAX_NODES_LOOKED_AT", 2)

    plans = [find_placeable(entries, world, unplaceable=unplaceable) for _ in range(3)]

    assert [[entry.uid for entry in plan.entries] for plan in plans] == [
        [],
        ["group-c"],
        ["group-c", "group-e"],
    ]
    assert [plan.is_partial for plan in plans] == [True, True, False]
    assert unplaceable == {"group-a", "group-b", "group-d"}


def test_old_groups_of_one_namespace_do_not_take_the_turn_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cluster changes between the plans, so each of them begins anew."""
    old = [group(f"old{number}", number, 4 + number) for number in range(8)]
    young = group("young", 9, 2, namespace="other")
    world = gpus(3, *claims_of(*old), *claims_of(young, namespace="other"))
    monkeypatch.setattr(waking, "MAX_NODES_LOOKED_AT", 4)
    monkeypatch.setattr(waking, "NODES_IN_VAIN", 1)

    plan = find_placeable([*old, young], world)

    assert [entry.uid for entry in plan.entries] == ["group-young"]
    assert plan.is_partial, "the others have the rest of the plan, and the next one"


def test_a_change_has_all_groups_asked_about_again() -> None:
    known = Unplaceable()
    entries = [single("a", 1), single("b", 2)]
    known.at(1, entries).add("group-a")

    assert known.at(1, entries) == {"group-a"}
    assert known.at(2, entries) == set()
    known.at(2, entries).add("group-a")
    # One that was tried and turned away again leaves its devices to others.
    assert known.at(2, [entries[0], single("b", 3)]) == set()


def test_a_group_that_is_hard_to_decide_is_not_woken_for_every_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = group("r", 1, 3)
    monkeypatch.setattr(waking, "GROUP_BUDGET", Budget(steps=0))

    assert woken(3, ring) == []
    # Nor is it asked about at all where it was hard before.
    monkeypatch.undo()
    assert woken(3, ring._replace(code=Code.BUDGET_EXHAUSTED)) == []


def test_of_equal_priority_those_that_devices_are_kept_for_are_woken_first() -> None:
    """Others would be turned away, since devices are kept for nominated pods."""
    first, ring = single("first", 1), group("r", 2, 2)
    nominated = [member(name, name, group="r", nominated="node-1") for name in ("r0", "r1")]
    assert woken(2, first, ring) == ["first"]

    assert woken(2, first, ring, pods=nominated) == ["r0", "r1"]


def test_pods_that_cost_much_keep_no_group_of_others_asleep() -> None:
    """To compare their lists with all nodes would take more time than a plan has."""
    costly = pod("held", name="costly", namespace="costly", affinity=affinity(1_000))
    held = allocated_claim(result("gpu-0", pool="elsewhere"), name="held", namespace="costly")
    ring = group("r", 3, 2)
    world = snapshot(
        *(held, *claims_of(ring), claim(request(), name="first"), claim(request(), name="last")),
        nodes=[node(f"node-{number}") for number in range(200)],
        slices=[slice_of(*devices(*(f"gpu-{n}" for n in range(4))), pool="node-1", node="node-1")],
    )

    time_meter = Meter(is_over=lambda: time_meter.steps > MAX_STEPS + 5_000)

    with evaluating(meter=time_meter):
        answer = find_placeable(
            [single("first", 1), WaitingPod(costly, 2), ring, single("last", 4)], world
        )

    names = [name.split("/")[1] for entry in answer.entries for name in entry.names]
    assert names == ["first", "costly", "r0", "r1", "last"]
