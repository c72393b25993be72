"""Koordinator's names, and what becomes of each; `koordinator` says how.

Source: koordinator-sh/koordinator, apis/extension/device_share.go and resource.go.
"""

from typing import Final

from webhook.keys import Fate, Table, annotation, foreign, label, limit

PERCENT: Final = "koordinator.sh/gpu"
"""Percent of a GPU's compute and memory together; the deprecated spelling of both."""
CORE: Final = "koordinator.sh/gpu-core"
MEMORY: Final = "koordinator.sh/gpu-memory"
"""Bytes."""
RATIO: Final = "koordinator.sh/gpu-memory-ratio"
"""Percent of a GPU's memory."""
SHARED: Final = "koordinator.sh/gpu.shared"
"""The number of GPUs that the totals are divided by."""
RDMA: Final = "koordinator.sh/rdma"
FPGA: Final = "koordinator.sh/fpga"
WHOLE_GPU: Final = "nvidia.com/gpu"
"""The device plugin's key, which is Koordinator's where the pod says so; see `takes_whole_gpus`."""

GPU_KEYS: Final = (PERCENT, CORE, MEMORY, RATIO, SHARED)
OWN_KEYS: Final = (*GPU_KEYS, RDMA, FPGA)
FOREIGN_GPUS: Final = (
    "amd.com/gpu",
    "dcu.com/gpu",
    "huawei.com/npu-core",
    "huawei.com/npu-cpu",
    "huawei.com/npu-dvpp",
)
"""Keys of other vendors that Koordinator reads beside its own."""

ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
HINT: Final = "scheduling.koordinator.sh/device-allocate-hint"
JOINT: Final = "scheduling.koordinator.sh/device-joint-allocate"
PARTITION: Final = "scheduling.koordinator.sh/gpu-partition-spec"
REPLACE: Final = "pod.koordinator.sh/replace-resources"
ISOLATION_LABEL: Final = "koordinator.sh/gpu-isolation-provider"

