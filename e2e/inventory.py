"""Device classes, simulated nodes and published devices, laid out as the drivers lay them out.

Plain dicts, the same for the same arguments: for tests, for `make up`, and for the recorded cluster
state of the examples.

Sources:
    gpu.nvidia.com: kubernetes-sigs/dra-driver-nvidia-gpu, commit 9593204,
        cmd/gpu-kubelet-plugin/deviceinfo.go and mig.go, with its default gates (static MIG).
    hami-core-gpu.project-hami.io: Project-HAMi/k8s-dra-driver, commit ebeaad9,
        cmd/hami-kubelet-plugin/hami_core.go.
    gpu.example.com: kubernetes-sigs/dra-example-driver, internal/profiles/gpu/gpu.go.

Not modelled: VFIO devices, dynamic MIG (shared counters), consumable shares of gpu.nvidia.com.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from testing.documents import api_object

Object = dict[str, Any]

NVIDIA: Final = "gpu.nvidia.com"
NVIDIA_MIG_CLASS: Final = "mig.nvidia.com"
HAMI: Final = "hami-core-gpu.project-hami.io"
EXAMPLE: Final = "gpu.example.com"
DRANET: Final = "dra.net"
SRIOV: Final = "sriovnetwork.k8snetworkplumbingwg.io"

NVIDIA_EXTENDED_RESOURCE: Final = "nvidia.com/gpu"
"""The name that the charts of both the NVIDIA and the HAMi driver put on their class."""

MIB: Final = 1024**2
_RESOURCE: Final = "resource.k8s.io/v1"
_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "inventory.drawbridge.internal")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU model as NVML describes it."""

    product_name: str
    architecture: str
    compute_capability: str
    memory_mib: int
    brand: str = "Nvidia"


A100_40GB: Final = Model(
    product_name="NVIDIA A100-SXM4-40GB",
    architecture="Ampere",
    compute_capability="8.0.0",
    memory_mib=40960,
)
A100_80GB: Final = Model(
    product_name="NVIDIA A100-SXM4-80GB",
    architecture="Ampere",
    compute_capability="8.0.0",
    memory_mib=81920,
)
H100_80GB: Final = Model(
    product_name="NVIDIA H100 80GB HBM3",
    architecture="Hopper",
    compute_capability="9.0.0",
    memory_mib=81559,
)
T4: Final = Model(
    product_name="Tesla T4",
    architecture="Turing",
    compute_capability="7.5.0",
    memory_mib=15360,
)


class MigProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A MIG profile of one model.

    Attributes:
        name: The name as nvidia-smi prints it, `1g.5gb`.
        profile_id: The GPU instance profile's number, part of the device's name.
        memory_mib: The memory of an instance, below the amount in its name.
        multiprocessors: Streaming multiprocessors of an instance.
        copy_engines: Likewise.
        decoders: Likewise.
        jpeg: JPEG engines, and as many optical flow accelerators.
        slices: The number of the GPU's 8 memory slices that an instance takes.
        starts: The memory slices that an instance may begin at.
    """

    name: str
    profile_id: int
    memory_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    jpeg: int = 0
    slices: int
    starts: tuple[int, ...]


def _a100_profiles(*facts: tuple[str, int]) -> dict[str, MigProfile]:
    """The A100's profiles; both sizes differ in names and memory (MiB) only."""
    shapes = (
        # profile id, multiprocessors, copy engines, decoders, jpeg, slices, starts
        (19, 14, 1, 0, 0, 1, (0, 1, 2, 3, 4, 5, 6)),
        (20, 14, 1, 1, 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        (15, 14, 1, 1, 0, 2, (0, 2, 4, 6)),
        (14, 28, 2, 1, 0, 2, (0, 2, 4)),
        (9, 42, 3, 2, 0, 4, (0, 4)),
        (5, 56, 4, 2, 0, 4, (0,)),
        (0, 98, 7, 5, 1, 8, (0,)),
    )
    return {
        name: MigProfile(
            name=name,
            profile_id=number,
            memory_mib=memory_mib,
            multiprocessors=multiprocessors,
            copy_engines=copy_engines,
            decoders=decoders,
            jpeg=jpeg,
            slices=slices,
            starts=starts,
        )
        for (name, memory_mib), (
            number,
            multiprocessors,
            copy_engines,
            decoders,
            jpeg,
            slices,
            starts,
        ) in zip(facts, shapes, strict=True)
    }


MIG_PROFILES: Final = {
    A100_40GB.product_name: _a100_profiles(
        ("1g.5gb", 4864),
        ("1g.5gb+me", 4864),
        ("1g.10gb", 9984),
        ("2g.10gb", 9984),
        ("3g.20gb", 20096),
        ("4g.20gb", 20096),
        ("7g.40gb", 40320),
    ),
    A100_80GB.product_name: _a100_profiles(
        ("1g.10gb", 9728),
        ("1g.10gb+me", 9728),
        ("1g.20gb", 19968),
        ("2g.20gb", 19968),
        ("3g.40gb", 40192),
        ("4g.40gb", 40192),
        ("7g.80gb", 80640),
    ),
}
"""The profiles by the model's product name. Source: NVIDIA MIG User Guide, A100 profiles."""

MIG_LAYOUT_40GB: Final = ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")
MIG_LAYOUT_80GB: Final = ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")


# --- classes -------------------------------------------------------------------------------------


def device_class(name: str, expression: str, *, extended_resource: str = "") -> Object:
    """A DeviceClass of one CEL selector; empty `extended_resource` means no mapping."""
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    if extended_resource:
        spec["extendedResourceName"] = extended_resource
    return api_object("DeviceClass", name, spec=spec)


def nvidia_classes(*, extended_resource: str = NVIDIA_EXTENDED_RESOURCE) -> list[Object]:
    """gpu.nvidia.com, by default mapped to nvidia.com/gpu as its chart does, and mig.nvidia.com."""
    return [
        device_class(
            NVIDIA,
            f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'gpu'",
            extended_resource=extended_resource,
        ),
        device_class(
            NVIDIA_MIG_CLASS,
            f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'mig'",
        ),
    ]


def hami_class(*, extended_resource: str = "") -> Object:
    """hami-core-gpu.project-hami.io.

    Its chart maps it to nvidia.com/gpu; here that is left out by default, because of two classes
    with one name the younger wins.
    """
    return device_class(
        HAMI,
        f"device.driver == '{HAMI}' && device.attributes['{HAMI}'].type == 'hami-gpu'",
        extended_resource=extended_resource,
    )


def example_class(*, extended_resource: str = "") -> Object:
    """gpu.example.com, as its chart makes it."""
    expression = f"device.driver == '{EXAMPLE}'"
    return device_class(EXAMPLE, expression, extended_resource=extended_resource)


def nic_classes() -> list[Object]:
    """The classes that users of DRANET, of EFA and of the SR-IOV driver make."""
    efa = "Elastic Fabric Adapter (EFA)"
    return [
        device_class("dranet", f"device.driver == '{DRANET}'"),
        device_class(
            "efa.networking.k8s.aws",
            f"device.driver == '{DRANET}' && device.attributes['{DRANET}'].pciDevice == '{efa}'",
        ),
        device_class(SRIOV, f"device.driver == '{SRIOV}'"),
    ]


def device_classes() -> list[Object]:
    """The classes of all drivers here, only gpu.nvidia.com with an extended resource's name."""
    return [*nvidia_classes(), hami_class(), example_class()]


# --- nodes ---------------------------------------------------------------------------------------


def kwok_node(name: str) -> Object:
    """A simulated node with much room for everything but devices."""
    room = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "500"}
    return api_object(
        "Node",
        name,
        annotations={"kwok.x-k8s.io/node": "fake"},
        labels={
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        },
        status={"capacity": room, "allocatable": room},
    )


def kwok_nodes(count: int, *, prefix: str = "node") -> list[Object]:
    """`count` simulated nodes: node-0, node-1, and so on."""
    return [kwok_node(f"{prefix}-{number}") for number in range(count)]


# --- devices -------------------------------------------------------------------------------------


def nvidia_gpus(node: str, *, gpus: int = 8, model: Model = A100_80GB) -> list[Object]:
    """The whole GPUs that gpu.nvidia.com publishes for a node."""
    devices = [
        {
            "name": f"gpu-{minor}",
            "attributes": {**_string("type", "gpu"), **_nvidia_gpu(node, minor, model)},
            "capacity": {"memory": {"value": str(_bytes(model.memory_mib))}},
        }
        for minor in range(gpus)
    ]
    return resource_slices(NVIDIA, node, devices)


