"""An answer about many nodes has those that the pod is placed on within the budget, one by one."""

from collections.abc import Iterator
from random import Random

import pytest
from msgspec.structs import replace

from kube.api.device_quota import Budget, QuotaLimit
from kube.api.resource import Device, DeviceCapacity, DeviceRequest, ResourceClaim, ResourceSlice
from kube.quantity import Quantity
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.occupancy import counted_claim
from sidecar.plan.placement import Placement, place, with_allocation
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    alternative,
    attribute,
    claim,
    consumes,
    counter_set,
    device,
    device_class,
    first_of,
    node,
    request,
    result,
    slice_of,
)
from testing.device_quotas import capacity_limit, claim_limit, counter_limit, device_limit, quota
from testing.sidecar.snapshots import pod, snapshot

pytestmark = pytest.mark.property

CHUNK = 100
CHUNKS = range(0, 600, CHUNK)
OTHER = "nic.example.com"
LARGE = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].?size.orValue(0) > 40"


def cluster(seed: int) -> Snapshot:
    """Nodes of few kinds with some devices in use, a tenant, and a claim that waits."""
    random = Random(seed)
    first = list(devices(random))
    # Nodes of the other kind are in the same class, where no selector reads what differs.
    sizes = random.choice(((40,), (80,), (40, 80)))
    kinds = [first, [resized(device_, random.choice(sizes)) for device_ in first]]
    nodes = [node(f"node-{number}") for number in range(random.randint(3, 6))]
    slices: list[ResourceSlice] = []
    held: list[ResourceClaim] = []
    for node_ in nodes:
        name, published = node_.metadata.name, random.choice(kinds)
        cards = [counter_set(f"card-{device_.name}", slices=7) for device_ in published]
        slices += [
            slice_of(*published, pool=name, node=name, count=2),
            slice_of(name=f"{name}-cards", pool=name, node=name, count=2, counters=cards),
            slice_of(
                device("nic-0", capacity={"memory": "1Gi"}),
                name=f"{name}-nics",
                driver=OTHER,
                pool=name,
                node=name,
            ),
        ]
        held += held_on(name, published, random)
    return snapshot(
        claim(*requests(random), name="gpu"),
        *held,
        nodes=nodes,
        slices=slices,
        classes=[device_class(), device_class("own", f"device.driver == '{DRIVER}'")],
        drivers=(DRIVER, OTHER) if random.random() < 0.8 else (DRIVER,),
        quotas=[
            quota(*limits(random), name=f"quota-{number}", budget=random.choice(list(Budget)))
            for number in range(random.randint(1, 2))
        ],
        namespaces={"default": {}, "other": {}},
    )


def resized(device_: Device, size: int) -> Device:
    return replace(
        device_,
        attributes={"size": attribute(size)},
        capacity={"memory": DeviceCapacity(value=Quantity(f"{size}Gi"))},
    )


def devices(random: Random) -> Iterator[Device]:
    sizes, is_shared = random.choice(((40,), (80,), (40, 80))), random.random() < 0.3
    for number in range(random.randint(1, 4)):
        size = random.choice(sizes)
        yield device(
            f"gpu-{number}",
            consumes(f"card-gpu-{number}", slices=random.choice((2, 4))),
            attributes={"size": size},
            capacity={"memory": f"{size}Gi"},
            shared=(is_shared and random.random() < 0.7) or None,
        )


def held_on(name: str, published: list[Device], random: Random) -> Iterator[ResourceClaim]:
    for device_ in published:
        if random.random() < 0.4:
            share = {"share": "s", "consumed": {"memory": "10Gi"}}
            fields = share if device_.allow_multiple_allocations else {}
            yield allocated_claim(
                result(device_.name, pool=name, **fields),  # type: ignore[arg-type]
                name=f"{name}-{device_.name}",
                namespace=random.choice(("default", "other")),
            )


def requests(random: Random) -> Iterator[DeviceRequest]:
    for number in range(random.randint(1, 2)):
        classes = {"device_class_name": random.choice(("gpu", "own"))}
        capacity = {"memory": random.choice(("5Gi", "30Gi"))} if random.random() < 0.4 else None
        if random.random() < 0.5:
            count = random.choice((1, 1, 2))
            yield request(f"r{number}", count=count, capacity=capacity, **classes)
        else:
            alternatives = [
                alternative(f"a{place_}", count=count, capacity=capacity, **classes)
                for place_, count in enumerate((2, 1))
            ]
            yield first_of(f"r{number}", *alternatives)


def limits(random: Random) -> Iterator[QuotaLimit]:
    where = random.choice(("", LARGE))
    caps = {"per_request": f"{random.choice((40, 80, 160))}Gi"} if random.random() < 0.3 else {}
    forms = (
        device_limit(random.randint(1, 8), where=where),
        capacity_limit("memory", f"{random.choice((40, 90, 130, 250))}Gi", where=where, **caps),
        counter_limit("slices", random.randint(2, 12), where=where),
        claim_limit(random.randint(1, 8)),
        capacity_limit("memory", random.choice(("0", "1Gi", "9Gi")), "nics", driver=OTHER),
    )
    yield from dict.fromkeys(random.choices(forms, (1, 4, 1, 1, 1), k=random.randint(1, 3)))


@pytest.mark.parametrize("start", CHUNKS)
def test_an_answer_has_the_nodes_on_which_the_pod_is_placed(start: int) -> None:
    for seed in range(start, start + CHUNK):
        everything = cluster(seed)
        waiting = pod("gpu")

        outcome = find_nodes(waiting, everything, all_nodes=True)

        found = {fit.name for fit in outcome.nodes} if isinstance(outcome, Fits) else set()
        placed = {
            name
            for name in everything.cluster.nodes
            if isinstance(place(waiting, name, everything), Placement)
        }
        assert (seed, found) == (seed, placed)


@pytest.mark.parametrize("start", CHUNKS)
def test_what_is_placed_exceeds_nothing(start: int) -> None:
    for seed in range(start, start + CHUNK):
        everything = cluster(seed)
        book = everything.quotas
        assert book is not None
        accounts = book.accounts("default", everything.drivers)
        for name in everything.cluster.nodes:
            placement = place(pod("gpu"), name, everything)
            if not isinstance(placement, Placement):
                continue
            for claim_, allocation in placement.allocations:
                entry = book.entry(counted_claim(with_allocation(claim_, allocation)))
                for account, amount in entry.charges.items():
                    if account in accounts:
                        assert amount <= book.ledger.left(account), (seed, name, account)
