"""RuleCache that is told of changes says the same as a cache made anew."""

from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from allocator.model.feature_gates import Features
from allocator.model.scheduler_support import SchedulerSupport
from allocator.pods.claims import Name
from clusterstate.cluster_cache import MAX_BATCH
from clusterstate.kinds import Changes, Kind
from clusterstate.projections import project_claim
from clusterstate.rule_cache import ClusterFacts, RuleCache
from kube.api.core import Pod, PodResourceClaim, PodSpec
from kube.api.meta import ObjectMeta
from kube.api.ownership import OWNERSHIP, AllocatorOwnership, AllocatorOwnershipSpec, OwnedDriver
from kube.api.policy import Scope
from kube.api.resource import ResourceClaim, ResourceClaimTemplate, ResourceClaimTemplateSpec
from kube.names import DEFAULT_SCHEDULER_NAME
from quotas.device_quotas.ledger import Totals
from quotas.device_quotas.limits import ONE
from rules.engine.engine import Target, validate
from rules.feasibility.enforcement import Enforcement, EnforcementSettings
from rules.feasibility.high_water_mark import DriverStock, HighWaterMark
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    device_class,
    devices,
    match,
    node,
    node_pool,
    policy,
    request,
    result,
    rule,
    slice_of,
)
from testing.device_quotas import device_limit, quota

NODES = [f"node-{number}" for number in range(3)]
ASKED = (
    claim(request(count=2)),
    claim(request(count=3)),
    claim(request("a"), request("b", count=2), constraints=[match("example.com/root")]),
    claim(request("req-0", 'device.driver == "nobody"')),
)


def everything() -> dict[Kind, dict[Name, Any]]:
    return {
        Kind.NODE: {("", name): node(name) for name in NODES},
        Kind.SLICE: {
            ("", f"{name}-slice"): slice_of(*devices("gpu-0", "gpu-1"), pool=name) for name in NODES
        },
        Kind.CLASS: {("", "gpu"): device_class()},
    }


def cache_of(changes: Changes) -> RuleCache:
    rule_cache = RuleCache(Features())
    rule_cache.apply(changes)
    return rule_cache


def finding_lines(
    cache: RuleCache,
    claims: Iterable[ResourceClaim] = ASKED,
    facts: ClusterFacts = ClusterFacts(),  # noqa: B008 - a frozen value
) -> list[str]:
    """Return severity, code and message of all that is said of claims."""
    context = cache.context(facts)
    return [
        f"{reported.severity} {reported.code} {reported.message}"
        for claim_ in claims
        for reported in validate(Target(view=claim_, namespace="default"), context)
    ]


def codes(
    cache: RuleCache,
    *claims: ResourceClaim,
    facts: ClusterFacts = ClusterFacts(),  # noqa: B008 - a frozen value
) -> list[str]:
    """Return severity and code of all that is said of claims."""
    return [" ".join(line.split(" ")[:2]) for line in finding_lines(cache, claims, facts)]


def changed(rng: Random, name: str) -> Changes:
    """Return one change."""
    kind = rng.choice([Kind.NODE, Kind.SLICE, Kind.CLAIM, Kind.CLASS, Kind.POLICY])
    if kind is Kind.NODE:
        return {kind: {("", name): rng.choice([None, node(name, zone="a")])}}
    if kind is Kind.SLICE:
        devices_ = devices(*rng.sample(["gpu-0", "gpu-1", "gpu-2"], rng.randrange(1, 4)))
        new = slice_of(
            *devices_, pool=name, generation=rng.randrange(1, 3), count=rng.randrange(1, 3)
        )
        return {kind: {("", f"{name}-slice"): rng.choice([None, new, new])}}
    if kind is Kind.CLAIM:
        claim_ = allocated_claim(result(rng.choice(["gpu-0", "gpu-1"]), pool=name), name=name)
        return {kind: {("default", name): rng.choice([None, claim(name=name), claim_])}}
    if kind is Kind.CLASS:
        other = device_class("gpu", 'device.driver != "other"')
        return {kind: {("", "gpu"): rng.choice([None, device_class(), other])}}
    apart = policy(rule("all", groups=("a",)))
    return {kind: {("", "policy"): rng.choice([None, apart])}}


