"""Laws of what can never fit, on random clusters: true verdicts, kept promises, no state that lies."""

from collections.abc import Iterator
from random import Random

import msgspec
import pytest
from hypothesis import given as given_by
from hypothesis import settings

from allocator.core import pools
from allocator.core.model import Budget, Plan, Usage
from allocator.core.outcome import AttemptFailed
from allocator.core.problem import Rules
from allocator.core.requests import asked
from allocator.core.search import allocate
from kube.api.meta import ObjectMeta
from kube.api.resource import ResourceClaim, ResourceSlice
from tests.allocator.worlds import world
from tests.oracle.ours import Objects
from tests.property.test_rule_laws import mutated
from tests.webhook.rules.cases import Document, found
from tests.webhook.rules.test_fits import BUSY, CLUSTER, WITH_CLAIMS
from webhook.findings import Code, Severity
from webhook.rules.context import Context
from webhook.rules.emptied import Emptied
from webhook.rules.inventory import Inventory
from webhook.rules.judge import Judged, judge
from webhook.rules.misfit import misfits
from webhook.rules.room import Fit

pytestmark = pytest.mark.property

CHUNK = 100
CHUNKS = range(0, 600, CHUNK)
NAMESPACE = "team-a"


def worlds(start: int) -> Iterator[tuple[int, Objects]]:
    for seed in range(start, start + CHUNK):
        yield seed, world(seed)


def emptied_of(given: Objects) -> Emptied:
    rules = Rules(features=given.features)
    return Emptied(slices=given.slices, nodes=given.nodes, classes=given.classes, rules=rules)


def fits_somewhere(given: Objects, claims: tuple[ResourceClaim, ...]) -> bool:
    """Whether the plain search, node by node, finds room in the emptied cluster, as published."""
    index = pools.index(given.slices, given.features)
    rules = Rules(features=given.features)
    for node in given.nodes:
        try:
            wanted = asked(claims, given.classes, given.features)
            devices = pools.node_devices(index, node)
            outcome = allocate(devices, wanted, Usage(), rules, budget=Budget(steps=20_000))
        except AttemptFailed:
            continue
        if isinstance(outcome, Plan):
            return True
    return False


def denied(given: Objects, emptied: Emptied, claim: ResourceClaim) -> list[str]:
    """The codes that refuse a claim for the inventory."""
    context = Context(
        classes=given.classes,
        inventory=Inventory(given.slices),
        features=given.features,
        emptied=emptied,
    )
    told = judge(Judged(view=claim, namespace=NAMESPACE), context)
    from_inventory = {one.code for one in misfits(emptied, (plain(claim),))}
    return [
        one.code for one in told if one.severity is Severity.ERROR and one.code in from_inventory
    ]


def plain(claim: ResourceClaim) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(name="claim", namespace=NAMESPACE), spec=claim.spec)


@pytest.mark.parametrize("start", CHUNKS)
def test_what_fits_some_node_is_never_denied(start: int) -> None:
    for seed, given in worlds(start):
        emptied = emptied_of(given)
        for claim in given.claims:
            if fits_somewhere(given, (claim,)):
                assert denied(given, emptied, claim) == [], seed
        if fits_somewhere(given, given.claims):
            assert emptied.fits(given.claims) is not Fit.NOWHERE, seed
            told = {one.code for one in misfits(emptied, given.claims)}
            assert told <= {Code.NOT_JUDGED}, seed


@pytest.mark.parametrize("start", CHUNKS)
def test_what_is_denied_is_told_with_a_change_that_fits(start: int) -> None:
    told = 0
    for seed, given in worlds(start):
        emptied = emptied_of(given)
        for one in misfits(emptied, given.claims):
            assert emptied.fits(given.claims) is not Fit.FITS, seed
            if one.nearest is not None:
                told += 1
                assert one.nearest.changes, seed
                left = misfits(emptied, one.nearest.claims)
                # It may take longer to find than a judgement does, which then is no denial.
                assert {each.code for each in left} <= {Code.NOT_JUDGED}, seed
    assert told


@pytest.mark.parametrize("start", CHUNKS)
def test_slices_may_come_in_any_order(start: int) -> None:
    for seed, given in worlds(start):
        whole = emptied_of(given)
        rules = Rules(features=given.features)
        grown = Emptied(slices=(), nodes=(), classes=given.classes, rules=rules)
        changes: list[tuple[ResourceSlice | None, ResourceSlice | None]]
        changes = [(None, one) for one in given.slices]
        Random(seed).shuffle(changes)
        changes += [(one, None) for one in given.slices[:2]]
        changes += [(None, one) for one in given.slices[:2]]
        for old, new in changes:
            grown.replace_slice(old, new)
        for node in given.nodes:
            grown.replace_node(node.metadata.name, node)

        assert whole.fits(given.claims) is grown.fits(given.claims), seed
        codes = [(one.code, one.path) for one in misfits(whole, given.claims)]
        assert codes == [(one.code, one.path) for one in misfits(grown, given.claims)], seed


@given_by(mutated())
@settings(deadline=None)
def test_no_object_is_too_strange_to_be_judged(document: Document) -> None:
    for there in (CLUSTER, WITH_CLAIMS, BUSY):
        try:
            told = found(document, there)
        except msgspec.ValidationError:
            return  # It has no view, which others tell.
        assert told == found(document, there)
