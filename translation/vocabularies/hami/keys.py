"""The names of HAMi on NVIDIA GPUs, with the outcome of each."""

from typing import Final

from translation.model.device_policies import GPU_POLICY, SCHEDULER_TABLE
from translation.model.keys import KeyOutcome, Table, annotation, label, limit

COUNT: Final = "nvidia.com/gpu"


MEMORY_MIB: Final = "nvidia.com/gpumem"


MEMORY_PERCENT: Final = "nvidia.com/gpumem-percentage"


CORES_PERCENT: Final = "nvidia.com/gpucores"


PRIORITY: Final = "nvidia.com/priority"


USE_TYPE: Final = "nvidia.com/use-gputype"


NO_USE_TYPE: Final = "nvidia.com/nouse-gputype"


USE_UUID: Final = "nvidia.com/use-gpuuuid"


NO_USE_UUID: Final = "nvidia.com/nouse-gpuuuid"


NUMA_BIND: Final = "nvidia.com/numa-bind"


MODE: Final = "nvidia.com/vgpu-mode"


OPT_OUT: Final = "hami.io/webhook"


CONVERTED: Final = "hami.io/dra"


NODE_REGISTER: Final = "hami.io/node-nvidia-register"
"""The node annotation in which HAMi registers NVIDIA GPUs."""


NODE_HANDSHAKE: Final = "hami.io/node-handshake"
"""The node annotation in which HAMi's scheduler asks a node's plugin for a sign of life."""


OWN_KEYS: Final = (MEMORY_MIB, MEMORY_PERCENT, CORES_PERCENT, PRIORITY)
"""Keys that only HAMi has; `COUNT` is also the device plugin's."""


TABLE: Final[Table] = (
    limit(
        COUNT,
        "devices",
        KeyOutcome.COUNT,
        "N distinct devices. Absent beside `gpumem`, `gpumem-percentage` or `gpucores` it is 1 "
        "(`translation.hami.defaultCount`); `0` "
        "requests nothing, with a warning if there are other keys. Without an amount, or with all "
        "memory and all cores, it is the whole card, exclusively: `cores: 100`, memory at its "
        "default, which is all",
    ),
    limit(
        MEMORY_MIB,
        "MiB",
        KeyOutcome.CAPACITY,
        "`memory: <M>Mi`, times `translation.hami.memoryFactor`. A number of MiB: `5k` is 5000, `8Gi` "
        "is rejected. `0` is `translation.hami.defaultMemory`, by default all of it",
    ),
    limit(
        MEMORY_PERCENT,
        "percent",
        KeyOutcome.CAPACITY,
        "one alternative per published memory size, each with its share rounded down; of more than "
        "8 sizes the nearest are merged, with the share of the smaller one and a warning. Several "
        "cards must have one size, with a warning where several are published; where a node has cards of "
        "several, each card has a request of its own, up to 64 combinations. Rejected above 100, "
        "and where no size is known; `100` and `0` are all of it; `gpumem` takes precedence",
        depends_on_device=True,
    ),
    limit(
        CORES_PERCENT,
        "percent",
        KeyOutcome.CAPACITY,
        "`cores: <C>`; absent it is `translation.hami.defaultCores`, by default `0`, which reserves "
        "none and sets no limit. Above 100 it is 100, "
        "with a warning. All cores with a part of the memory are a share, with a warning, or the "
        "whole card, if the setting `translation.exclusivity` is `always`. HAMi places no share "
        "without cores on a card whose cores are all reserved; a claim may be",
    ),
    limit(
        PRIORITY,
        "",
        KeyOutcome.VARIABLE,
        "`CUDA_TASK_PRIORITY`, unless the container sets it. Alone it requests no device",
    ),
    annotation(
        USE_TYPE,
        KeyOutcome.SELECTOR,
        "the product name contains one of the items, ignoring case, with a warning where no published "
        "name does; `NVIDIA` accepts every card. Rejected if it is only commas",
    ),
    annotation(
        NO_USE_TYPE,
        KeyOutcome.SELECTOR,
        "the product name contains none of the items. `NVIDIA` is rejected, as it excludes every card",
    ),
    annotation(
        USE_UUID, KeyOutcome.SELECTOR, "the UUID is one of the items. Rejected if it is only commas"
    ),
    annotation(NO_USE_UUID, KeyOutcome.SELECTOR, "the UUID is none of the items"),
    annotation(
        NUMA_BIND,
        KeyOutcome.CONSTRAINT,
        "the same NUMA node for all devices of a container",
        case="the driver publishes it",
    ),
    annotation(
        NUMA_BIND,
        KeyOutcome.DROPPED,
        "the devices may be on different NUMA nodes",
        case="it does not, such as HAMi's",
    ),
    annotation(MODE, KeyOutcome.KEPT, "the default", case="`hami-core`"),
    annotation(
        MODE,
        KeyOutcome.CLASS,
        "MIG devices of `gpu.nvidia.com` with at least that memory, each the smallest that is free; all of one size, with a "
        "warning, where the sizes of a node have more than 64 combinations. Needs "
        "`gpumem`, or `gpumem-percentage` where a whole GPU is published: of several sizes the "
        "largest counts, with a warning. Cores are dropped with a warning",
        case="`mig`",
    ),
    annotation(
        MODE,
        KeyOutcome.CONFIG,
        "whole GPUs of `gpu.nvidia.com` with an MPS server for this pod alone, with a warning; the "
        "driver needs the feature gate `MPSSupport`. Rejects a percentage of memory",
        case="`mps`",
    ),
    annotation(MODE, KeyOutcome.REFUSED, "no card has such a mode", case="any other"),
    annotation(
        GPU_POLICY,
        KeyOutcome.CAPACITY,
        "the whole card; a share with a warning, if the setting `translation.exclusivity` is `never`. Dropped, with a "
        "warning, for MIG devices and with MPS",
        case="`mutex`",
    ),
    annotation(
        GPU_POLICY,
        KeyOutcome.DROPPED,
        f"a preference, which a claim cannot have; `{NUMA_BIND}` requires one NUMA node",
        case="`numa`",
    ),
    *SCHEDULER_TABLE,
    label(
        OPT_OUT,
        KeyOutcome.SKIPPED,
        "on a pod with keys of HAMi's, also those of `ascend` and `hygon`, or its namespace; `nvidia.com/gpu` alone "
        "is the device plugin's there, whatever `defaultGpuOwner` says",
        case="`ignore`",
    ),
    label(CONVERTED, KeyOutcome.SKIPPED, "HAMi's own converter created the claims", case="`true`"),
)