@pytest.mark.parametrize("seed", range(20))
def test_changes_lead_to_the_same_cache_as_a_new_start(seed: int) -> None:
    rng, all_objects = Random(seed), everything()
    cache = cache_of(all_objects)
    for _ in range(10):
        changes = changed(rng, rng.choice(NODES))
        cache.apply(changes)
        for kind, change in changes.items():
            all_objects.setdefault(kind, {}).update(change)
        anew = {
            kind: {key: value for key, value in values.items() if value is not None}
            for kind, values in all_objects.items()
        }

        assert finding_lines(cache_of(anew)) == finding_lines(cache)
        assert cache_of(anew).stocks() == cache.stocks()


def test_devices_that_no_node_has_are_an_error_and_devices_in_use_a_warning() -> None:
    cache = cache_of(everything())
    assert codes(cache, *ASKED[:2]) == ["error exceedsLargestNode"]

    claim_document = {
        ("default", name): allocated_claim(result("gpu-0", pool=name), name=name) for name in NODES
    }
    cache.apply({Kind.CLAIM: claim_document})
    assert codes(cache, ASKED[0]) == ["warning doesNotFitNow"]

    cache.apply({Kind.CLAIM: {("default", NODES[0]): None}})
    assert codes(cache, ASKED[0]) == []


def owning(driver: OwnedDriver) -> AllocatorOwnership:
    spec = AllocatorOwnershipSpec(drivers=(driver,))
    return AllocatorOwnership(metadata=ObjectMeta(name=OWNERSHIP), spec=spec)


def pooled(driver: OwnedDriver, name: str, **fields: Any) -> OwnedDriver:
    """A driver with a pool that may have four uses on a node."""
    pool = node_pool(name, maxConsumersPerNode=4, **fields)
    return msgspec.structs.replace(driver, pools=(pool,))


def test_what_a_limit_of_consumers_excludes_never_fits() -> None:
    cache = cache_of(everything())
    assert codes(cache, ASKED[0]) == []

    limit = OwnedDriver(name=DRIVER, max_consumers_per_node=1)
    cache.apply({Kind.OWNERSHIP: {("", OWNERSHIP): owning(limit)}})
    assert codes(cache, ASKED[0]) == ["error exceedsLargestNode"]

    cache.apply({Kind.OWNERSHIP: {("", OWNERSHIP): owning(pooled(limit, "of-none"))}})
    assert codes(cache, ASKED[0]) == ["error exceedsLargestNode"]

    cache.apply({Kind.OWNERSHIP: {("", OWNERSHIP): owning(pooled(limit, "all", nodeSelector={}))}})
    assert codes(cache, ASKED[0]) == []

    cache.apply({Kind.OWNERSHIP: {("", OWNERSHIP): None}})
    assert codes(cache, ASKED[0]) == []


@pytest.mark.parametrize(
    ("scheduler", "findings"),
    [
        pytest.param(DEFAULT_SCHEDULER_NAME, [], id="kube-scheduler ignores policies"),
        pytest.param("", [], id="a pod without schedulerName is kube-scheduler's"),
        pytest.param("aware", ["warning doesNotFitNow"], id="a policy-aware scheduler rejects it"),
    ],
)
def test_what_fits_a_pod_now_is_the_verdict_of_its_scheduler(
    scheduler: str, findings: list[str]
) -> None:
    apart = policy(rule("all", only="false"), scope=Scope.POOL)
    claim_document = {
        ("default", name): allocated_claim(result("gpu-0", pool=name), name=name) for name in NODES
    }
    support = SchedulerSupport(policy_aware=frozenset(["aware"]))
    cache = RuleCache(Features(), support=support)
    cache.apply({**everything(), Kind.POLICY: {("", "apart"): apart}, Kind.CLAIM: claim_document})
    claim_ = claim(request(), name="wanted")
    cache.apply({Kind.CLAIM: {("default", "wanted"): claim_}})
    pod = Pod(
        spec=PodSpec(
            scheduler_name=scheduler,
            resource_claims=(PodResourceClaim(name="gpu", resource_claim_name="wanted"),),
        )
    )

    target = Target(view=pod, namespace="default")
    assert findings == [
        f"{finding.severity} {finding.code}" for finding in validate(target, cache.context())
    ]
    # Whether the pods that will use a claim have such a scheduler is not known.
    assert [] == codes(cache, claim_)


def test_a_large_batch_of_nodes_counts_like_single_ones() -> None:
    cache = cache_of(everything())

    batch = {("", f"n{number}"): node(f"n{number}") for number in range(MAX_BATCH + 1)}
    large = slice_of(*devices("gpu-0", "gpu-1", "gpu-2"), pool="n7")
    cache.apply({Kind.NODE: batch, Kind.SLICE: {("", "n7-slice"): large}})

    assert codes(cache, *ASKED[:2]) == []


