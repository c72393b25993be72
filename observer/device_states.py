"""The devices of a cluster by driver and state, for the metric `drawbridge_devices`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from allocator.cluster.cluster import Cluster
from allocator.model.devices import PublishedDevice
from allocator.model.usage import Usage

_KEEPING_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})


class DeviceState(StrEnum):
    """The state of a device that some node sees."""

    ALLOCATED = "allocated"
    """A claim uses it alone."""
    SHARED = "shared"
    """Claims use shares of it; what is left may be enough for another one."""
    TAINTED = "tainted"
    """No claim uses it, and a taint keeps claims away that do not tolerate it."""
    FREE = "free"
    """No claim uses it. Of partitions that exclude each other, each counts."""


def count_devices(cluster: Cluster) -> Mapping[tuple[str, DeviceState], int]:
    """Return the number of devices by driver and state; every state of a driver is there.

    Those of complete pools that some node sees. The cost is that of all pools, each counted once.
    """
    usage = cluster.usage
    states = {device.id: _state(device, usage) for device in _devices(cluster)}
    counts = Counter((id_.driver, state) for id_, state in states.items())
    drivers = {id_.driver for id_ in states}
    return {(driver, state): counts[driver, state] for driver in drivers for state in DeviceState}


def _devices(cluster: Cluster) -> Iterator[PublishedDevice]:
    seen_pools: set[int] = set()
    for name in cluster.nodes:
        for pool in cluster.node_devices(name).pools:
            if id(pool) not in seen_pools:
                seen_pools.add(id(pool))
                yield from pool.devices


def _state(device: PublishedDevice, usage: Usage) -> DeviceState:
    use = usage.of(device.id)
    if use is not None:
        return DeviceState.SHARED if use.is_shared and not use.exclusive else DeviceState.ALLOCATED
    if any(taint.effect in _KEEPING_AWAY for taint in device.device.taints or ()):
        return DeviceState.TAINTED
    return DeviceState.FREE
