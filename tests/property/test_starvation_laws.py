"""Laws of the devices that a group keeps: enough for it, left alone by others, and free in the end."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.pods.claims import allocation_of, claim_name
from kube.api.resource import ResourceClaim
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import Places
from sidecar.groups.starvation import find_keep
from sidecar.model.protocol import GroupRequest
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.nominations import place_beside_rivals
from sidecar.plan.occupancy import Keep
from sidecar.plan.placement import Placement, with_allocation
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import claim, devices, node, request, slice_of
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import pod, snapshot, used_by

ROUNDS_PER_POD = 2
"""Rounds of the stream for each pod; one pod ends in each."""


class Case(NamedTuple):
    """GPUs of each node, devices of each pod of a group, and of each pod by itself."""

    nodes: tuple[int, ...]
    members: tuple[int, ...]
    singles: tuple[int, ...]

    @property
    def request(self) -> GroupRequest:
        """The question about the group."""
        return group_request(
            *(member(f"r{index}", f"r{index}") for index in range(len(self.members)))
        )

    def snapshot(self, running: Sequence[ResourceClaim]) -> Snapshot:
        """The cluster while some pods by themselves run."""
        names = {claim_name(claim_) for claim_ in running}
        waiting = [
            claim(request(count=count), name=f"r{index}")
            for index, count in enumerate(self.members)
        ]
        waiting += [
            single
            for index, count in enumerate(self.singles)
            if claim_name(single := claim(request(count=count), name=f"s{index}")) not in names
        ]
        nodes = [node(f"node-{index}") for index in range(len(self.nodes))]
        slices = [
            slice_of(
                *devices(*(f"gpu-{number}" for number in range(count))),
                pool=f"node-{index}",
                node=f"node-{index}",
            )
            for index, count in enumerate(self.nodes)
            if count
        ]
        return snapshot(*waiting, *running, nodes=nodes, slices=slices)


cases = st.builds(
    Case,
    nodes=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple),
    members=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    singles=st.lists(st.integers(1, 3), min_size=1, max_size=6).map(tuple),
)


def start(index: int, world: Snapshot, keeps: tuple[Keep, ...]) -> ResourceClaim | None:
    """Return the claim of a pod by itself that starts; None if it has to wait."""
    pod_ = pod(f"s{index}", name=f"s{index}")
    world = replace(world, keeps=keeps)
    outcome = find_nodes(pod_, world)
    if not isinstance(outcome, Fits):
        return None
    placement = place_beside_rivals(pod_, outcome.nodes[0].name, world)
    assert isinstance(placement, Placement)
    ((claim_, allocation),) = placement.allocations
    return used_by(with_allocation(claim_, allocation), f"uid-s{index}")


def started(case: Case) -> list[ResourceClaim]:
    """As many pods by themselves as fit."""
    running: list[ResourceClaim] = []
    for index in range(len(case.singles)):
        claim_ = start(index, case.snapshot(running), ())
        running += [claim_] if claim_ is not None else []
    return running


def devices_of(*claims: ResourceClaim) -> set[tuple[str, str]]:
    return {
        (use.pool, use.device)
        for claim_ in claims
        if (allocation := allocation_of(claim_)) is not None
        for use in allocation.devices.results or ()
    }


@settings(max_examples=30, deadline=None)
@given(cases)
def test_a_group_keeps_devices_exactly_if_it_fits_on_an_idle_cluster(case: Case) -> None:
    running = started(case)

    keep = find_keep(case.request, case.snapshot(running), None)

    assert (keep is not None) is isinstance(
        decide(case.request, case.snapshot([]), Attempt()), Places
    )


@settings(max_examples=30, deadline=None)
@given(cases)
def test_a_group_fits_once_what_uses_the_kept_devices_has_ended(case: Case) -> None:
    running = started(case)
    keep = find_keep(case.request, case.snapshot(running), None)
    if keep is None:
        return

    kept = devices_of(*keep.claims)
    beside = [claim_ for claim_ in running if not devices_of(claim_) & kept]

    assert isinstance(decide(case.request, case.snapshot(beside), Attempt()), Places)


@settings(max_examples=30, deadline=None)
@given(cases)
def test_no_pod_by_itself_gets_a_device_that_is_kept(case: Case) -> None:
    keep = find_keep(case.request, case.snapshot([]), None)
    if keep is None:
        return
    running: list[ResourceClaim] = []
    for index in range(len(case.singles)):
        claim_ = start(index, case.snapshot(running), (keep,))
        running += [claim_] if claim_ is not None else []

    assert not devices_of(*running) & devices_of(*keep.claims)
    assert isinstance(decide(case.request, case.snapshot(running), Attempt()), Places)


@settings(max_examples=30, deadline=None)
@given(cases)
def test_a_group_gets_its_devices_while_pods_come_and_go(case: Case) -> None:
    """Each round the pod that ran for longest ends, and all that wait are tried before the group."""
    running, keep = started(case), None
    rounds = ROUNDS_PER_POD * len(case.singles)
    for _ in range(rounds + 1):
        world = case.snapshot(running)
        keep = find_keep(case.request, world, keep)
        if keep is None or isinstance(decide(case.request, world, Attempt()), Places):
            return
        running = running[1:]
        names = {claim_.metadata.name for claim_ in running}
        for index in range(len(case.singles)):
            if f"s{index}" not in names:
                claim_ = start(index, case.snapshot(running), (keep,))
                running += [claim_] if claim_ is not None else []

    raise AssertionError(f"the group got nothing in {rounds} rounds")
