"""Policies on random clusters: no class of nodes hides them, and they only ever forbid."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.compatibility.compile import CompiledPolicy, compile_policy
from allocator.compatibility.pairs import evaluate_pair
from allocator.model.devices import DeviceId, NodeDevices, PublishedDevice
from allocator.model.outcome import AttemptFailed, BudgetExhausted, DoesNotFit
from allocator.model.plan import Budget, Plan
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from kube.api.policy import Enforcement, Scope
from kube.api.resource import ResourceSlice
from testing.allocation.builders import policy, rule
from testing.allocation.clusters import crowd
from testing.long_runs import beginning_with
from testing.oracle.ours import Objects

pytestmark = pytest.mark.property

BUDGET = Budget(steps=20_000)
CHUNK = 100
CHUNKS = range(0, 400, CHUNK)


def policies(slices: list[ResourceSlice], rng: Random) -> tuple[CompiledPolicy, ...]:
    """A policy for each driver of the slices, about attributes that its devices have."""
    built_claims = []
    for driver in sorted({slice_.spec.driver for slice_ in slices}):
        names = sorted(
            {
                name
                for slice_ in slices
                if slice_.spec.driver == driver
                for device in slice_.spec.devices or ()
                for name in device.attributes or ()
                if "/" not in name
            }
        )
        here = [f'has(device.attributes["{driver}"].{name})' for name in names]
        expressions = ["true", "false", "device.allowMultipleAllocations", *here, *here]
        rules = [
            rule(
                f"rule-{number}",
                rng.choice(("true", *expressions)),
                only=rng.choice((None, "false", *expressions)),
                groups=rng.choice((None, None, "a", "b", "ab")),
            )
            for number in range(rng.randint(1, 3))
        ]
        source = policy(
            *rules,
            driver=driver,
            scope=rng.choice(tuple(Scope)),
            enforcement=rng.choice((*[Enforcement.ENFORCE] * 4, Enforcement.AUDIT)),
            physical_attributes=rng.choice((None, tuple(names[:2]))),
        )
        built_claims.append(compile_policy(source))
    return tuple(built_claims)


def clusters(start: int) -> Iterator[tuple[int, Objects, Cluster, Cluster]]:
    """Random clusters, each with policies and without; some held devices are last seen, not there."""
    for seed in range(start, start + CHUNK):
        crowd_objects, rng = crowd(seed), Random(seed)
        policies_ = policies(list(crowd_objects.slices), rng)
        bare = new(crowd_objects, AllocatorOptions(features=crowd_objects.features))
        # A device of one node stands for what was last seen of whatever has gone.
        tombstones = {
            device.id: device
            for node in bare.nodes
            for device in bare.node_devices(node).devices
            if rng.random() < 0.5
        }
        rules = AllocatorOptions(
            features=crowd_objects.features, policies=policies_, tombstones=tombstones
        )
        if seed % 2:
            crowd_objects = without_some_in_use(crowd_objects, rng)
            bare = new(crowd_objects, AllocatorOptions(features=crowd_objects.features))
        yield seed, crowd_objects, new(crowd_objects, rules), bare


def without_some_in_use(objects: Objects, rng: Random) -> Objects:
    """The objects after some devices in use vanished from their slices."""
    in_use_ids = {
        DeviceId(result.driver, result.pool, result.device)
        for claim in objects.allocated_claims
        if claim.status is not None and claim.status.allocation is not None
        for result in claim.status.allocation.devices.results or ()
    }
    slices = []
    for slice_ in objects.slices:
        spec = slice_.spec
        published_devices = [
            device
            for device in spec.devices or ()
            if DeviceId(spec.driver, spec.pool.name, device.name) not in in_use_ids
            or rng.random() < 0.5
        ]
        spec = replace(spec, devices=tuple(published_devices) or None)
        slices.append(replace(slice_, spec=spec))
    return replace(objects, slices=tuple(slices))


def new(objects: Objects, rules: AllocatorOptions) -> Cluster:
    return Cluster(
        slices=objects.slices,
        nodes=objects.nodes,
        claims=objects.allocated_claims,
        classes=objects.classes,
        options=rules,
    )


def describe(outcome: Any) -> Any:
    if isinstance(outcome, Plan):
        return [[str(choice.device.id) for choice in claim] for claim in outcome.choices]
    return type(outcome).__name__


@pytest.mark.parametrize("start", beginning_with(2, CHUNKS))
def test_no_class_of_nodes_hides_a_policy(start: int) -> None:
    shared = 0
    for seed, objects, cluster, _ in clusters(start):
        try:
            pending = cluster.resolve(objects.claims)
            alone = {
                name: describe(cluster.verdict(pending, name, budget=BUDGET))
                for name in cluster.nodes
            }
            verdicts = cluster.verdicts(pending, budget=BUDGET)
        except AttemptFailed:
            continue
        together = {
            node: describe(verdicts.plan(node) if isinstance(outcome, Plan) else outcome)
            for node, outcome, _ in verdicts
        }
        shared += len(verdicts.classes) < len(cluster.nodes)

        assert alone == together, seed
    assert shared > CHUNK / 4


@pytest.mark.parametrize("start", beginning_with(2, CHUNKS))
def test_a_policy_only_forbids_and_what_it_allows_goes_together(start: int) -> None:
    forbidden = 0
    for seed, objects, cluster, bare in clusters(start):
        for node in cluster.nodes:
            try:
                with_, without = (
                    cluster.verdict(cluster.resolve(objects.claims), node, budget=BUDGET)
                    for cluster in (cluster, bare)
                )
            except AttemptFailed:
                continue
            if isinstance(with_, Plan):
                assert isinstance(without, Plan | BudgetExhausted), seed
                assert agreed(with_, cluster, node), seed
            forbidden += isinstance(with_, DoesNotFit) and isinstance(without, Plan)
    assert forbidden > CHUNK / 20


def agreed(plan: Plan, cluster: Cluster, node: str) -> bool:
    """Return True if every device that is new goes together with all others."""
    chosen_devices = [choice.device for claim in plan.choices for choice in claim]
    present = in_use(cluster.node_devices(node), cluster.usage)
    held_device_ids = {device.id for device in present}
    return all(
        evaluate_pair(by, new_, other).is_compatible
        for by in cluster.options.policies
        for new_ in chosen_devices
        for other in (*present, *chosen_devices)
        if by.is_enforced and new_.id not in held_device_ids
    )


def in_use(node: NodeDevices, usage: Usage) -> list[PublishedDevice]:
    return [
        device
        for pool in node.pools
        for device in (*pool.devices, *pool.elsewhere)
        if usage.of(device.id) is not None
    ]
