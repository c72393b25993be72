"""The inventory of a cluster: devices by driver, free capacity, DeviceClasses, problems. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.devices import Pool, PoolId, PoolState, PublishedDevice, pool_of
from allocator.model.gated_pools import find_gated_pools, find_mixed_pools
from allocator.pods.duplicate_resources import DuplicateResource, duplicate_resources
from allocator.pods.extended_resource_claim import device_plugin_resources
from answers.cluster.device_classes import (
    ClassInventory,
    Suggestion,
    class_inventory,
    select_devices,
    suggest_classes,
)
from answers.cluster.devices import (
    Device,
    DeviceState,
    device_state,
    is_tainted,
    list_devices,
    published_devices,
    text_attribute,
)
from findings.text import count_text, join_names
from kube.api.core import Node
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kube.quantity import ZERO, Quantity, format_amount
from translation.cluster.snapshot import WideMapping
from translation.reading.arbiter import owner_of
from translation.vocabularies.hami.keys import NODE_REGISTER
from translation.vocabularies.nvidia import GPU, REPLICAS_LABEL

_OFFERS_SHOWN: Final = 3
_UUID: Final = "uuid"
_PARENT: Final = "parentUUID"
"""The attribute of a partition with the uuid of the device that it is a part of."""


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A sum over devices, or over counter sets; of tainted devices nothing is free.

    Attributes:
        largest: The largest amount of one device or counter set.
    """

    total: Quantity
    free: Quantity
    largest: Quantity


