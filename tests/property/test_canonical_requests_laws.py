"""Claims that differ in names get from a cluster's caches the same as from a search.

The same claims are asked about twice, with other names of claims, requests and alternatives the second
time, and with constraints and configurations that name their requests in another order.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.search.attempt import AllocatorOptions
from allocator.search.results import allocations, share_ids
from kube.api.resource import DeviceRequest, ResourceClaim, ResourceClaimStatus
from testing.allocation.builders import (
    DRIVER,
    amount,
    claim,
    classes,
    configured_configuration,
    device,
    node,
    request,
    slice_of,
)
from testing.allocation.clusters import crowd
from testing.oracle.ours import Objects

pytestmark = pytest.mark.property

BUDGET = Budget(steps=20_000)
SEEDS = range(300)
CHUNK = 100


@pytest.mark.parametrize("start", range(SEEDS.start, SEEDS.stop, CHUNK))
def test_renamed_claims_get_the_answers_of_a_search_without_one(start: int) -> None:
    cached = 0
    for seed in range(start, start + CHUNK):
        objects = crowd(seed)
        renamed_claims = rename(objects.claims, Random(seed))
        expected = answer(new(objects), renamed_claims)
        cluster = new(objects)
        answer(cluster, objects.claims)
        before = cluster.costs.searched

        answered = answer(cluster, renamed_claims)

        assert expected == answered, seed
        # Nodes with the same devices in another order are searched for their own.
        cached += cluster.costs.searched == before
    assert cached > CHUNK / 3


@pytest.mark.parametrize("start", range(SEEDS.start, SEEDS.stop, CHUNK))
def test_renamed_claims_get_the_ranking_of_a_new_cluster(start: int) -> None:
    failed = ranked = 0
    for seed in range(start, start + CHUNK):
        objects = crowd(seed)
        renamed_claims = rename(objects.claims, Random(seed))
        expected = rank(new(objects), renamed_claims)
        cluster = new(objects)
        rank(cluster, objects.claims)
        before = cluster.costs.searched

        assert expected == rank(cluster, renamed_claims), seed

        if isinstance(expected, str):
            failed += 1
        else:
            assert before == cluster.costs.searched, seed
            ranked += 1
    assert failed
    assert ranked


def answer(cluster: Cluster, claims: Sequence[ResourceClaim]) -> Mapping[str, Any] | str:
    """Return the allocations on each node, or the error."""
    try:
        pending = cluster.resolve(claims)
        verdicts = cluster.verdicts(pending, budget=BUDGET)
        return {
            name: allocate(cluster, verdicts.plan(name), pending)
            if isinstance(outcome, Plan)
            else type(outcome).__name__
            for name, outcome, _ in sorted(verdicts, key=lambda verdict: verdict[0])
        }
    except AttemptFailed as error:
        return str(error)


def allocate(cluster: Cluster, plan: Plan | None, pending: PendingClaims) -> object:
    assert plan is not None
    try:
        return allocations(plan, pending, cluster.options.features, share_ids("seed"))
    except AttemptFailed as error:
        return str(error)


def rank(cluster: Cluster, claims: Sequence[ResourceClaim]) -> object:
    """Return the nodes that fit with their scores, or the error."""
    try:
        return cluster.rank_nodes(cluster.resolve(claims), budget=BUDGET).nodes
    except AttemptFailed as error:
        return str(error)


def rename(claims: Sequence[ResourceClaim], rng: Random) -> tuple[ResourceClaim, ...]:
    return tuple(
        rename_claim(claim_, f"renamed-{index}", rng) for index, claim_ in enumerate(claims)
    )


def rename_claim(claim_: ResourceClaim, name: str, rng: Random) -> ResourceClaim:
    """Return a claim with other names for itself, its requests and their alternatives."""
    devices = claim_.spec.devices
    requests = devices.requests or ()
    # The order of the new names is another than that of the requests.
    numbers = rng.sample(range(100, 1000), len(requests))
    names = {
        request_.name: f"n{number}" for request_, number in zip(requests, numbers, strict=True)
    }

    def rename_reference(reference: str) -> str:
        parent, separator, alternative = reference.partition("/")
        return f"{names.get(parent, parent)}{separator}{'other-' * bool(separator)}{alternative}"

    def rename_references(references: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if not references:
            return references
        return tuple(rename_reference(reference) for reference in reversed(references))

    def rename_request(request_: DeviceRequest) -> DeviceRequest:
        alternatives = request_.first_available
        if alternatives:
            alternatives = tuple(replace(item, name=f"other-{item.name}") for item in alternatives)
        return replace(request_, name=names[request_.name], first_available=alternatives)

    renamed_devices = replace(
        devices,
        requests=tuple(map(rename_request, requests)) or None,
        constraints=tuple(
            replace(item, requests=rename_references(item.requests))
            for item in devices.constraints or ()
        )
        or None,
        config=tuple(
            replace(item, requests=rename_references(item.requests))
            for item in devices.config or ()
        )
        or None,
    )
    return replace(
        claim_,
        metadata=replace(claim_.metadata, name=name, namespace="elsewhere"),
        spec=replace(claim_.spec, devices=renamed_devices),
    )


@pytest.mark.parametrize("seed", range(60))
def test_configurations_that_count_are_told_apart(seed: int) -> None:
    """Claims on few shared devices with configurations that must agree if the driver requires it."""
    rng = Random(seed)
    driver = frozenset({DRIVER}) if seed % 2 else frozenset[str]()
    cluster = shared_cluster(driver)
    for number in range(12):
        claim_ = claim_with_configuration(rng, number)
        pending = cluster.resolve([claim_])
        expected = {
            name: isinstance(cluster.verdict(pending, name), Plan) for name in cluster.nodes
        }
        ranked_nodes = [name for name, _ in cluster.rank_nodes(pending).nodes]
        assert sorted(name for name, fits in expected.items() if fits) == ranked_nodes
        if ranked_nodes and rng.random() < 0.7:
            plan = cluster.verdicts(pending).plan(rng.choice(ranked_nodes))
            assert plan is not None
            (result,) = allocations(
                plan, pending, cluster.options.features, share_ids(f"{seed}/{number}")
            )
            cluster.allocate(replace(claim_, status=ResourceClaimStatus(allocation=result)))


def shared_cluster(uniform_config_drivers: frozenset[str]) -> Cluster:
    """Return a cluster of two nodes with two devices that can be shared."""
    return Cluster(
        slices=[
            slice_of(
                *(
                    device(f"gpu-{number}", shared=True, capacity={"memory": amount("80Gi", "8Gi")})
                    for number in range(2)
                ),
                pool=name,
            )
            for name in ("n1", "n2")
        ],
        nodes=[node("n1"), node("n2")],
        claims=(),
        classes=classes(),
        options=AllocatorOptions(uniform_config_drivers=uniform_config_drivers),
    )


def claim_with_configuration(rng: Random, number: int) -> ResourceClaim:
    """Return a claim for two shares by two requests, some of them with a configuration."""
    names = rng.sample("abcdef", 2)
    config = [
        configured_configuration(
            *rng.choice(([], names, names[:1], names[1:])), kind="K", value=rng.randrange(2)
        )
        for _ in range(rng.randrange(3))
    ]
    shares = [request(name, capacity={"memory": "8Gi"}) for name in names]
    return claim(*shares, name=f"claim-{number}", config=config)


def new(objects: Objects) -> Cluster:
    return Cluster(
        slices=objects.slices,
        nodes=objects.nodes,
        claims=objects.allocated_claims,
        classes=objects.classes,
        options=AllocatorOptions(features=objects.features),
    )
