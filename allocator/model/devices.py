"""Devices and pools as published, and the devices that one node can use.

Positions: within one attempt on one node, devices are numbered from 0 in upstream's search order
(pools, then slices by name, then devices as listed), and sets of devices are bit masks of them.

No value here refers back to what holds it, so the cyclic garbage collector ignores them where it can: a
full collection stops all decisions, for longer the more objects it looks at.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from kube.api.resource import (
    CounterSet,
    Device,
    ResourceSlice,
)


class PoolId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The identity of a pool: its name is unique only within its driver."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


def pool_of(slice_: ResourceSlice) -> PoolId:
    """Return the pool of a slice."""
    return PoolId(slice_.spec.driver, slice_.spec.pool.name)


class DeviceId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The identity of a device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PublishedDevice(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A device with the slice that publishes it; compared and hashed by identity, for speed.

    `device.taints` includes the taints of DeviceTaintRules.
    """

    id: DeviceId
    device: Device
    slice: ResourceSlice


class PoolState(StrEnum):
    """The state of a pool; only devices of complete pools can be allocated."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    INVALID = "invalid"


class Pool(msgspec.Struct, frozen=True, kw_only=True, eq=False, weakref=True):
    """A pool as one node sees it.

    Attributes:
        devices: Devices in slices that target the node, in search order; empty unless COMPLETE.
        elsewhere: Devices in slices that target other nodes; they count against its counters.
        counter_sets: Name to counter set, of the whole pool.
        why: The reason why it is incomplete or invalid, for people; empty if COMPLETE.
        names_no_node: None of the slices that the node sees is for one node, so the nodes that see
            these share the pool, also while it has no devices.
    """

    id: PoolId
    state: PoolState = PoolState.COMPLETE
    devices: tuple[PublishedDevice, ...] = ()
    elsewhere: tuple[PublishedDevice, ...] = ()
    counter_sets: Mapping[str, CounterSet] = msgspec.field(default_factory=dict)
    why: str = ""
    names_no_node: bool = False


class NodeDevices(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """The pools of one node in search order, and their devices by position.

    Attributes:
        labels: Labels of the node.
        declared_features: `status.declaredFeatures` of the node.
        pools: Pools in search order, including unusable ones.
        devices: Devices of all complete pools, by position.
        pool_of: Index into `pools`, by position.
        pool_starts: The first position of each pool, whose devices follow in its order; empty where
            the devices are in another order.
        positions: Device to position.
        node_pools: Driver to the index of the first of its pools of nodes that selects the node, in the
            settings of owned drivers; drivers without such a pool are left out.
    """

    node: str
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    declared_features: frozenset[str] = frozenset()
    pools: tuple[Pool, ...] = ()
    devices: tuple[PublishedDevice, ...] = ()
    pool_of: tuple[int, ...] = ()
    pool_starts: tuple[int, ...] = ()
    positions: Mapping[DeviceId, int] = msgspec.field(default_factory=dict)
    node_pools: Mapping[str, int] = msgspec.field(default_factory=dict)


def reorder(node: NodeDevices, order: Sequence[int]) -> NodeDevices:
    """Return the node with its devices in another search order.

    Args:
        node: The node.
        order: All positions, each once, in the new order.
    """
    devices = tuple([node.devices[position] for position in order])
    return msgspec.structs.replace(
        node,
        devices=devices,
        pool_of=tuple([node.pool_of[position] for position in order]),
        pool_starts=(),
        positions={device.id: number for number, device in enumerate(devices)},
    )
