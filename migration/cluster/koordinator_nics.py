"""The nodes with NICs that Koordinator and a DRA driver both hand out. Pure.

Either knows a NIC by its PCI address, so drivers of any name count. With virtual functions those are handed out.

Sources: koordinator v1.6 apis/scheduling/v1alpha1 Device (DeviceTopology, VirtualFunction); kubernetes-sigs/dranet
pkg/inventory/db.go, which publishes the attribute that k8s.io/dynamic-resource-allocation/deviceattribute names.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kube.api.resource import ResourceSlice
from migration.cluster.evidence import list_at, mapping_at

_NIC: Final = "rdma"
_PCI_ADDRESS: Final = "resource.kubernetes.io/pciBusID"
_MAX_PER_NODE: Final = 1024
"""Devices of one node that are read; a node has tens, and an object is anybody's."""


def nodes_of_doubled_nics(
    koordinator: Mapping[str, Mapping[str, Any]], slices: Iterable[ResourceSlice]
) -> frozenset[str]:
    """Return the nodes with a NIC in Koordinator's Device object that a slice of the node has, too.

    Args:
        koordinator: Node to its Device object.
        slices: The slices of all drivers.
    """
    addresses = {node: frozenset(_nic_addresses(device)) for node, device in koordinator.items()}
    return frozenset(
        slice_.spec.node_name
        for slice_ in slices
        if slice_.spec.node_name
        and not addresses.get(slice_.spec.node_name, frozenset()).isdisjoint(
            _slice_addresses(slice_)
        )
    )


def _nic_addresses(device: Mapping[str, Any]) -> Iterator[str]:
    """Yield the PCI addresses of the NICs of a Device object, and of their virtual functions."""
    for entry in list_at(device, "spec", "devices")[:_MAX_PER_NODE]:
        if not isinstance(entry, Mapping) or entry.get("type") != _NIC:
            continue
        functions = [
            function
            for group in list_at(entry, "vfGroups")[:_MAX_PER_NODE]
            if isinstance(group, Mapping)
            for function in list_at(group, "vfs")[:_MAX_PER_NODE]
            if isinstance(function, Mapping)
        ]
        for place in (mapping_at(entry, "topology"), *functions):
            address = place.get("busID")
            if isinstance(address, str) and address:
                yield address.lower()


def _slice_addresses(slice_: ResourceSlice) -> Iterator[str]:
    """Yield the PCI addresses of the devices of a slice."""
    for device in slice_.spec.devices or ():
        attribute = (device.attributes or {}).get(_PCI_ADDRESS)
        if attribute is not None and attribute.string:
            yield attribute.string.lower()
