"""The topology of devices: their PCIe root and NUMA node.

Drivers that do not know the place of a device publish "" or -1, which `matchAttribute` treats like
any other value. Here they mean no place: devices with an unknown place are not near each other.

Source: k8s.io/dynamic-resource-allocation v0.37.1, deviceattribute; the attributes may be lists
(KEP-5491), of which the first value is the physical one.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.model.devices import NodeDevices, Pool
from allocator.model.selectors import DeviceField
from kube.api.resource import Device

DOMAIN: Final = "resource.kubernetes.io"
PCIE_ROOT: Final = DeviceField(DOMAIN, "pcieRoot")
NUMA_NODE: Final = DeviceField(DOMAIN, "numaNode")

_POOLS: Final = 8192
_NODES: Final = 8192

Location = tuple[str | None, int | None]
"""PCIe root and NUMA node of a device; None if unknown."""

_UNKNOWN: Final[Location] = (None, None)


class NodeTopology(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The devices of a node by place. A place is a mask of the positions that are there.

    Attributes:
        roots: PCIe roots, in order of appearance.
        numa_nodes: NUMA nodes, with the devices below their roots.
        members: Place to its positions, ascending.
        root_at: The root of the device by position; the device alone if its root is unknown.
        numa_at: The NUMA node of the device by position; its root if its NUMA node is unknown.
    """

    roots: tuple[int, ...]
    numa_nodes: tuple[int, ...]
    members: Mapping[int, tuple[int, ...]]
    root_at: tuple[int, ...]
    numa_at: tuple[int, ...]


@lru_cache(maxsize=_NODES)
def node_topology(node: NodeDevices) -> NodeTopology | None:
    """Return the places of a node's devices; None if none is known."""
    locations = [
        _locations(node.pools[pool]).get(device.id.device, _UNKNOWN)
        for pool, device in zip(node.pool_of, node.devices, strict=True)
    ]
    if not any(location != _UNKNOWN for location in locations):
        return None
    numa_of = {root: numa for root, numa in reversed(locations) if root and numa is not None}
    roots: dict[str, int] = {}
    numa_nodes: dict[int, int] = {}
    for position, (root, own) in enumerate(locations):
        # A device below a root is on the root's NUMA node, even if its own driver does not know it.
        numa = own if root is None else numa_of.get(root)
        if root is not None:
            roots[root] = roots.get(root, 0) | 1 << position
        if numa is not None:
            numa_nodes[numa] = numa_nodes.get(numa, 0) | 1 << position
    root_at = _places(len(locations), roots.values(), [1 << at for at in range(len(locations))])
    places = (*roots.values(), *numa_nodes.values())
    return NodeTopology(
        roots=tuple(roots.values()),
        numa_nodes=tuple(numa_nodes.values()),
        members={place: positions(place) for place in places},
        root_at=root_at,
        numa_at=_places(len(locations), numa_nodes.values(), root_at),
    )


def positions(place: int) -> tuple[int, ...]:
    """Return the positions in a mask, ascending.

    >>> positions(0b1101)
    (0, 2, 3)
    """
    ascending = []
    while place:
        lowest = place & -place
        ascending.append(lowest.bit_length() - 1)
        place ^= lowest
    return tuple(ascending)


def _places(count: int, masks: Iterable[int], otherwise: Sequence[int]) -> tuple[int, ...]:
    """Return the mask that contains each position, by position."""
    mask_of = {position: mask for mask in masks for position in positions(mask)}
    return tuple([mask_of.get(position, otherwise[position]) for position in range(count)])


@lru_cache(maxsize=_POOLS)
def _locations(pool: Pool) -> Mapping[str, Location]:
    """Return the known places of a pool's devices, by device name."""
    locations = {device.id.device: _location(device.device) for device in pool.devices}
    return {name: location for name, location in locations.items() if location != _UNKNOWN}


def _location(device: Device) -> Location:
    attributes = device.attributes or {}
    root = attributes.get(f"{DOMAIN}/{PCIE_ROOT.identifier}")
    numa = attributes.get(f"{DOMAIN}/{NUMA_NODE.identifier}")
    root_name = None if root is None else root.string or (root.strings or (None,))[0]
    number = None
    if numa is not None:
        number = numa.int_ if numa.int_ is not None else (numa.ints or (None,))[0]
    return root_name or None, number if number is not None and number >= 0 else None