def nvidia_mig(
    node: str,
    *,
    gpus: int = 1,
    model: Model = A100_40GB,
    layout: Sequence[str] = MIG_LAYOUT_40GB,
) -> list[Object]:
    """The MIG devices that gpu.nvidia.com publishes for a node with GPUs divided by `layout`.

    A GPU in MIG mode is not published itself.

    Args:
        node: The node's name.
        gpus: The number of GPUs of the node.
        model: One of those in `MIG_PROFILES`.
        layout: Names of profiles, in the order of their places on the GPU.
    """
    devices = [
        device for minor in range(gpus) for device in _mig_devices(node, minor, model, layout)
    ]
    return resource_slices(NVIDIA, node, devices)


def hami_gpus(node: str, *, gpus: int = 8, model: Model = A100_80GB) -> list[Object]:
    """The GPUs that hami-core-gpu.project-hami.io publishes, in shares of cores and memory."""
    memory = _bytes(model.memory_mib)
    devices = [
        {
            "name": f"hami-gpu-{minor}",
            "attributes": {
                **_string("type", "hami-gpu"),
                **_string("uuid", gpu_uuid(node, minor)),
                "minor": {"int": minor},
                **_model(model),
                **_string("pcieBusID", pci_bus_id(minor)),
                **_string("resource.kubernetes.io/pcieRoot", pcie_root(minor)),
            },
            "capacity": {
                "cores": _shared(100, least=0, step=1),
                "memory": _shared(memory, least=MIB, step=MIB),
            },
            "allowMultipleAllocations": True,
        }
        for minor in range(gpus)
    ]
    return resource_slices(HAMI, node, devices)


def example_gpus(node: str, *, gpus: int = 8, shared: bool = False) -> list[Object]:
    """The GPUs that gpu.example.com publishes; `shared` is its option of several allocations per device."""
    memory, compute = {"value": "80Gi"}, {"value": "100"}
    if shared:
        memory = _shared(80 * 1024 * MIB, least=1024 * MIB, step=1024 * MIB)
        compute = _shared(100, least=1, step=1)
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "index": {"int": index},
                **_string("uuid", f"gpu-{device_identity(node, EXAMPLE, index)}"),
                **_string("model", "LATEST-GPU-MODEL"),
                "driverVersion": {"version": "1.0.0"},
            },
            "allowMultipleAllocations": shared,
            "capacity": {"memory": memory, "compute": compute},
        }
        for index in range(gpus)
    ]
    return resource_slices(EXAMPLE, node, devices)


