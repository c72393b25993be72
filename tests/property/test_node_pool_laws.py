"""Caps of pools of nodes: by brute force the same nodes fit, and no reservation ever exceeds a cap.

The oracle counts allocations by itself: for each node the first of its pools by label, the uses of every
device, and all choices of devices for a claim.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from random import Random

import pytest
from msgspec.structs import replace

from kube.api.core import Node
from kube.api.meta import ObjectMeta
from kube.api.ownership import NodePool, OwnedDriver
from kube.api.resource import AllocationResult, Device, ResourceClaim, ResourceSlice
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.occupancy import Occupancy
from sidecar.plan.placement import Placement, place, with_allocation, with_placement
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import (
    DRIVER,
    claim,
    device,
    device_class,
    node,
    node_pool,
    request,
    slice_of,
)
from testing.sidecar.snapshots import pod, snapshot

pytestmark = pytest.mark.property

CHUNK = 25
CHUNKS = range(0, 150, CHUNK)
STEPS = 12
OTHER = "nic.example.com"
LABELS = ("a", "b", "")
STRATEGIES = (None, None, "CompactFirst", "LowLoadFirst", "BestFit")
Uses = Mapping[tuple[str, str], Counter[str]]
"""Node and driver to the uses of each device."""


class World:
    """A cluster with claims that come and go, and the settings of its drivers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.drivers = tuple(self.driver(name) for name in (DRIVER, OTHER))
        # Nodes of few kinds, so that some differ by their labels alone.
        kinds = [[tuple(self.devices(kind)) for kind in ("gpu", "nic")] for _ in range(2)]
        self.nodes = {f"node-{number}": self.label() for number in range(self.random.randint(2, 4))}
        self.published = {
            name: dict(zip((DRIVER, OTHER), self.random.choice(kinds), strict=True))
            for name in self.nodes
        }
        self.allocated: dict[str, tuple[str, ResourceClaim]] = {}
        self.snapshot = self.fresh()

    def label(self) -> str:
        return self.random.choice(LABELS)

    def cap(self) -> dict[str, int]:
        caps = {"maxConsumersPerNode": (1, 2, 3, 5), "maxConsumersPerDevice": (1, 2)}
        return {
            key: self.random.choice((0, *values))
            for key, values in caps.items()
            if self.random.random() < 0.6
        }

    def driver(self, name: str) -> OwnedDriver:
        pools: list[NodePool] = []
        for number in range(self.random.randint(0, 3)):
            selector = self.random.choice(({}, {"matchLabels": {"pool": self.label() or "a"}}))
            strategy = self.random.choice(STRATEGIES)
            chosen = {"defaultStrategy": strategy} if strategy else {}
            pools.append(node_pool(f"pool-{number}", nodeSelector=selector, **chosen, **self.cap()))
        caps = self.cap()
        return OwnedDriver(
            name=name,
            max_consumers_per_node=caps.get("maxConsumersPerNode", 0),
            max_consumers_per_device=caps.get("maxConsumersPerDevice", 0),
            pools=tuple(pools) or None,
        )

    def devices(self, kind: str) -> Iterator[Device]:
        for number in range(self.random.randint(1, 2)):
            yield device(f"{kind}-{number}", shared=self.random.random() < 0.7 or None)

    def node(self, name: str) -> Node:
        labels = {"pool": self.nodes[name]} if self.nodes[name] else {}
        return node(name, **labels)

    def fresh(self) -> Snapshot:
        """The same cluster as a new process would see it."""
        return snapshot(
            *(claim_ for _, claim_ in self.allocated.values()),
            nodes=[self.node(name) for name in self.nodes],
            slices=list(self.slices()),
            classes=[
                device_class("gpu", f"device.driver == '{DRIVER}'"),
                device_class("nic", f"device.driver == '{OTHER}'"),
            ],
            drivers=(DRIVER, OTHER),
            settings=self.drivers,
        )

    def slices(self) -> Iterator[ResourceSlice]:
        for name, by_driver in self.published.items():
            for driver, published in by_driver.items():
                yield slice_of(
                    *published, name=f"{name}-{driver}", driver=driver, pool=name, node=name
                )

    def waiting(self, number: int) -> ResourceClaim:
        """A claim for some devices or shares, with a name of its own."""
        requests = [
            request(f"{kind}-{index}", device_class_name=kind)
            for kind, most in (("gpu", 2), ("nic", 1))
            for index in range(self.random.randint(0, most))
        ] or [request("gpu-0", device_class_name="gpu")]
        return replace(
            claim(*requests),
            metadata=ObjectMeta(name=f"c{number}", namespace="default", uid=f"u{number}"),
        )

    def with_waiting(self, waiting: ResourceClaim) -> Snapshot:
        name = (waiting.metadata.namespace, waiting.metadata.name)
        return replace(self.snapshot, claims={**self.snapshot.claims, name: waiting})

    # --- the oracle -------------------------------------------------------------------------------

    def uses(self) -> Uses:
        uses: dict[tuple[str, str], Counter[str]] = {}
        for name, claim_ in self.allocated.values():
            status = claim_.status
            assert status is not None
            for driver, device_name in used_devices(status.allocation):
                uses.setdefault((name, driver), Counter())[device_name] += 1
        return uses

    def caps(self, name: str, driver: str) -> tuple[int, int]:
        """The caps per node and per device; 0 for none."""
        settings = next(owned for owned in self.drivers if owned.name == driver)
        per_node, per_device = settings.max_consumers_per_node, settings.max_consumers_per_device
        for pool in settings.pools or ():
            wanted = (pool.node_selector.match_labels or {}).get("pool")
            if wanted in (None, self.nodes[name]):
                own_node, own_device = pool.max_consumers_per_node, pool.max_consumers_per_device
                per_node = per_node if own_node is None else own_node
                per_device = per_device if own_device is None else own_device
                break
        return per_node, per_device

    def is_within(self, name: str, driver: str, before: Counter[str], added: Counter[str]) -> bool:
        """True if a node may get more uses of devices."""
        per_node, per_device = self.caps(name, driver)
        after = before + added
        shared = {
            device_.name: device_.allow_multiple_allocations or False
            for device_ in self.published[name][driver]
        }
        return (
            all(shared[device_name] or after[device_name] == 1 for device_name in added)
            and not (added and per_node and after.total() > per_node)
            and not any(per_device and after[device_name] > per_device for device_name in added)
        )

    def has_place(self, name: str, waiting: ResourceClaim, uses: Uses) -> bool:
        """True if some choice of devices for all requests is within all caps."""
        drivers = {"gpu": DRIVER, "nic": OTHER}
        requests = [
            drivers[request_.exactly.device_class_name]
            for request_ in waiting.spec.devices.requests or ()
            if request_.exactly is not None
        ]
        choices = [
            [device_.name for device_ in self.published[name][driver]] for driver in requests
        ]
        return any(
            all(
                self.is_within(
                    name,
                    driver,
                    uses.get((name, driver), Counter()),
                    Counter(
                        chosen
                        for chosen, its_driver in zip(combination, requests, strict=True)
                        if its_driver == driver
                    ),
                )
                for driver in set(requests)
            )
            for combination in product(*choices)
        )


