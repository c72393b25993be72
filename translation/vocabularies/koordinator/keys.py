"""Koordinator's names, with the outcome of each.

Source: koordinator-sh/koordinator, apis/extension/device_share.go and resource.go.
"""

from typing import Final

from translation.model.keys import (
    KeyOutcome,
    Table,
    annotation,
    foreign,
    label,
    limit,
)

PERCENT: Final = "koordinator.sh/gpu"
"""Percent of a GPU's compute and of its memory; the deprecated form of both keys."""
CORE: Final = "koordinator.sh/gpu-core"
MEMORY: Final = "koordinator.sh/gpu-memory"
"""Bytes."""
RATIO: Final = "koordinator.sh/gpu-memory-ratio"
"""Percent of a GPU's memory."""
SHARED: Final = "koordinator.sh/gpu.shared"
"""The number of GPUs among which the totals are divided."""
RDMA: Final = "koordinator.sh/rdma"
FPGA: Final = "koordinator.sh/fpga"
WHOLE_GPU: Final = "nvidia.com/gpu"
"""The device plugin's key, which may belong to Koordinator; see `takes_whole_gpus`."""

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
        KeyOutcome.CAPACITY,
        "`gpu-core: P` and `gpu-memory-ratio: P`, whose deprecated form it is; rejected beside "
        "another GPU key but `gpu.shared` in one container",
        depends_on_device=True,
    ),
    limit(
        SHARED,
        "GPUs",
        KeyOutcome.COUNT,
        "N distinct GPUs, among which the totals are divided. `0` counts as absent, as any amount does",
    ),
    limit(
        CORE,
        "percent",
        KeyOutcome.CAPACITY,
        "`cores: P/N`; rejected where N does not divide it, or it is above 100 for each",
    ),
    limit(
        MEMORY,
        "bytes",
        KeyOutcome.CAPACITY,
        "`memory: B/N`. A share, however large; where devices divide memory in steps, such as 1 MiB, it "
        "is rounded up to the next (`amountRoundedUp`)",
    ),
    limit(
        RATIO,
        "percent",
        KeyOutcome.CAPACITY,
        "one alternative per published memory size, each with its P/N percent. Rejected where no "
        "size is known. 100 for each leaves nothing to others: the whole GPU, unless `gpu-core` "
        "is less",
        depends_on_device=True,
    ),
    limit(
        WHOLE_GPU,
        "GPUs",
        KeyOutcome.COUNT,
        "N whole GPUs, where an annotation makes it Koordinator's key: a hint about `gpu`, joint "
        "allocation beside a key of Koordinator's, a partition, or a replacement; else it belongs to "
        "the device plugin or HAMi",
    ),
    limit(
        RDMA,
        "percent",
        KeyOutcome.COUNT,
        "N x 100 are N NICs. Other amounts above 100 are rejected",
        case="100 and above",
        depends_on_device=True,
    ),
    limit(
        RDMA,
        "percent",
        KeyOutcome.CAPACITY,
        "a share of one NIC, or a whole one with a warning where the driver shares none",
        case="below 100",
        depends_on_device=True,
    ),
    limit(
        FPGA,
        "percent",
        KeyOutcome.COUNT,
        "the same for the profile's devices of kind `fpga`",
        case="a profile has any",
        depends_on_device=True,
    ),
    limit(
        FPGA,
        "percent",
        KeyOutcome.REFUSED,
        "no profile here has any; add one of your own",
        case="no profile has any",
    ),
    *(
        foreign(
            name,
            KeyOutcome.REFUSED,
            "another vendor's device. Not read without Koordinator's own keys",
        )
        for name in FOREIGN_GPUS
    ),
    annotation(
        JOINT,
        KeyOutcome.CONSTRAINT,
        "GPUs and NICs (or FPGAs) in one claim. The first of `deviceTypes` is divided into groups of "
        "as many devices as share a PCIe root on most nodes (a warning on mixed hardware; without "
        "an inventory one group, with a warning). Every group is under one "
        "`resource.kubernetes.io/pcieRoot` and has a NIC: there are as many NICs as groups, or as "
        "requested if that is more. More than 32 devices are rejected, because constraints cannot "
        "span claims; so are devices that are published without a root",
        case="`requiredScope: SamePCIe`",
    ),
    annotation(
        JOINT,
        KeyOutcome.CONSTRAINT,
        "the same groups, with the requested number of NICs, each aligned with a group if possible: "
        "`firstAvailable` with `aligned` and `any`. Where there are more groups than NICs, "
        "alternatives with a NIC for each group come first, in descending number; those NICs are not "
        "aligned",
        case="without",
    ),
    annotation(
        HINT,
        KeyOutcome.COUNT,
        "all NICs of a node (`allocationMode: All`), not aligned",
        case="`allocateStrategy: ApplyForAll` of `rdma`",
    ),
    annotation(
        HINT,
        KeyOutcome.COUNT,
        "the amount is a number of NICs",
        case="`allocateStrategy: RequestsAsCount` of `rdma`",
    ),
    annotation(
        HINT,
        KeyOutcome.DROPPED,
        "a strategy has no effect on GPUs",
        case="`allocateStrategy` of `gpu`",
    ),
    annotation(
        HINT,
        KeyOutcome.CONSTRAINT,
        "all GPUs have one PCIe root or NUMA node; rejected where the driver does not publish it, and "
        "for shares of several GPUs",
        case="`requiredTopologyScope: PCIe`, `NUMANode`",
    ),
    annotation(
        HINT,
        KeyOutcome.DROPPED,
        "Koordinator's code reads it for GPUs only, and only without `gpu-partition-spec`",
        case="`requiredTopologyScope` of other devices, or beside a partition",
    ),
    annotation(
        HINT,
        KeyOutcome.KEPT,
        "all devices of a pod are on one node",
        case="`requiredTopologyScope: Node`",
    ),
    annotation(
        HINT,
        KeyOutcome.REFUSED,
        "several devices cannot be one; without effect for one device",
        case="`requiredTopologyScope: Device` of several",
    ),
    annotation(
        HINT,
        KeyOutcome.CAPACITY,
        "the whole device, with a warning where a share was requested; dropped with a warning, if "
        "the setting `translation.exclusivity` is `never`, except beside `RequestsAsCount`",
        case="`exclusivePolicy: DeviceLevel`",
    ),
    annotation(
        HINT,
        KeyOutcome.DROPPED,
        "other pods may use the same PCIe root",
        case="`exclusivePolicy: PCIeLevel`",
    ),
    annotation(
        HINT,
        KeyOutcome.SELECTOR,
        "the attribute that the profile names for each label of Koordinator's Device objects",
        case="`selector`, `vfSelector`: a profile has the labels",
    ),
    annotation(
        HINT,
        KeyOutcome.REFUSED,
        "drivers do not publish the labels of Koordinator's Device objects; name the attributes with their "
        "values in a profile (`labels`)",
        case="`selector`, `vfSelector`: no profile has a label",
    ),
    annotation(
        HINT,
        KeyOutcome.KEPT,
        "selects everything",
        case="`selector: {}`",
    ),
    annotation(
        HINT,
        KeyOutcome.SELECTOR,
        "virtual functions, as the profile says (`virtualFunctions`)",
        case="`vfSelector: {}`: a profile says which they are",
    ),
    annotation(
        HINT,
        KeyOutcome.DROPPED,
        "the DeviceClass decides whether NICs are virtual functions",
        case="`vfSelector: {}`: no profile says it",
    ),
    annotation(
        PARTITION,
        KeyOutcome.CONSTRAINT,
        "the GPUs of the pod are one partition of their number, under every policy: the same "
        "`gpu.nvidia.com/partition<N>`, which the driver publishes with its gate "
        "`FabricManagerPartitioning`. Rejected where it publishes none, or none of that size "
        "(`noPartitionOfSize`). `Restricted` loses its allocation scores, with a warning",
        case="whole GPUs",
    ),
    annotation(
        PARTITION,
        KeyOutcome.DROPPED,
        "a share is in no partition, as in Koordinator",
        case="shares",
    ),
    annotation(
        PARTITION,
        KeyOutcome.REFUSED,
        "no driver publishes the bandwidth of a partition",
        case="`ringBusBandwidth`",
    ),
    annotation(
        ALLOCATED,
        KeyOutcome.DROPPED,
        "an assignment of devices by number, which Koordinator writes and does not read from a new "
        "pod, such as a restored one",
    ),
    annotation(
        REPLACE,
        KeyOutcome.READING,
        "Koordinator's keys are renamed before they are read",
        case="to a key of Koordinator's",
    ),
    annotation(
        REPLACE,
        KeyOutcome.REFUSED,
        "Koordinator's key would become a key of another system",
        case="to another key",
    ),
    label(
        ISOLATION_LABEL,
        KeyOutcome.WARNED,
        "koordlet injects HAMi-core for devices that Koordinator allocated, and ignores claims. "
        "HAMi's driver limits memory and cores itself; other drivers do not",
        case="beside a share",
    ),
)


WHOLE: Final = 100
"""Percent of one device."""
