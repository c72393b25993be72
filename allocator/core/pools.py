"""Published slices become the pools that one node sees: newest generation, whole and valid.

Decides which slices are relevant for a node, whether a pool may be used, and the order in which
devices are tried. Whether a device fits a request is decided elsewhere.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
pools_experimental.go (the incubating allocator has the same); resourceslice/tracker/tracker.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec

from allocator.core.model import (
    DeviceId,
    Features,
    NodeDevices,
    Pool,
    PoolId,
    PoolState,
    PublishedDevice,
)
from allocator.core.node_selection import Anchor, anchors, anchors_of_node, is_for, is_relevant
from kube.api.core import Node
from kube.api.resource import (
    CounterSet,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    ResourceSlice,
)

_K = TypeVar("_K")

# --- the index ------------------------------------------------------------------------------------


class PublishedSlice(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A slice with what never has to be found out again. Compared by identity.

    Attributes:
        rank: Place among all slices as they were listed.
        devices: Of the slice, made once so that all nodes share them.
        is_hidden: A gate that is off hides it; it makes no pool visible.
        is_counted: It counts when the slices of its pool are counted.
        is_local: On one node, and so tried before slices that are not.
        holds_counters: Read for its counter sets, and for nothing else.
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
        """Of the slice."""
        return self.slice.metadata.name

    @property
    def generation(self) -> int:
        """Of the pool, as this slice has it."""
        return self.slice.spec.pool.generation


class _Built(NamedTuple):
    """A pool with what its place among others depends on.

    Attributes:
        places: Device name to its place in the pool.
    """

    pool: Pool
    places: Mapping[str, int]
    has_binding_conditions: bool = False


class SliceIndex(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All slices of a cluster by where they are relevant and by pool. Never changed, but replaced.

    Attributes:
        by_anchor: Slices that only nodes with one of their anchors can see.
        unanchored: All other slices, as listed.
        by_pool: All slices of a pool, as listed.
        next_rank: For a slice that is added.
        built: Of each pool, what its relevant slices became; the only part that grows. A pool of
            all nodes is built once, whichever node asks first.
    """

    features: Features
    by_anchor: Mapping[Anchor, tuple[PublishedSlice, ...]]
    unanchored: tuple[PublishedSlice, ...]
    by_pool: Mapping[PoolId, tuple[PublishedSlice, ...]]
    next_rank: int
    built: dict[PoolId, dict[tuple[PublishedSlice, ...], _Built | None]]

    def replaced(self, old: ResourceSlice | None, new: ResourceSlice | None) -> "SliceIndex":
        """Return the index after one slice came, went or changed.

        Costs what that slice is worth and three shallow copies. Devices of other slices stay the
        same objects, and pools to which neither belongs stay built.

        Args:
            old: As listed before, found by driver, pool and name; None if `new` is new.
            new: As listed now; None if `old` is gone.
        """
        by_anchor, by_pool, built = dict(self.by_anchor), dict(self.by_pool), dict(self.built)
        unanchored, rank = self.unanchored, self.next_rank
        gone = self._found(old)
        if gone is not None:
            rank = gone.rank
            built.pop(gone.pool, None)
            _put(by_pool, gone.pool, _without(by_pool[gone.pool], gone))
            for anchor in anchors(gone.slice) or ():
                _put(by_anchor, anchor, _without(by_anchor[anchor], gone))
            unanchored = _without(unanchored, gone)
        if new is not None:
            added = _published(new, rank, self.features)
            built.pop(added.pool, None)
            by_pool[added.pool] = _with(by_pool.get(added.pool, ()), added)
            needed = anchors(new)
            for anchor in needed or ():
                by_anchor[anchor] = _with(by_anchor.get(anchor, ()), added)
            unanchored = _with(unanchored, added) if needed is None else unanchored
        return SliceIndex(
            features=self.features,
            by_anchor=by_anchor,
            unanchored=unanchored,
            by_pool=by_pool,
            next_rank=self.next_rank + 1,
            built=built,
        )

    def _found(self, old: ResourceSlice | None) -> PublishedSlice | None:
        if old is None:
            return None
        pool = PoolId(old.spec.driver, old.spec.pool.name)
        same = (one for one in self.by_pool.get(pool, ()) if one.name == old.metadata.name)
        return next(same, None)