class DriverInventory(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one driver.

    Attributes:
        nodes: The number of nodes that can reach some of them.
        allocated: Devices that a claim has all of.
        shared: Devices that claims have shares of.
        tainted: Devices not in use, and only for requests with a toleration.
        free: The other devices; partitions may exclude each other all the same.
        capacity: The capacity of devices that take nothing from shared counters. Partitions of a
            device that is published as well are part of its amounts.
        counters: The amounts of counter sets, from which partitions take.
    """

    driver: str
    nodes: int
    devices: int
    allocated: int
    shared: int
    tainted: int
    free: int
    capacity: Mapping[str, Amount]
    counters: Mapping[str, Amount]


HIDDEN: Final = "hidden"
"""The state of a pool that no node sees while a feature gate is disabled."""


class UnusablePool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool without allocatable devices.

    Attributes:
        state: `incomplete`, `invalid`, or `hidden`: a disabled feature gate hides all of it.
    """

    driver: str
    pool: str
    state: str
    why: str


class IdleNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node without a consumer, and the number of its devices."""

    name: str
    devices: int


class PluginResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource name that device plugins offer.

    Attributes:
        nodes: The number of nodes that offer some of it.
        allocatable: The sum over these nodes.
        nodes_in_parts: Those of them that offer each device several times: by time slicing, MPS or HAMi.
    """

    resource: str
    nodes: int
    allocatable: Quantity
    nodes_in_parts: int = msgspec.field(name="nodesInParts", default=0)


class Inventory(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """All of it, each part sorted by name.

    Attributes:
        suggestions: DeviceClasses worth writing.
        unreachable: ResourceSlices with devices that no node can reach: their nodes do not exist, or
            a newer generation of the pool replaced them.
        duplicate_resources: Extended resources that device plugins and slices offer on one node.
        wide_mappings: DeviceClasses that map a resource name, and give other devices than it means.
        plugin_resources: Resource names of devices that device plugins offer.
        devices: Every device; None where they were not asked for.
        idle_nodes: Nodes with devices of which no claim uses any; None where they were not asked for.
    """

    drivers: tuple[DriverInventory, ...]
    classes: tuple[ClassInventory, ...]
    unusable_pools: tuple[UnusablePool, ...]
    suggestions: tuple[Suggestion, ...]
    unreachable: tuple[str, ...]
    duplicate_resources: tuple[DuplicateResource, ...]
    wide_mappings: tuple[WideMapping, ...] = ()
    plugin_resources: tuple[PluginResource, ...] = ()
    devices: tuple[Device, ...] | None = None
    idle_nodes: tuple[IdleNode, ...] | None = None


def build_inventory(
    cluster: Cluster,
    classes: Mapping[str, DeviceClass],
    slices: Sequence[ResourceSlice],
    drivers_of: Callable[[str], Collection[str]],
    wide_mappings: Iterable[WideMapping] = (),
) -> Inventory:
    """Return the inventory of a cluster, without a list of its devices.

    Args:
        classes: The DeviceClasses by name.
        slices: All that are published.
        drivers_of: Resource name to the drivers that serve it according to their profiles.
        wide_mappings: The mappings that the inventory lists as too wide.
    """
    pools = published_pools(cluster)
    devices = published_devices(cluster)
    devices_by_class = select_devices(classes, devices)
    slice_names = {
        device.slice.metadata.name for pool in pools.values() for device in devices_of_pool(pool)
    }
    unusable = {
        pool.id: (pool.state.value, pool.why)
        for pool in pools.values()
        if pool.state is not PoolState.COMPLETE
    }
    for id_, cause in find_gated_pools(slices, cluster.options.features).items():
        unusable.setdefault(id_, (HIDDEN, cause))
    for id_, cause in find_mixed_pools(slices, cluster.options.features).items():
        unusable.setdefault(id_, (PoolState.INVALID.value, cause))
    return Inventory(
        drivers=tuple(_drivers(cluster, pools.values(), devices)),
        classes=tuple(
            class_inventory(name, class_devices, cluster)
            for name, class_devices in devices_by_class.items()
        ),
        unusable_pools=tuple(
            UnusablePool(driver=id_.driver, pool=id_.pool, state=state, why=why)
            for id_, (state, why) in sorted(unusable.items())
        ),
        suggestions=tuple(suggest_classes(devices, devices_by_class)),
        unreachable=tuple(
            sorted(
                slice_.metadata.name
                for slice_ in slices
                if slice_.spec.devices
                and slice_.metadata.name not in slice_names
                and pool_of(slice_) not in unusable
            )
        ),
        duplicate_resources=duplicate_resources(
            cluster.nodes.values(), cluster.node_devices, classes, drivers_of
        ),
        wide_mappings=tuple(sorted(wide_mappings, key=lambda mapping: mapping.resource)),
        plugin_resources=tuple(list_plugin_resources(cluster.nodes.values())),
    )


def with_devices(
    inventory: Inventory, cluster: Cluster, claims: Mapping[tuple[str, str], ResourceClaim]
) -> Inventory:
    """Return an inventory with a list of all devices.

    Args:
        inventory: The inventory without its devices.
        cluster: The devices and their usage.
        claims: The claims by namespace and name.
    """
    devices = list_devices(published_devices(cluster), cluster.usage, claims)
    return msgspec.structs.replace(inventory, devices=devices)


def with_idle_nodes(inventory: Inventory, cluster: Cluster) -> Inventory:
    """Return an inventory with the nodes that have no devices in use by claims.

    A device that several nodes can reach makes none of them busy.
    """
    idle = []
    for name in sorted(cluster.nodes):
        own = [
            device
            for device in cluster.node_devices(name).devices
            if name in {device.slice.spec.node_name, device.device.node_name}
        ]
        if own and all(cluster.usage.of(device.id) is None for device in own):
            idle.append(IdleNode(name=name, devices=len(own)))
    return msgspec.structs.replace(inventory, idle_nodes=tuple(idle))


def published_pools(cluster: Cluster) -> dict[PoolId, Pool]:
    """Return every pool that some node sees, by its id."""
    return {pool.id: pool for name in cluster.nodes for pool in cluster.node_devices(name).pools}


def devices_of_pool(pool: Pool) -> Iterator[PublishedDevice]:
    """Yield the devices of a pool, on the node of the pool's view and elsewhere."""
    yield from pool.devices
    yield from pool.elsewhere


def list_plugin_resources(nodes: Iterable[Node]) -> Iterator[PluginResource]:
    """Yield the offers of nodes under names that are translated, by name."""
    amounts: dict[str, list[Quantity]] = {}
    in_parts = Counter[str]()
    for node in nodes:
        for name in device_plugin_resources(node):
            if owner_of(name) is not None:
                amounts.setdefault(name, []).append((node.status.allocatable or {})[name])
                in_parts[name] += _offers_parts(node, name)
    for name, of_nodes in sorted(amounts.items()):
        yield PluginResource(
            resource=name,
            nodes=len(of_nodes),
            allocatable=sum(of_nodes, start=ZERO),
            nodes_in_parts=in_parts[name],
        )


def offers_without_drivers(
    nodes: Iterable[Node], slices: Collection[ResourceSlice]
) -> tuple[PluginResource, ...]:
    """Return the offers of device plugins in a cluster without published devices; empty for another one."""
    return () if slices else tuple(list_plugin_resources(nodes))


def plugin_notes(offers: Sequence[PluginResource]) -> Iterator[str]:
    """Yield a note on the offers of device plugins in a cluster without published devices."""
    if offers:
        names = [
            f"{offer.resource} ({format_amount(offer.allocatable)} on {count_text(offer.nodes, 'node')})"
            for offer in offers
        ]
        yield (
            f"no driver publishes devices; device plugins offer {join_names(names, _OFFERS_SHOWN)}: `drawbridge assess` "
            "tells where their pods would be placed after a migration"
        )


def _offers_parts(node: Node, name: str) -> bool:
    """Return True if a node offers each device of a name several times."""
    if name == GPU and NODE_REGISTER in (node.metadata.annotations or {}):
        return True
    return node.labels.get(f"{name}{REPLICAS_LABEL}", "") not in {"", "0", "1"}


# --- drivers --------------------------------------------------------------------------------------


def _drivers(
    cluster: Cluster, pools: Iterable[Pool], devices: Iterable[PublishedDevice]
) -> Iterator[DriverInventory]:
    by_driver: dict[str, list[PublishedDevice]] = {}
    for device in devices:
        by_driver.setdefault(device.id.driver, []).append(device)
    nodes: dict[str, int] = {}
    for name in cluster.nodes:
        for driver in {pool.id.driver for pool in cluster.node_devices(name).pools}:
            nodes[driver] = nodes.get(driver, 0) + 1
    pools_of: dict[str, list[Pool]] = {}
    for pool in pools:
        pools_of.setdefault(pool.id.driver, []).append(pool)
    for driver in sorted(nodes):
        own = by_driver.get(driver, [])
        states = [device_state(device, cluster.usage) for device in own]
        yield DriverInventory(
            driver=driver,
            nodes=nodes[driver],
            devices=len(own),
            allocated=states.count(DeviceState.ALLOCATED),
            shared=states.count(DeviceState.SHARED),
            tainted=states.count(DeviceState.TAINTED),
            free=states.count(DeviceState.FREE),
            capacity=capacity_amounts(own, cluster),
            counters=counter_amounts(cluster, pools_of[driver]),
        )


class _Sum:
    """An amount while it is added up."""

    def __init__(self) -> None:
        self.total = self.in_use = self.largest = ZERO

    def add(self, total: Quantity, in_use: Quantity) -> None:
        self.total += total
        self.in_use += in_use
        self.largest = max(self.largest, total)

    def amount(self) -> Amount:
        free = max(self.total - self.in_use, ZERO)
        return Amount(total=self.total, free=free, largest=self.largest)


def capacity_amounts(devices: Sequence[PublishedDevice], cluster: Cluster) -> dict[str, Amount]:
    """Return the amounts of each capacity of devices, as `DriverInventory` has them."""
    sums: dict[str, _Sum] = {}
    uuids = {text_attribute(device, _UUID) for device in devices} - {""}
    for published_device in devices:
        if published_device.device.consumes_counters:
            continue
        is_part = text_attribute(published_device, _PARENT) in uuids
        use = cluster.usage.of(published_device.id)
        is_out = is_tainted(published_device) or (use is not None and use.exclusive)
        if is_part and use is None:
            continue  # Its parent counts, with its own taints.
        for name, capacity in (published_device.device.capacity or {}).items():
            in_use = ZERO
            if is_out:
                in_use = capacity.value
            elif use is not None:
                in_use = (use.capacity or {}).get(name, in_use)
            total = ZERO if is_part else capacity.value
            sums.setdefault(name, _Sum()).add(total, in_use)
    return _amounts(sums)


def counter_amounts(cluster: Cluster, pools: Iterable[Pool]) -> dict[str, Amount]:
    """Return the amounts of the counter sets of pools, as `DriverInventory` has them."""
    sums: dict[str, _Sum] = {}
    for pool in pools:
        for counter_set in pool.counter_sets.values():
            for name, counter in (counter_set.counters or {}).items():
                sums.setdefault(name, _Sum()).add(counter.value, ZERO)
        for published_device in devices_of_pool(pool):
            if cluster.usage.of(published_device.id) is not None:
                for consumption in published_device.device.consumes_counters or ():
                    for name, counter in (consumption.counters or {}).items():
                        sums.setdefault(name, _Sum()).add(ZERO, counter.value)
    return _amounts(sums)


def _amounts(sums: Mapping[str, _Sum]) -> dict[str, Amount]:
    return {name: total.amount() for name, total in sorted(sums.items())}
