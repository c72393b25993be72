"""Device keys of other systems, translated by no vocabulary: their owners and the advice on them.

Source: the documentation and code of the device plugins and schedulers that are named here.
"""

import re
from typing import Final

import msgspec


class DeviceFamily(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one system.

    Attributes:
        owner: The system that reads the keys.
        resources: Resource names; one that ends in `*` is a prefix.
        annotations: Pod annotations; one that ends in `*` is a prefix.
        advice: The way to continue with such a pod.
    """

    owner: str
    resources: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    advice: str


def _dra_advice(driver: str, resource: str) -> str:
    return (
        f"to use DRA, install the driver {driver} and give a DeviceClass "
        f"extendedResourceName {resource}; until then the device plugin must keep running"
    )


_NIC: Final = (
    "list the name under resources in a profile of a driver for NICs, such as dra.net; otherwise keep the "
    "device plugin running"
)


def _keys_advice(keys: str) -> str:
    return f"write a translated key: {keys}; or keep the device plugin running"


_PLUGIN: Final = "keep the device plugin running; no DRA driver for these devices is known"
_HAMI_KEYS: Final = (
    "write HAMi's keys instead, which are translated: nvidia.com/gpu, nvidia.com/gpumem (MiB), "
    "nvidia.com/gpucores (percent)"
)
_ASCEND_KEYS: Final = (
    "huawei.com/CHIP, and huawei.com/CHIP-memory (MiB) for a part of one, where CHIP is the nodes' chip, "
    "such as Ascend310P"
)

FAMILIES: Final[tuple[DeviceFamily, ...]] = (
    DeviceFamily(
        owner="AMD's network operator", resources=("amd.com/nic", "amd.com/vnic"), advice=_NIC
    ),
    DeviceFamily(
        owner="AMD's GPU device plugin, or HAMi on AMD GPUs",
        resources=("amd.com/*",),
        annotations=("amd.com/*",),
        advice=_keys_advice("amd.com/gpu, or a partition such as amd.com/cpx_nps4"),
    ),
    DeviceFamily(
        owner="Xilinx's FPGA device plugin, or InAccel",
        resources=("xilinx.com/*", "xilinx/*"),
        advice=_PLUGIN,
    ),
    DeviceFamily(
        owner="AWS's Neuron device plugin",
        resources=("aws.amazon.com/neuron*",),
        advice=_keys_advice("aws.amazon.com/neuron"),
    ),
    DeviceFamily(
        owner="Intel's GPU device plugin",
        resources=("gpu.intel.com/*",),
        advice=_keys_advice("gpu.intel.com/i915 or gpu.intel.com/xe"),
    ),
    DeviceFamily(
        owner="Intel's Gaudi device plugin",
        resources=("habana.ai/*",),
        advice=_keys_advice("habana.ai/gaudi"),
    ),
    DeviceFamily(
        owner="Intel's QAT device plugin",
        resources=("qat.intel.com/*",),
        advice=_dra_advice("qat.intel.com", "qat.intel.com/generic"),
    ),
    DeviceFamily(
        owner="Intel's other device plugins (SR-IOV, FPGA, DSA, IAA, DLB, NPU, SGX)",
        resources=(
            *("intel.com/*", "dsa.intel.com/*", "iaa.intel.com/*", "dlb.intel.com/*"),
            *("fpga.intel.com/*", "npu.intel.com/*", "sgx.intel.com/*"),
        ),
        advice="if these are NICs, list the name under resources in a profile; otherwise keep the "
        "device plugin running",
    ),
    # MindX counts AI cores with the first one, and Koordinator reads all of them.
    DeviceFamily(
        owner="Koordinator, or MindX's virtual NPUs",
        resources=("huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp"),
        advice=f"no profile serves these keys; write {_ASCEND_KEYS}; or keep the scheduler and the device "
        "plugin running",
    ),
    # Source: mind-cluster, the fork of k8s-rdma-shared-dev-plugin.
    DeviceFamily(
        owner="Huawei's RDMA device plugin", resources=("huawei.com/ub_rdma",), advice=_NIC
    ),
    DeviceFamily(
        owner="Huawei's Ascend device plugin, HAMi or MindX",
        resources=("huawei.com/*",),
        annotations=("huawei.com/*",),
        advice=_keys_advice(_ASCEND_KEYS),
    ),
    DeviceFamily(
        owner="Volcano's GPU sharing",
        resources=("volcano.sh/vgpu-*", "volcano.sh/gpu-*"),
        advice="write volcano.sh/vgpu-number and volcano.sh/vgpu-memory, which are translated",
    ),
    DeviceFamily(
        owner="Alibaba Cloud's GPU sharing",
        resources=("aliyun.com/gpu-*", "alibabacloud.com/gpu-*"),
        advice="write aliyun.com/gpu-mem and aliyun.com/gpu-core.percentage, which are translated",
    ),
    DeviceFamily(
        owner="Alibaba Cloud's PPU device plugin",
        resources=("aliyun.com/ppu*", "alibabacloud.com/ppu*"),
        advice=_PLUGIN,
    ),
    DeviceFamily(
        owner="Google's retired API of Cloud TPUs",
        resources=("cloud-tpus.google.com/*",),
        advice=_keys_advice("google.com/tpu"),
    ),
    DeviceFamily(
        owner="Elastic GPU",
        resources=("elasticgpu.io/*", "gpushare.provisioner.elasticgpu.io/*"),
        advice=_HAMI_KEYS,
    ),
    DeviceFamily(
        owner="Tencent's RDMA device plugin",
        resources=("tencent.com/rdma",),
        advice=_NIC,
    ),
    DeviceFamily(
        owner="Tencent Cloud's GPU sharing",
        resources=("tencent.com/*", "tke.cloud.tencent.com/*"),
        advice="write tencent.com/vcuda-core or tke.cloud.tencent.com/qgpu-core, which are translated",
    ),
    DeviceFamily(
        owner="Volcano Engine's GPU sharing",
        resources=("vke.volcengine.com/mgpu-*",),
        advice="write vke.volcengine.com/mgpu-core and vke.volcengine.com/mgpu-memory, which are "
        "translated",
    ),
    DeviceFamily(
        owner="Volcano Engine's device plugins",
        resources=("vke.volcengine.com/*",),
        annotations=("k8s.volcengine.com/pod-networks",),
        advice="if it is a NIC, such as vke.volcengine.com/rdma, list the name under resources in a "
        "profile; otherwise keep the device plugin running",
    ),
    DeviceFamily(
        owner="nos, the dynamic GPU partitioning of Nebuly",
        resources=("nos.nebuly.com/*",),
        advice=_HAMI_KEYS,
    ),
    DeviceFamily(
        owner="tensor-fusion",
        resources=("tensor-fusion.ai/*",),
        annotations=("tensor-fusion.ai/*",),
        advice=_keys_advice("tensor-fusion.ai/vram-request or tensor-fusion.ai/tflops-request"),
    ),
    DeviceFamily(
        owner="Koordinator",
        resources=("koordinator.sh/*",),
        annotations=("scheduling.koordinator.sh/device-*", "scheduling.koordinator.sh/gpu-*"),
        advice="write one of Koordinator's keys in docs/vocabularies.md",
    ),
    DeviceFamily(
        owner="earlier versions of Koordinator",
        resources=("kubernetes.io/gpu*", "kubernetes.io/rdma", "kubernetes.io/fpga"),
        advice="write the current keys, which are translated: koordinator.sh/gpu-core, "
        "koordinator.sh/gpu-memory, koordinator.sh/rdma",
    ),
    DeviceFamily(
        owner="Hygon's DCU device plugin, or HAMi",
        resources=("hygon.com/*", "dcu.com/*"),
        annotations=("hygon.com/*",),
        advice=_keys_advice("hygon.com/dcunum"),
    ),
    DeviceFamily(
        owner="MetaX's device plugin, or HAMi",
        resources=("metax-tech.com/*",),
        annotations=("metax-tech.com/*",),
        advice=_PLUGIN,
    ),
    DeviceFamily(
        owner="Cambricon's device plugin, or HAMi",
        resources=("cambricon.com/*",),
        annotations=("cambricon.com/*",),
        advice=_PLUGIN,
    ),
    DeviceFamily(
        owner="Moore Threads' device plugin, or HAMi",
        resources=("mthreads.com/*",),
        annotations=("mthreads.ai/*",),
        advice=_PLUGIN,
    ),
    DeviceFamily(
        owner="Iluvatar's device plugin, or HAMi",
        resources=("iluvatar.ai/*", "iluvatar.com/*"),
        annotations=("iluvatar.ai/*",),
        advice=_PLUGIN,
    ),
    DeviceFamily(owner="Biren's device plugin", resources=("birentech.com/*",), advice=_PLUGIN),
    DeviceFamily(
        owner="Kunlunxin's device plugin, or HAMi",
        resources=("kunlunxin.com/*",),
        annotations=("baidu.com/*", "hami.io/use-xpu-uuid", "hami.io/no-use-xpu-uuid"),
        advice=_PLUGIN,
    ),
    DeviceFamily(
        owner="Enflame's device plugin, or HAMi",
        resources=("enflame.com/*",),
        annotations=("enflame.com/*",),
        advice=_PLUGIN,
    ),
    DeviceFamily(
        owner="Vastai's device plugin, or HAMi",
        resources=("vastaitech.com/*",),
        annotations=("vastaitech.com/*",),
        advice=_PLUGIN,
    ),
    DeviceFamily(owner="FuriosaAI's device plugin", resources=("furiosa.ai/*",), advice=_PLUGIN),
    DeviceFamily(
        owner="Qualcomm's Cloud AI device plugin", resources=("qualcomm.com/*",), advice=_PLUGIN
    ),
    DeviceFamily(
        owner="Tenstorrent's device plugin",
        resources=("tenstorrent.com/*",),
        advice=_dra_advice("tenstorrent.com", "tenstorrent.com/n150"),
    ),
    DeviceFamily(
        owner="IBM's Spyre device plugin",
        resources=("ibm.com/spyre*", "ibm.com/aiu*"),
        advice="to use DRA, install IBM's driver for Spyre and request its DeviceClass",
    ),
    # Source: spidernet-io/spiderpool, pkg/constant/k8s.go.
    DeviceFamily(
        owner="Spiderpool, whose webhook gives the pod NICs",
        resources=("spidernet.io/*",),
        annotations=(
            "cni.spidernet.io/rdma-resource-inject",
            "cni.spidernet.io/network-resource-inject",
        ),
        advice=_NIC,
    ),
    DeviceFamily(
        owner="the device injection of container runtimes (CDI, NRI)",
        annotations=(
            *("cdi.k8s.io/*", "nvidia.cdi.k8s.io/*", "devices.nri.io/*"),
            *("devices.gke.io/*", "devices.noderesource.dev/*"),
        ),
        advice="remove it where the pod's claims give these devices: the runtime injects them whatever "
        "the pod requests",
    ),
    DeviceFamily(
        owner="HAMi",
        annotations=("hami.io/*",),
        advice="remove the annotation, or select the devices with one that is translated",
    ),
    DeviceFamily(
        owner="NVIDIA's device plugins, or HAMi",
        resources=("nvidia.com/*",),
        annotations=("nvidia.com/*",),
        advice="if it is a NIC, list the name under resources in a profile; otherwise write one of "
        "the keys in docs/vocabularies.md",
    ),
)
"""The families in order of precedence: a key belongs to the first with a pattern that matches
it."""

UNKNOWN: Final = DeviceFamily(
    owner="a device plugin that is not known here",
    advice="where a DRA driver has these devices, list the name under resources in its profile; otherwise "
    "keep the device plugin running",
)
"""The family of resource names of devices, by their words, whose domain is in no other."""
_OF_KUBERNETES: Final = re.compile(r"(.*\.)?k(ubernete|8)s\.io")
_DEVICE_WORDS: Final = re.compile(
    "gpu|fpga|rdma|sr-?iov|accelerat|infiniband|neuron|vfio|vdpa|netdev|dpdk|"
    r"(^|[^a-z0-9])([nptvxdil]pu|[dgmh]cu|mlu|mig|nic|vf|hca|ib|roce|card)s?[0-9]*([^a-z0-9]|$)",
    re.IGNORECASE,
)
MAX_NAME: Final = 317
"""Characters of the longest resource name: a domain of 253, and a name of 63."""


def has_device_words(resource: str) -> bool:
    """Return True if a resource name of an unknown domain says that it counts devices.

    >>> [*map(has_device_words, ("acme.example/gpu", "acme.example/license", "node.k8s.io/gpu", "gpu"))]
    [True, False, False, False]
    """
    domain, slash, _ = resource.partition("/")
    return (
        bool(slash)
        and len(resource) <= MAX_NAME
        and _OF_KUBERNETES.fullmatch(domain) is None
        and _DEVICE_WORDS.search(resource) is not None
    )


BOOKKEEPING: Final[tuple[str, ...]] = (
    *("hami.io/vgpu-node", "hami.io/vgpu-time", "hami.io/bind-phase", "hami.io/bind-time"),
    *("hami.io/vgpu-mig-allocations", "hami.io/*-devices-to-allocate"),
    *("hami.io/*-devices-allocated", "huawei.com/Ascend*", "iluvatar.ai/predicate-*"),
    *("iluvatar.ai/gpu-assigned", "enflame.com/gcu-assigned*", "enflame.com/gcu-request-size"),
    *("tensor-fusion.ai/gpu-ids", "tensor-fusion.ai/index", "tensor-fusion.ai/gang-*-members"),
    *("tensor-fusion.ai/effective-hard-sm-percent", "tensor-fusion.ai/partition-uuids"),
    *("tensor-fusion.ai/gang-group-key", "tensor-fusion.ai/pod-counter-key"),
    *("amd.com/gpu-index", "amd.com/predicate-*"),
)
"""Annotations that a scheduler writes on a pod when it gives it devices, where `*` is any text.

They request nothing. Those of Volcano, Koordinator and Alibaba Cloud are in no family.

Sources: HAMi's pkg/util and pkg/device, tensor-fusion's pkg/constants.
"""
