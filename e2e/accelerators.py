"""Devices of further vendors, laid out as their drivers publish them, and their classes.

Sources:
    gpu.amd.com: ROCm/k8s-gpu-dra-driver, commit 2622427, cmd/gpu-kubeletplugin/deviceinfo.go.
    gpu.intel.com, gaudi.intel.com: intel/intel-resource-drivers-for-kubernetes, commit 1da939f,
        cmd/kubelet-gpu-plugin/node_state.go and cmd/kubelet-gaudi-plugin/node_state.go.
    tpu.google.com: kubernetes-sigs/dra-driver-google-tpu, commit f5a9d8c,
        cmd/tpu-dra-kubeletplugin/manager.go.
    neuron.aws.com: AWS's documentation of its driver, whose code is closed.
    ascend.project-hami.io: Project-HAMi/ascend-dra-driver, commit dc1db52,
        cmd/ascend-dra-kubeletplugin/discovery.go, with its gate HAMivNPUCore.
    dra.hygon.com: HYGON-AI/k8s-hcu-dra-driver, commit 643ba6d,
        internal/driver/allocatable_device.go.
    npu.rebellions.ai: RBLN-SW/rbln-k8s-dra-driver, commit dd9af1b, cmd/npu-kubelet-plugin/state.go.
"""

from typing import Final

from e2e.inventory import (
    Object,
    device_class,
    device_identity,
    pci_bus_id,
    pcie_root,
    resource_slices,
)

AMD: Final = "gpu.amd.com"
INTEL: Final = "gpu.intel.com"
GAUDI: Final = "gaudi.intel.com"
TPU: Final = "tpu.google.com"
NEURON: Final = "neuron.aws.com"
REBELLIONS: Final = "npu.rebellions.ai"
ASCEND: Final = "ascend.project-hami.io"
HYGON: Final = "dra.hygon.com"

_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_BUS: Final = "resource.kubernetes.io/pciBusID"


def accelerator_classes() -> list[Object]:
    """The classes of the charts of these drivers; only Rebellions' maps a name by default."""
    mapped = {REBELLIONS: "rebellions.ai/npu"}
    whole = [
        device_class(name, f"device.driver == '{name}'", extended_resource=mapped.get(name, ""))
        for name in (AMD, INTEL, GAUDI, TPU, NEURON, REBELLIONS)
    ]
    return [
        *whole,
        device_class(
            "hami-vnpu-core.project-hami.io",
            f"device.driver == '{ASCEND}' && device.attributes['{ASCEND}'].type == 'HAMivNPUCore'",
        ),
        device_class(
            HYGON, f"device.driver == '{HYGON}' && device.attributes['{HYGON}'].type == 'hcu'"
        ),
    ]


def amd_gpus(node: str, *, gpus: int = 8) -> list[Object]:
    """The devices that AMD's driver publishes for whole MI300X GPUs."""
    devices = [
        {
            "name": f"gpu-{number}-{128 + number}",
            "attributes": {
                **_amd(number, "spx_nps1"),
                **_texts(
                    type="amdgpu", pciAddr=pci_bus_id(number), deviceID=str(7_000_000 + number)
                ),
            },
            "capacity": _amounts(memory="191Gi", computeUnits="304", simdUnits="1216"),
        }
        for number in range(gpus)
    ]
    return resource_slices(AMD, node, devices)