def test_an_inventory_below_the_mark_or_an_autoscaler_is_no_proof() -> None:
    cache = cache_of(everything())
    (driver,) = cache.stocks()["gpu"]
    more = HighWaterMark(classes={"gpu": {driver: DriverStock(nodes=9)}})

    for facts in (
        ClusterFacts(high_water_mark=more),
        ClusterFacts(autoscalers={"Karpenter"}),
        ClusterFacts(enforcement=EnforcementSettings(cluster=Enforcement.WARN)),
    ):
        assert codes(cache, ASKED[1], facts=facts) == ["warning exceedsLargestNode"]
    equal = ClusterFacts(high_water_mark=HighWaterMark(classes=cache.stocks()))
    assert codes(cache, ASKED[1], facts=equal) == ["error exceedsLargestNode"]


def test_a_class_that_maps_an_extended_resource_is_known() -> None:
    device_class_ = device_class()
    spec = replace(device_class_.spec, extended_resource_name="example.com/gpu")
    cache = cache_of({Kind.CLASS: {("", "gpu"): replace(device_class_, spec=spec)}})

    assert cache.context().extended_resources["example.com/gpu"] == "gpu"


def test_requests_of_objects_are_known_as_long_as_the_objects_exist() -> None:
    claim_ = claim(request(), name="a")
    resource_claim_template = ResourceClaimTemplate(
        metadata=claim_.metadata, spec=ResourceClaimTemplateSpec(spec=claim_.spec)
    )
    place = ("default", "a")
    cache = cache_of({Kind.CLAIM: {place: claim_}, Kind.TEMPLATE: {place: resource_claim_template}})
    context = cache.context()
    assert {place: claim_.spec.devices} == context.claims == context.templates
    assert [claim_] == list(cache.objects(Kind.CLAIM))

    cache.apply({Kind.CLAIM: {place: allocated_claim(result(), name="a")}})
    context = cache.context()
    assert context.claims == {}
    assert context.allocated_claims == {place: frozenset({DRIVER})}

    cache.apply({Kind.CLAIM: {place: None}, Kind.TEMPLATE: {place: None}})
    context = cache.context()
    assert not context.templates
    assert not context.allocated_claims


@pytest.mark.parametrize(("class_name", "left"), [("gpu", 3), ("other", 4)])
def test_a_projected_claim_is_charged_by_the_class_of_its_request(
    class_name: str, left: int
) -> None:
    """An allocated claim is projected, and a limit may be on one class only."""
    document = msgspec.to_builtins(
        replace(
            allocated_claim(result("gpu-0", pool=NODES[0]), name="a"), spec=claim(request()).spec
        ),
        enc_hook=str,
    )
    team = quota(device_limit(4, classes=(class_name,)))
    cache = RuleCache(Features(), knows_allocated_requests=False)
    cache.apply(
        {
            **everything(),
            Kind.CLAIM: {("default", "a"): project_claim(msgspec.json.encode(document))},
            Kind.QUOTA: {("", "team"): team},
        }
    )

    context = cache.context(ClusterFacts(namespaces={"default": {}}))

    assert context.claims == {}
    book = context.quota_book
    assert book is not None
    (account,) = book.accounts("default")
    assert account.limit.max.nanos - book.ledger.totals(account).used == left * ONE


@pytest.mark.parametrize("seed", range(10))
def test_usage_of_quotas_follows_changes_as_a_new_start(seed: int) -> None:
    rng, all_objects = Random(seed), everything()
    all_objects[Kind.QUOTA] = {("", "team"): quota(device_limit(3), name="team")}
    facts = ClusterFacts(namespaces={"default": {}})
    cache = cache_of(all_objects)
    for _ in range(10):
        changes = changed(rng, rng.choice(NODES))
        cache.apply(changes)
        for kind, change in changes.items():
            all_objects.setdefault(kind, {}).update(change)
        anew = {
            kind: {key: value for key, value in values.items() if value is not None}
            for kind, values in all_objects.items()
        }
        assert usage_of(cache_of(anew), facts) == usage_of(cache, facts)


def usage_of(cache: RuleCache, facts: ClusterFacts) -> Totals:
    book = cache.context(facts).quota_book
    assert book is not None
    return book.ledger.totals(book.accounts("default")[0])