TABLE: Final[Table] = (
    limit(
        PERCENT,
        "percent",
        Fate.CAPACITY,
        "`gpu-core: P` and `gpu-memory-ratio: P`, whose deprecated spelling it is; beside another "
        "GPU key in one container refused",
    ),
    limit(
        SHARED,
        "GPUs",
        Fate.COUNT,
        "N GPUs, all different, among which the totals are divided. `0` is refused",
    ),
    limit(
        CORE,
        "percent",
        Fate.CAPACITY,
        "`cores: P/N`; refused where N does not divide it, or it is above 100 for each",
    ),
    limit(
        MEMORY,
        "bytes",
        Fate.CAPACITY,
        "`memory: B/N`. A share, however large",
    ),
    limit(
        RATIO,
        "percent",
        Fate.CAPACITY,
        "one alternative per published memory size, each with its P/N percent. Refused where no "
        "size is known. 100 for each leaves nothing to others: the whole GPU, unless `gpu-core` "
        "says less",
    ),
    limit(
        WHOLE_GPU,
        "GPUs",
        Fate.COUNT,
        "N whole GPUs, where an annotation makes it Koordinator's; else it is the device plugin's "
        "or HAMi's",
    ),
    limit(
        RDMA,
        "percent",
        Fate.COUNT,
        "N x 100 are N NICs. Other amounts above 100 are refused",
        case="100 and above",
    ),
    limit(
        RDMA,
        "percent",
        Fate.CAPACITY,
        "a share of one NIC, or a whole one with a warning where the driver shares none",
        case="below 100",
    ),
    limit(
        FPGA,
        "percent",
        Fate.COUNT,
        "the same of the profile's devices of kind `fpga`",
        case="a profile has any",
    ),
    limit(
        FPGA,
        "percent",
        Fate.REFUSED,
        "no driver here has any, until a profile of yours does",
        case="no profile has any",
    ),
    *(
        foreign(name, Fate.REFUSED, "another vendor's device. Alone it is not looked at")
        for name in FOREIGN_GPUS
    ),
    annotation(
        JOINT,
        Fate.CONSTRAINT,
        "GPUs and NICs (or FPGAs) in one claim. The first of `deviceTypes` is dealt into groups of "
        "as many devices as share a PCIe root on most nodes (a warning on mixed hardware; without "
        "an inventory one group, with a warning). Every group is under one "
        "`resource.kubernetes.io/pcieRoot`, and has a NIC: there are as many NICs as groups, or as "
        "were asked for if that is more. More than 32 devices are refused, since constraints "
        "cannot span claims; so are devices that are published without a root",
        case="`requiredScope: SamePCIe`",
    ),
    annotation(
        JOINT,
        Fate.CONSTRAINT,
        "the same groups, with as many NICs as were asked for, each beside a group if possible: "
        "`firstAvailable` with `aligned` and `any`. Koordinator would add a NIC for each further "
        "group if one is free; a claim cannot",
        case="without",
    ),
    annotation(
        HINT,
        Fate.COUNT,
        "all NICs of a node (`allocationMode: All`), aligned with nothing",
        case="`allocateStrategy: ApplyForAll` of `rdma`",
    ),
    annotation(
        HINT,
        Fate.COUNT,
        "the amount is a number of NICs",
        case="`allocateStrategy: RequestsAsCount` of `rdma`",
    ),
    annotation(
        HINT,
        Fate.DROPPED,
        "a strategy means nothing to GPUs",
        case="`allocateStrategy` of `gpu`",
    ),
    annotation(
        HINT,
        Fate.CONSTRAINT,
        "all devices of the type have one PCIe root or NUMA node; refused where the driver does "
        "not publish it, and for shares of several GPUs",
        case="`requiredTopologyScope: PCIe`, `NUMANode`",
    ),
    annotation(
        HINT,
        Fate.KEPT,
        "all devices of a pod are on one node",
        case="`requiredTopologyScope: Node`",
    ),
    annotation(
        HINT,
        Fate.REFUSED,
        "one device cannot be several; of one it says nothing",
        case="`requiredTopologyScope: Device` of several",
    ),
    annotation(
        HINT,
        Fate.CAPACITY,
        "the whole device, with a warning where a share was asked for",
        case="`exclusivePolicy: DeviceLevel`",
    ),
    annotation(
        HINT,
        Fate.DROPPED,
        "other pods may come under the same PCIe root",
        case="`exclusivePolicy: PCIeLevel`",
    ),
    annotation(
        HINT,
        Fate.REFUSED,
        "they name labels of Koordinator's Device objects, which drivers do not publish",
        case="`selector`, `vfSelector`",
    ),
    annotation(
        HINT,
        Fate.KEPT,
        "everything is selected",
        case="`selector: {}`",
    ),
    annotation(
        HINT,
        Fate.DROPPED,
        "whether NICs are virtual functions is the DeviceClass's",
        case="`vfSelector: {}`",
    ),
    annotation(
        PARTITION,
        Fate.REFUSED,
        "no driver publishes the table of partitions",
        case="`allocatePolicy: Restricted`",
    ),
    annotation(
        PARTITION,
        Fate.DROPPED,
        "a claim cannot prefer a partition",
        case="any other",
    ),
    annotation(ALLOCATED, Fate.REFUSED, "a preset of devices by number"),
    annotation(
        REPLACE,
        Fate.READING,
        "Koordinator's keys are renamed before they are read",
        case="to a key of Koordinator's",
    ),
    annotation(
        REPLACE,
        Fate.REFUSED,
        "what Koordinator's key would become is a stranger's",
        case="to another key",
    ),
    label(
        ISOLATION_LABEL,
        Fate.WARNED,
        "koordlet injects HAMi-core for devices that Koordinator allocated, and sees no claims. "
        "HAMi's driver limits memory and cores itself, so with it nothing is lost; another driver "
        "does not",
        case="beside a share",
    ),
)