def used_devices(allocation: AllocationResult | None) -> Sequence[tuple[str, str]]:
    results = (allocation.devices.results if allocation is not None else None) or ()
    return [(result.driver, result.device) for result in results]


def fitting(snapshot_: Snapshot, name: str) -> set[str]:
    outcome = find_nodes(pod(name), snapshot_, all_nodes=True)
    return {fit.name for fit in outcome.nodes} if isinstance(outcome, Fits) else set()


@pytest.mark.parametrize("start", CHUNKS)
def test_nodes_fit_as_by_brute_force_and_no_placement_exceeds_a_cap(start: int) -> None:
    for seed in range(start, start + CHUNK):
        world = World(seed)
        for number in range(STEPS):
            before = world.uses()
            waiting = world.waiting(number)
            name = waiting.metadata.name
            now = world.with_waiting(waiting)
            expected = {
                node_name
                for node_name in world.nodes
                if world.has_place(node_name, waiting, before)
            }
            assert (seed, number, fitting(now, name)) == (seed, number, expected)
            fresh = world.fresh()
            fresh = replace(fresh, claims={**fresh.claims, ("default", name): waiting})
            assert (seed, number, fitting(fresh, name)) == (seed, number, expected)
            if expected:
                reserve(world, waiting, now, world.random.choice(sorted(expected)), seed)
            change(world)


def reserve(world: World, waiting: ResourceClaim, now: Snapshot, node_name: str, seed: int) -> None:
    """Place a claim on a node, and count its devices as the ledger counts a reservation."""
    before = world.uses()
    placement = place(pod(waiting.metadata.name), node_name, now)
    assert isinstance(placement, Placement), (seed, node_name)
    ((_, allocation),) = placement.allocations
    for driver in (DRIVER, OTHER):
        added = Counter(
            device_name
            for its_driver, device_name in used_devices(allocation)
            if its_driver == driver
        )
        held = before.get((node_name, driver), Counter())
        assert world.is_within(node_name, driver, held, added), (seed, node_name, driver)
    # What a dry run counts is what an allocation counts.
    occupancy = with_placement(Occupancy(usage=now.cluster.usage), placement, now)
    claim_ = with_allocation(waiting, allocation)
    now.cluster.allocate(claim_)
    assert occupancy.usage == now.cluster.usage
    world.allocated[waiting.metadata.name] = node_name, claim_


def change(world: World) -> None:
    """Release claims, or put a node into another pool."""
    for name in [name for name in world.allocated if world.random.random() < 0.25]:
        _, claim_ = world.allocated.pop(name)
        world.snapshot.cluster.release(claim_)
    if world.random.random() < 0.15:
        name = world.random.choice(sorted(world.nodes))
        world.nodes[name] = world.label()
        world.snapshot.cluster.replace_node(name, world.node(name))
