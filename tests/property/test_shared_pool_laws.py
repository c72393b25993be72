"""Nodes that share pools get the verdict that each would get alone, after any change.

A cluster with devices of the nodes, of all nodes, of a zone, and of two nodes that share counters
changes in every way, and after each change some of the questions are asked again, so that others miss
several changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest
from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.cluster.ranking import Limits, RankedNodes
from allocator.features.consumer_limits import ConsumerLimit, NodePoolLimit
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Plan
from allocator.search.attempt import AllocatorOptions
from allocator.search.results import allocations, share_ids
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.registry import ALL as STRATEGIES
from allocator.strategies.strategy import Strategy
from kube.api.core import Node
from kube.api.meta import LabelSelector
from kube.api.resource import Device, ResourceClaim, ResourceClaimStatus, ResourceSlice
from testing.allocation.builders import (
    DRIVER,
    amount,
    claim,
    classes,
    consumes,
    counter_set,
    device,
    labelled_node_selector,
    match,
    node,
    request,
    slice_of,
)
from testing.long_runs import every_second

pytestmark = pytest.mark.property

NIC: Final = "nic.example.com"
NAMES: Final = tuple(f"n{number}" for number in range(6))
CHANGES: Final = 25
GPU_SELECTOR: Final = f'device.driver == "{DRIVER}"'
NIC_SELECTOR: Final = f'device.driver == "{NIC}"'
ZONE_SELECTOR: Final = f'{NIC_SELECTOR} && device.attributes["{NIC}"].zone == "a"'
QUESTIONS: Final[Mapping[str, ResourceClaim]] = {
    "a device of the node": claim(request("gpu", GPU_SELECTOR)),
    "two on one root": claim(
        request("gpu", GPU_SELECTOR, count=2), constraints=[match(f"{DRIVER}/root")]
    ),
    "a device of all nodes": claim(request("nic", NIC_SELECTOR)),
    "a device of the zone": claim(request("nic", ZONE_SELECTOR)),
    "one of each": claim(request("gpu", GPU_SELECTOR), request("nic", NIC_SELECTOR, count=2)),
    "one of each in one domain": claim(
        request("gpu", GPU_SELECTOR),
        request("nic", NIC_SELECTOR),
        constraints=[match("fabric.example.com/domain")],
    ),
    "anything": claim(request("any", count=3)),
    "a share": claim(request("any", capacity={"memory": "30Gi"})),
    "all of the zone": claim(request("nic", ZONE_SELECTOR, count=None)),
}


@pytest.mark.parametrize("seed", every_second(range(80)))
def test_answers_follow_every_change_of_shared_pools(seed: int) -> None:
    rng = Random(seed)
    changing = ChangingCluster(rng)
    strategies = [FIRST_FIT, FIRST_FIT, rng.choice(STRATEGIES)]
    for number in range(CHANGES):
        changing.change(number)
        for name in rng.sample(sorted(QUESTIONS), 3):
            check(changing.cluster, name, rng.choice(strategies), in_parts=rng.random() < 0.3)


def check(cluster: Cluster, name: str, strategy: Strategy, *, in_parts: bool) -> None:
    """Compare the ranking and the verdicts of a question with a search of each node."""
    pending = cluster.resolve([QUESTIONS[name]])
    expected, errors = {}, []
    for node_name in sorted(cluster.nodes):
        try:
            outcome = cluster.verdict(pending, node_name, strategy=strategy)
        except AttemptFailed as error:
            errors.append(str(error))
            continue
        if isinstance(outcome, Plan):
            devices = cluster.node_devices(node_name)
            score = strategy.score(devices, cluster.usage, outcome)
            expected[node_name] = score, describe(outcome)
    limits = Limits(nodes=2, searches=1, steps=1000) if in_parts else None

    def rank_all() -> RankedNodes:
        ranked = cluster.rank_nodes(pending, strategy=strategy, limits=limits)
        while not ranked.is_known:
            ranked = cluster.rank_nodes(pending, strategy=strategy, limits=limits)
        return ranked

    if errors:
        with pytest.raises(AttemptFailed) as raised:
            rank_all()
        assert str(raised.value) in (errors if in_parts else errors[:1]), name
        return
    ranked = rank_all()
    assert ranked.nodes == tuple(
        sorted(
            ((node_name, score) for node_name, (score, _) in expected.items()),
            key=lambda scored: (-scored[1], scored[0]),
        )
    ), name
    verdicts = cluster.verdicts(pending, strategy=strategy)
    answered = {
        node_name: (score, describe(verdicts.plan(node_name)))
        for node_name, outcome, score in verdicts
        if isinstance(outcome, Plan)
    }
    assert expected == answered, name


def describe(plan: Plan | None) -> Sequence[str]:
    assert plan is not None
    return [str(choice.device.id) for choices in plan.choices for choice in choices]


IN_ZONE_A = LabelSelector(match_labels={"zone": "a"})
POOLED = {
    NIC: ConsumerLimit(pools=(NodePoolLimit(name="a", node_selector=IN_ZONE_A, per_node=1),)),
    DRIVER: ConsumerLimit(
        per_node=2, pools=(NodePoolLimit(name="a", node_selector=IN_ZONE_A, per_device=1),)
    ),
}


class ChangingCluster:
    """A cluster that begins without claims; its options and the number of its devices vary."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._allocated: list[ResourceClaim] = []
        self._networks = [network(rng), zone_network("a", rng)]
        self._gpus = {name: gpu_slice(name, rng) for name in NAMES}
        limits = rng.choice(
            (
                {},
                {},
                {NIC: ConsumerLimit(per_node=2)},
                {DRIVER: ConsumerLimit(per_device=1)},
                POOLED,
            )
        )
        self.cluster = Cluster(
            slices=[*self._gpus.values(), *self._networks, *partitioned_slices(rng)],
            nodes=[new_node(name, rng) for name in NAMES],
            claims=(),
            classes=classes(),
            options=AllocatorOptions(consumer_limits=limits),
        )

    def change(self, number: int) -> None:
        """Make some change; claims are allocated more often than all else happens."""
        chance = self._rng.random()
        if chance < 0.55:
            self._allocate(number)
        elif chance < 0.8:
            self._release()
        elif chance < 0.87:
            self._replace_network()
        elif chance < 0.94:
            self._replace_node()
        else:
            self._replace_gpus()

    def _allocate(self, number: int) -> None:
        """Allocate the claim of a question on some node."""
        pending = self.cluster.resolve([QUESTIONS[self._rng.choice(sorted(QUESTIONS))]])
        try:
            plan = self.cluster.verdict(pending, self._rng.choice(sorted(self.cluster.nodes)))
        except AttemptFailed:
            return
        if isinstance(plan, Plan):
            features = self.cluster.options.features
            (result,) = allocations(plan, pending, features, share_ids(str(number)))
            allocated_claim = replace(
                pending.claims[0], status=ResourceClaimStatus(allocation=result)
            )
            self.cluster.allocate(allocated_claim)
            self._allocated.append(allocated_claim)

    def _release(self) -> None:
        if self._allocated:
            self.cluster.release(self._allocated.pop(self._rng.randrange(len(self._allocated))))

    def _replace_network(self) -> None:
        """Publish other devices in a shared pool, or add or remove the pool."""
        index = self._rng.randrange(2)
        old = self._networks[index]
        new = (network, lambda rng: zone_network("a", rng))[index](self._rng)
        if self._rng.random() < 0.3:
            self.cluster.replace_slices([(old, None)])
            self.cluster.replace_slices([(None, new)])
        else:
            self.cluster.replace_slices([(old, new)])
        self._networks[index] = new

    def _replace_node(self) -> None:
        """Move a node to some zone, or remove it for a moment."""
        name = self._rng.choice(NAMES)
        if self._rng.random() < 0.3:
            self.cluster.replace_node(name, None)
        self.cluster.replace_node(name, new_node(name, self._rng))

    def _replace_gpus(self) -> None:
        name = self._rng.choice(NAMES)
        new = gpu_slice(name, self._rng)
        self.cluster.replace_slices([(self._gpus[name], new)])
        self._gpus[name] = new


