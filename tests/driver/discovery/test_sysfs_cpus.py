"""CPUs and huge pages of machines with one and two sockets."""

from pathlib import Path

import pytest

from driver.discovery.sysfs_cpus import SysfsCpus
from driver.model.inventory import NodeDevice
from driver.model.pci import NUMA_NODE
from driver.plan.cpus import count_cpus
from kube.quantity import Quantity


class Machine:
    """A sysfs in a folder."""

    def __init__(self, folder: Path) -> None:
        self._nodes = folder / "devices" / "system" / "node"
        self._folder = folder
        self._nodes.mkdir(parents=True)
        (self._nodes / "possible").write_text("0-1\n")

    def add(self, number: int, cpus: str, **huge_pages: int) -> None:
        """Add a NUMA node; huge pages as `kb2048=512`."""
        path = self._nodes / f"node{number}"
        path.mkdir()
        (path / "cpulist").write_text(f"{cpus}\n")
        for size, pages in huge_pages.items():
            folder = path / "hugepages" / f"hugepages-{size.removeprefix('kb')}kB"
            folder.mkdir(parents=True)
            (folder / "nr_hugepages").write_text(f"{pages}\n")

    def devices(self, reserved: int = 0) -> dict[str, NodeDevice]:
        source = SysfsCpus(self._folder, reserved_cpus=reserved, period_s=60)
        return {device.name: device for device in source.discover().devices()}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def amounts(device: NodeDevice) -> dict[str, Quantity]:
    return {name: capacity.value for name, capacity in (device.device.capacity or {}).items()}


def test_each_numa_node_is_a_device_that_many_share(machine: Machine) -> None:
    machine.add(0, "0-15,32-47")
    machine.add(1, "16-31,48-63")

    devices = machine.devices()

    assert {"cpu-numa-0": 0, "cpu-numa-1": 1} == {
        name: (device.device.attributes or {})[NUMA_NODE].int_ for name, device in devices.items()
    }
    assert all(device.device.allow_multiple_allocations for device in devices.values())
    assert {"cpus": Quantity(32)} == amounts(devices["cpu-numa-0"])


def test_huge_pages_are_an_amount_of_memory(machine: Machine) -> None:
    machine.add(0, "0-3", kb2048=512, kb1048576=4, kb64=9)

    (device,) = machine.devices().values()

    assert {
        "cpus": Quantity(4),
        "hugepages2Mi": Quantity("1Gi"),
        "hugepages1Gi": Quantity("4Gi"),
    } == amounts(device)


def test_pages_that_nobody_has_set_aside_are_not_published(machine: Machine) -> None:
    machine.add(0, "0-3", kb2048=0)

    (device,) = machine.devices().values()

    assert {"cpus"} == amounts(device).keys()


def test_memory_without_cpus_is_no_device(machine: Machine) -> None:
    machine.add(0, "0-3")
    machine.add(1, "", kb2048=512)

    assert {"cpu-numa-0"} == machine.devices().keys()


def test_some_cpus_are_for_the_system(machine: Machine) -> None:
    machine.add(0, "0-3")
    machine.add(1, "4-7")

    assert [Quantity(2), Quantity(4)] == [
        amounts(device)["cpus"] for device in machine.devices(reserved=2).values()
    ]


def test_a_container_gets_the_cpus_that_are_near(machine: Machine) -> None:
    machine.add(0, "0-3,8")

    (device,) = machine.devices().values()

    assert {"DRAWBRIDGE_DEVICE_CPU_NUMA_0_CPU_LIST": "0-3,8"} == device.injection.environment


def test_a_machine_that_publishes_nothing_is_reported(tmp_path: Path) -> None:
    source = SysfsCpus(tmp_path, reserved_cpus=0, period_s=60)

    assert [] == list(source.discover().devices())
    assert "is not there" in source.problem()


@pytest.mark.parametrize(("text", "count"), [("0", 1), ("0-1", 2), ("x-y", 0), ("1,x,2", 2)])
def test_lists_of_the_kernel(text: str, count: int) -> None:
    assert count == count_cpus(text)