def amd_partitions(node: str, *, gpus: int = 1) -> list[Object]:
    """The devices that AMD's driver publishes for MI300X GPUs in eight partitions each."""
    devices = [
        {
            "name": f"gpu-{number}-{128 + number}",
            "attributes": {
                **_amd(number // 8, "cpx_nps4"),
                **_texts(
                    type="amdgpu-partition",
                    parentPciAddr=pci_bus_id(number // 8),
                    parentDeviceID=str(7_000_000 + number // 8),
                ),
                "cardIndex": {"int": number},
                "renderIndex": {"int": 128 + number},
            },
            "capacity": _amounts(memory="24Gi", computeUnits="38", simdUnits="152"),
        }
        for number in range(8 * gpus)
    ]
    return resource_slices(AMD, node, devices)


def _amd(number: int, profile: str) -> Object:
    return {
        "cardIndex": {"int": number},
        "renderIndex": {"int": 128 + number},
        **_texts(
            family="AI",
            productName="AMD_Instinct_MI300X_OAM",
            driverSrcVersion="1.0",
            partitionProfile=profile,
        ),
        "driverVersion": {"version": "6.12.12"},
        _ROOT: {"string": pcie_root(number)},
    }


def intel_gpus(node: str, *, gpus: int = 2, module: str = "xe") -> list[Object]:
    """The devices that Intel's driver publishes for GPUs of a kernel module, i915 or xe."""
    devices = [
        {
            "name": f"0000-{number + 3:02x}-00-0-0xe20b",
            "attributes": {
                **_texts(
                    model="Arc B580",
                    family="Battlemage",
                    driver=module,
                    type="gpu",
                    pciId="0xe20b",
                    pciAddress=f"0000:{number + 3:02x}:00.0",
                    health="Healthy",
                ),
                "sriov": {"bool": False},
                _ROOT: {"string": pcie_root(number)},
                _BUS: {"string": f"0000:{number + 3:02x}:00.0"},
            },
            "capacity": _amounts(memory="12216Mi", millicores="1k"),
        }
        for number in range(gpus)
    ]
    return resource_slices(INTEL, node, devices)


def gaudi_devices(node: str, *, devices: int = 8) -> list[Object]:
    """The Gaudi devices that Intel's driver publishes."""
    published = [
        {
            "name": f"0000-{number + 0x0F:02x}-00-0-0x1020",
            "attributes": {
                **_texts(model="Gaudi2", serial=f"AN0{number:06d}"),
                "healthy": {"bool": True},
                _ROOT: {"string": pcie_root(number)},
            },
        }
        for number in range(devices)
    ]
    return resource_slices(GAUDI, node, published)


def tpu_chips(node: str, *, chips: int = 4, topology: str = "2x2") -> list[Object]:
    """The chips that Google's driver publishes for a node."""
    devices = [
        {
            "name": f"accel{number}",
            "attributes": {
                **_texts(
                    uuid=str(device_identity(node, "tpu", number)),
                    tpuGen="v5e",
                    brand="Google",
                    accelerator="tpu-v5-lite-podslice",
                    topology=topology,
                ),
                "index": {"int": number},
                "chipCount": {"int": chips},
            },
        }
        for number in range(chips)
    ]
    return resource_slices(TPU, node, devices)


def neuron_devices(node: str, *, devices: int = 16) -> list[Object]:
    """The devices that AWS's driver publishes for a trn2 instance, in groups of 4, 8 and 16."""
    published = [
        {
            "name": f"neuron{number}",
            "attributes": {
                **_texts(instanceType="trn2.48xlarge"),
                "deviceId": {"int": number},
                **{
                    f"resource.aws.com/devicegroup{size}_id": {"int": number // size}
                    for size in (4, 8, 16)
                },
            },
        }
        for number in range(devices)
    ]
    return resource_slices(NEURON, node, published)


def rebellions_devices(node: str, *, devices: int = 2) -> list[Object]:
    """The devices that Rebellions' driver publishes."""
    published = [
        {
            "name": f"rbln{number}",
            "attributes": {
                **_texts(
                    type="npu",
                    productName="RBLN-CA22",
                    sid=f"{number:016d}",
                    uuid=str(device_identity(node, "rbln", number)),
                    pciDeviceID="1220",
                    pciLinkSpeed="32GT/s",
                    pciLinkWidth="16",
                    firmwareVersion="2.0.1",
                    driverVersion="2.0.1",
                ),
                _BUS: {"string": pci_bus_id(number)},
                _ROOT: {"string": pcie_root(number)},
                "resource.kubernetes.io/numaNode": {"int": 0},
            },
            "capacity": _amounts(memory="16063Mi"),
        }
        for number in range(devices)
    ]
    return resource_slices(REBELLIONS, node, published)


def ascend_npus(node: str, *, npus: int = 2) -> list[Object]:
    """The Ascend NPUs that HAMi's driver publishes and divides."""
    devices = [
        {
            "name": f"npu-{number}",
            "allowMultipleAllocations": True,
            "attributes": {
                **_texts(
                    type="HAMivNPUCore",
                    uuid=f"{node}-{number}",
                    model="Ascend310P3",
                    productName="Ascend310P3",
                    brand="Huawei",
                ),
                "index": {"int": number},
                "physicalID": {"int": number},
            },
            "capacity": {
                "memory": _divided("21527Mi", least="1Mi"),
                "cores": _divided("100", least="0", step="1"),
            },
        }
        for number in range(npus)
    ]
    return resource_slices(ASCEND, node, devices)


def hygon_devices(node: str, *, devices: int = 2) -> list[Object]:
    """The devices that Hygon's driver publishes."""
    published = [
        {
            "name": f"hcu-0000-{number + 5:02x}-00-0",
            "allowMultipleAllocations": True,
            "attributes": _texts(
                type="hcu",
                uuid=f"TPXS30000210060{number}",
                productName="K100_AI",
                architecture="",
                brand="HYGON",
            ),
            "capacity": {
                "cores": _divided("120", least="0", step="1"),
                "memory": _divided("64Gi", least="0"),
                "slices": {
                    "value": "4",
                    "requestPolicy": {
                        "default": "1",
                        "validRange": {"min": "1", "max": "4", "step": "1"},
                    },
                },
            },
        }
        for number in range(devices)
    ]
    return resource_slices(HYGON, node, published)


def _divided(value: str, *, least: str, step: str = "1Mi") -> Object:
    """Return a capacity that a claim gets all of, unless it says less."""
    valid_range = {"min": least, "max": value, "step": step}
    return {"value": value, "requestPolicy": {"default": value, "validRange": valid_range}}


def _texts(**attributes: str) -> Object:
    return {name: {"string": text} for name, text in attributes.items()}


def _amounts(**capacity: str) -> Object:
    return {name: {"value": amount} for name, amount in capacity.items()}
