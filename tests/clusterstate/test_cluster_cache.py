"""A cache that is told of changes is the cache that would be made anew."""

import gc
import weakref
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from allocator.cluster.cluster import Cluster
from allocator.features.consumer_limits import ConsumerLimit
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
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
    policy,
    request,
    result,
    slice_of,
)

NODES = [f"node-{number}" for number in range(4)]
ASKED = claim(request(count=2))


def taint_rule(driver: str = DRIVER, **scope: str) -> DeviceTaintRule:
    spec = {
        "deviceSelector": {"driver": driver, **scope},
        "taint": {"key": "ill", "effect": "NoSchedule"},
    }
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
    """The collector does not look at caches, see `process.running.garbage`."""
    gc.collect()
    gc.disable()
    try:
        cache = cache_after(everything())
        assert set(verdicts(cache.cluster).values()) == {"Plan"}
        before = weakref.ref(cache.cluster)

        cache.apply({Kind.POLICY: {("", "policy"): policy()}})

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


def test_a_taint_rule_changes_the_slices_that_it_selects_and_no_others() -> None:
    cache = cache_after(everything())
    before = cache.cluster
    assert set(verdicts(before).values()) == {"Plan"}
    devices_before = {name: before.node_devices(name) for name in NODES}

    cache.apply({Kind.TAINT_RULE: {("", "rule"): taint_rule(pool="node-1")}})

    assert cache.cluster is before
    assert verdicts(before) == {**dict.fromkeys(NODES, "Plan"), "node-1": "DoesNotFit"}
    changed = {name for name in NODES if before.node_devices(name) is not devices_before[name]}
    assert changed == {"node-1"}

    cache.apply({Kind.TAINT_RULE: {("", "rule"): taint_rule(pool="node-2")}})
    assert verdicts(before) == {**dict.fromkeys(NODES, "Plan"), "node-2": "DoesNotFit"}
    cache.apply({Kind.TAINT_RULE: {("", "rule"): None}})
    assert verdicts(before) == dict.fromkeys(NODES, "Plan")


def test_verdicts_do_not_outlive_the_class_that_they_were_made_with() -> None:
    cache = cache_after(everything())
    before = cache.cluster
    pending = before.resolve([ASKED])
    assert set(verdicts(before).values()) == {"Plan"}
    assert len(before.rank_nodes(pending).nodes) == len(NODES)
    selects_nothing = device_class("gpu", "false")

    cache.apply({Kind.CLASS: {("", "gpu"): selects_nothing}})

    assert cache.cluster is before
    assert verdicts(before) == dict.fromkeys(NODES, "DoesNotFit")
    assert before.rank_nodes(before.resolve([ASKED])).nodes == ()
    cache.apply({Kind.CLASS: {("", "gpu"): None}})
    with pytest.raises(AttemptFailed, match="not found"):
        verdicts(before)
    cache.apply({Kind.CLASS: {("", "gpu"): device_class()}})
    assert verdicts(before) == dict.fromkeys(NODES, "Plan")


def test_a_class_that_is_new_costs_no_verdict() -> None:
    cache = cache_after(everything())
    verdicts(cache.cluster)
    searched = cache.cluster.costs.searched

    cache.apply({Kind.CLASS: {("", "other"): device_class("other")}})

    verdicts(cache.cluster)
    assert cache.cluster.costs.searched == searched


def test_a_crowd_of_changes_is_applied_in_parts() -> None:
    cache = ClusterCache(Features(), max_part=3)
    cache.apply(everything())
    assert not cache.is_behind, "the first batch is applied as a whole"
    before, all_nodes = cache.cluster, [*NODES, "node-4"]
    gone = dict.fromkeys((("", name) for name in NODES), None)
    claim_ = allocated_claim(result("gpu-0", pool="node-3"), name="user")

    cache.apply({Kind.SLICE: gone, Kind.CLAIM: {("default", "user"): claim_}})

    assert cache.is_behind
    assert [name for name in NODES if before.node_devices(name).devices] == ["node-3"]
    assert "node-3" in {pool.pool for pool in before.usage.pools}, "claims count at once"
    version = cache.version
    slice_ = slice_of(*devices("gpu-0", "gpu-1", "gpu-2"), pool="node-3")
    cache.apply({Kind.NODE: {("", "node-4"): node("node-4")}, Kind.SLICE: {("", "node-3"): slice_}})
    assert not cache.is_behind, "a slice that changed twice is applied once"
    assert cache.version > version
    assert len(before.node_devices("node-3").devices) == 3
    assert sorted(before.nodes) == all_nodes
    assert cache.cluster is before


def test_nodes_that_come_and_go_leave_nothing_behind() -> None:
    cache = cache_after(everything())

    for number in range(50):
        name = f"node-of-a-day-{number}"
        slice_ = slice_of(*devices("gpu-0"), pool=name)
        cache.apply({Kind.NODE: {("", name): node(name)}, Kind.SLICE: {("", name): slice_}})
        verdicts(cache.cluster)
        cache.apply({Kind.NODE: {("", name): None}, Kind.SLICE: {("", name): None}})
        verdicts(cache.cluster)

    inventory = cache.cluster._inventory
    assert len(inventory._nodes_of_pool) == len(NODES)
    assert len(inventory._index.by_pool) == len(inventory._index.built) == len(NODES)
    assert len(inventory.entries) == len(NODES)


def test_a_policy_is_in_force_in_a_view_that_is_built_anew() -> None:
    cache = cache_after(everything())
    before = cache.cluster

    cache.apply({Kind.POLICY: {("", "policy"): policy()}})

    assert cache.cluster is not before
    assert len(cache.cluster.options.policies) == 1


def test_a_view_can_be_built_beside_another() -> None:
    """It has all changes, also those that wait for their part in the other one."""
    cache = ClusterCache(Features(), max_part=1)
    cache.apply(everything())
    cache.apply({Kind.SLICE: dict.fromkeys((("", name) for name in NODES), None)})
    assert cache.is_behind

    other = cache.fork({DRIVER: ConsumerLimit(per_device=1)})
    other.apply({Kind.NODE: {("", "node-4"): node("node-4")}})

    assert not other.is_behind
    assert sorted(other.cluster.nodes) == [*NODES, "node-4"]
    assert not any(other.cluster.node_devices(name).devices for name in NODES)
    assert other.cluster.options.consumer_limits == {DRIVER: ConsumerLimit(per_device=1)}
    assert "node-4" not in cache.cluster.nodes
    assert cache.is_behind


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


def test_a_few_changes_of_claims_are_cheap() -> None:
    names = [("default", f"claim-{number}") for number in range(MAX_CHEAP + 1)]
    few: Changes = {Kind.CLAIM: dict.fromkeys(names[:MAX_CHEAP], ASKED)}
    cache = cache_after(everything())

    assert cache.is_cheap({})
    assert cache.is_cheap(few)
    assert not cache.is_cheap({Kind.CLAIM: dict.fromkeys(names, ASKED)}), "there are too many"
    assert not cache.is_cheap({**few, Kind.NODE: {("", "node-9"): node("node-9")}})

    behind = ClusterCache(Features(), max_part=1)
    behind.apply(everything())
    assert behind.is_cheap(few)
    behind.apply({Kind.NODE: {("", name): node(name, zone="b") for name in NODES}})
    assert not behind.is_cheap(few), "nodes wait to be applied"
    assert not ClusterCache(Features()).is_cheap({}), "the view is to be built"
