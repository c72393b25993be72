"""The pools and devices that one node sees, out of the published ResourceSlices.

Decides which slices are relevant for a node, which pools are complete and valid, and the search
order of devices. Whether a device fits a request is decided elsewhere.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
pools_experimental.go (the incubating allocator has the same); resourceslice/tracker/tracker.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from allocator.model.devices import DeviceId, NodeDevices, Pool, PoolId, PoolState, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.gated_pools import disabled_gate_cause
from allocator.model.node_selection import is_relevant, node_index_keys, selects_node
from allocator.model.slice_index import BuiltPool, PublishedSlice, SliceIndex
from kube.api.core import Node
from kube.api.resource import CounterSet


def node_devices(index: SliceIndex, node: Node) -> NodeDevices:
    """Return the pools and devices of one node in upstream's search order.

    The order is by driver and pool name, in a pool by name of the slice, in a slice as listed;
    pools with binding conditions come last. So a driver can rank its devices by name.

    Raises:
        AttemptFailed: A node selector is invalid.
    """
    relevant: dict[PoolId, list[PublishedSlice]] = {}
    for slice_ in _candidates(index, node):
        if slice_.is_hidden or not is_relevant(slice_.slice, node):
            continue
        newest = relevant.setdefault(slice_.pool, [])
        if newest and slice_.generation < newest[0].generation:
            continue
        if newest and slice_.generation > newest[0].generation:
            newest.clear()
        newest.append(slice_)

    seen_slices = [tuple(slices) for slices in relevant.values()]
    seen_slices += [slices for pool in index.unkeyed if (slices := _slices_for_all(index, pool))]
    pools = [
        pool
        for slices in seen_slices
        if (pool := _cached_pool(index, slices[0].pool, slices)) is not None
    ]
    pools.sort(key=lambda built_pool: (built_pool.has_binding_conditions, built_pool.pool.id))
    return _lay_out_node(node, pools)


def whole_pool(index: SliceIndex, pool: PoolId) -> Pool:
    """Return the newest generation of a pool with its devices on all nodes.

    Raises:
        KeyError: The pool has no slice.
    """
    generation = max(slice_.generation for slice_ in index.by_pool[pool])
    slices = tuple(
        slice_
        for slice_ in index.by_pool[pool]
        if slice_.generation == generation and not slice_.is_hidden
    )
    built_pool = _cached_pool(index, pool, slices) if slices else None
    return built_pool.pool if built_pool is not None else Pool(id=pool, state=PoolState.INCOMPLETE)


def _candidates(index: SliceIndex, node: Node) -> Sequence[PublishedSlice]:
    """Return the slices that may be relevant: local ones first, each part in list order.

    Those of pools whose slices are all for all nodes are left out.
    """
    candidates: list[PublishedSlice] = []
    for key in node_index_keys(node):
        candidates += index.by_key.get(key, ())
    for pool, slices in index.unkeyed.items():
        if _slices_for_all(index, pool) is None:
            candidates += slices
    if len(candidates) == 1:
        return candidates
    return sorted(dict.fromkeys(candidates), key=lambda slice_: (not slice_.is_local, slice_.rank))


def _slices_for_all(index: SliceIndex, pool: PoolId) -> tuple[PublishedSlice, ...] | None:
    """Return the relevant slices of a pool, if all its slices are for all nodes; None if not."""
    if pool not in index.seen_by_all:
        slices = index.by_pool[pool]
        is_for_all = all(
            slice_.slice.spec.all_nodes and not slice_.slice.spec.node_name for slice_ in slices
        )
        index.seen_by_all[pool] = _newest_generation(slices) if is_for_all else None
    return index.seen_by_all[pool]


def _newest_generation(slices: Iterable[PublishedSlice]) -> tuple[PublishedSlice, ...]:
    visible = [slice_ for slice_ in slices if not slice_.is_hidden]
    newest = max((slice_.generation for slice_ in visible), default=0)
    return tuple([slice_ for slice_ in visible if slice_.generation == newest])


def targets_node(device: PublishedDevice, node: NodeDevices) -> bool:
    """Return True if a device in one of the node's slices is for this node.

    True unless its slice has per-device node selection. Source: isSelectable.

    Raises:
        AttemptFailed: Its node selector is invalid.
    """
    if not device.slice.spec.per_device_node_selection:
        return True
    return selects_node(device.device, node.node, node.labels)


def _lay_out_node(node: Node, pools: Sequence[BuiltPool]) -> NodeDevices:
    places: dict[PoolId, _PoolPlaces] = {}
    devices: tuple[PublishedDevice, ...] = ()
    for built_pool in pools:
        places[built_pool.pool.id] = _PoolPlaces(len(devices), built_pool.places)
        devices += built_pool.pool.devices
    first_positions = tuple([pool_places.start for pool_places in places.values()])
    return NodeDevices(
        node=node.metadata.name,
        labels=node.labels,
        declared_features=frozenset(node.status.declared_features or ()),
        pools=tuple(built_pool.pool for built_pool in pools),
        devices=devices,
        pool_of=_pool_numbers(tuple(len(built_pool.pool.devices) for built_pool in pools)),
        pool_starts=first_positions,
        positions=_Positions(places, devices),
    )


@lru_cache(maxsize=1024)
def _pool_numbers(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of its pool for each device, given the sizes of the pools."""
    return tuple(number for number, size in enumerate(sizes) for _ in range(size))