def index(slices: Iterable[ResourceSlice], features: Features) -> SliceIndex:
    """Return all slices, with the taints of rules already in them, ready to be asked per node."""
    by_anchor: dict[Anchor, list[PublishedSlice]] = {}
    by_pool: dict[PoolId, list[PublishedSlice]] = {}
    unanchored: list[PublishedSlice] = []
    rank = 0
    for rank, listed in enumerate(slices, start=1):
        published = _published(listed, rank, features)
        by_pool.setdefault(published.pool, []).append(published)
        needed = anchors(listed)
        if needed is None:
            unanchored.append(published)
        for anchor in needed or ():
            by_anchor.setdefault(anchor, []).append(published)
    return SliceIndex(
        features=features,
        by_anchor={anchor: tuple(found) for anchor, found in by_anchor.items()},
        unanchored=tuple(unanchored),
        by_pool={pool: tuple(found) for pool, found in by_pool.items()},
        next_rank=rank + 1,
        built={},
    )


def _published(listed: ResourceSlice, rank: int, features: Features) -> PublishedSlice:
    spec = listed.spec
    driver, pool, devices = spec.driver, spec.pool.name, spec.devices or ()
    is_grouped = not features.compatibility_groups and any(map(_has_groups, devices))
    needs_partitions = spec.per_device_node_selection is not None or bool(spec.shared_counters)
    return PublishedSlice(
        slice=listed,
        pool=PoolId(driver, pool),
        rank=rank,
        devices=tuple(
            PublishedDevice(id=DeviceId(driver, pool, one.name), device=one, slice=listed)
            for one in devices
        ),
        is_hidden=is_grouped or (needs_partitions and not features.partitionable_devices),
        is_counted=not is_grouped,
        is_local=bool(spec.node_name),
        holds_counters=features.partitionable_devices and bool(spec.shared_counters),
    )


def _has_groups(device: Device) -> bool:
    return any(taken.compatibility_groups for taken in device.consumes_counters or ())


def _with(found: tuple[PublishedSlice, ...], one: PublishedSlice) -> tuple[PublishedSlice, ...]:
    if not found or found[-1].rank < one.rank:
        return (*found, one)
    return tuple(sorted((*found, one), key=_rank))


def _without(found: tuple[PublishedSlice, ...], one: PublishedSlice) -> tuple[PublishedSlice, ...]:
    return tuple(each for each in found if each is not one)


def _put(
    index: dict[_K, tuple[PublishedSlice, ...]], key: _K, found: tuple[PublishedSlice, ...]
) -> None:
    if found:
        index[key] = found
    else:
        del index[key]


def _rank(one: PublishedSlice) -> int:
    return one.rank


# --- what a node sees -----------------------------------------------------------------------------


def node_devices(index: SliceIndex, node: Node) -> NodeDevices:
    """Return the pools and devices of one node in the order in which upstream tries them.

    By driver and pool name, in a pool by name of the slice, in a slice as listed; pools with
    binding conditions come last. So drivers can rank devices by names.

    Raises:
        AttemptFailed: A node selector cannot be judged.
    """
    relevant: dict[PoolId, list[PublishedSlice]] = {}
    for listed in _candidates(index, node):
        if listed.is_hidden or not is_relevant(listed.slice, node):
            continue
        same = relevant.setdefault(listed.pool, [])
        if same and listed.generation < same[0].generation:
            continue
        if same and listed.generation > same[0].generation:
            same.clear()
        same.append(listed)

    built = [
        pool
        for slices in relevant.values()
        if (pool := _cached(index, slices[0].pool, tuple(slices))) is not None
    ]
    built.sort(key=lambda one: (one.has_binding_conditions, one.pool.id))
    return _numbered(node, built)


def whole(index: SliceIndex, pool: PoolId) -> Pool:
    """Return the newest generation of a pool with all its devices, as no node in particular sees it.

    Raises:
        KeyError: The pool has no slice.
    """
    newest = max(one.generation for one in index.by_pool[pool])
    slices = tuple(one for one in index.by_pool[pool] if one.generation == newest)
    seen = tuple(one for one in slices if not one.is_hidden)
    built = _cached(index, pool, seen) if seen else None
    return built.pool if built is not None else Pool(id=pool, state=PoolState.INCOMPLETE)


