"""Changes that are applied together, and those that wait: a pool is a unit."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from allocator.cluster.cluster import Cluster
from allocator.model.devices import NodeDevices, PoolId, PoolState
from allocator.model.feature_gates import Features
from allocator.pods.claims import Name
from clusterstate.cluster_cache import ClusterCache
from clusterstate.kinds import Changes, Kind
from clusterstate.waiting_changes import Part, Unit, WaitingChanges
from kube.api.meta import convert
from kube.api.resource import DeviceTaintRule, ResourceSlice
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    device_class,
    devices,
    labelled_node_selector,
    node,
    result,
    slice_of,
)

NODES = tuple(f"node-{number}" for number in range(4))
A, B, C = (PoolId(DRIVER, name) for name in "abc")


def slice_name(text: str) -> Name:
    return ("", text)


def one_node(_unit: Unit) -> int:
    return 1


def waiting(slices: Mapping[str, tuple[PoolId, ...]], *nodes: str) -> WaitingChanges:
    changes = WaitingChanges()
    for text, pools in slices.items():
        changes.put_slice(slice_name(text), pools)
    for name in nodes:
        changes.put_node(name)
    return changes


def parts(changes: WaitingChanges, **limits: int) -> list[list[str]]:
    """The names in each part, until none is left."""
    taken: list[Part] = []
    while len(changes):
        taken.append(changes.take_part(one_node, **limits))
    return [sorted([*part.nodes, *(name for _, name in part.slices)]) for part in taken]


@pytest.mark.parametrize(
    ("want", "slices", "nodes"),
    [
        pytest.param([["x", "y", "z"]], {"x": (A,), "y": (A,), "z": (A,)}, (), id="one pool"),
        pytest.param([["x"], ["y", "z"]], {"x": (A,), "y": (B,), "z": (B,)}, (), id="two pools"),
        pytest.param([["n", "x"], ["m"]], {"x": (A,)}, ("n", "m"), id="a node is a unit"),
        pytest.param(
            [["x", "y", "z"], ["n"]],
            {"x": (A,), "y": (A, B), "z": (B,)},
            ("n",),
            id="a slice moves from pool to pool",
        ),
        pytest.param(
            [["w", "x", "y", "z"], ["n"]],
            {"x": (A,), "w": (C,), "y": (A, B), "z": (B, C)},
            ("n",),
            id="pools that are joined by way of another",
        ),
        pytest.param([], {"x": ()}, (), id="a slice that was added and deleted again"),
    ],
)
def test_parts_of_two(
    want: list[list[str]], slices: Mapping[str, tuple[PoolId, ...]], nodes: tuple[str, ...]
) -> None:
    assert want == parts(waiting(slices, *nodes), max_size=2)


def test_without_limits_there_is_one_part() -> None:
    assert [["n", "x", "y"]] == parts(waiting({"x": (A,), "y": (B,)}, "n"))


def test_a_slice_that_moves_on_while_it_waits_joins_all_its_pools() -> None:
    changes = waiting({"x": (A,), "other": (B,)}, "n")
    changes.put_slice(slice_name("x"), (B,))

    assert [["other", "x"], ["n"]] == parts(changes, max_size=1)


def test_a_pool_that_many_nodes_see_is_a_part_of_its_own() -> None:
    changes = waiting({"x": (A,), "y": (B,), "z": (C,)})

    def count_nodes(unit: Unit) -> int:
        return 100 if B in unit.pools else 1

    sizes = []
    while len(changes):
        part = changes.take_part(count_nodes, max_size=64)
        sizes.append([name for _, name in part.slices])

    assert sizes == [["x"], ["y"], ["z"]]


def test_a_pool_that_too_many_nodes_see_gets_no_part() -> None:
    changes = waiting({"x": (A,), "y": (B,), "z": (C,)})

    def count_nodes(unit: Unit) -> int:
        return 100 if B in unit.pools else 1

    part = changes.take_part(count_nodes, max_nodes=99)

    assert [name for _, name in part.slices] == ["x", "z"]
    assert changes.has_wide_pools
    assert not len(changes)
    changes.put_slice(slice_name("more"), (B,))
    assert not len(changes), "nor do its further changes"
    changes.put_slice(slice_name("moved"), (C, B))
    assert changes.take_part(one_node, max_nodes=99) == Part()
    changes.clear()
    assert not changes.has_wide_pools


# --- in the view ----------------------------------------------------------------------------------


def pool_slices(
    pool: str, generation: int, count: int, **where: Any
) -> dict[Name, ResourceSlice | None]:
    """The slices of one generation of a pool, each with a device."""
    return {
        slice_name(f"{pool}-{number}"): slice_of(
            *devices(f"{pool}-gpu-{number}"),
            name=f"{pool}-{number}",
            pool=pool,
            generation=generation,
            count=count,
            **where,
        )
        for number in range(count)
    }


def cache_with(
    slices: Mapping[Name, ResourceSlice | None], *, max_part: int, max_nodes: int | None = None
) -> ClusterCache:
    cache = ClusterCache(Features(), max_part=max_part, max_nodes=max_nodes)
    cache.apply(
        {
            Kind.NODE: {("", name): node(name, zone="z") for name in NODES},
            Kind.CLASS: {("", "gpu"): device_class()},
            Kind.SLICE: slices,
        }
    )
    return cache


def layouts(cluster: Cluster) -> dict[str, NodeDevices]:
    return {name: cluster.node_devices(name) for name in cluster.nodes}


def laid_out(cache: ClusterCache, changes: Changes) -> list[int]:
    """Apply changes; return the number of nodes that each part laid out."""
    counts: list[int] = []
    while not counts or cache.is_behind:
        before = layouts(cache.cluster)
        cache.apply({} if counts else changes)
        after = layouts(cache.cluster)
        counts.append(sum(after[name] is not before[name] for name in after))
    return counts


def taint_rule(**scope: str) -> DeviceTaintRule:
    spec = {
        "deviceSelector": {"driver": DRIVER, **scope},
        "taint": {"key": "ill", "effect": "NoSchedule"},
    }
    return convert({"metadata": {"name": "rule"}, "spec": spec}, DeviceTaintRule)


SHARED = {"all_nodes": True}
LOCAL: dict[Name, ResourceSlice | None] = {}
for name_ in NODES:
    LOCAL |= pool_slices(name_, 1, 1, node=name_)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({Kind.SLICE: pool_slices("s", 2, 30, **SHARED)}, id="a new generation"),
        pytest.param(
            {Kind.SLICE: dict.fromkeys(map(slice_name, (f"s-{n}" for n in range(30))))},
            id="its slices are gone",
        ),
        pytest.param({Kind.TAINT_RULE: {("", "rule"): taint_rule(pool="s")}}, id="a taint rule"),
    ],
)
def test_a_crowd_of_changes_of_a_shared_pool_lays_out_each_node_once(changes: Changes) -> None:
    cache = cache_with({**pool_slices("s", 1, 30, **SHARED), **LOCAL}, max_part=3)

    assert laid_out(cache, changes) == [len(NODES)]


def test_nothing_is_laid_out_in_the_part_of_a_shared_pool_but_for_it() -> None:
    cache = cache_with({**pool_slices("s", 1, 2, **SHARED), **LOCAL}, max_part=3)

    after = pool_slices("node-0", 2, 1, node="node-0") | pool_slices("s", 2, 2, **SHARED)

    assert laid_out(cache, {Kind.SLICE: after}) == [1, len(NODES)]


def test_a_pool_with_slices_for_many_nodes_counts_for_all_of_these() -> None:
    """One slice that changes has them all laid out, since each shows the pool as complete or not."""
    spread: dict[Name, ResourceSlice | None] = {}
    for number, name in enumerate(NODES):
        slice_ = slice_of(*devices(f"gpu-{number}"), name=name, pool="spread", count=4, node=name)
        spread[slice_name(name)] = slice_
    cache = cache_with({**spread, **LOCAL}, max_part=3, max_nodes=3)

    cache.apply({Kind.TAINT_RULE: {("", "rule"): taint_rule(pool="spread")}})

    assert (cache.is_behind, cache.awaits_build) == (False, True)


def test_a_pool_that_many_nodes_see_waits_for_the_next_view() -> None:
    cache = cache_with({**pool_slices("s", 1, 2, **SHARED), **LOCAL}, max_part=3, max_nodes=3)
    cache.apply({Kind.CLAIM: {("default", "user"): allocated_claim(result("s-gpu-1", pool="s"))}})
    assert not cache.awaits_build
    before = layouts(cache.cluster)

    cache.apply({Kind.SLICE: {slice_name("s-1"): None, **pool_slices("s", 2, 1, **SHARED)}})

    assert before == layouts(cache.cluster), "nothing is laid out for it"
    assert cache.awaits_build
    assert not cache.is_behind, "no further batch would apply it"
    assert cache.is_cheap({Kind.CLAIM: {}})
    assert laid_out(cache, {Kind.SLICE: pool_slices("node-1", 2, 1, node="node-1")}) == [1]
    next_view = cache.fork({})
    next_view.apply({})
    assert not next_view.awaits_build
    pool = next_view.cluster.visible_pool(PoolId(DRIVER, "s"))
    assert pool is not None
    assert [device.id.device for device in pool.devices] == ["s-gpu-0"]
    assert [device_id.device for device_id in next_view.tombstones] == ["s-gpu-1"]


# --- the law --------------------------------------------------------------------------------------

PLACES: Mapping[str, Mapping[str, Any]] = {
    "all": {"all_nodes": True},
    "zone": {"selector": labelled_node_selector(zone="z")},
    "node-0": {"node": "node-0"},
    "node-1": {"node": "node-1"},
}


def published_devices(slices: Mapping[Name, ResourceSlice]) -> dict[str, frozenset[str]]:
    """The devices of each pool."""
    names: dict[str, frozenset[str]] = dict.fromkeys(PLACES, frozenset())
    for slice_ in slices.values():
        pool = slice_.spec.pool.name
        names[pool] |= {device.name for device in slice_.spec.devices or ()}
    return names


def random_generation(
    rng: Random, slices: Mapping[Name, ResourceSlice], generation: int
) -> dict[Name, ResourceSlice | None]:
    """Changes that give some pools complete new generations, with slices that others may have had."""
    pools = rng.sample(sorted(PLACES), rng.randrange(1, 4))
    changed: dict[Name, ResourceSlice | None] = {
        name: None for name, slice_ in slices.items() if slice_.spec.pool.name in pools
    }
    taken = set(slices) - set(changed)
    free = [name for number in range(24) if (name := slice_name(f"slice-{number}")) not in taken]
    rng.shuffle(free)
    for pool in pools:
        count = rng.randrange(6)
        for _ in range(count):
            key = free.pop()
            changed[key] = slice_of(
                *devices(f"gpu-{generation}-{key[1]}"),
                name=key[1],
                pool=pool,
                generation=generation,
                count=count,
                **PLACES[pool],
            )
    return changed


@pytest.mark.parametrize("max_part", [1, 2, 5])
@pytest.mark.parametrize("seed", range(10))
def test_a_pool_that_is_complete_before_and_after_is_complete_in_between(
    seed: int, max_part: int
) -> None:
    rng = Random(seed)
    slices: dict[Name, ResourceSlice] = {}
    cache = cache_with(slices, max_part=max_part)
    history = {pool: {names} for pool, names in published_devices(slices).items()}
    for generation in range(1, 30):
        changes = random_generation(rng, slices, generation)
        for key, new in changes.items():
            if new is None:
                del slices[key]
            else:
                slices[key] = new
        for pool, names in published_devices(slices).items():
            history[pool].add(names)
        cache.apply({Kind.SLICE: changes})
        for turn in range(rng.choice((0, 1, 3))):
            assert_whole(cache.cluster, history)
            if turn:
                cache.apply({})
    while cache.is_behind:
        cache.apply({})
        assert_whole(cache.cluster, history)
    want = {pool: names for pool, names in published_devices(slices).items() if names}
    assert want == seen_pools(cache.cluster)


def seen_pools(cluster: Cluster) -> dict[str, frozenset[str]]:
    """The pools that nodes see, all of them complete, with their devices."""
    seen: dict[str, frozenset[str]] = {}
    for devices_ in layouts(cluster).values():
        for pool in devices_.pools:
            assert pool.state is PoolState.COMPLETE, pool.why
            seen[pool.id.pool] = frozenset(device.id.device for device in pool.devices)
    return seen


def assert_whole(cluster: Cluster, history: Mapping[str, set[frozenset[str]]]) -> None:
    """Assert that each pool is one that there was after some batch."""
    for pool, names in seen_pools(cluster).items():
        assert names in history[pool]
