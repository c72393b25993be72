"""The published form of NVIDIA GPUs, made from the values that NVML reports.

A GPU in MIG mode is published as the instances that exist; they are not created or removed here. Every
other GPU is one device, which several claims may share where that is asked for.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from driver.model.inventory import DeviceNode, Injection, NodeDevice, NodePool
from driver.model.limits import STRING_BYTES
from driver.model.pci import PciLocation
from kube.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceAttribute,
    DeviceCapacity,
)
from kube.quantity import ZERO, Quantity

VENDOR_KIND: Final = "nvidia.com/gpu"
"""The kind of devices in the CDI specs that NVIDIA's toolkit writes."""
ALWAYS: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
"""Device nodes that programs need with any GPU."""

WHOLE_CORES: Final = Quantity(100)
_MIB: Final = Quantity("1Mi")
_NOT_IN_LABELS: Final = re.compile(r"[^a-z0-9]+")
_NUMBER: Final = re.compile(r"\d+")


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A MIG device that exists.

    Attributes:
        uuid: `MIG-...`
        profile: `1g.10gb`
        memory_bytes: The memory of its GPU instance, in bytes.
        index: The MIG device's index on its GPU.
        gpu_instance: Id of the GPU instance.
        compute_instance: Id of the compute instance in it.
        device_nodes: Paths of its capabilities.
    """

    uuid: str
    profile: str
    memory_bytes: int
    index: int
    gpu_instance: int
    compute_instance: int = 0
    device_nodes: tuple[str, ...] = ()


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU.

    Attributes:
        index: The GPU's NVML index, which follows PCI addresses.
        minor: The minor number of its device node.
        compute_capability: Major and minor number; None where it is not known.
        has_mig_mode: It can be used as MIG instances only.
    """

    index: int
    minor: int
    uuid: str
    model: str
    memory_bytes: int
    location: PciLocation
    driver_version: str = ""
    compute_capability: tuple[int, int] | None = None
    has_mig_mode: bool = False
    mig: tuple[MigInstance, ...] = ()

    @property
    def name(self) -> str:
        """Its name as a device."""
        return f"gpu-{self.minor}"


class GpuOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for publishing GPUs.

    Attributes:
        is_shared: Several claims may have a GPU at the same time.
        vendor_devices: Names of the devices in the vendor's CDI specs, such as `nvidia.com/gpu=0`.
        paths: Device nodes that exist on the node.
    """

    is_shared: bool = False
    vendor_devices: Collection[str] = frozenset()
    paths: Collection[str] = frozenset()


def gpu_pool(gpus: Iterable[Gpu], options: GpuOptions) -> NodePool:
    """Return the GPUs of a node, and MIG instances in place of those in MIG mode."""
    devices = [device for gpu in gpus for device in _devices(gpu, options)]
    return NodePool(devices=tuple(sorted(devices, key=lambda device: _natural(device.name))))


def mig_name(gpu: Gpu, instance: MigInstance) -> str:
    """Return the name of a MIG instance as a device: of its profile and ids, since these do not change.

    A GPU instance with one compute instance, the usual case, leaves the latter's id out.
    """
    profile = _NOT_IN_LABELS.sub("", instance.profile.lower())
    part = f"-{instance.compute_instance}" if instance.compute_instance else ""
    return f"{gpu.name}-mig-{profile}-{instance.gpu_instance}{part}"


def _devices(gpu: Gpu, options: GpuOptions) -> Iterator[NodeDevice]:
    if not gpu.has_mig_mode:
        yield _whole(gpu, options)
    for instance in gpu.mig:
        yield _mig(gpu, instance, options)


def _whole(gpu: Gpu, options: GpuOptions) -> NodeDevice:
    attributes = {
        "type": DeviceAttribute(string="gpu"),
        "uuid": DeviceAttribute(string=gpu.uuid),
        **_common(gpu),
    }
    memory = Quantity(gpu.memory_bytes)
    device = Device(
        name=gpu.name,
        attributes=attributes,
        capacity={
            "memory": _capacity(memory, _MIB, is_shared=options.is_shared),
            "cores": _capacity(WHOLE_CORES, Quantity(1), is_shared=options.is_shared),
        },
        allow_multiple_allocations=options.is_shared or None,
    )
    names = (f"{VENDOR_KIND}={gpu.uuid}", f"{VENDOR_KIND}={gpu.index}")
    nodes = (f"/dev/nvidia{gpu.minor}", *ALWAYS)
    return NodeDevice(device=device, injection=_injection(names, nodes, options))


def _mig(gpu: Gpu, instance: MigInstance, options: GpuOptions) -> NodeDevice:
    device = Device(
        name=mig_name(gpu, instance),
        attributes={
            "type": DeviceAttribute(string="mig"),
            "uuid": DeviceAttribute(string=instance.uuid),
            "parentUUID": DeviceAttribute(string=gpu.uuid),
            "profile": DeviceAttribute(string=instance.profile),
            **_common(gpu),
        },
        capacity={"memory": DeviceCapacity(value=Quantity(instance.memory_bytes))},
    )
    names = (
        f"{VENDOR_KIND}={instance.uuid}",
        f"{VENDOR_KIND}={gpu.index}:{instance.index}",
    )
    nodes = (f"/dev/nvidia{gpu.minor}", *ALWAYS, *instance.device_nodes)
    return NodeDevice(device=device, injection=_injection(names, nodes, options))


def _common(gpu: Gpu) -> dict[str, DeviceAttribute]:
    attributes = dict(gpu.location.attributes())
    attributes["productName"] = DeviceAttribute(string=_short(gpu.model))
    version = semantic_version(gpu.driver_version)
    if version:
        attributes["driverVersion"] = DeviceAttribute(version=version)
    if gpu.compute_capability is not None:
        major, minor = gpu.compute_capability
        attributes["cudaComputeCapability"] = DeviceAttribute(version=f"{major}.{minor}.0")
    return attributes


def _capacity(value: Quantity, step: Quantity, *, is_shared: bool) -> DeviceCapacity:
    """Return a capacity; requests may take any part of a shared device, and all by default."""
    if not is_shared:
        return DeviceCapacity(value=value)
    # Steps count from the minimum, and all of it has to be one of them.
    whole = Quantity(int(value) // int(step) * int(step))
    policy = CapacityRequestPolicy(
        default=whole, valid_range=CapacityRequestPolicyRange(min=ZERO, step=step)
    )
    return DeviceCapacity(value=whole, request_policy=policy)


def _injection(vendor_names: Iterable[str], nodes: Iterable[str], options: GpuOptions) -> Injection:
    """Return the injection into a container: from the vendor's own spec if it has the device."""
    for name in vendor_names:
        if name in options.vendor_devices:
            return Injection(cdi_devices=(name,))
    return Injection(
        device_nodes=tuple(DeviceNode(path=path) for path in nodes if path in options.paths)
    )


def semantic_version(text: str) -> str:
    """Return a driver's version as a semantic one, with three numbers without leading zeros.

    >>> semantic_version("580.65.06"), semantic_version("550.54"), semantic_version("")
    ('580.65.6', '550.54.0', '')
    """
    numbers = [str(int(number)) for number in _NUMBER.findall(text)][:3]
    return ".".join((*numbers, *("0",) * (3 - len(numbers)))) if numbers else ""


def _short(text: str) -> str:
    return text.encode()[:STRING_BYTES].decode(errors="ignore")


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that orders gpu-10 after gpu-9."""
    return tuple((int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name))
