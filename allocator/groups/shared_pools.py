"""Devices that several nodes see."""

from allocator.cluster.equivalence import is_shared
from allocator.model.devices import DeviceId, NodeDevices, reorder


def without_shared_devices(devices: NodeDevices) -> NodeDevices:
    """Return a node without the devices that other nodes see."""
    own = [
        position
        for position, device in enumerate(devices.devices)
        if not is_in_shared_pool(devices, device.id)
    ]
    return reorder(devices, own)


def is_in_shared_pool(devices: NodeDevices, device: DeviceId) -> bool:
    """Return True if other nodes may see a device of a node."""
    return is_shared(devices.pools[devices.pool_of[devices.positions[device]]])
