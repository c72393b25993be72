"""The devices of one node: their published attributes, and their injections into containers.

Sources of devices (`driver.discovery`) make an `Inventory`; everything else of the driver reads it.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from kube.api.resource import CounterSet, Device, NetworkDeviceData


class DeviceNode(msgspec.Struct, frozen=True, kw_only=True):
    """A device node for the container.

    Attributes:
        path: The path in the container.
        host_path: The path on the node; None if it is the same.
        permissions: The permissions of the device cgroup: some of `rwm`.
        type: `c`, `b`, `u` or `p`; None to read it from the node, as major and minor number.
    """

    path: str
    host_path: str | None = None
    permissions: str = "rw"
    type: str | None = None
    major: int | None = None
    minor: int | None = None


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder of the node for the container.

    Attributes:
        options: The options of the bind mount.
    """

    host_path: str
    container_path: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "bind")


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """The environment, device nodes and mounts that a container gets with a device.

    Attributes:
        environment: Variables, beside those that tell the device and its share.
        cdi_devices: Names of devices in other CDI specs, such as those of a vendor's own.
    """

    environment: Mapping[str, str] = {}
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()


class NodeDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the node.

    Attributes:
        device: The published device, without the taints that the driver sets by itself.
        injection: The devices, mounts and environment that a container gets with it.
        network: The network data for the status of claims.
    """

    device: Device
    injection: Injection = Injection()
    network: NetworkDeviceData | None = None

    @property
    def name(self) -> str:
        """Its name, unique on the node."""
        return self.device.name


class NodePool(msgspec.Struct, frozen=True, kw_only=True):
    """Devices that are published together, and the counters that they share.

    Attributes:
        name: Distinguishes the pools of a node; empty for the one that is called as the node is.
    """

    name: str = ""
    devices: tuple[NodeDevice, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()

    def published_name(self, node: str) -> str:
        """Return the pool's name in slices and claims.

        >>> NodePool().published_name("node-a"), NodePool(name="nics").published_name("node-a")
        ('node-a', 'node-a/nics')
        """
        return f"{node}/{self.name}" if self.name else node


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of a node. Names of devices are unique in it."""

    pools: tuple[NodePool, ...] = ()

    def devices(self) -> Iterator[NodeDevice]:
        """Yield the devices of all pools."""
        for pool in self.pools:
            yield from pool.devices


def merge_inventories(inventories: Iterable[Inventory]) -> Inventory:
    """Return the devices of several inventories, pools of one name joined.

    Of devices, or counter sets of a pool, with one name the first counts.
    """
    devices: dict[str, dict[str, NodeDevice]] = {}
    counter_sets: dict[str, dict[str, CounterSet]] = {}
    pool_names: set[str] = set()
    for pool in (pool for inventory in inventories for pool in inventory.pools):
        pool_devices = devices.setdefault(pool.name, {})
        pool_devices.update(
            (device.name, device) for device in pool.devices if device.name not in pool_names
        )
        pool_names.update(device.name for device in pool.devices)
        joined_sets = counter_sets.setdefault(pool.name, {})
        for counter_set in pool.counter_sets:
            joined_sets.setdefault(counter_set.name, counter_set)
    return Inventory(
        pools=tuple(
            NodePool(
                name=name,
                devices=tuple(pool_devices.values()),
                counter_sets=tuple(counter_sets[name].values()),
            )
            for name, pool_devices in devices.items()
        )
    )
