"""Network devices of machines of different make."""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from driver.discovery.sysfs_nics import SysfsNics
from driver.model.inventory import Inventory, NodeDevice
from driver.model.pci import NUMA_NODE, PCI_BUS_ID, PCIE_ROOT, PCIE_SWITCH
from testing.driver.sysfs import GPU, SysfsTree
from testing.fake_api_server import running, until


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path)


def source(tree: SysfsTree, period_s: float = 60) -> SysfsNics:
    return SysfsNics(tree.sysfs, tree.dev, period_s=period_s)


def nics(tree: SysfsTree) -> dict[str, NodeDevice]:
    return {device.name: device for device in source(tree).discover().devices()}


def values(device: NodeDevice) -> Mapping[str, Any]:
    """Attribute to value."""
    return {
        name: next(
            value
            for value in (attribute.string, attribute.int_, attribute.bool_)
            if value is not None
        )
        for name, attribute in (device.device.attributes or {}).items()
    }


def values_by_device(tree: SysfsTree, attribute: str) -> dict[str, Any]:
    """Device to the value of an attribute; None if it is not published."""
    return {name: values(device).get(attribute) for name, device in nics(tree).items()}


# --- topologies -----------------------------------------------------------------------------------


def test_a_root_for_each_device(tree: SysfsTree) -> None:
    tree.add_nic("pci0000:16/0000:16:01.0/0000:17:00.0", "eth0", numa_node=0)
    tree.add_nic("pci0000:3a/0000:3a:01.0/0000:3b:00.0", "eth1", numa_node=0)

    assert {"nic-0000-17-00-0": "pci0000:16", "nic-0000-3b-00-0": "pci0000:3a"} == values_by_device(
        tree, PCIE_ROOT
    )
    assert {None} == set(values_by_device(tree, PCIE_SWITCH).values())


def test_two_switches_under_one_root(tree: SysfsTree) -> None:
    root = "pci0000:16/0000:16:01.0/0000:17:00.0"
    tree.add_nic(f"{root}/0000:18:00.0/0000:19:00.0", "eth0")
    tree.add_nic(f"{root}/0000:18:01.0/0000:1a:00.0", "eth1")
    other = "pci0000:16/0000:16:02.0/0000:20:00.0"
    tree.add_nic(f"{other}/0000:21:00.0/0000:22:00.0", "eth2")

    assert {"pci0000:16"} == set(values_by_device(tree, PCIE_ROOT).values())
    assert {
        "nic-0000-19-00-0": "0000:17:00.0",
        "nic-0000-1a-00-0": "0000:17:00.0",
        "nic-0000-22-00-0": "0000:20:00.0",
    } == values_by_device(tree, PCIE_SWITCH)


def test_of_nested_switches_the_nearest_counts(tree: SysfsTree) -> None:
    ports = "0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0"
    tree.add_nic(f"pci0000:16/{ports}/0000:1b:00.0", "eth0")

    assert {"nic-0000-1b-00-0": "0000:19:00.0"} == values_by_device(tree, PCIE_SWITCH)


def test_two_sockets(tree: SysfsTree) -> None:
    tree.add_nic("pci0000:16/0000:16:01.0/0000:17:00.0", "eth0", numa_node=0)
    tree.add_nic("pci0000:97/0000:97:01.0/0000:98:00.0", "eth1", numa_node=1)

    assert {"nic-0000-17-00-0": 0, "nic-0000-98-00-0": 1} == values_by_device(tree, NUMA_NODE)


@pytest.mark.parametrize("numa_node", [-1, "", "none", 4096])
def test_a_machine_that_does_not_know_its_topology(tree: SysfsTree, numa_node: int | str) -> None:
    """A virtual machine on a bus of its hypervisor: nothing unknown is published."""
    below = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001-0000-3130-444531444234"
    tree.add_nic(f"{below}/pci5500:00/5500:00:02.0", "eth0", numa_node=numa_node)

    (device,) = nics(tree).values()

    assert values(device).keys().isdisjoint({NUMA_NODE, PCIE_ROOT, PCIE_SWITCH})
    assert "5500:00:02.0" == values(device)[PCI_BUS_ID]


def test_a_machine_without_pci(tmp_path: Path) -> None:
    source = SysfsNics(tmp_path, tmp_path, period_s=60)

    assert [] == list(source.discover().devices())
    assert {} == source.read()


# --- devices --------------------------------------------------------------------------------------


