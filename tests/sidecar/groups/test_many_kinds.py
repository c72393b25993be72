"""Groups of different pods: honest ones are decided soon, the others cut off in time.

A decision that is late by more than `STUCK_S` ends the process, so such groups would cost one leader after the other.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import pytest
from msgspec.structs import replace

from allocator.nodes.headroom import Headroom
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from kube.cel.scope import BudgetSpent, Meter, evaluating
from sidecar.answers.decision_maker import MAX_CPU_S
from sidecar.groups.candidates import MAX_KIND_NODES
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import GroupOutcome, Places
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.room import Room
from testing.allocation.builders import claim, devices, node, request, slice_of
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import snapshot

MEMBERS: Final = 512
NODES: Final = MAX_KIND_NODES // MEMBERS


def _outcome(
    cpu: Callable[[int], int],
    claim_of: Callable[[int], ResourceClaim],
    *,
    nodes: int,
    gpus: int,
    cpu_of_node: Callable[[int], int],
) -> GroupOutcome:
    """Decide about members by number on nodes by number, with CPU in thousandths."""
    members: list[Pod] = [
        member(
            f"m{number}",
            f"m{number}",
            containers=[{"name": "c", "resources": {"requests": {"cpu": f"{cpu(number)}m"}}}],
        )
        for number in range(MEMBERS)
    ]
    names = [f"node-{number}" for number in range(nodes)]
    world = snapshot(
        *map(claim_of, range(MEMBERS)),
        nodes=[node(name) for name in names],
        slices=[
            slice_of(*devices(*[f"gpu-{at}" for at in range(gpus)]), pool=name, node=name)
            for name in names
        ],
    )
    headroom = {
        name: Headroom(cpu_milli=cpu_of_node(number), memory=1 << 40, pods=110)
        for number, name in enumerate(names)
    }
    world = replace(world, room=Room(headroom=headroom))
    return decide(group_request(*members, with_resources=True), world, Attempt())


def _equal_claim(number: int) -> ResourceClaim:
    return claim(request(), name=f"m{number}")


def _different_claim(number: int) -> ResourceClaim:
    """Five requests for one to four devices each."""
    requests = [request(f"r{at}", count=1 + (number >> (2 * at)) % 4) for at in range(5)]
    return claim(*requests, name=f"m{number}")


@pytest.mark.parametrize(
    ("claim_of", "cpu_of_node"),
    [
        pytest.param(_equal_claim, lambda _: 600, id="no-node-has-enough-for-any"),
        pytest.param(_equal_claim, lambda number: 600 + number, id="nodes-differ-too"),
        pytest.param(_equal_claim, lambda number: 1300 + number, id="some-fit"),
        pytest.param(_different_claim, lambda _: 100_000, id="claims-differ"),
    ],
)
def test_a_group_of_pods_that_all_differ_is_cut_off_in_time(
    claim_of: Callable[[int], ResourceClaim], cpu_of_node: Callable[[int], int]
) -> None:
    began_s = time.thread_time()
    taken: list[float] = []

    def is_over() -> bool:
        # From the first look on, as the world is made before.
        taken.append(time.thread_time())
        return taken[-1] - taken[0] > MAX_CPU_S

    try:
        with evaluating(meter=Meter(is_over=is_over)):
            _outcome(
                lambda number: 1001 + number,
                claim_of,
                nodes=NODES,
                gpus=2,
                cpu_of_node=cpu_of_node,
            )
    except BudgetSpent:
        pass
    took_s = time.thread_time() - (taken[0] if taken else began_s)

    assert took_s < 3 * MAX_CPU_S
    gaps = [after - before for before, after in pairwise(taken)]
    assert max(gaps, default=0) < MAX_CPU_S


def test_pods_that_differ_in_cpu_alone_are_placed_at_the_first_attempt() -> None:
    outcome = _outcome(
        lambda number: 1 + number, _equal_claim, nodes=64, gpus=8, cpu_of_node=lambda _: 100_000
    )

    assert isinstance(outcome, Places)
    assert len(outcome.nodes) == MEMBERS


def test_pods_that_differ_in_cpu_alone_and_lack_devices_are_told_at_the_first_attempt() -> None:
    outcome = _outcome(
        lambda number: 1 + number, _equal_claim, nodes=2, gpus=8, cpu_of_node=lambda _: 1_000_000
    )

    assert isinstance(outcome, Rejection)
    assert outcome.code is Code.GROUP_DOES_NOT_FIT
    assert "16 of 512 pods fit" in outcome.message