class _PoolPlaces(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The place of each device of a pool, by name, from the pool's first position on."""

    start: int
    by_name: Mapping[str, int]


class _Positions(Mapping[DeviceId, int]):
    """Device to position, computed from the device's place in its pool.

    A dict per node would dominate memory and time where nodes share large pools.
    """

    __slots__ = ("_devices", "_places")

    def __init__(
        self, places: Mapping[PoolId, _PoolPlaces], devices: tuple[PublishedDevice, ...]
    ) -> None:
        self._places = places
        self._devices = devices

    def __getitem__(self, device: DeviceId) -> int:
        pool = self._places.get(PoolId(device.driver, device.pool))
        if pool is None or device.device not in pool.by_name:
            raise KeyError(device)
        return pool.start + pool.by_name[device.device]

    def __iter__(self) -> Iterator[DeviceId]:
        return (device.id for device in self._devices)

    def __len__(self) -> int:
        return len(self._devices)


def _cached_pool(
    index: SliceIndex, pool: PoolId, relevant: tuple[PublishedSlice, ...]
) -> BuiltPool | None:
    cache = index.built.setdefault(pool, {})
    if relevant not in cache:
        cache[relevant] = _build_pool(pool, relevant, index)
    return cache[relevant]


def _build_pool(
    pool: PoolId, relevant: tuple[PublishedSlice, ...], index: SliceIndex
) -> BuiltPool | None:
    """Build a pool from the slices that are relevant for a node; return None if it is obsolete.

    Like upstream, look at slices of other nodes only if the node's own slices are not all of the
    pool. Until then the pool stays usable, although other nodes see a newer generation of it.
    """
    expected_count = relevant[0].slice.spec.pool.resource_slice_count
    if len(relevant) == expected_count:
        return _validate_pool(pool, relevant, (), index.features)
    generation = relevant[0].generation
    if any(slice_.generation > generation for slice_ in index.by_pool[pool]):
        return None
    counted_slices = [
        slice_
        for slice_ in index.by_pool[pool]
        if slice_.generation == generation and slice_.is_counted
    ]
    if len(counted_slices) != expected_count:
        why = f"{len(counted_slices)} of {expected_count} slices of generation {generation}"
        hidden_slices = [slice_.slice for slice_ in index.by_pool[pool] if slice_.is_hidden]
        if hidden_slices:
            why += f": {disabled_gate_cause(hidden_slices[0], index.features)}"
        unusable = Pool(
            id=pool, state=PoolState.INCOMPLETE, why=why, names_no_node=_names_no_node(relevant)
        )
        return BuiltPool(pool=unusable)
    others: Sequence[PublishedSlice] = ()
    if len(relevant) < len(counted_slices):
        names = {slice_.name for slice_ in relevant}
        others = [slice_ for slice_ in counted_slices if slice_.name not in names]
    return _validate_pool(pool, relevant, others, index.features)


def _validate_pool(
    pool: PoolId,
    relevant: Sequence[PublishedSlice],
    others: Sequence[PublishedSlice],
    features: Features,
) -> BuiltPool:
    """Build a pool from all of its slices; it may be invalid.

    Args:
        pool: Identity of the pool.
        relevant: Slices of the pool that the node sees.
        others: All other slices of the pool.
        features: Feature gates.
    """
    ordered_slices = sorted(relevant, key=lambda slice_: slice_.name)
    devices = tuple(_devices(ordered_slices))
    elsewhere: tuple[PublishedDevice, ...] = ()
    counter_sets: dict[str, CounterSet] = {}
    places = {device.id.device: place for place, device in enumerate(devices)}
    why = ""
    if len(places) < len(devices):
        why = _find_duplicate("device", (device.id.device for device in devices))
    if features.partitionable_devices and not why:
        elsewhere = tuple(_devices(others))
        published_sets = [
            counter_set
            for slice_ in (*ordered_slices, *others)
            if slice_.holds_counters
            for counter_set in slice_.slice.spec.shared_counters or ()
        ]
        counter_sets = {counter_set.name: counter_set for counter_set in published_sets}
        names = (counter_set.name for counter_set in published_sets)
        why = _find_duplicate("counter set", names) or _find_undefined_counter(
            (*devices, *elsewhere), counter_sets
        )
    names_no_node = _names_no_node(relevant)
    if why:
        unusable = Pool(id=pool, state=PoolState.INVALID, why=why, names_no_node=names_no_node)
        return BuiltPool(pool=unusable)
    return BuiltPool(
        pool=Pool(
            id=pool,
            devices=devices,
            elsewhere=elsewhere,
            counter_sets=counter_sets,
            names_no_node=names_no_node,
        ),
        places=places,
        has_binding_conditions=any(
            device.device.binding_conditions is not None for device in devices
        ),
    )


def _names_no_node(relevant: Iterable[PublishedSlice]) -> bool:
    return not any(slice_.is_local for slice_ in relevant)


def _devices(slices: Iterable[PublishedSlice]) -> Iterator[PublishedDevice]:
    for slice_ in slices:
        if not slice_.holds_counters:
            yield from slice_.devices


def _find_duplicate(kind: str, names: Iterable[str]) -> str:
    seen_names: set[str] = set()
    for name in names:
        if name in seen_names:
            return f"duplicate {kind} name {name}"
        seen_names.add(name)
    return ""


def _find_undefined_counter(
    devices: Iterable[PublishedDevice], counter_sets: Mapping[str, CounterSet]
) -> str:
    """Return a message about the first counter that a device consumes and the pool lacks."""
    for device in devices:
        for consumption in device.device.consumes_counters or ():
            counter_set = counter_sets.get(consumption.counter_set)
            if counter_set is None:
                return f"counter set {consumption.counter_set} not found"
            for counter in consumption.counters or ():
                if counter not in (counter_set.counters or {}):
                    return f"counter {counter} not found in counter set {counter_set.name}"
    return ""