def new_node(name: str, rng: Random) -> Node:
    return node(name, zone=rng.choice("ab"))


def gpu_slice(name: str, rng: Random) -> ResourceSlice:
    """Return two or three devices of a node; of some nodes one can be shared."""
    can_share = rng.random() < 0.3
    gpus = [
        device(
            f"gpu-{number}",
            attributes={
                "root": f"{name}-{number // 2}",
                "fabric.example.com/domain": number % 2,
            },
            capacity={"memory": amount("80Gi", "10Gi")},
            shared=can_share and number == 0,
        )
        for number in range(rng.choice((2, 2, 3)))
    ]
    return slice_of(*gpus, pool=name)


def network(rng: Random) -> ResourceSlice:
    """Return devices that all nodes can use; one of them can be shared, or none."""
    return nics("network", rng, all_nodes=True)


def zone_network(zone: str, rng: Random) -> ResourceSlice:
    """Return devices for the nodes of a zone."""
    return nics("zone", rng, zone=zone, selector=labelled_node_selector(zone=zone))


def nics(pool: str, rng: Random, *, zone: str = "", **fields: Any) -> ResourceSlice:
    can_share = rng.random() < 0.3
    published_devices = [
        device(
            f"nic-{number}",
            attributes={"zone": zone, "fabric.example.com/domain": number % 2},
            capacity={"memory": amount("40Gi", "10Gi")},
            shared=can_share and number == 0,
        )
        for number in range(rng.randint(1, 4))
    ]
    return slice_of(*published_devices, driver=NIC, pool=pool, **fields)


def partitioned_slices(rng: Random) -> Iterator[ResourceSlice]:
    """Yield devices of two nodes that consume the counters of one pool."""
    counters = counter_set(memory=rng.randint(1, 3))
    yield slice_of(
        driver=NIC, pool="parts", name="parts-0", counters=[counters], count=3, node=NAMES[0]
    )
    for number, name in enumerate(NAMES[:2], start=1):
        yield slice_of(
            *parts(name), driver=NIC, pool="parts", name=f"parts-{number}", count=3, node=name
        )


def parts(node_name: str) -> Iterator[Device]:
    for number in range(2):
        yield device(f"{node_name}-part-{number}", consumes(memory=1), attributes={"zone": "parts"})
