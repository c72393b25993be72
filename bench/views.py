"""The view of a cluster under changes that concern many nodes: the longest stop of the decisions.

Decisions wait while a part of such changes is applied, and not while a view under another policy is
built; the anchor of the latter is all changes of slices together.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from allocator.model.feature_gates import Features
from bench.allocator_runs import seconds
from bench.report import Result, below, informative
from clusterstate.cluster_cache import ClusterCache
from clusterstate.kinds import Changes, Kind
from kube.api.meta import convert
from kube.api.resource import DeviceTaintRule, ResourceSlice
from process.garbage import exempt_caches
from sidecar.device_view import MAX_PART
from testing.oracle import ours, workloads
from testing.oracle.ours import Objects

SIZES: Final = (1_000, 5_000)
GOAL_MS: Final = 50.0


def measure() -> Iterator[Result]:
    """Yield the longest stop for each kind of change."""
    for nodes in SIZES:
        objects = ours.objects(workloads.WORKLOADS["varied"][0](nodes))
        cache = ClusterCache(Features(), max_part=MAX_PART)
        cache.apply(_everything(objects))
        exempt_caches()  # As the sidecar does, once it is in sync.
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
    """Yield what changes, with the changes."""
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
