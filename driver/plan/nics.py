"""The published form of network devices, made from the values in sysfs.

A virtual function is a device of its own that names its physical function. A physical function that has
virtual ones is not published: whoever had it could take them away.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from driver.model.health import Fault
from driver.model.inventory import DeviceNode, Injection, NodeDevice, NodePool
from driver.model.limits import STRING_BYTES
from driver.model.pci import PciLocation
from kube.api.resource import Device, DeviceAttribute, NetworkDeviceData

POOL: Final = "nics"
LINK_DOWN: Final = "linkDown"


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """A network controller on the PCI bus.

    Attributes:
        location: The controller's place on the PCI bus.
        vendor: Its PCI id, such as `0x15b3`.
        model: The controller's model.
        interface: Its network interface; empty where it has none here.
        hardware_address: The hardware address of the interface.
        rdma_device: Such as `mlx5_0`; empty where it has none.
        device_nodes: Paths for programs that use RDMA.
        physical_function: Address of the device of which this is a virtual function.
        virtual_functions: The number of its virtual functions.
        is_down: It is meant to have a link, and has none.
    """

    location: PciLocation
    vendor: str = ""
    model: str = ""
    interface: str = ""
    hardware_address: str = ""
    rdma_device: str = ""
    device_nodes: tuple[str, ...] = ()
    physical_function: str = ""
    virtual_functions: int = 0
    is_down: bool = False

    @property
    def name(self) -> str:
        """Return the device's name; it stays when the interface is renamed.

        >>> Nic(location=PciLocation(address="0000:3b:00.1")).name
        'nic-0000-3b-00-1'
        """
        return "nic-" + self.location.address.replace(":", "-").replace(".", "-")


def nic_pool(nics: Iterable[Nic]) -> NodePool:
    """Return the pool of a node's network devices, by name."""
    usable_nics = (nic for nic in nics if not nic.virtual_functions)
    return NodePool(
        name=POOL,
        devices=tuple(sorted(map(_device, usable_nics), key=lambda device: device.name)),
    )


def nic_faults(nics: Iterable[Nic]) -> Mapping[str, Fault]:
    """Return device to its fault."""
    return {
        nic.name: Fault(kind=LINK_DOWN, message=f"{nic.interface or nic.rdma_device} has no link")
        for nic in nics
        if nic.is_down
    }


def _device(nic: Nic) -> NodeDevice:
    texts = {
        "type": "nic",
        "pciVendor": nic.vendor,
        "pciDevice": nic.model,
        "interface": nic.interface,
        "mac": nic.hardware_address,
        "rdmaDevice": nic.rdma_device,
        "physicalFunction": nic.physical_function,
    }
    attributes = {
        name: DeviceAttribute(string=text)
        for name, text in texts.items()
        if text and len(text.encode()) <= STRING_BYTES
    }
    attributes["rdma"] = DeviceAttribute(bool_=bool(nic.rdma_device))
    attributes["virtualFunction"] = DeviceAttribute(bool_=bool(nic.physical_function))
    network = None
    if nic.interface:
        network = NetworkDeviceData(
            interface_name=nic.interface, hardware_address=nic.hardware_address
        )
    return NodeDevice(
        device=Device(name=nic.name, attributes={**attributes, **nic.location.attributes()}),
        injection=Injection(device_nodes=tuple(DeviceNode(path=path) for path in nic.device_nodes)),
        network=network,
    )