def test_only_network_controllers_are_network_devices(tree: SysfsTree) -> None:
    tree.add("pci0000:16/0000:16:01.0/0000:17:00.0", GPU)
    tree.add_nic("pci0000:16/0000:16:02.0/0000:18:00.0", "eth0")

    assert {"nic-0000-18-00-0"} == nics(tree).keys()


def test_an_interface_is_described(tree: SysfsTree) -> None:
    tree.add_nic("pci0000:16/0000:16:01.0/0000:17:00.0", "eth0", vendor="0x15b3", device="0x101b")

    (device,) = nics(tree).values()

    assert {
        "type": "nic",
        "interface": "eth0",
        "mac": "02:00:00:00:00:01",
        "pciVendor": "0x15b3",
        "pciDevice": "0x101b",
        "rdma": False,
        "virtualFunction": False,
        PCI_BUS_ID: "0000:17:00.0",
        PCIE_ROOT: "pci0000:16",
    } == values(device)
    assert device.network is not None
    assert ("eth0", "02:00:00:00:00:01") == (
        device.network.interface_name,
        device.network.hardware_address,
    )


def test_a_device_of_rdma_comes_with_its_nodes(tree: SysfsTree) -> None:
    tree.add_nic("pci0000:16/0000:16:01.0/0000:17:00.0", "ib0", rdma="mlx5_3")

    (device,) = nics(tree).values()

    assert (True, "mlx5_3") == (values(device)["rdma"], values(device)["rdmaDevice"])
    assert ["/dev/infiniband/uverbs3", "/dev/infiniband/rdma_cm"] == [
        node.path for node in device.injection.device_nodes
    ]


def test_nodes_that_are_not_there_are_not_given_to_containers(tree: SysfsTree) -> None:
    tree.add_nic("pci0000:16/0000:16:01.0/0000:17:00.0", "ib0", rdma="mlx5_3")
    shutil.rmtree(tree.dev / "infiniband")

    (device,) = nics(tree).values()

    assert () == device.injection.device_nodes


def test_virtual_functions_are_published_in_place_of_their_parent(tree: SysfsTree) -> None:
    parent = tree.add_nic("pci0000:16/0000:16:01.0/0000:17:00.0", "eth0", numa_node=1)
    tree.add_virtual_function(parent, "0000:17:00.1", "eth1")
    tree.add_virtual_function(parent, "0000:17:00.2")

    assert {
        "nic-0000-17-00-1": "0000:17:00.0",
        "nic-0000-17-00-2": "0000:17:00.0",
    } == values_by_device(tree, "physicalFunction")
    assert {True} == set(values_by_device(tree, "virtualFunction").values())
    assert {"pci0000:16"} == set(values_by_device(tree, PCIE_ROOT).values())
    assert {1} == set(values_by_device(tree, NUMA_NODE).values())


# --- faults ---------------------------------------------------------------------------------------


def test_an_interface_without_a_link_is_a_fault(tree: SysfsTree) -> None:
    tree.add_nic("pci0000:16/0000:16:01.0/0000:17:00.0", "eth0", state="down")
    tree.add_nic("pci0000:16/0000:16:02.0/0000:18:00.0", "eth1")

    (fault,) = source(tree).read().values()

    assert ("linkDown", "eth0 has no link") == (fault.kind, fault.message)


def test_an_interface_that_nobody_has_set_up_is_no_fault(tree: SysfsTree) -> None:
    tree.add_nic("pci0000:16/0000:16:01.0/0000:17:00.0", "eth0", state="down", flags="0x1002")

    assert {} == source(tree).read()


def test_infiniband_without_a_link_is_a_fault(tree: SysfsTree) -> None:
    tree.add_nic("pci0000:16/0000:16:01.0/0000:17:00.0", rdma="mlx5_0", state="down")
    tree.add_nic("pci0000:16/0000:16:02.0/0000:18:00.0", rdma="mlx5_1")

    (fault,) = source(tree).read().values()

    assert "mlx5_0 has no link" == fault.message


# --- over time ------------------------------------------------------------------------------------


async def test_devices_that_come_and_go_are_reported(tree: SysfsTree) -> None:
    tree.add_nic("pci0000:16/0000:16:01.0/0000:17:00.0", "eth0")
    inventories: list[Inventory] = []
    looking = source(tree, period_s=0.01)
    looking.discover()

    async with running(partial(looking.run, inventories.append)):
        tree.add_nic("pci0000:16/0000:16:02.0/0000:18:00.0", "eth1")
        await until(lambda: bool(inventories) and len(list(inventories[-1].devices())) == 2)
