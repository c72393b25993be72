"""Laws of what can never fit, on random clusters: true verdicts, kept promises, no state that lies."""

from collections.abc import Iterator
from random import Random

import msgspec
import pytest
from hypothesis import given as given_by
from hypothesis import settings

from allocator.model import pools
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget, Plan
from allocator.model.requests import resolve_requests
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from findings.finding import Code, Severity
from kube.api.meta import ObjectMeta
from kube.api.resource import ResourceClaim, ResourceSlice
from rules.context import Context
from rules.engine import Target, validate
from rules.feasibility.bounded_search import Feasibility
from rules.feasibility.idle_cluster import IdleCluster
from rules.feasibility.infeasibility import find_infeasibilities
from rules.inventory import Inventory
from testing.allocation.clusters import world
from testing.feasibility_cases import BUSY, CLUSTER, WITH_CLAIMS
from testing.oracle.ours import Objects
from testing.rule_cases import Document, findings_of
from tests.property.test_rule_laws import mutated

pytestmark = pytest.mark.property

CHUNK = 100
CHUNKS = range(0, 600, CHUNK)
NAMESPACE = "team-a"


def worlds(start: int) -> Iterator[tuple[int, Objects]]:
    for seed in range(start, start + CHUNK):
        yield seed, world(seed)


def emptied_of(given: Objects) -> IdleCluster:
    rules = AllocatorOptions(features=given.features)
    return IdleCluster(slices=given.slices, nodes=given.nodes, classes=given.classes, rules=rules)


def fits_somewhere(given: Objects, claims: tuple[ResourceClaim, ...]) -> bool:
    """Return whether the plain search, node by node, fits the claims in the idle cluster, as published."""
    index = pools.build_index(given.slices, given.features)
    rules = AllocatorOptions(features=given.features)
    for node in given.nodes:
        try:
            pending = resolve_requests(claims, given.classes, given.features)
            devices = pools.node_devices(index, node)
            outcome = allocate(devices, pending, Usage(), rules, budget=Budget(steps=20_000))
        except AttemptFailed:
            continue
        if isinstance(outcome, Plan):
            return True
    return False


def denied(given: Objects, emptied: IdleCluster, claim: ResourceClaim) -> list[str]:
    """The codes that refuse a claim for the inventory."""
    context = Context(
        classes=given.classes,
        inventory=Inventory(given.slices),
        features=given.features,
        idle_cluster=emptied,
    )
    findings = validate(Target(view=claim, namespace=NAMESPACE), context)
    from_inventory = {
        find_infeasibility.code
        for find_infeasibility in find_infeasibilities(emptied, (plain(claim),))
    }
    return [
        one.code
        for one in findings
        if one.severity is Severity.ERROR and one.code in from_inventory
    ]


def plain(claim: ResourceClaim) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(name="claim", namespace=NAMESPACE), spec=claim.spec)


@pytest.mark.parametrize("start", CHUNKS)
def test_what_fits_some_node_is_never_denied(start: int) -> None:
    for seed, given in worlds(start):
        idle = emptied_of(given)
        for claim in given.claims:
            if fits_somewhere(given, (claim,)):
                assert denied(given, idle, claim) == [], seed
        if fits_somewhere(given, given.claims):
            assert idle.feasibility(given.claims) is not Feasibility.INFEASIBLE, seed
            told = {
                find_infeasibility.code
                for find_infeasibility in find_infeasibilities(idle, given.claims)
            }
            assert told <= {Code.NOT_EVALUATED}, seed


@pytest.mark.parametrize("start", CHUNKS)
def test_what_is_denied_is_told_with_a_change_that_fits(start: int) -> None:
    told = 0
    for seed, given in worlds(start):
        idle = emptied_of(given)
        for find_infeasibility in find_infeasibilities(idle, given.claims):
            assert idle.feasibility(given.claims) is not Feasibility.FEASIBLE, seed
            if find_infeasibility.closest_fit is not None:
                told += 1
                assert find_infeasibility.closest_fit.changes, seed
                infeasibilities = find_infeasibilities(idle, find_infeasibility.closest_fit.claims)
                # It may take longer to find than a judgement does, which then is no denial.
                assert {each.code for each in infeasibilities} <= {Code.NOT_EVALUATED}, seed
    assert told


@pytest.mark.parametrize("start", CHUNKS)
def test_slices_may_come_in_any_order(start: int) -> None:
    for seed, given in worlds(start):
        whole = emptied_of(given)
        rules = AllocatorOptions(features=given.features)
        idle_cluster = IdleCluster(slices=(), nodes=(), classes=given.classes, rules=rules)
        changes: list[tuple[ResourceSlice | None, ResourceSlice | None]]
        changes = [(None, slice_) for slice_ in given.slices]
        Random(seed).shuffle(changes)
        changes += [(slice_, None) for slice_ in given.slices[:2]]
        changes += [(None, slice_) for slice_ in given.slices[:2]]
        for old, new in changes:
            idle_cluster.replace_slice(old, new)
        for node in given.nodes:
            idle_cluster.replace_node(node.metadata.name, node)

        assert whole.feasibility(given.claims) is idle_cluster.feasibility(given.claims), seed
        codes = [
            (find_infeasibility.code, find_infeasibility.path)
            for find_infeasibility in find_infeasibilities(whole, given.claims)
        ]
        assert codes == [
            (infeasibility.code, infeasibility.path)
            for infeasibility in find_infeasibilities(idle_cluster, given.claims)
        ], seed


@given_by(mutated())
@settings(deadline=None)
def test_no_object_is_too_strange_to_be_judged(document: Document) -> None:
    for there in (CLUSTER, WITH_CLAIMS, BUSY):
        try:
            findings = findings_of(document, there)
        except msgspec.ValidationError:
            return  # It has no view, which others tell.
        assert findings == findings_of(document, there)
