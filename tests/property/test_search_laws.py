"""Laws of the search: it changes nothing, and its verdict depends only on relevant inputs."""

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from allocator.model import pools, slice_index, usage
from allocator.model.devices import NodeDevices
from allocator.model.outcome import AttemptFailed, BudgetExhausted, DoesNotFit
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.model.requests import resolve_requests as flat
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions, lay_out
from allocator.search.search import allocate, search
from kube.api.meta import encode
from kube.api.resource import ResourceSlice
from testing.allocation.clusters import world
from testing.oracle.ours import Objects

pytestmark = pytest.mark.property

BUDGET = Budget(steps=20_000)
CHUNK = 100
CHUNKS = range(0, 600, CHUNK)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One node's attempt with an outcome that is no error."""

    seed: int
    scenario_objects: Objects
    node: NodeDevices
    pending: PendingClaims
    usage_in_use: Usage
    rules: AllocatorOptions
    outcome: Plan | DoesNotFit | BudgetExhausted


def attempts(seed: int) -> Iterator[Attempt]:
    world_ = world(seed)
    usage_ = usage.gather_usage(world_.allocated_claims, world_.features)
    index = slice_index.build_index(world_.slices, world_.features)
    rules = AllocatorOptions(features=world_.features)
    for node in world_.nodes:
        try:
            devices = pools.node_devices(index, node)
            pending = flat(world_.claims, world_.classes, world_.features)
            outcome = allocate(devices, pending, usage_, rules, budget=BUDGET)
        except AttemptFailed:
            continue
        yield Attempt(
            seed=seed,
            scenario_objects=world_,
            node=devices,
            pending=pending,
            usage_in_use=usage_,
            rules=rules,
            outcome=outcome,
        )


def every(start: int) -> Iterator[Attempt]:
    for seed in range(start, start + CHUNK):
        yield from attempts(seed)


def describe(outcome: Plan | DoesNotFit | BudgetExhausted) -> Any:
    if isinstance(outcome, Plan):
        return [
            [(str(choice.device.id), choice.consumed) for choice in claim]
            for claim in outcome.choices
        ]
    return type(outcome).__name__


@pytest.mark.parametrize("start", CHUNKS)
def test_a_search_restores_its_constraints(start: int) -> None:
    for attempt in every(start):
        laid_out = lay_out(attempt.node, attempt.pending, attempt.usage_in_use, attempt.rules)
        before = [constraint.state_key() for constraint in laid_out.constraints]

        first = search(laid_out, BUDGET)
        after = [constraint.state_key() for constraint in laid_out.constraints]

        assert before == after, attempt.seed
        assert describe(first) == describe(search(laid_out, BUDGET)), attempt.seed


@pytest.mark.parametrize("start", CHUNKS[:2])
def test_a_search_changes_none_of_its_inputs(start: int) -> None:
    for seed in range(start, start + CHUNK):
        world_ = world(seed)
        before = encode([world_.slices, world_.allocated_claims, world_.claims, world_.nodes])
        for attempt in attempts(seed):
            usage_ = usage.gather_usage(world_.allocated_claims, world_.features)
            allocate(attempt.node, attempt.pending, usage_, attempt.rules, budget=BUDGET)

            assert usage_ == usage.gather_usage(world_.allocated_claims, world_.features), seed
        assert before == encode(
            [world_.slices, world_.allocated_claims, world_.claims, world_.nodes]
        ), seed


@pytest.mark.parametrize("start", CHUNKS)
def test_no_order_of_devices_changes_the_verdict(start: int) -> None:
    for attempt in every(start):
        order = list(range(len(attempt.node.devices)))
        Random(attempt.seed).shuffle(order)

        outcome = allocate(
            attempt.node,
            attempt.pending,
            attempt.usage_in_use,
            attempt.rules,
            budget=BUDGET,
            order=order,
        )

        if not isinstance(outcome, BudgetExhausted) and not isinstance(
            attempt.outcome, BudgetExhausted
        ):
            assert type(attempt.outcome) is type(outcome), attempt.seed


@pytest.mark.parametrize("start", CHUNKS)
def test_the_order_of_listed_objects_does_not_matter(start: int) -> None:
    for attempt in every(start):
        objects, rng = attempt.scenario_objects, Random(attempt.seed)
        if not _counts_agree(objects.slices):
            # Upstream takes the number of slices from the first that it meets, and so do we.
            continue
        if objects.features.compatibility_groups:
            # Allocated devices that contradict each other are folded in the order of the slices.
            continue
        slices, claims = list(objects.slices), list(objects.allocated_claims)
        rng.shuffle(slices)
        rng.shuffle(claims)
        node = next(node_ for node_ in objects.nodes if node_.metadata.name == attempt.node.node)
        devices = pools.node_devices(slice_index.build_index(slices, objects.features), node)
        usage_ = usage.gather_usage(claims, objects.features)

        outcome = allocate(devices, attempt.pending, usage_, attempt.rules, budget=BUDGET)

        assert describe(attempt.outcome) == describe(outcome), attempt.seed


@pytest.mark.parametrize("start", CHUNKS)
def test_a_further_free_device_never_makes_claims_infeasible(start: int) -> None:
    """But in mode All: it then has to have the device, too.

    Nor where looking at some device ends the attempt: with another device before it, the search
    may take another way and come to look at it.
    """
    for attempt in every(start):
        requests = [
            request
            for claim in attempt.pending.requests
            for requests in claim
            for request in requests
        ]
        if any(request.all_devices for request in requests) or not attempt.node.devices:
            continue
        if not isinstance(attempt.outcome, Plan):
            continue
        if lay_out(attempt.node, attempt.pending, attempt.usage_in_use, attempt.rules).may_abort:
            continue
        twin = Random(attempt.seed).choice(attempt.node.devices)
        slices = [
            _with_another(slice_, twin.id.device) if slice_ is twin.slice else slice_
            for slice_ in attempt.scenario_objects.slices
        ]
        node = next(
            node_
            for node_ in attempt.scenario_objects.nodes
            if node_.metadata.name == attempt.node.node
        )
        devices = pools.node_devices(
            slice_index.build_index(slices, attempt.scenario_objects.features), node
        )

        outcome = allocate(
            devices, attempt.pending, attempt.usage_in_use, attempt.rules, budget=BUDGET
        )

        assert isinstance(outcome, Plan | BudgetExhausted), attempt.seed


def _counts_agree(slices: tuple[ResourceSlice, ...]) -> bool:
    counts: dict[tuple[str, str, int], set[int]] = {}
    for slice_ in slices:
        pool = slice_.spec.pool
        key = (slice_.spec.driver, pool.name, pool.generation)
        counts.setdefault(key, set()).add(pool.resource_slice_count)
    return all(len(count) == 1 for count in counts.values())


def _with_another(listed_slice: ResourceSlice, name: str) -> ResourceSlice:
    """Return a slice with a twin of one of its devices as its last."""
    devices = listed_slice.spec.devices or ()
    twin = next(device for device in devices if device.name == name)
    more = (*devices, msgspec.structs.replace(twin, name="zz-one-more"))
    return msgspec.structs.replace(
        listed_slice, spec=msgspec.structs.replace(listed_slice.spec, devices=more)
    )
