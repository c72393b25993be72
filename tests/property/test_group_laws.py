"""The sidecar's devices for a group: never above a quota's rest, and as planned when the pods are reserved."""

from collections.abc import Mapping
from random import Random

import pytest
from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.resource import ResourceClaim
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import Places
from sidecar.groups.placing import place_member
from sidecar.model.protocol import GroupRequest
from sidecar.plan.occupancy import counted_claim
from sidecar.plan.placement import Placement, with_allocation
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    device,
    match,
    node,
    request,
    result,
    slice_of,
)
from testing.device_quotas import capacity_limit, device_limit, quota
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import snapshot

pytestmark = pytest.mark.property

CHUNK = 50
CHUNKS = range(0, 400, CHUNK)


def case(seed: int) -> tuple[GroupRequest, Snapshot]:
    """Nodes with cards of two sizes, some in use, a group with claims of its own and shared ones, and a quota."""
    random = Random(seed)
    nodes = [node(f"node-{number}") for number in range(random.randint(1, 4))]
    slices, in_use = [], []
    for node_ in nodes:
        name = node_.metadata.name
        cards = [
            device(
                f"gpu-{number}",
                capacity={"memory": random.choice(("40Gi", "80Gi"))},
                attributes={"root": random.choice("ab")},
            )
            for number in range(random.randint(1, 4))
        ]
        slices.append(slice_of(*cards, pool=name, node=name))
        in_use += [
            allocated_claim(result(card.name, pool=name), name=f"used-{name}-{card.name}")
            for card in cards
            if random.random() < 0.2
        ]
    pods, claims = [], [claim(request(), name="shared")]
    for number in range(random.randint(1, 5)):
        names = [f"p{number}"] if random.random() < 0.9 else []
        if names:
            count = random.choice((1, 1, 2))
            aligned = (match(f"{DRIVER}/root"),) if random.random() < 0.3 else ()
            claims.append(claim(request(count=count), name=names[0], constraints=aligned))
        names += ["shared"] if random.random() < 0.2 else []
        pods.append(member(f"p{number}", *names))
    limits = [
        device_limit(random.randint(1, 8)),
        capacity_limit("memory", f"{random.randint(1, 6) * 60}Gi"),
    ]
    chosen = random.sample(limits, random.randint(0, 2))
    quotas = [quota(*chosen)] if chosen else []
    world = snapshot(*claims, *in_use, nodes=nodes, slices=slices, quotas=quotas)
    return group_request(*pods, needs=random.randint(1, len(pods))), world


def allocated(world: Snapshot, claims: Mapping[Name, ResourceClaim]) -> Snapshot:
    """The cluster with these claims."""
    for name, claim_ in claims.items():
        world.cluster.allocate(claim_)
        if world.quotas is not None:
            world.quotas.put_claim(name, counted_claim(claim_))
    return replace(world, claims={**world.claims, **claims})


def overdrawn(world: Snapshot) -> list[str]:
    """The limits with more use than they allow."""
    quotas = world.quotas
    if quotas is None:
        return []
    accounts = quotas.accounts("default", world.drivers)
    return [
        account.limit.name
        for account in accounts
        if quotas.ledger.totals(account).committed > account.limit.max.nanos
    ]


@pytest.mark.parametrize("start", CHUNKS)
def test_a_group_gets_what_was_planned_and_no_more_than_its_quota_leaves(start: int) -> None:
    for seed in range(start, start + CHUNK):
        whole, world = case(seed)
        before, usage = overdrawn(world), world.cluster.usage
        places = decide(whole, world, Attempt())
        assert world.cluster.usage == usage, seed
        if not isinstance(places, Places):
            continue
        assert len(places.nodes) >= whole.group.min_count, seed
        assert {*places.nodes, *places.rejections} == {pod.metadata.uid for pod in whole.pods}, seed
        for pod in whole.pods:
            place = places.nodes.get(pod.metadata.uid)
            if place is None:
                continue
            placement = place_member(pod, place, world, places)
            assert isinstance(placement, Placement), (seed, placement)
            promised = {
                claim_name(open_claim): with_allocation(open_claim, allocation)
                for open_claim, allocation in placement.allocations
            }
            for name, claim_ in promised.items():
                assert allocation_of(claim_) == allocation_of(places.claims[name].claim), seed
            world = allocated(world, promised)
        if not before:
            assert overdrawn(world) == [], seed
