"""GPUs and MIG instances as NVML tells them, and their faults."""

import ctypes
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pynvml
import pytest

from driver.discovery.nvml_gpus import EVENT_S, NvmlGpus
from driver.model.health import Fault
from driver.model.inventory import NodeDevice
from driver.model.pci import NUMA_NODE, PCI_BUS_ID, PCIE_ROOT, PCIE_SWITCH
from driver.node.vendor_specs import vendor_devices
from driver.plan.gpus import VENDOR_KIND
from kube.quantity import Quantity
from testing.driver.fake_nvml import FakeGpu, FakeMig, FakeNvml
from testing.driver.recorded_nvml import RecordingNvml, ReplayedNvml
from testing.driver.sysfs import GPU, SysfsTree

XID: Final = pynvml.nvmlEventTypeXidCriticalError
ECC: Final = pynvml.nvmlEventTypeDoubleBitEccError


def whole(number: int = 0, **fields: Any) -> FakeGpu:
    return FakeGpu(
        uuid=f"GPU-{number}", minor=number, bus_id=f"00000000:{16 + number:02X}:00.0", **fields
    )


def in_parts(**fields: Any) -> FakeGpu:
    """A GPU with three MIG instances, the second place empty."""
    parts = [
        FakeMig(uuid="MIG-a", slices=1, memory_mib=9984, gpu_instance=9),
        None,
        FakeMig(uuid="MIG-b", slices=3, memory_mib=40448, gpu_instance=2),
        FakeMig(
            uuid="MIG-c", slices=3, memory_mib=40448, gpu_instance=1, compute_instance=2, compute_slices=1
        ),
    ]  # fmt: skip
    return whole(mig=parts, **fields)


