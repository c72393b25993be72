"""All ResourceSlices of a cluster, indexed so that a node, or a change, finds those that concern it.

Which of them a node sees, and what pools they make, is decided in `allocator.model.pools`.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from allocator.model.devices import DeviceId, Pool, PoolId, PublishedDevice, pool_of
from allocator.model.feature_gates import Features
from allocator.model.gated_pools import declares_groups, disabled_gate_cause
from allocator.model.node_selection import IndexKey, index_keys
from kube.api.resource import ResourceSlice

_K = TypeVar("_K")

SliceChange = tuple[ResourceSlice | None, ResourceSlice | None]
"""A slice before a change, None if it was added; and after it, None if it was deleted."""


class PublishedSlice(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A slice with facts derived from it once; compared by identity.

    Attributes:
        rank: Its place in the list of all slices.
        devices: Its devices, shared by all nodes that see them.
        is_hidden: A disabled feature gate hides it; it makes no pool visible.
        is_counted: It counts towards the number of slices of its pool.
        is_local: It is for one node, and is therefore tried before slices that are not.
        holds_counters: Only its counter sets are read.
    """

    slice: ResourceSlice
    pool: PoolId
    rank: int
    devices: tuple[PublishedDevice, ...]
    is_hidden: bool
    is_counted: bool
    is_local: bool
    holds_counters: bool

    @property
    def name(self) -> str:
        """Name of the slice."""
        return self.slice.metadata.name

    @property
    def generation(self) -> int:
        """Generation of the pool that the slice belongs to."""
        return self.slice.spec.pool.generation