def dranet_nics(
    node: str, *, nics: int = 8, model: str = "MT2910 Family [ConnectX-7]", per_root: int = 2
) -> list[Object]:
    """The RDMA devices that dra.net publishes for a node, `per_root` of them under a PCIe root.

    Args:
        node: The node's name.
        nics: The number of NICs.
        model: The model's name in PCI; AWS's are "Elastic Fabric Adapter (EFA)".
        per_root: 1 for the layout of EC2's p4d, where a NIC is beside two GPUs.
    """
    devices = [
        {
            "name": f"pci-{number:04x}",
            "attributes": {
                f"{DRANET}/rdma": {"bool": True},
                **_string(f"{DRANET}/rdmaDevice", f"mlx5_{number}"),
                **_string(f"{DRANET}/pciDevice", model),
                **_string("resource.kubernetes.io/pcieRoot", pcie_root(number * 2 // per_root)),
                f"{DRANET}/numaNode": {"int": number * 2 // nics},
            },
        }
        for number in range(nics)
    ]
    return resource_slices(DRANET, node, devices)


def virtual_functions(node: str, name: str, *, functions: int = 8) -> list[Object]:
    """The functions with a name of a SriovResourcePolicy that the SR-IOV driver publishes."""
    devices = [
        {
            "name": f"vf-{number}",
            "attributes": {
                **_string("resourceName", name),
                **_string("PFName", "eth1"),
                "rdmaCapable": {"bool": True},
                **_string("resource.kubernetes.io/pcieRoot", pcie_root(0)),
            },
        }
        for number in range(functions)
    ]
    return resource_slices(SRIOV, node, devices)


def resource_slices(
    driver: str, node: str, devices: Sequence[Object], *, generation: int = 1
) -> list[Object]:
    """One pool named after the node, in slices of at most 128 devices (ResourceSliceMaxDevices)."""
    pieces = [devices[first : first + 128] for first in range(0, len(devices), 128)] or [[]]
    pool = {"name": node, "generation": generation, "resourceSliceCount": len(pieces)}
    return [
        api_object(
            "ResourceSlice",
            f"{node}-{driver}-{number}",
            spec={"driver": driver, "nodeName": node, "pool": pool, "devices": list(piece)},
        )
        for number, piece in enumerate(pieces)
    ]


# --- identities ----------------------------------------------------------------------------------


def gpu_uuid(node: str, minor: int) -> str:
    """The UUID of a node's GPU: GPU-..., always the same."""
    return f"GPU-{device_identity(node, 'gpu', minor)}"


def mig_uuid(node: str, minor: int, place: int) -> str:
    """The UUID of the MIG device that begins at a memory slice of a node's GPU: MIG-...."""
    return f"MIG-{device_identity(node, 'mig', minor, place)}"


def pci_bus_id(minor: int) -> str:
    """The GPU's PCI address: dddd:bb:dd.f."""
    return f"0000:{0x10 * (minor // 2 + 1) + minor % 2:02x}:00.0"


def pcie_root(minor: int) -> str:
    """The GPU's PCIe root complex; two GPUs share one."""
    return f"pci0000:{0x10 * (minor // 2 + 1):02x}"


# --- inside --------------------------------------------------------------------------------------


def _nvidia_gpu(node: str, minor: int, model: Model) -> Object:
    return {**_string("uuid", gpu_uuid(node, minor)), **_nvidia_common(minor, model)}


def _nvidia_common(minor: int, model: Model) -> Object:
    return {
        **_model(model),
        **_string("resource.kubernetes.io/pciBusID", pci_bus_id(minor)),
        **_string("resource.kubernetes.io/pcieRoot", pcie_root(minor)),
        "resource.kubernetes.io/numaNode": {"int": minor // 4},
    }


def _model(model: Model) -> Object:
    return {
        **_string("productName", model.product_name),
        **_string("brand", model.brand),
        **_string("architecture", model.architecture),
        "cudaComputeCapability": {"version": model.compute_capability},
        "driverVersion": {"version": "580.126.20"},
        "cudaDriverVersion": {"version": "13.0.0"},
    }


def _mig_devices(node: str, minor: int, model: Model, layout: Sequence[str]) -> Iterator[Object]:
    profiles = (MIG_PROFILES[model.product_name][name] for name in layout)
    for profile, place in _placed(profiles):
        label = profile.name.replace(".", "").replace("+", "-")
        yield {
            "name": f"gpu-{minor}-mig-{label}-{profile.profile_id}-{place}",
            "attributes": {
                **_string("type", "mig"),
                **_string("uuid", mig_uuid(node, minor, place)),
                **_string("parentUUID", gpu_uuid(node, minor)),
                **_string("profile", profile.name),
                **_nvidia_common(minor, model),
            },
            "capacity": {
                "memory": {"value": str(_bytes(profile.memory_mib))},
                "multiprocessors": {"value": str(profile.multiprocessors)},
                "copyEngines": {"value": str(profile.copy_engines)},
                "decoders": {"value": str(profile.decoders)},
                "encoders": {"value": "0"},
                "jpegEngines": {"value": str(profile.jpeg)},
                "ofaEngines": {"value": str(profile.jpeg)},
                **{
                    f"memorySlice{place + offset}": {"value": "1"}
                    for offset in range(profile.slices)
                },
            },
        }


def _placed(profiles: Iterable[MigProfile]) -> Iterator[tuple[MigProfile, int]]:
    """Each profile at the first memory slice that it may begin at and that is free.

    Raises:
        ValueError: The profiles do not fit on one GPU.
    """
    occupied: set[int] = set()
    for profile in profiles:
        for start in profile.starts:
            slice_numbers = set(range(start, start + profile.slices))
            if not slice_numbers & occupied:
                occupied |= slice_numbers
                yield profile, start
                break
        else:
            raise ValueError(f"no place is left for {profile.name}")


def _shared(total: int, *, least: int, step: int) -> Object:
    """A capacity that shares may be asked of, the whole of it by default."""
    whole = str(total)
    policy = {
        "default": whole,
        "validRange": {"min": str(least), "max": whole, "step": str(step)},
    }
    return {"value": whole, "requestPolicy": policy}


def _string(name: str, value: str) -> Object:
    return {name: {"string": value}}


def _bytes(mib: int) -> int:
    return mib * MIB


def device_identity(*parts: object) -> uuid.UUID:
    """The UUID of the thing that the parts name, always the same."""
    return uuid.uuid5(_NAMESPACE, "/".join(str(part) for part in parts))
