"""Releases that groups wait for."""

from typing import Any

from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from sidecar.groups.releases import find_awaited_claims
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

PODS = [member("a", "a", priority=5), member("b", "b", priority=5)]


def world(*claims: ResourceClaim, pods: list[Pod], per_node: int = 2) -> Snapshot:
    """A node of two GPUs."""
    names = [f"gpu-{number}" for number in range(per_node)]
    return snapshot(
        *claims,
        *(claim(request(), name=name) for name in "ab"),
        nodes=[node("node-1")],
        slices=[slice_of(*devices(*names), pool="node-1", node="node-1")],
        pods=pods,
    )


def held(number: int, *uids: str) -> ResourceClaim:
    in_use = allocated_claim(result(f"gpu-{number}", pool="node-1"), name=f"held-{number}")
    return used_by(in_use, *uids)


def awaited(snapshot_: Snapshot, **fields: Any) -> set[str]:
    usage = snapshot_.cluster.usage
    claims = find_awaited_claims(group_request(*PODS, **fields), snapshot_)
    assert snapshot_.cluster.usage == usage
    return {name for _, name in claims}


def test_releases_that_make_room_for_the_whole_group_are_waited_for() -> None:
    gone = [held(0, "uid-gone"), held(1, "uid-gone")]

    assert awaited(world(*gone, pods=[])) == {"held-0", "held-1"}


def test_a_release_that_is_not_enough_is_not_waited_for() -> None:
    user = pod("held-1", name="v", nodeName="node-1")

    assert awaited(world(held(0, "uid-gone"), held(1, "uid-v"), pods=[user])) == set()


def test_a_group_that_fits_waits_for_nothing() -> None:
    assert awaited(world(held(0, "uid-gone"), pods=[], per_node=3)) == set()


def test_victims_that_end_on_the_nodes_of_nominated_pods_count() -> None:
    victims = [
        pod(f"held-{number}", name=f"v{number}", nodeName="node-1", is_deleted=True)
        for number in range(2)
    ]
    busy = [held(0, "uid-v0"), held(1, "uid-v1")]
    nominated = [member(name, name, priority=5, nominated="node-1") for name in "ab"]

    assert awaited(world(*busy, pods=victims)) == set()
    claims = find_awaited_claims(
        group_request(*nominated), world(*busy, pods=[*victims, *nominated])
    )
    assert {name for _, name in claims} == {"held-0", "held-1"}