class BuiltPool(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A pool with the facts that decide its place among other pools.

    Attributes:
        places: The place of each device in the pool, by name.
    """

    pool: Pool
    places: Mapping[str, int] = msgspec.field(default_factory=dict)
    has_binding_conditions: bool = False


class SliceIndex(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All slices of a cluster by index key and by pool; immutable but for the cache.

    Attributes:
        by_key: Slices that only nodes with one of their index keys can see.
        unkeyed: All other slices, by pool in list order.
        by_pool: All slices of a pool, in list order.
        next_rank: Rank of the next slice.
        built: Cache of pools by their relevant slices. A pool that all nodes see is built once.
        seen_by_all: Cache of the relevant slices of pools whose slices are all for all nodes; None for
            other pools.
    """

    features: Features
    by_key: Mapping[IndexKey, tuple[PublishedSlice, ...]]
    unkeyed: Mapping[PoolId, tuple[PublishedSlice, ...]]
    by_pool: Mapping[PoolId, tuple[PublishedSlice, ...]]
    next_rank: int
    built: dict[PoolId, dict[tuple[PublishedSlice, ...], BuiltPool | None]]
    seen_by_all: dict[PoolId, tuple[PublishedSlice, ...] | None]

    def replace(self, old: ResourceSlice | None, new: ResourceSlice | None) -> "SliceIndex":
        """Return the index after one slice was added, changed or deleted; see `replace_all`."""
        return self.replace_all([(old, new)])

    def replace_all(self, changes: Iterable[SliceChange]) -> "SliceIndex":
        """Return the index after slices were added, changed or deleted.

        The cost is that of these slices plus some shallow copies. Devices of other slices stay the
        same objects, and the pools of other slices stay built. The slice before a change is found by
        driver, pool and name.
        """
        by_key, unkeyed, by_pool = dict(self.by_key), dict(self.unkeyed), dict(self.by_pool)
        built_pools, seen_by_all = dict(self.built), dict(self.seen_by_all)
        next_rank = self.next_rank
        for old, new in changes:
            rank = next_rank
            deleted_slice = _find(by_pool, old)
            if deleted_slice is not None:
                rank, pool = deleted_slice.rank, deleted_slice.pool
                for cache in (built_pools, seen_by_all):
                    cache.pop(pool, None)
                _store(by_pool, pool, _remove(by_pool[pool], deleted_slice))
                keys = index_keys(deleted_slice.slice)
                for key in keys or ():
                    _store(by_key, key, _remove(by_key[key], deleted_slice))
                if keys is None:
                    _store(unkeyed, pool, _remove(unkeyed[pool], deleted_slice))
            if new is not None:
                added_slice = _publish(new, rank, self.features)
                pool = added_slice.pool
                for cache in (built_pools, seen_by_all):
                    cache.pop(pool, None)
                by_pool[pool] = _insert(by_pool.get(pool, ()), added_slice)
                keys = index_keys(new)
                for key in keys or ():
                    by_key[key] = _insert(by_key.get(key, ()), added_slice)
                if keys is None:
                    unkeyed[pool] = _insert(unkeyed.get(pool, ()), added_slice)
            next_rank += 1
        return SliceIndex(
            features=self.features,
            by_key=by_key,
            unkeyed=unkeyed,
            by_pool=by_pool,
            next_rank=next_rank,
            built=built_pools,
            seen_by_all=seen_by_all,
        )


def nodes_of_changes(
    before: SliceIndex, after: SliceIndex, changes: Iterable[SliceChange]
) -> frozenset[str] | None:
    """Return the nodes that see pools of changed slices; None if that may be any node."""
    changed_pools = {
        pool_of(slice_) for change in changes for slice_ in change if slice_ is not None
    }
    names = {
        published_slice.slice.spec.node_name
        for index in (before, after)
        for pool in changed_pools
        for published_slice in index.by_pool.get(pool, ())
    }
    return frozenset(name for name in names if name) if all(names) else None


def _find(
    by_pool: Mapping[PoolId, tuple[PublishedSlice, ...]], old: ResourceSlice | None
) -> PublishedSlice | None:
    if old is None:
        return None
    pool, name = pool_of(old), old.metadata.name
    return next((slice_ for slice_ in by_pool.get(pool, ()) if slice_.name == name), None)


def build_index(slices: Iterable[ResourceSlice], features: Features) -> SliceIndex:
    """Index slices with devices that already have the taints of DeviceTaintRules."""
    by_key: dict[IndexKey, list[PublishedSlice]] = {}
    by_pool: dict[PoolId, list[PublishedSlice]] = {}
    unkeyed: dict[PoolId, list[PublishedSlice]] = {}
    rank = 0
    for rank, slice_ in enumerate(slices, start=1):
        published_slice = _publish(slice_, rank, features)
        by_pool.setdefault(published_slice.pool, []).append(published_slice)
        keys = index_keys(slice_)
        if keys is None:
            unkeyed.setdefault(published_slice.pool, []).append(published_slice)
        for key in keys or ():
            by_key.setdefault(key, []).append(published_slice)
    return SliceIndex(
        features=features,
        by_key={key: tuple(with_key) for key, with_key in by_key.items()},
        unkeyed={pool: tuple(of_pool) for pool, of_pool in unkeyed.items()},
        by_pool={pool: tuple(of_pool) for pool, of_pool in by_pool.items()},
        next_rank=rank + 1,
        built={},
        seen_by_all={},
    )


def _publish(slice_: ResourceSlice, rank: int, features: Features) -> PublishedSlice:
    spec = slice_.spec
    driver, pool, devices = spec.driver, spec.pool.name, spec.devices or ()
    is_hidden = bool(disabled_gate_cause(slice_, features))
    # Only then devices with groups hide it, so most slices are looked through once.
    is_grouped = (
        is_hidden and not features.compatibility_groups and any(map(declares_groups, devices))
    )
    return PublishedSlice(
        slice=slice_,
        pool=pool_of(slice_),
        rank=rank,
        devices=tuple(
            PublishedDevice(id=DeviceId(driver, pool, device.name), device=device, slice=slice_)
            for device in devices
        ),
        is_hidden=is_hidden,
        is_counted=not is_grouped,
        is_local=bool(spec.node_name),
        holds_counters=features.partitionable_devices and bool(spec.shared_counters),
    )


def _insert(
    slices: tuple[PublishedSlice, ...], added_slice: PublishedSlice
) -> tuple[PublishedSlice, ...]:
    if not slices or slices[-1].rank < added_slice.rank:
        return (*slices, added_slice)
    return tuple(sorted((*slices, added_slice), key=_rank))


def _remove(
    slices: tuple[PublishedSlice, ...], deleted_slice: PublishedSlice
) -> tuple[PublishedSlice, ...]:
    return tuple(slice_ for slice_ in slices if slice_ is not deleted_slice)


def _store(
    index: dict[_K, tuple[PublishedSlice, ...]], key: _K, slices: tuple[PublishedSlice, ...]
) -> None:
    if slices:
        index[key] = slices
    else:
        del index[key]


def _rank(slice_: PublishedSlice) -> int:
    return slice_.rank
