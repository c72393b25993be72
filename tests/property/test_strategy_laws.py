"""A strategy prefers: it never says no, and only the properties of devices move it.

The scenarios are those of the oracle, so every feature is met.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster.cluster import Cluster
from allocator.model import pools, requests, slice_index, usage
from allocator.model.devices import DeviceId, NodeDevices, Pool, PoolId, PublishedDevice
from allocator.model.outcome import AttemptFailed, BudgetExhausted, DoesNotFit
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from allocator.strategies.by_node_pool import PoolStrategies, by_node_pool
from allocator.strategies.capacity_weights import NO_WEIGHTS
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.fragmentation_aware import FragmentationAware
from allocator.strategies.pod_kinds import DeviceDemand, PodKind
from allocator.strategies.registry import ALL
from allocator.strategies.strategy import Strategy
from kube.api.resource import ResourceSlice
from kube.quantity import Quantity
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    classes,
    consumes,
    counter_set,
    device,
    node,
    request,
    result,
    slice_of,
)
from testing.oracle.ours import objects
from testing.oracle.scenarios import Scenario, scenarios

pytestmark = pytest.mark.property

BUDGET = Budget(steps=5_000)

USUAL_KINDS = FragmentationAware(
    kinds=(
        PodKind(demands=(DeviceDemand(count=2),), cpu_milli=8000, weight=300),
        PodKind(
            demands=(DeviceDemand(amounts=(("memory", Quantity("20Gi")),)),),
            cpu_milli=2000,
            memory=2**30,
            weight=600,
        ),
        PodKind(
            demands=(
                DeviceDemand(selectors=(f"has(device.attributes['{DRIVER}'].model)",)),
                DeviceDemand(),
            ),
            weight=100,
        ),
    )
)
BY_POOL = by_node_pool(
    FIRST_FIT, PoolStrategies(((DRIVER, ("LowLoadFirst", "BestFit")),)), NO_WEIGHTS
)
EVERY = (*ALL, USUAL_KINDS, BY_POOL)

strategies = st.sampled_from(EVERY)


class Attempt(NamedTuple):
    """Claims on one node."""

    node: NodeDevices
    pending: PendingClaims
    usage: Usage
    rules: AllocatorOptions

    def with_strategy(self, strategy: Strategy) -> Plan | DoesNotFit | BudgetExhausted | str:
        """The outcome; the message if the attempt ends on all nodes."""
        order = strategy.order(self.node, self.usage, self.pending)
        try:
            return allocate(*self, budget=BUDGET, order=order)
        except AttemptFailed as error:
            return str(error)


def attempts(scenario: Scenario) -> Iterator[Attempt]:
    """The attempts of a scenario, one per node; none if its claims can be met nowhere."""
    given_objects = objects(scenario)
    try:
        pending = requests.resolve_requests(
            given_objects.claims, given_objects.classes, given_objects.features
        )
        nodes = [
            pools.node_devices(
                slice_index.build_index(given_objects.slices, given_objects.features), node_
            )
            for node_ in given_objects.nodes
        ]
    except AttemptFailed:
        return
    usage_ = usage.gather_usage(given_objects.allocated_claims, given_objects.features)
    for number, devices in enumerate(nodes):
        in_pool = msgspec.structs.replace(devices, node_pools={DRIVER: number % 2})
        yield Attempt(in_pool, pending, usage_, AllocatorOptions(features=given_objects.features))


@settings(max_examples=100)
@given(scenarios(), strategies)
def test_a_verdict_does_not_depend_on_the_strategy(scenario: Scenario, strategy: Strategy) -> None:
    for attempt in attempts(scenario):
        want, with_strategy = attempt.with_strategy(ALL[0]), attempt.with_strategy(strategy)
        if isinstance(want, BudgetExhausted) or isinstance(with_strategy, BudgetExhausted):
            continue  # One order may need more steps than another.
        # Which alternative is found may differ: the devices of one request decide what is left for
        # the alternatives of the next.
        assert type(want) is type(with_strategy)


@given(scenarios(), strategies)
def test_an_order_is_a_permutation(scenario: Scenario, strategy: Strategy) -> None:
    for attempt in attempts(scenario):
        order = strategy.order(attempt.node, attempt.usage, attempt.pending)

        assert order is None or sorted(order) == list(range(len(attempt.node.devices)))


@given(scenarios(), strategies)
def test_a_score_is_a_percentage(scenario: Scenario, strategy: Strategy) -> None:
    for attempt in attempts(scenario):
        plan = attempt.with_strategy(strategy)
        if isinstance(plan, Plan):
            score = strategy.score(attempt.node, attempt.usage, plan)

            assert 0 <= score <= 100
            assert score == strategy.score(attempt.node, attempt.usage, plan)


@given(scenarios(), strategies)
def test_an_earlier_alternative_never_scores_less(scenario: Scenario, strategy: Strategy) -> None:
    plans: list[tuple[int, int]] = []
    for attempt in attempts(scenario):
        plan = attempt.with_strategy(strategy)
        if isinstance(plan, Plan):
            score = strategy.score(attempt.node, attempt.usage, plan)
            plans.append((sum(sum(alternative) for alternative in plan.alternatives), -score))

    for rank, cost in plans:
        assert all(cost <= other_cost for other, other_cost in plans if rank < other)


@given(scenarios(), strategies)
def test_names_do_not_count(scenario: Scenario, strategy: Strategy) -> None:
    for attempt in attempts(scenario):
        other = renamed_attempt(attempt)
        order = strategy.order(attempt.node, attempt.usage, attempt.pending)

        assert order == strategy.order(other.node, other.usage, other.pending)

        plan = attempt.with_strategy(strategy)
        if isinstance(plan, Plan):
            plan_of_other = carried_over(plan, attempt.node, other.node)
            score = strategy.score(attempt.node, attempt.usage, plan)
            assert score == strategy.score(other.node, other.usage, plan_of_other)


# --- nodes that nearly look alike -------------------------------------------------------------------

ROOT, NUMA = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"


class Looks(NamedTuple):
    """The ways for a node to differ from its neighbours; only some of it matters to some strategies."""

    roots: str
    numa: int
    memory: str
    in_use: tuple[str, ...]
    uuid: str


looks = st.builds(
    Looks,
    roots=st.sampled_from(("aabb", "abab")),
    numa=st.sampled_from((0, 1, -1)),
    memory=st.sampled_from(("40Gi", "80Gi")),
    in_use=st.sampled_from(((), ("gpu-0",), ("gpu-0", "gpu-3"), ("part-1",))),
    uuid=st.sampled_from("xyz"),
)


def slices_like(name: str, shape: Looks) -> tuple[ResourceSlice, ResourceSlice]:
    """Four GPUs of one size, and two halves of a further one."""
    gpus = [
        device(
            f"gpu-{number}",
            attributes={ROOT: root, NUMA: shape.numa, "uuid": shape.uuid},
            capacity={"memory": shape.memory if number % 2 else "40Gi"},
        )
        for number, root in enumerate(shape.roots)
    ]
    halves = [device(f"part-{number}", consumes(memory="20Gi")) for number in range(2)]
    counters = [counter_set(memory="40Gi")]
    return (
        slice_of(*gpus, *halves, pool=name, count=2),
        slice_of(pool=name, name=f"{name}-counters", count=2, counters=counters),
    )


@pytest.mark.parametrize(
    "strategy", EVERY, ids=lambda entry: f"{entry.name} of {len(entry.kinds)} kinds"
)
@settings(max_examples=100)
@given(shapes=st.lists(looks, min_size=2, max_size=6), count=st.integers(1, 3))
def test_scores_of_a_class_are_those_of_each_node(
    strategy: Strategy, shapes: list[Looks], count: int
) -> None:
    names = {f"n{number}": shape for number, shape in enumerate(shapes)}
    cluster = Cluster(
        slices=[slice_ for name, shape in names.items() for slice_ in slices_like(name, shape)],
        nodes=[node(name) for name in names],
        claims=[
            allocated_claim(result(used, pool=name), name=f"{name}-{used}")
            for name, shape in names.items()
            for used in shape.in_use
        ],
        classes=classes(),
        options=AllocatorOptions(),
    )
    pending = cluster.resolve([claim(request(count=count))])

    verdicts = cluster.verdicts(pending, strategy=strategy)

    for name, _, score in verdicts:
        own, plan = cluster.verdict(pending, name, strategy=strategy), verdicts.plan(name)
        assert isinstance(own, Plan)
        assert plan is not None
        assert _devices(own) == _devices(plan)
        assert score == strategy.score(cluster.node_devices(name), cluster.usage, own)


def _devices(plan: Plan) -> list[DeviceId]:
    return [choice.device.id for choice_ in plan.choices for choice in choice_]


# --- the same attempt under other names -----------------------------------------------------------


def renamed_attempt(attempt: Attempt) -> Attempt:
    """Node, pools and devices have other names that sort the other way round."""
    node = attempt.node
    ids = {
        device_.id: _other(device_.id)
        for pool in node.pools
        for device_ in (*pool.devices, *pool.elsewhere)
    }
    twins_devices = {
        device_.id: _twin(device_, ids[device_.id])
        for pool in node.pools
        for device_ in (*pool.devices, *pool.elsewhere)
    }
    devices = tuple(twins_devices[device_.id] for device_ in node.devices)
    uses = {
        PoolId(pool.driver, _word(pool.pool)): {
            _word(name): device_use for name, device_use in use.items()
        }
        for pool, use in attempt.usage.pools.items()
    }
    return attempt._replace(
        node=msgspec.structs.replace(
            node,
            node="other",
            pools=tuple(_pool(pool, twins_devices) for pool in node.pools),
            devices=devices,
            positions={device_.id: position for position, device_ in enumerate(devices)},
        ),
        usage=Usage(pools=uses),
    )


def _pool(pool: Pool, twins_devices: dict[DeviceId, PublishedDevice]) -> Pool:
    return msgspec.structs.replace(
        pool,
        id=PoolId(pool.id.driver, _word(pool.id.pool)),
        devices=tuple(twins_devices[device_.id] for device_ in pool.devices),
        elsewhere=tuple(twins_devices[published_device.id] for published_device in pool.elsewhere),
    )


def _twin(published: PublishedDevice, id_: DeviceId) -> PublishedDevice:
    device = msgspec.structs.replace(published.device, name=id_.device)
    return msgspec.structs.replace(published, id=id_, device=device)


def _other(id_: DeviceId) -> DeviceId:
    return DeviceId(id_.driver, _word(id_.pool), _word(id_.device))


def _word(name: str) -> str:
    return "".join(chr(0x10FFF - ord(letter)) for letter in name)


def carried_over(plan: Plan, node: NodeDevices, other: NodeDevices) -> Plan:
    """The plan with the devices at the same positions of another node."""
    return msgspec.structs.replace(
        plan,
        node=other.node,
        choices=tuple(
            tuple(
                msgspec.structs.replace(
                    choice, device=other.devices[node.positions[choice.device.id]]
                )
                for choice in claim
            )
            for claim in plan.choices
        ),
    )
