"""Laws of infeasibility, on random clusters: true verdicts, kept promises, no state that lies."""

from collections.abc import Iterator
from random import Random

import msgspec
import pytest
from hypothesis import given as given_by
from hypothesis import settings

from allocator.model import pools, slice_index
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget, Plan
from allocator.model.requests import resolve_requests
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from findings.finding import Code, Severity
from kube.api.meta import ObjectMeta
from kube.api.resource import ResourceClaim, ResourceSlice
from rules.context.context import Context
from rules.context.inventory import Inventory
from rules.engine.engine import Target, validate
from rules.feasibility.bounded_search import Feasibility
from rules.feasibility.idle_cluster import IdleCluster
from rules.feasibility.infeasibility import find_infeasibilities
from testing.allocation.clusters import world
from testing.documents import Document
from testing.feasibility_cases import BUSY, CLUSTER, WITH_CLAIMS
from testing.long_runs import beginning_with
from testing.mutated_objects import mutated_document
from testing.oracle.ours import Objects
from testing.rule_cases import findings_of

pytestmark = pytest.mark.property

CHUNK = 100
CHUNKS = range(0, 600, CHUNK)
NAMESPACE = "team-a"


def worlds(start: int) -> Iterator[tuple[int, Objects]]:
    for seed in range(start, start + CHUNK):
        yield seed, world(seed)


def emptied_of(objects: Objects) -> IdleCluster:
    rules = AllocatorOptions(features=objects.features)
    return IdleCluster(
        slices=objects.slices, nodes=objects.nodes, classes=objects.classes, rules=rules
    )


def fits_somewhere(objects: Objects, claims: tuple[ResourceClaim, ...]) -> bool:
    """Return True if the plain search, node by node, fits the claims in the idle cluster, as published."""
    index = slice_index.build_index(objects.slices, objects.features)
    rules = AllocatorOptions(features=objects.features)
    for node in objects.nodes:
        try:
            pending = resolve_requests(claims, objects.classes, objects.features)
            devices = pools.node_devices(index, node)
            outcome = allocate(devices, pending, Usage(), rules, budget=Budget(steps=20_000))
        except AttemptFailed:
            continue
        if isinstance(outcome, Plan):
            return True
    return False


def denied(objects: Objects, emptied_idle_cluster: IdleCluster, claim: ResourceClaim) -> list[str]:
    """The codes that refuse a claim for the inventory."""
    context = Context(
        classes=objects.classes,
        inventory=Inventory(objects.slices),
        features=objects.features,
        idle_cluster=emptied_idle_cluster,
    )
    findings = validate(Target(view=claim, namespace=NAMESPACE), context)
    from_inventory = {
        find_infeasibility.code
        for find_infeasibility in find_infeasibilities(emptied_idle_cluster, (plain(claim),))
    }
    return [
        finding.code
        for finding in findings
        if finding.severity is Severity.ERROR and finding.code in from_inventory
    ]


def plain(claim: ResourceClaim) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(name="claim", namespace=NAMESPACE), spec=claim.spec)


@pytest.mark.parametrize("start", beginning_with(2, CHUNKS))
def test_what_fits_some_node_is_never_denied(start: int) -> None:
    for seed, objects in worlds(start):
        idle = emptied_of(objects)
        for claim in objects.claims:
            if fits_somewhere(objects, (claim,)):
                assert denied(objects, idle, claim) == [], seed
        if fits_somewhere(objects, objects.claims):
            assert idle.feasibility(objects.claims) is not Feasibility.INFEASIBLE, seed
            codes = {
                find_infeasibility.code
                for find_infeasibility in find_infeasibilities(idle, objects.claims)
            }
            assert codes <= {Code.NOT_EVALUATED}, seed


@pytest.mark.parametrize("start", beginning_with(2, CHUNKS))
def test_a_denial_comes_with_a_change_that_fits(start: int) -> None:
    number = 0
    for seed, objects in worlds(start):
        idle = emptied_of(objects)
        for find_infeasibility in find_infeasibilities(idle, objects.claims):
            assert idle.feasibility(objects.claims) is not Feasibility.FEASIBLE, seed
            if find_infeasibility.closest_fit is not None:
                number += 1
                assert find_infeasibility.closest_fit.changes, seed
                infeasibilities = find_infeasibilities(idle, find_infeasibility.closest_fit.claims)
                # It may take longer to find than a validation does, which then is no denial.
                assert {infeasibility.code for infeasibility in infeasibilities} <= {
                    Code.NOT_EVALUATED
                }, seed
    assert number


@pytest.mark.parametrize("start", beginning_with(2, CHUNKS))
def test_slices_may_come_in_any_order(start: int) -> None:
    for seed, objects in worlds(start):
        whole = emptied_of(objects)
        rules = AllocatorOptions(features=objects.features)
        idle_cluster = IdleCluster(slices=(), nodes=(), classes=objects.classes, rules=rules)
        changes: list[tuple[ResourceSlice | None, ResourceSlice | None]]
        changes = [(None, slice_) for slice_ in objects.slices]
        Random(seed).shuffle(changes)
        changes += [(slice_, None) for slice_ in objects.slices[:2]]
        changes += [(None, slice_) for slice_ in objects.slices[:2]]
        for old, new in changes:
            idle_cluster.replace_slice(old, new)
        for node in objects.nodes:
            idle_cluster.replace_node(node.metadata.name, node)

        assert whole.feasibility(objects.claims) is idle_cluster.feasibility(objects.claims), seed
        codes = [
            (find_infeasibility.code, find_infeasibility.path)
            for find_infeasibility in find_infeasibilities(whole, objects.claims)
        ]
        assert codes == [
            (infeasibility.code, infeasibility.path)
            for infeasibility in find_infeasibilities(idle_cluster, objects.claims)
        ], seed


@given_by(mutated_document())
@settings(deadline=None)
def test_no_object_is_too_strange_to_be_validated(document: Document) -> None:
    for there in (CLUSTER, WITH_CLAIMS, BUSY):
        try:
            findings = findings_of(document, there)
        except msgspec.ValidationError:
            return  # It has no view, which others tell.
        assert findings == findings_of(document, there)