class Machine:
    """A machine with GPUs and a clock that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.tree = SysfsTree(folder)
        self.proc = folder / "proc"
        self.specs = folder / "cdi"
        self.now_s = 0.0

    def source(self, nvml: Any, *, is_shared: bool = False) -> NvmlGpus:
        return NvmlGpus(
            nvml,
            sysfs=self.tree.sysfs,
            dev=self.tree.dev,
            proc=self.proc,
            vendor_devices=lambda: vendor_devices([self.specs], VENDOR_KIND),
            is_shared=is_shared,
            period_s=60,
            clock=lambda: self.now_s,
        )

    def devices(self, nvml: Any, *, is_shared: bool = False) -> dict[str, NodeDevice]:
        inventory = self.source(nvml, is_shared=is_shared).discover()
        return {device.name: device for device in inventory.devices()}

    def add_nodes(self, *names: str) -> None:
        for name in names:
            path = self.tree.dev / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def value(device: NodeDevice, attribute: str) -> Any:
    value_ = (device.device.attributes or {}).get(attribute)
    if value_ is None:
        return None
    return value_.string or value_.version or value_.int_


def nodes(device: NodeDevice) -> list[str]:
    return [node.path for node in device.injection.device_nodes]


# --- the library ----------------------------------------------------------------------------------


def functions() -> list[str]:
    return [name for name in vars(FakeNvml) if name.startswith("nvml") and name[4].isupper()]


@pytest.mark.parametrize(
    "name", [name for name in functions() if callable(getattr(FakeNvml, name))]
)
def test_the_fake_has_the_librarys_own_functions(name: str) -> None:
    fake: Callable[..., Any] = getattr(FakeNvml, name)
    (_, *of_fake) = inspect.signature(fake).parameters

    assert of_fake == list(inspect.signature(getattr(pynvml, name)).parameters)


def test_a_node_without_the_library_has_no_gpus_and_says_so(machine: Machine) -> None:
    nvml = FakeNvml(whole())
    nvml.is_loaded = False
    source = machine.source(nvml)

    assert [] == list(source.discover().devices())
    assert "Not Found" in source.problem()
    assert {} == source.read()

    # It is installed later.
    nvml.is_loaded = True
    assert ["gpu-0"] == [device.name for device in source.discover().devices()]
    assert "" == source.problem()


# --- GPUs -----------------------------------------------------------------------------------------


def test_a_gpu_is_described(machine: Machine) -> None:
    ports = "0000:0e:01.0/0000:0f:00.0/0000:0f:01.0"
    machine.tree.add(f"pci0000:0e/{ports}/0000:10:00.0", GPU, numa_node=1)

    gpu = machine.devices(FakeNvml(whole()))["gpu-0"]

    assert {
        "type": "gpu",
        "uuid": "GPU-0",
        "productName": "NVIDIA H100 80GB HBM3",
        "driverVersion": "580.65.6",
        "cudaComputeCapability": "9.0.0",
        PCI_BUS_ID: "0000:10:00.0",
        PCIE_ROOT: "pci0000:0e",
        PCIE_SWITCH: "0000:0f:00.0",
        NUMA_NODE: 1,
    } == {name: value(gpu, name) for name in gpu.device.attributes or {}}
    assert {"memory": str(80 * 2**30), "cores": "100"} == {
        name: str(int(capacity.value)) for name, capacity in (gpu.device.capacity or {}).items()
    }
    assert not gpu.device.allow_multiple_allocations


def test_a_gpu_of_which_the_machine_knows_nothing_is_published(machine: Machine) -> None:
    gpu = machine.devices(FakeNvml(whole(capability=None)))["gpu-0"]

    assert {"type", "uuid", "productName", "driverVersion", PCI_BUS_ID} == set(
        gpu.device.attributes or {}
    )


def test_a_shared_gpu_gives_any_part_and_all_of_it_to_who_does_not_say(machine: Machine) -> None:
    gpu = machine.devices(FakeNvml(whole(memory_bytes=80 * 2**30 - 4096)), is_shared=True)["gpu-0"]

    memory = (gpu.device.capacity or {})["memory"]
    assert gpu.device.allow_multiple_allocations
    assert memory.request_policy is not None
    assert memory.value == memory.request_policy.default
    assert 0 == int(memory.value) % 2**20


def test_gpus_are_in_the_order_of_their_numbers(machine: Machine) -> None:
    nvml = FakeNvml(*(whole(number) for number in (10, 2, 1)))

    assert ["gpu-1", "gpu-2", "gpu-10"] == list(machine.devices(nvml))


# --- MIG ------------------------------------------------------------------------------------------


def test_mig_instances_that_exist_are_published_in_place_of_their_gpu(machine: Machine) -> None:
    devices = machine.devices(FakeNvml(in_parts()))

    assert {
        "gpu-0-mig-1g10gb-9": ("mig", "MIG-a", "GPU-0", "1g.10gb"),
        "gpu-0-mig-3g40gb-2": ("mig", "MIG-b", "GPU-0", "3g.40gb"),
        "gpu-0-mig-1c3g40gb-1-2": ("mig", "MIG-c", "GPU-0", "1c.3g.40gb"),
    } == {
        name: tuple(value(device, field) for field in ("type", "uuid", "parentUUID", "profile"))
        for name, device in devices.items()
    }


@pytest.mark.parametrize(
    ("slices", "memory_mib", "total_mib", "profile"),
    [
        (1, 4864, 40960, "1g.5gb"),
        (1, 9728, 81920, "1g.10gb"),
        (1, 19968, 81559, "1g.20gb"),
        (7, 80896, 81920, "7g.80gb"),
        (1, 16384, 143771, "1g.18gb"),
    ],
)
def test_profiles_are_called_as_nvidia_calls_them(
    machine: Machine, slices: int, memory_mib: int, total_mib: int, profile: str
) -> None:
    part = FakeMig(uuid="MIG", slices=slices, memory_mib=memory_mib, gpu_instance=1)

    (device,) = machine.devices(
        FakeNvml(whole(mig=[part], memory_bytes=total_mib * 2**20))
    ).values()

    assert profile == value(device, "profile")


def test_a_mig_instance_comes_with_its_capabilities(machine: Machine) -> None:
    part = machine.proc / "driver" / "nvidia" / "capabilities" / "gpu0" / "mig" / "gi9"
    (part / "ci0").mkdir(parents=True)
    (part / "access").write_text("DeviceFileMinor: 12\nDeviceFileMode: 292\n")
    (part / "ci0" / "access").write_text("DeviceFileMinor: 13\nDeviceFileMode: 292\n")
    machine.add_nodes(
        "nvidia0", "nvidiactl", "nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap13"
    )

    device = machine.devices(FakeNvml(in_parts()))["gpu-0-mig-1g10gb-9"]

    caps = ["/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"]
    assert ["/dev/nvidia0", "/dev/nvidiactl", *caps] == nodes(device)


# --- what containers get --------------------------------------------------------------------------


def test_a_container_gets_the_device_nodes_that_exist(machine: Machine) -> None:
    machine.add_nodes("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")

    gpu = machine.devices(FakeNvml(whole()))["gpu-0"]

    assert ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"] == nodes(gpu)
    assert () == gpu.injection.cdi_devices


@pytest.mark.parametrize("name", ["GPU-0", "0"])
def test_where_the_vendor_has_a_spec_the_container_gets_its_device(
    machine: Machine, name: str
) -> None:
    machine.add_nodes("nvidia0")
    machine.specs.mkdir()
    spec = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": name}]}
    (machine.specs / "nvidia.json").write_text(json.dumps(spec))
    (machine.specs / "broken.yaml").write_text("{")
    (machine.specs / "other.yaml").write_text("kind: other.com/gpu\ndevices: [{name: GPU-0}]")

    gpu = machine.devices(FakeNvml(whole()))["gpu-0"]

    assert (f"nvidia.com/gpu={name}",) == gpu.injection.cdi_devices
    assert [] == nodes(gpu)


# --- faults ---------------------------------------------------------------------------------------


def test_an_error_of_the_gpu_is_a_fault_for_a_while(machine: Machine) -> None:
    gpu = whole()
    nvml = FakeNvml(gpu, whole(1))
    source = machine.source(nvml)
    source.discover()

    nvml.tell(gpu, XID, 48)
    assert {"gpu-0": Fault(kind="xid", message="Xid 48")} == source.read()
    machine.now_s = EVENT_S - 1
    assert {"gpu-0"} == source.read().keys()
    machine.now_s = EVENT_S + 1
    assert {} == source.read()


def test_an_error_of_a_program_is_no_fault(machine: Machine) -> None:
    gpu = whole()
    nvml = FakeNvml(gpu)
    source = machine.source(nvml)
    source.discover()

    nvml.tell(gpu, XID, 31)

    assert {} == source.read()


def test_an_error_of_memory_is_a_fault_of_its_own_kind(machine: Machine) -> None:
    gpu = whole()
    nvml = FakeNvml(gpu)
    source = machine.source(nvml)
    source.discover()

    nvml.tell(gpu, ECC)

    assert "ecc" == source.read()["gpu-0"].kind


def test_a_fault_of_a_gpu_instance_is_that_of_its_mig_devices(machine: Machine) -> None:
    gpu = in_parts()
    nvml = FakeNvml(gpu)
    source = machine.source(nvml)
    source.discover()

    nvml.tell(gpu, XID, 48, gpu_instance=9)
    assert {"gpu-0-mig-1g10gb-9"} == source.read().keys()

    nvml.tell(gpu, XID, 79)
    assert 3 == len(source.read())


def test_a_gpu_that_is_lost_stays_published_with_a_fault(machine: Machine) -> None:
    gpu = whole()
    nvml = FakeNvml(gpu, whole(1))
    source = machine.source(nvml)
    source.discover()

    gpu.is_lost = True
    assert ["gpu-0", "gpu-1"] == [device.name for device in source.discover().devices()]
    assert {"gpu-0": "lost"} == {name: fault.kind for name, fault in source.read().items()}

    gpu.is_lost = False
    source.discover()
    assert {} == source.read()


def test_a_gpu_without_events_is_unmonitored(machine: Machine) -> None:
    source = machine.source(FakeNvml(whole(has_events=False)))
    source.discover()

    assert "unmonitored" == source.read()["gpu-0"].kind


def kinds(source: NvmlGpus) -> dict[str, str]:
    return {name: fault.kind for name, fault in source.read().items()}


def names(source: NvmlGpus) -> list[str]:
    return [device.name for device in source.discover().devices()]


def test_a_gpu_that_cannot_be_read_stays_published_with_a_fault_and_hides_no_other(
    machine: Machine,
) -> None:
    broken, lost = whole(0), whole(1)
    source = machine.source(FakeNvml(broken, lost, whole(2)))
    source.discover()

    broken.error, lost.is_lost = pynvml.NVML_ERROR_UNKNOWN, True
    assert ["gpu-0", "gpu-1", "gpu-2"] == names(source)
    assert {"gpu-0": "readFailed", "gpu-1": "lost"} == kinds(source)
    assert "NVML cannot read GPU 0: Unknown Error" == source.problem()

    broken.error, lost.is_lost = 0, False
    source.discover()
    assert ({}, "") == (kinds(source), source.problem())


def test_an_event_says_more_of_a_gpu_than_that_it_cannot_be_read(machine: Machine) -> None:
    gpu = whole()
    nvml = FakeNvml(gpu)
    source = machine.source(nvml)
    source.discover()

    gpu.error = pynvml.NVML_ERROR_UNKNOWN
    source.discover()
    nvml.tell(gpu, XID, 48)

    assert {"gpu-0": "xid"} == kinds(source)


def test_a_gpu_that_cannot_be_read_at_the_start_hides_no_other(machine: Machine) -> None:
    nvml = FakeNvml(whole(0, error=pynvml.NVML_ERROR_UNKNOWN), whole(1))
    source = machine.source(nvml)

    assert ["gpu-1"] == names(source)
    assert "GPU 0" in source.problem()
    nvml.tell(nvml.gpus[1], XID, 48)
    assert {"gpu-1": "xid"} == kinds(source)

    # It answers again: it is published, and its events are read.
    nvml.gpus[0].error = 0
    assert ["gpu-0", "gpu-1"] == names(source)
    nvml.tell(nvml.gpus[0], XID, 48)
    assert {"gpu-0": "xid", "gpu-1": "xid"} == kinds(source)


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_gpu_that_cannot_be_registered_is_unmonitored_until_it_can(
    machine: Machine, error: int
) -> None:
    nvml = FakeNvml(whole(0), whole(1, events_error=error), whole(2))
    source = machine.source(nvml)
    source.discover()
    nvml.tell(nvml.gpus[0], XID, 48)
    nvml.tell(nvml.gpus[2], XID, 48)

    assert {"gpu-0": "xid", "gpu-1": "unmonitored", "gpu-2": "xid"} == kinds(source)
    assert "" == source.problem()

    nvml.gpus[1].events_error = 0
    source.discover()
    assert {"gpu-0": "xid", "gpu-2": "xid"} == kinds(source)
    nvml.tell(nvml.gpus[1], XID, 48)
    assert dict.fromkeys(("gpu-0", "gpu-1", "gpu-2"), "xid") == kinds(source)


def test_mig_instances_of_a_gpu_without_events_are_unmonitored(machine: Machine) -> None:
    source = machine.source(FakeNvml(in_parts(has_events=False)))

    assert dict.fromkeys(names(source), "unmonitored") == kinds(source)


# --- records --------------------------------------------------------------------------------------

RECORD: Final = Path(__file__).parent / "data" / "nvml.json"


def test_a_record_is_answered_as_the_library_did(machine: Machine) -> None:
    fake = FakeNvml(whole(), in_parts(), whole(2, capability=None, has_events=False))
    fake.tell(fake.gpus[0], XID, 79)
    nvml = RecordingNvml(fake)
    source = machine.source(nvml)
    inventory, faults = source.discover(), source.read()

    replayed = machine.source(ReplayedNvml(json.loads(json.dumps(nvml.calls))))

    assert inventory == replayed.discover()
    assert faults == replayed.read()
    assert {"xid", "unmonitored"} == {fault.kind for fault in faults.values()}


def test_pointers_and_structures_of_the_library_are_recorded() -> None:
    def handle() -> Any:
        return pynvml.c_nvmlDevice_t.from_buffer(ctypes.c_void_p(4711))

    memory = pynvml.c_nvmlMemory_t(total=80, free=70, used=10)
    library = SimpleNamespace(get=handle, ask=lambda _handle: memory, NVMLError=pynvml.NVMLError)
    nvml = RecordingNvml(library)

    nvml.ask(nvml.get())
    nvml.ask(nvml.get())

    assert {"handle": 0} == nvml.calls[0]["answer"] == nvml.calls[2]["answer"]
    assert {"total": 80, "free": 70, "used": 10} == nvml.calls[1]["answer"]["fields"]


def test_the_record_of_an_h100(machine: Machine) -> None:
    """Its answers were recorded by `pytest -m gpu`, with another UUID."""
    machine.add_nodes("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    source = machine.source(ReplayedNvml(json.loads(RECORD.read_text())), is_shared=True)

    (device,) = source.discover().devices()

    assert "gpu-0" == device.name
    attributes, capacity = device.device.attributes or {}, device.device.capacity or {}
    assert "NVIDIA H100 80GB HBM3" == attributes["productName"].string
    assert "0000:00:06.0" == attributes[PCI_BUS_ID].string
    assert ("580.159.4", "9.0.0") == (
        attributes["driverVersion"].version,
        attributes["cudaComputeCapability"].version,
    )
    assert Quantity("81559Mi") == capacity["memory"].value
    assert [
        "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
    ] == [node.path for node in device.injection.device_nodes]  # fmt: skip
    assert ("", {}) == (source.problem(), source.read())


def test_a_gpu_that_was_lost_before_the_start_hides_no_event_of_others(machine: Machine) -> None:
    nvml = FakeNvml(whole(), whole(1))
    nvml.gpus[0].is_lost = True
    source = machine.source(nvml)

    assert ["gpu-1"] == [device.name for device in source.discover().devices()]
    nvml.tell(nvml.gpus[1], XID, 79)
    assert {"gpu-1"} == source.read().keys()