def _candidates(index: SliceIndex, node: Node) -> Sequence[PublishedSlice]:
    """Return the slices that may be relevant: those on the node alone first, each part as listed."""
    found: list[PublishedSlice] = []
    for anchor in anchors_of_node(node):
        found += index.by_anchor.get(anchor, ())
    found += index.unanchored
    if len(found) == 1:
        return found
    return sorted(dict.fromkeys(found), key=lambda one: (not one.is_local, one.rank))


def targets(device: PublishedDevice, node: NodeDevices) -> bool:
    """Return whether a device of one of the node's slices is for this node.

    Always so unless its slice leaves that to each device. Source: isSelectable.

    Raises:
        AttemptFailed: Its node selector cannot be judged.
    """
    if not device.slice.spec.per_device_node_selection:
        return True
    return is_for(device.device, node.node, node.labels)


def _numbered(node: Node, built: Sequence[_Built]) -> NodeDevices:
    starts: dict[PoolId, tuple[int, Mapping[str, int]]] = {}
    devices: tuple[PublishedDevice, ...] = ()
    for one in built:
        starts[one.pool.id] = (len(devices), one.places)
        devices += one.pool.devices
    return NodeDevices(
        node=node.metadata.name,
        labels=node.labels,
        declared_features=frozenset(node.status.declared_features or ()),
        pools=tuple(one.pool for one in built),
        devices=devices,
        pool_of=_pool_of(tuple(len(one.pool.devices) for one in built)),
        positions=_Positions(starts, devices),
    )


