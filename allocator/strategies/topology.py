"""Where devices are: under which PCIe root, on which NUMA node.

Drivers that do not know publish "" or -1, which `matchAttribute` takes for a place like any other.
Here they are no place: devices whose place is unknown are not near each other.

Source: k8s.io/dynamic-resource-allocation v0.37.1, deviceattribute; the attributes may be lists
(KEP-5491), of which the first value is the physical one.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.core.inventory import Place
from allocator.core.model import NodeDevices, Pool
from kube.api.resource import Device

DOMAIN: Final = "resource.kubernetes.io"
PCIE_ROOT: Final = Place(DOMAIN, "pcieRoot")
NUMA_NODE: Final = Place(DOMAIN, "numaNode")

_POOLS: Final = 8192
_NODES: Final = 8192

Spot = tuple[str | None, int | None]
"""PCIe root and NUMA node of a device; None where they are not known."""

_NOWHERE: Final[Spot] = (None, None)


class Layout(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The devices of a node by place. A place is the mask of the positions that are there.

    Attributes:
        roots: PCIe roots, in order of appearance.
        numa_nodes: NUMA nodes, with the devices below their roots.
        members: The positions in each of these places, ascending.
        root_at: By position, the root of a device; only the device itself where it is not known.
        numa_at: By position, the NUMA node of a device; its root where it is not known.
    """

    roots: tuple[int, ...]
    numa_nodes: tuple[int, ...]
    members: Mapping[int, tuple[int, ...]]
    root_at: tuple[int, ...]
    numa_at: tuple[int, ...]


@lru_cache(maxsize=_NODES)
def layout(node: NodeDevices) -> Layout | None:
    """Return where a node's devices are; None where none of them says."""
    spots = [
        _spots(node.pools[pool]).get(published.id.device, _NOWHERE)
        for pool, published in zip(node.pool_of, node.devices, strict=True)
    ]
    if not any(spot != _NOWHERE for spot in spots):
        return None
    numa_of = {root: numa for root, numa in reversed(spots) if root and numa is not None}
    roots: dict[str, int] = {}
    numa_nodes: dict[int, int] = {}
    for position, (root, own) in enumerate(spots):
        # A device below a root is where the root is, also if its own driver does not say.
        numa = own if root is None else numa_of.get(root)
        if root is not None:
            roots[root] = roots.get(root, 0) | 1 << position
        if numa is not None:
            numa_nodes[numa] = numa_nodes.get(numa, 0) | 1 << position
    root_at = _places(len(spots), roots.values(), [1 << at for at in range(len(spots))])
    places = (*roots.values(), *numa_nodes.values())
    return Layout(
        roots=tuple(roots.values()),
        numa_nodes=tuple(numa_nodes.values()),
        members={place: positions(place) for place in places},
        root_at=root_at,
        numa_at=_places(len(spots), numa_nodes.values(), root_at),
    )


def positions(place: int) -> tuple[int, ...]:
    """Return the positions in a mask, ascending.

    >>> positions(0b1101)
    (0, 2, 3)
    """
    found = []
    while place:
        lowest = place & -place
        found.append(lowest.bit_length() - 1)
        place ^= lowest
    return tuple(found)


def _places(count: int, masks: Iterable[int], otherwise: Sequence[int]) -> tuple[int, ...]:
    """Return by position the mask that it is in."""
    of = {position: mask for mask in masks for position in positions(mask)}
    return tuple([of.get(position, otherwise[position]) for position in range(count)])


@lru_cache(maxsize=_POOLS)
def _spots(pool: Pool) -> Mapping[str, Spot]:
    """Return where a pool's devices are, of those that say."""
    found = {each.id.device: _spot(each.device) for each in pool.devices}
    return {name: spot for name, spot in found.items() if spot != _NOWHERE}


def _spot(device: Device) -> Spot:
    attributes = device.attributes or {}
    root = attributes.get(f"{DOMAIN}/{PCIE_ROOT.identifier}")
    numa = attributes.get(f"{DOMAIN}/{NUMA_NODE.identifier}")
    root_name = None if root is None else root.string or (root.strings or (None,))[0]
    number = None
    if numa is not None:
        number = numa.int_ if numa.int_ is not None else (numa.ints or (None,))[0]
    return root_name or None, number if number is not None and number >= 0 else None
