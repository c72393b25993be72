"""The view of a cluster under changes that concern many nodes: the longest stop of the decisions.

Decisions wait while a part of such changes is applied, and not while a view under another policy, or with
other slices of a pool that all nodes see, is built. The anchor of the former is all changes of slices
together, of the latter the view without that pool.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name
from bench.allocator_runs import seconds
from bench.report import Result, below, informative
from clusterstate.cluster_cache import ClusterCache
from clusterstate.kinds import Changes, Kind
from kube.api.meta import convert
from kube.api.resource import DeviceTaintRule, ResourceSlice
from process.running.garbage import exempt_caches
from sidecar.state.device_view import MAX_NODES, MAX_PART
from testing.allocation.builders import device, slice_of
from testing.oracle import ours, workloads
from testing.oracle.ours import Objects

SIZES: Final = (1_000, 5_000)
GOAL_MS: Final = 50.0
SHARED_SLICES: Final = 256
SHARED_DEVICES: Final = 2
"""The number of devices in each of these slices."""


def measure() -> Iterator[Result]:
    """Yield the longest stop for each kind of change."""
    for nodes in SIZES:
        objects = ours.objects(workloads.WORKLOADS["varied"][0](nodes))
        cache = _cache(_everything(objects))
        title = f"{nodes:,} nodes of 8 devices"
        crowd_s: list[float] = []
        for change, changes in _changes(objects):
            stops_s = _stops_s(cache, changes)
            yield below(f"{title}, {change}: longest stop in ms", max(stops_s) * 1000, GOAL_MS)
            crowd_s = max(crowd_s, stops_s, key=sum)
        stop_s = seconds(cache.fork, {})
        yield below(f"{title}, a policy: longest stop in ms", stop_s * 1000, GOAL_MS)
        build_s = seconds(cache.fork({}).apply, {})
        yield informative(
            f"{title}, a policy: until it is in force, in ms", build_s * 1000, sum(crowd_s) * 1000
        )
        yield from _measure_shared_pool(f"{title} that share a pool", objects, build_s)


def _measure_shared_pool(title: str, objects: Objects, build_without_s: float) -> Iterator[Result]:
    """Yield the longest stops if all nodes see one pool besides their own.

    Args:
        build_without_s: The time to build the view without that pool.
    """
    everything = _everything(objects)
    local_slices, shared_slices = everything[Kind.SLICE], _shared_slices(generation=1)
    cache = _cache({**everything, Kind.SLICE: {**local_slices, **shared_slices}})
    generations = {name: _next_generation(slice_) for name, slice_ in local_slices.items()}
    stops_s = _stops_s(cache, {Kind.SLICE: generations})
    yield below(f"{title}, all other slices: longest stop in ms", max(stops_s) * 1000, GOAL_MS)
    stops_s = _stops_s(cache, {Kind.SLICE: _shared_slices(generation=2)})
    stop_s = max(*stops_s, seconds(cache.fork, {}))
    yield below(f"{title}, its slices: longest stop in ms", stop_s * 1000, GOAL_MS)
    build_s = seconds(cache.fork({}).apply, {})
    yield informative(
        f"{title}, its slices: until they are in force, in ms",
        build_s * 1000,
        build_without_s * 1000,
    )


def _cache(everything: Changes) -> ClusterCache:
    """Return the view of a cluster as the sidecar has it, once it is in sync."""
    cache = ClusterCache(Features(), max_part=MAX_PART, max_nodes=MAX_NODES)
    cache.apply(everything)
    exempt_caches()
    return cache


def _shared_slices(generation: int) -> Mapping[Name, ResourceSlice]:
    names = [f"shared-{number}" for number in range(SHARED_SLICES)]
    return {
        ("", name): slice_of(
            *(device(f"{name}-{number}") for number in range(SHARED_DEVICES)),
            name=name,
            pool="shared",
            generation=generation,
            count=SHARED_SLICES,
            all_nodes=True,
        )
        for name in names
    }


def _everything(objects: Objects) -> Changes:
    return {
        Kind.NODE: {("", node.metadata.name): node for node in objects.nodes},
        Kind.SLICE: {("", slice_.metadata.name): slice_ for slice_ in objects.slices},
        Kind.CLAIM: {
            (claim.metadata.namespace, claim.metadata.name): claim
            for claim in objects.allocated_claims
        },
        Kind.CLASS: {("", name): device_class for name, device_class in objects.classes.items()},
    }


def _changes(objects: Objects) -> Iterator[tuple[str, Changes]]:
    """Yield the names of changes, with the changes."""
    first = objects.slices[0].spec
    for change, scope in (
        ("a taint rule for one pool", {"driver": first.driver, "pool": first.pool.name}),
        ("a taint rule for all devices", {"driver": first.driver}),
    ):
        spec = {"deviceSelector": scope, "taint": {"key": "ill", "effect": "NoSchedule"}}
        rule = convert({"metadata": {"name": "rule"}, "spec": spec}, DeviceTaintRule)
        yield change, {Kind.TAINT_RULE: {("", "rule"): rule}}
    slices = {("", slice_.metadata.name): _next_generation(slice_) for slice_ in objects.slices}
    yield "all slices", {Kind.SLICE: slices}
    classes = {
        ("", name): replace(device_class, metadata=replace(device_class.metadata, uid="new"))
        for name, device_class in objects.classes.items()
    }
    yield "a class", {Kind.CLASS: classes}


def _next_generation(slice_: ResourceSlice) -> ResourceSlice:
    pool = replace(slice_.spec.pool, generation=slice_.spec.pool.generation + 1)
    return replace(slice_, spec=replace(slice_.spec, pool=pool))


def _stops_s(cache: ClusterCache, changes: Changes) -> list[float]:
    """Apply changes; return the duration of each part."""
    stops_s = [seconds(cache.apply, changes)]
    while cache.is_behind:
        stops_s.append(seconds(cache.apply, {}))
    return stops_s
