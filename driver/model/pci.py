"""The place of a PCI device: root complex, switch and NUMA node, from sysfs.

Unknown is left out, never written as -1 or as an empty text: two devices with the same value count as
close to each other.

Source: k8s.io/dynamic-resource-allocation v0.37.1, deviceattribute (pci_linux.go, numa_linux.go): a root
is the first part of the device's path below /sys/devices.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kube.api.resource import DeviceAttribute

PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
PCIE_SWITCH: Final = "pcieSwitch"
"""The upstream port of the switch next to the device: devices with the same one reach each other without
the root complex, which `pcieRoot` cannot tell."""

_ROOT: Final = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")
_ADDRESS: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_MAX_NUMA_NODE: Final = 1024
_PORTS_OF_A_SWITCH: Final = 4
"""Root port, upstream port, downstream port and the device: what a path has at least with a switch."""


class PciLocation(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a device; None is for unknown, or for a device without a switch.

    Attributes:
        address: `0000:3b:00.0`
        root: `pci0000:3a`
        switch: Address of the upstream port of the nearest switch.
        numa_node: The NUMA node's number, at least 0.
    """

    address: str
    root: str | None = None
    switch: str | None = None
    numa_node: int | None = None

    def attributes(self) -> Mapping[str, DeviceAttribute]:
        """Return the published attributes of the location."""
        attributes = {PCI_BUS_ID: DeviceAttribute(string=self.address)}
        if self.root is not None:
            attributes[PCIE_ROOT] = DeviceAttribute(string=self.root)
        if self.switch is not None:
            attributes[PCIE_SWITCH] = DeviceAttribute(string=self.switch)
        if self.numa_node is not None:
            attributes[NUMA_NODE] = DeviceAttribute(int_=self.numa_node)
        return attributes


def is_pci_address(text: str) -> bool:
    """Return True if a text is the full address of a PCI device.

    >>> is_pci_address("0000:3b:00.0"), is_pci_address("3b:00.0"), is_pci_address("0000:3B:00.0")
    (True, False, False)
    """
    return _ADDRESS.fullmatch(text) is not None


def locate(address: str, path: str, numa_node: str) -> PciLocation:
    """Return the location of a device.

    Args:
        address: The device's PCI address.
        path: Its folder below /sys/devices, all links resolved.
        numa_node: The text of its file `numa_node`; empty where there is none.

    >>> locate("0000:02:00.0", "pci0000:00/0000:00:01.0/0000:02:00.0", "-1")
    PciLocation(address='0000:02:00.0', root='pci0000:00', switch=None, numa_node=None)
    """
    first, *chain = path.split("/")
    root = first if _ROOT.fullmatch(first) else None
    has_switch = (
        root is not None
        and len(chain) >= _PORTS_OF_A_SWITCH
        and all(map(is_pci_address, chain[-_PORTS_OF_A_SWITCH:]))
    )
    return PciLocation(
        address=address,
        root=root,
        switch=chain[-3] if has_switch else None,
        numa_node=_numa_node(numa_node),
    )


def _numa_node(text: str) -> int | None:
    number = int(text) if text.strip().isdecimal() else -1
    return number if 0 <= number <= _MAX_NUMA_NODE else None
