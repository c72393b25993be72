"""A cache that is told of changes is the cache that would be made anew."""

import gc
import weakref
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.pods.claims import Name
from allocator.search.attempt import AllocatorOptions
from clusterstate.cluster_cache import MAX_BATCH, MAX_CHEAP, ClusterCache
from clusterstate.kinds import Changes, Kind
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import DeviceTaintRule
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    device_class,
    devices,
    node,
    request,
    result,
    slice_of,
)

NODES = [f"node-{number}" for number in range(4)]
ASKED = claim(request(count=2))


def taint_rule(driver: str = DRIVER) -> DeviceTaintRule:
    spec = {"deviceSelector": {"driver": driver}, "taint": {"key": "ill", "effect": "NoSchedule"}}
    return convert({"metadata": {"name": "rule"}, "spec": spec}, DeviceTaintRule)


def verdicts(cluster: Cluster) -> dict[str, str]:
    verdicts_ = cluster.verdicts(cluster.resolve([ASKED]))
    return {node: type(outcome).__name__ for node, outcome, _ in verdicts_}


def everything() -> dict[Kind, dict[Name, Any]]:
    return {
        Kind.NODE: {("", name): node(name) for name in NODES},
        Kind.SLICE: {("", name): slice_of(*devices("gpu-0", "gpu-1"), pool=name) for name in NODES},
        Kind.CLASS: {("", "gpu"): device_class()},
    }


def cache_after(changes: Changes) -> ClusterCache:
    cache = ClusterCache(Features())
    cache.apply(changes)
    return cache


@pytest.mark.parametrize("seed", range(20))
def test_changes_lead_to_the_same_cluster_as_a_new_start(seed: int) -> None:
    rng, all_objects = Random(seed), everything()
    cache = cache_after(all_objects)
    for _ in range(12):
        name = rng.choice(NODES)
        changes: dict[Kind, dict[Name, Any]] = {}
        kind = rng.choice([Kind.NODE, Kind.SLICE, Kind.CLAIM, Kind.TAINT_RULE])
        if kind is Kind.NODE:
            changes[kind] = {("", name): rng.choice([None, node(name, zone="a")])}
        elif kind is Kind.SLICE:
            devices_ = devices(*rng.sample(["gpu-0", "gpu-1", "gpu-2"], rng.randrange(1, 4)))
            changes[kind] = {("", name): rng.choice([None, slice_of(*devices_, pool=name)])}
        elif kind is Kind.CLAIM:
            claim_ = allocated_claim(result(rng.choice(["gpu-0", "gpu-1"]), pool=name), name=name)
            changes[kind] = {("default", name): rng.choice([None, claim(name=name), claim_])}
        else:
            changes[kind] = {("", "rule"): rng.choice([None, taint_rule(), taint_rule("other")])}
        cache.apply(changes)
        for changed, change in changes.items():
            all_objects.setdefault(changed, {}).update(change)
        anew = {
            kind_name: {key: value for key, value in objects_of_kind.items() if value is not None}
            for kind_name, objects_of_kind in all_objects.items()
        }

        assert verdicts(cache_after(anew).cluster) == verdicts(cache.cluster)


def test_a_cluster_that_is_replaced_is_freed_without_a_collection() -> None:
    """The collector does not look at caches, see `process.garbage`."""
    gc.collect()
    gc.disable()
    try:
        cache = cache_after(everything())
        assert set(verdicts(cache.cluster).values()) == {"Plan"}
        before = weakref.ref(cache.cluster)

        cache.apply({Kind.CLASS: {("", "gpu"): device_class()}})

        assert before() is None
    finally:
        gc.enable()


def test_a_class_that_comes_later_counts() -> None:
    cache = cache_after({**everything(), Kind.CLASS: {}})

    cache.apply({Kind.CLASS: {("", "gpu"): device_class()}})

    assert dict.fromkeys(NODES, "Plan") == verdicts(cache.cluster)


def test_large_batches_are_applied_together() -> None:
    cache = cache_after(everything())
    before = cache.cluster
    cache.apply({Kind.NODE: {("", "node-0"): node("node-0", zone="b")}})
    assert cache.cluster is before

    batch: Mapping[Name, Any] = {
        ("", f"n{objects_of_kind}"): node(f"n{objects_of_kind}")
        for objects_of_kind in range(MAX_BATCH + 1)
    }
    cache.apply({Kind.NODE: batch})

    assert cache.cluster is not before
    assert len(cache.cluster.nodes) == len(NODES) + MAX_BATCH + 1


def test_no_changes_are_no_new_version() -> None:
    cache = cache_after(everything())
    version = cache.version

    cache.apply({})
    assert cache.version == version

    cache.apply({Kind.TEMPLATE: {("a", "b"): None}})
    assert cache.version > version


def test_a_class_maps_an_extended_resource() -> None:
    device_class_ = device_class()
    spec = convert({"extendedResourceName": "example.com/gpu"}, type(device_class_.spec))
    named = type(device_class_)(metadata=ObjectMeta(name="gpu"), spec=spec)

    cache = cache_after({Kind.CLASS: {("", "gpu"): named}})

    assert cache.extended_resources["example.com/gpu"] == "gpu"


def test_a_gate_that_is_off_disables_taint_rules() -> None:
    cache = ClusterCache(Features(device_taint_rules=False))

    cache.apply({**everything(), Kind.TAINT_RULE: {("", "rule"): taint_rule()}})

    assert dict.fromkeys(NODES, "Plan") == verdicts(cache.cluster)


def test_the_allocator_gets_the_feature_gates() -> None:
    features = Features(consumable_capacity=False)

    assert AllocatorOptions(features=features) == ClusterCache(features).cluster.options


def test_a_few_changes_of_claims_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [("default", f"claim-{number}") for number in range(MAX_CHEAP + 1)]
    few: Changes = {Kind.CLAIM: dict.fromkeys(names[:MAX_CHEAP], ASKED)}
    cache = cache_after(everything())

    assert cache.is_cheap({})
    assert cache.is_cheap(few)
    assert not cache.is_cheap({Kind.CLAIM: dict.fromkeys(names, ASKED)}), "there are too many"
    assert not cache.is_cheap({**few, Kind.NODE: {("", "node-9"): node("node-9")}})

    monkeypatch.setattr("clusterstate.cluster_cache.MAX_APPLIED", MAX_CHEAP - 1)
    assert not cache.is_cheap(few), "the view would be built anew"