@lru_cache(maxsize=1024)
def _pool_of(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of its pool for each device, of pools of these sizes."""
    return tuple(number for number, size in enumerate(sizes) for _ in range(size))


class _Positions(Mapping[DeviceId, int]):
    """Device to position, of pools whose devices have their places already.

    A dict per node would cost more than everything else where nodes share large pools.
    """

    __slots__ = ("_devices", "_starts")

    def __init__(
        self,
        starts: Mapping[PoolId, tuple[int, Mapping[str, int]]],
        devices: tuple[PublishedDevice, ...],
    ) -> None:
        self._starts = starts
        self._devices = devices

    def __getitem__(self, device: DeviceId) -> int:
        found = self._starts.get(PoolId(device.driver, device.pool))
        if found is None or device.device not in found[1]:
            raise KeyError(device)
        return found[0] + found[1][device.device]

    def __iter__(self) -> Iterator[DeviceId]:
        return (one.id for one in self._devices)

    def __len__(self) -> int:
        return len(self._devices)


def _cached(index: SliceIndex, pool: PoolId, relevant: tuple[PublishedSlice, ...]) -> _Built | None:
    cache = index.built.setdefault(pool, {})
    if relevant not in cache:
        cache[relevant] = _built(pool, relevant, index)
    return cache[relevant]


def _built(pool: PoolId, relevant: tuple[PublishedSlice, ...], index: SliceIndex) -> _Built | None:
    """Return a pool of the slices that are relevant for a node; None when it is obsolete.

    Upstream looks beyond the node's own slices only if these are not all: while they are, a pool
    lives on although other nodes see a newer generation of it.
    """
    expected = relevant[0].slice.spec.pool.resource_slice_count
    if len(relevant) == expected:
        return _validated(pool, relevant, (), index.features)
    generation = relevant[0].generation
    if any(one.generation > generation for one in index.by_pool[pool]):
        return None
    whole = [one for one in index.by_pool[pool] if one.generation == generation and one.is_counted]
    if len(whole) != expected:
        why = f"{len(whole)} of {expected} slices of generation {generation}"
        return _Built(Pool(id=pool, state=PoolState.INCOMPLETE, why=why), {})
    names = {one.name for one in relevant} if len(relevant) < len(whole) else None
    rest = [one for one in whole if one.name not in names] if names is not None else []
    return _validated(pool, relevant, rest, index.features)


def _validated(
    pool: PoolId,
    relevant: Sequence[PublishedSlice],
    rest: Sequence[PublishedSlice],
    features: Features,
) -> _Built:
    """Return a whole pool, or why it is invalid.

    Args:
        rest: Slices of the pool that are not relevant for the node.
    """
    ordered = sorted(relevant, key=lambda one: one.name)
    devices = tuple(d for one in ordered if not one.holds_counters for d in one.devices)
    elsewhere: tuple[PublishedDevice, ...] = ()
    counter_sets: dict[str, CounterSet] = {}
    why = _duplicate("device", (one.id.device for one in devices))
    if features.partitionable_devices and not why:
        elsewhere = tuple(d for one in rest if not one.holds_counters for d in one.devices)
        holders = (one for one in (*ordered, *rest) if one.holds_counters)
        listed = [found for one in holders for found in one.slice.spec.shared_counters or ()]
        counter_sets = {one.name: one for one in listed}
        why = _duplicate("counter set", (one.name for one in listed)) or _undefined(
            (*devices, *elsewhere), counter_sets
        )
    if why:
        return _Built(Pool(id=pool, state=PoolState.INVALID, why=why), {})
    whole = Pool(id=pool, devices=devices, elsewhere=elsewhere, counter_sets=counter_sets)
    return _Built(
        pool=whole,
        places={one.id.device: place for place, one in enumerate(devices)},
        has_binding_conditions=any(one.device.binding_conditions is not None for one in devices),
    )


def _duplicate(kind: str, names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"duplicate {kind} name {name}"
        seen.add(name)
    return ""


def _undefined(devices: Iterable[PublishedDevice], counter_sets: Mapping[str, CounterSet]) -> str:
    """Return the first counter that a device consumes and the pool does not have."""
    for published in devices:
        for taken in published.device.consumes_counters or ():
            found = counter_sets.get(taken.counter_set)
            if found is None:
                return f"counter set {taken.counter_set} not found"
            for counter in taken.counters or ():
                if counter not in (found.counters or {}):
                    return f"counter {counter} not found in counter set {found.name}"
    return ""


# --- taint rules ----------------------------------------------------------------------------------


def tainted(
    slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]
) -> tuple[ResourceSlice, ...]:
    """Return the slices with the taints of rules behind their devices' own.

    Slices that no rule matches stay the same objects. Upstream appends in no particular order;
    here the rules' names give it.
    """
    by_scope: dict[tuple[str | None, str | None], list[DeviceTaintRule]] = {}
    for rule in sorted(rules, key=lambda one: one.metadata.name):
        if (wanted := rule.spec.device_selector) is not None:
            by_scope.setdefault((wanted.driver, wanted.pool), []).append(rule)
    if not by_scope:
        return tuple(slices)
    return tuple(_with_taints(one, by_scope) for one in slices)


def _with_taints(
    listed: ResourceSlice,
    by_scope: Mapping[tuple[str | None, str | None], Sequence[DeviceTaintRule]],
) -> ResourceSlice:
    driver, pool = listed.spec.driver, listed.spec.pool.name
    scopes = ((driver, pool), (driver, None), (None, pool), (None, None))
    rules = [rule for scope in scopes for rule in by_scope.get(scope, ())]
    if not rules:
        return listed
    rules.sort(key=lambda one: one.metadata.name)
    devices = listed.spec.devices or ()
    changed = tuple(_with_added(one, _matching(rules, one.name)) for one in devices)
    if all(before is after for before, after in zip(devices, changed, strict=True)):
        return listed
    spec = msgspec.structs.replace(listed.spec, devices=changed)
    return msgspec.structs.replace(listed, spec=spec)


def _matching(rules: Iterable[DeviceTaintRule], device: str) -> tuple[DeviceTaint, ...]:
    return tuple(
        rule.spec.taint
        for rule in rules
        if rule.spec.device_selector is not None
        and rule.spec.device_selector.device in {None, device}
    )


def _with_added(device: Device, taints: tuple[DeviceTaint, ...]) -> Device:
    if not taints:
        return device
    return msgspec.structs.replace(device, taints=(*(device.taints or ()), *taints))
