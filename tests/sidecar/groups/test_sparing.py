"""Victims of a group: no more than it needs, at a bounded cost."""

import time
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from allocator.model.plan import Budget
from kube.api.core import Pod
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.dry_run import TOO_MANY_VICTIMS, GroupDryRun
from sidecar.groups.places import Places
from sidecar.groups.sparing import Found, find_sparing, found_places, with_pods
from sidecar.model.protocol import GroupRequest
from sidecar.model.rejections import Code, Rejection, unschedulable
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
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import pod, snapshot, used_by

BUDGET: Final = Budget(steps=10_000)


def _world(nodes: int, pods: Sequence[Pod], *, gpus: int = 2) -> Snapshot:
    """Nodes with a victim each on the first device."""
    names = [f"node-{number:03}" for number in range(nodes)]
    victims = [pod(f"low-{name}", name=f"low-{name}", nodeName=name) for name in names]
    in_use = [
        used_by(allocated_claim(result("gpu-0", pool=name), name=f"low-{name}"), f"uid-low-{name}")
        for name in names
    ]
    return snapshot(
        *in_use,
        *(claim(request(), name=pod_.metadata.name) for pod_ in pods),
        nodes=[node(name) for name in names],
        slices=[
            slice_of(*devices(*[f"gpu-{at}" for at in range(gpus)]), pool=name, node=name)
            for name in names
        ],
        pods=victims,
    )


def _members(count: int) -> list[Pod]:
    return [member(f"m{number:03}", f"m{number:03}", priority=5) for number in range(count)]


def _found(request_: GroupRequest, world: Snapshot) -> Found:
    places = decide(request_, world, Attempt(budget=BUDGET))
    assert isinstance(places, Places), places
    return found_places(request_, places, None)


def _needed_victims(pods: Sequence[Pod], world: Snapshot, nodes: int) -> Sequence[str]:
    """The victims that are not spared, asked about one after the other, as kube-scheduler does."""
    victims = [f"uid-low-node-{number:03}" for number in range(nodes)]
    whole = group_request(*pods, what_if=True, removed=tuple(victims))
    found = _found(whole, world)
    pinned = replace(whole, pinned=found.places.nodes)
    gone = list(victims)
    for victim in victims:
        rest = [uid for uid in gone if uid != victim]
        question = replace(pinned, removed=tuple(rest))
        outcome = find_sparing(question, world, found, BUDGET)
        assert outcome is not None
        again = decide(question, world, Attempt(budget=BUDGET))
        assert isinstance(outcome, Places) == isinstance(again, Places)
        if isinstance(outcome, Places):
            gone, found = rest, found_places(question, outcome, found)
    return gone


def test_no_more_victims_are_needed_than_devices_lack() -> None:
    """Each node has a free device, so that six pods need two of the four victims."""
    pods = _members(6)

    assert len(_needed_victims(pods, _world(4, pods), 4)) == 2


def test_a_victim_stays_where_its_node_has_another_device() -> None:
    pods = _members(4)

    assert _needed_victims(pods, _world(4, pods, gpus=3), 4) == []


def test_hundreds_of_victims_of_a_large_group_are_spared_within_the_budget_of_a_cycle() -> None:
    pods = _members(300)
    world = _world(200, pods)
    victims = tuple(f"uid-low-node-{number:03}" for number in range(200))
    whole = group_request(*pods, what_if=True, removed=victims)
    found = _found(whole, world)
    pinned = replace(whole, pinned=found.places.nodes)
    dry_run, gone = GroupDryRun("group"), list(victims)
    for victim in victims:
        rest = [uid for uid in gone if uid != victim]
        question = replace(pinned, removed=tuple(rest))
        before, before_s = world.cluster.costs.steps, time.thread_time()
        outcome = find_sparing(question, world, found, dry_run.next_budget)
        dry_run.spend(world.cluster.costs.steps - before, time.thread_time() - before_s)
        if isinstance(outcome, Places):
            gone, found = rest, found_places(question, outcome, found)

    assert len(gone) == 100
    assert not dry_run.is_spent


def test_what_is_cut_off_as_nothing_is_left_is_no_answer() -> None:
    dry_run = GroupDryRun("group")
    cut_off = unschedulable(Code.BUDGET_EXHAUSTED, "not decided")
    assert dry_run.concluded(cut_off) is cut_off

    dry_run.spend(1_000_000, 0)

    assert dry_run.is_spent
    assert dry_run.concluded(cut_off) is TOO_MANY_VICTIMS
    misfit: Rejection = unschedulable(Code.GROUP_DOES_NOT_FIT, "no")
    assert dry_run.concluded(misfit) is misfit


def test_a_group_with_other_places_is_looked_at_as_a_whole() -> None:
    pods = _members(2)
    world = _world(2, pods)
    whole = group_request(*pods, what_if=True, removed=("uid-low-node-000",))
    found = _found(whole, world)
    elsewhere = dict.fromkeys(found.places.nodes, "node-001")
    more_gone = ("uid-low-node-000", "uid-low-node-001")

    for question in (
        replace(whole, pinned=elsewhere),
        replace(whole, pinned=found.places.nodes, removed=more_gone),
        whole,
    ):
        assert find_sparing(question, world, found, BUDGET) is None


def test_the_pods_of_a_what_if_are_those_of_the_one_before() -> None:
    pods = _members(2)
    whole = group_request(*pods, what_if=True, removed=("uid-low-node-000",))
    found = _found(whole, _world(2, pods))
    without = replace(whole, pods=(), removed=())

    known = with_pods(without, found)
    assert known is not None
    assert (known.pods, known.removed) == (whole.pods, ())
    assert with_pods(without, None) is None
    assert with_pods(whole, None) is whole
