"""Every row of every vocabulary's table: the outcome that it states is that of a pod with the name.

An example is a pod with the name and one that differs in nothing else. What the translation makes
of the two is compared: a name whose outcome is a selector changes selectors, a dropped one changes
nothing and is warned about, and so on.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from findings.finding import Severity
from testing.builders import (
    DRANET,
    HAMI,
    NAMESPACE,
    NVIDIA,
    admit,
    container,
    device,
    device_at_root,
    devices_of,
    driver_slice,
    in_partitions,
    koordinator_annotations,
    nvidia_gpu,
    pod,
    pod_view,
    profiles,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import NetworkSummary, TranslationOptions, TranslationSnapshot
from translation.model import keys
from translation.model.intents import Vocabulary
from translation.model.keys import Key, KeyOutcome, Place
from translation.pipeline.translate import Outcome, Refused, Translated, Untouched
from translation.profiles.device_facts import facts_by_driver, summary
from translation.profiles.profile import parse_profile
from translation.reading.arbiter import VOCABULARIES
from translation.reading.legacy_pod import legacy_pod
from translation.reading.workload_profiles import ProfileSummary

OTHERS: Final = "others.example"
PROFILES: Final = {
    **profiles(),
    OTHERS: parse_profile(
        f"driver: {OTHERS}\ndevices: {{fpga: {{class: fpga}}, nic: {{class: nic, sharing: always, "
        "cores: {capacity: bandwidth}, labels: {a: type}, virtualFunctions: {virtual: true}, "
        "resources: {koordinator.sh/rdma: {}}}}",
        OTHERS,
    ),
}


def cluster(nvidia: Document) -> TranslationSnapshot:
    """A cluster with devices of every shipped driver, under one PCIe root if they have one."""
    slices = (
        driver_slice(HAMI, *(device_at_root("a") for _ in range(4))),
        driver_slice(NVIDIA, nvidia),
        driver_slice(DRANET, device_at_root("a", device(attributes={"rdma": 1}))),
        driver_slice(
            "dra.hygon.com", device(attributes={"type": "hcu"}, capacity={"cores": "120"})
        ),
    )
    facts = [
        device_facts for slice_ in slices if (device_facts := summary(slice_, PROFILES)) is not None
    ]
    return TranslationSnapshot(profiles=PROFILES, facts=facts_by_driver(facts))


SNAPSHOT: Final = cluster(nvidia_gpu())
PARTITIONED: Final = cluster(in_partitions(nvidia_gpu(), 1, 2, 4, 8))
SHARING: Final = cluster(nvidia_gpu(shared=True, replicas=True))
AS_SHIPPED: Final = TranslationOptions()
WITH_OTHERS: Final = TranslationOptions(profiles={**AS_SHIPPED.profiles, "rdma": OTHERS})


class Example(NamedTuple):
    """A pod with a name, and the same pod without it."""

    row: str
    pod: Document
    without: Document
    options: TranslationOptions = AS_SHIPPED
    snapshot: TranslationSnapshot = SNAPSHOT


def asks(*, annotations: Mapping[str, str] | None = None, **fields: Any) -> Document:
    """A pod of one container; `limits` are by whole names."""
    amounts = {key: str(amount) for key, amount in fields.pop("limits", {}).items()}
    env = [{"name": name, "value": text} for name, text in fields.pop("env", {}).items()]
    return pod(container("main", amounts, env=env), annotations=annotations, **fields)


def amount(
    row: str,
    amount_: object,
    other_amount: object,
    /,
    options: TranslationOptions = AS_SHIPPED,
    **beside: object,
) -> Example:
    """An example of a key that is told by two amounts; its row may be a pattern."""
    key = row.partition(" (")[0].replace("*", "a")
    more = {_LONG[name]: amount for name, amount in beside.items()}
    return Example(
        row, asks(limits=more | {key: amount_}), asks(limits=more | {key: other_amount}), options
    )


_LONG: Final = {
    "gpu": "nvidia.com/gpu",
    "mem": "nvidia.com/gpumem",
    "shared": "koordinator.sh/gpu.shared",
    "ratio": "koordinator.sh/gpu-memory-ratio",
    "core": "koordinator.sh/gpu-core",
    "rdma": "koordinator.sh/rdma",
}


def annotation(
    row: str,
    text: str,
    /,
    limits: Mapping[str, object],
    options: TranslationOptions = AS_SHIPPED,
    **beside: str,
) -> Example:
    """An example of an annotation."""
    name = row.partition(" (")[0]
    others = {_ANNOTATIONS[short]: value for short, value in beside.items()}
    return Example(
        row,
        asks(limits=limits, annotations=others | {name: text}),
        asks(limits=limits, annotations=others),
        options,
    )


_ANNOTATIONS: Final = {"mode": "nvidia.com/vgpu-mode"}
GPU: Final = {"nvidia.com/gpu": 1}
GPUS: Final = {"nvidia.com/gpu": 2}
SHARE: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}

NVIDIA_ROWS: Final = (
    amount("nvidia.com/gpu", 2, 1),
    Example(
        "nvidia.com/gpu.shared",
        asks(limits={"nvidia.com/gpu.shared": 1}),
        asks(limits=GPU),
        snapshot=SHARING,
    ),
    Example(
        "k8s.amazonaws.com/vgpu",
        asks(limits={"k8s.amazonaws.com/vgpu": 1}),
        asks(limits=GPU),
        snapshot=SHARING,
    ),
    Example(
        "nvidia.com/mig-*",
        asks(limits={"nvidia.com/mig-1g.5gb": 2}),
        asks(limits={"nvidia.com/mig-1g.5gb": 1}),
    ),
    Example(
        "nvidia.com/mig-*.shared", asks(limits={"nvidia.com/mig-1g.5gb.shared": 1}), asks(limits={})
    ),
    Example(
        "NVIDIA_VISIBLE_DEVICES",
        asks(limits=GPU, env={"NVIDIA_VISIBLE_DEVICES": "all"}),
        asks(limits=GPU),
    ),
    *(
        Example(name, asks(limits=GPU, env={name: "enabled"}), asks(limits=GPU))
        for name in ("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED")
    ),
    Example(
        "nvidia.com/*",
        asks(limits=GPU, nodeSelector={"nvidia.com/gpu.count": "8"}),
        asks(limits=GPU),
    ),
    Example(
        "nvidia.com/* (value ends in `-SHARED`)",
        asks(limits=GPU, nodeSelector={"nvidia.com/gpu.product": "A100-SHARED"}),
        asks(limits=GPU),
    ),
    Example(
        "nvidia.com/* (a product with `-MIG-`)",
        asks(limits=GPU, nodeSelector={"nvidia.com/gpu.product": "A100-MIG-1g.5gb"}),
        asks(limits=GPU),
    ),
    *(
        Example(name, asks(limits=GPU, nodeSelector={name: text}), asks(limits=GPU))
        for name, text in (
            ("nvidia.com/gpu.sharing-strategy", "mps"),
            ("cloud.google.com/gke-gpu-partition-size", "1g.5gb"),
            ("cloud.google.com/gke-gpu-sharing-strategy", "time-sharing"),
            ("cloud.google.com/gke-max-shared-clients-per-gpu", "3"),
        )
    ),
)

HAMI_ROWS: Final = (
    amount("nvidia.com/gpu", 2, 1, mem=3000),
    amount("nvidia.com/gpumem", 3000, 4000),
    amount("nvidia.com/gpumem-percentage", 30, 40),
    amount("nvidia.com/gpucores", 30, 40, mem=3000),
    amount("nvidia.com/priority", 1, 0, mem=3000),
    annotation("nvidia.com/use-gputype", "A100", SHARE),
    annotation("nvidia.com/nouse-gputype", "A100", SHARE),
    annotation("nvidia.com/use-gpuuuid", "GPU-0", SHARE),
    annotation("nvidia.com/nouse-gpuuuid", "GPU-0", SHARE),
    annotation("nvidia.com/numa-bind (the driver publishes it)", "true", GPUS, mode="mps"),
    annotation(
        "nvidia.com/numa-bind (it does not, such as HAMi's)", "true", SHARE | GPUS, mode="hami-core"
    ),
    annotation("nvidia.com/vgpu-mode (`hami-core`)", "hami-core", SHARE),
    annotation("nvidia.com/vgpu-mode (`mig`)", "mig", SHARE),
    annotation("nvidia.com/vgpu-mode (`mps`)", "mps", SHARE),
    annotation("nvidia.com/vgpu-mode (any other)", "warp", SHARE),
    annotation("hami.io/gpu-scheduler-policy (`mutex`)", "mutex", SHARE),
    annotation("hami.io/gpu-scheduler-policy (`numa`)", "numa", GPUS, mode="mps"),
    annotation("hami.io/gpu-scheduler-policy (any other)", "binpack", SHARE),
    annotation("hami.io/node-scheduler-policy", "spread", SHARE),
    annotation("hami.io/device-scoring-weights", "a", SHARE),
    Example(
        "hami.io/webhook (`ignore`)",
        asks(limits=SHARE, labels={"hami.io/webhook": "ignore"}),
        asks(limits=SHARE),
    ),
    Example(
        "hami.io/dra (`true`)",
        asks(limits=SHARE, labels={"hami.io/dra": "true"}),
        asks(limits=SHARE),
    ),
)

NETWORK: Final = {"networking.gke.io.networks/rdma-0": 1}
ADDRESS: Final = {"networking.gke.io.networks/rdma-0.IP": 1}
RDMA_ROWS: Final = (
    Example("rdma/*", asks(limits={"rdma/hca": 1}), asks(limits={"rdma/hca": 0})),
    amount("aliyun/erdma", 1, 0),
    amount("vpc.amazonaws.com/efa", 2, 1),
    amount("networking.gke.io.networks/*", 2, 1),
    Example(
        "networking.gke.io.networks/*.IP (beside its network)",
        asks(limits=NETWORK | ADDRESS),
        asks(limits=NETWORK),
    ),
    Example("networking.gke.io.networks/*.IP (alone)", asks(limits=ADDRESS), asks(limits={})),
    annotation("networking.gke.io/interfaces", "[]", NETWORK),
    annotation("networking.gke.io/default-interface", "eth0", NETWORK),
)

FUNCTION: Final = {"openshift.io/a": 1}
SRIOV_ROWS: Final = (
    amount("broadcom.com/*", 2, 1),
    amount("intel.com/intel_sriov_*", 2, 1),
    amount("mellanox.com/*", 2, 1),
    amount("openshift.io/*", 2, 1),
    amount("nvidia.com/hostdev", 2, 1),
    Example("PCIDEVICE_*", asks(limits=FUNCTION), asks(limits=FUNCTION)),
    annotation("k8s.v1.cni.cncf.io/networks (without virtual functions)", "a,b", GPUS),
    annotation("k8s.v1.cni.cncf.io/networks (beside virtual functions)", "net", FUNCTION),
    annotation("v1.multus-cni.io/default-network", "net", FUNCTION),
)


GPU_OF_VOLCANO: Final = {"volcano.sh/vgpu-number": 1}
VGPU: Final = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000}
VOLCANO_ROWS: Final = (
    Example(
        "volcano.sh/vgpu-number",
        asks(limits=VGPU | {"volcano.sh/vgpu-number": 2}),
        asks(limits=VGPU),
    ),
    amount("volcano.sh/vgpu-memory", 3000, 4000),
    *(
        Example(
            key, asks(limits=GPU_OF_VOLCANO | {key: 30}), asks(limits=GPU_OF_VOLCANO | {key: 40})
        )
        for key in ("volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-cores")
    ),
    annotation("volcano.sh/vgpu-mode (`hami-core`)", "hami-core", VGPU),
    annotation("volcano.sh/vgpu-mode (`mig`)", "mig", VGPU),
    annotation("volcano.sh/vgpu-mode (any other)", "warp", VGPU),
    annotation("volcano.sh/vgpu-use-gpuuuid", "GPU-0", VGPU),
    annotation("volcano.sh/vgpu-nouse-gpuuuid", "GPU-0", VGPU),
    annotation("nvidia.com/use-gputype", "A100", VGPU),
    annotation("nvidia.com/nouse-gputype", "A100", VGPU),
    annotation("volcano.sh/vgpu-podgroup-policy", "spread", VGPU),
)

GPU_MEMORY: Final = {"aliyun.com/gpu-mem": 4}
ALIYUN_ROWS: Final = (
    amount("aliyun.com/gpu-mem", 4, 2),
    Example(
        "aliyun.com/gpu-core.percentage",
        asks(limits=GPU_MEMORY | {"aliyun.com/gpu-core.percentage": 30}),
        asks(limits=GPU_MEMORY),
    ),
    amount("alibabacloud.com/gpu-memory.percentage", 30, 40),
    amount("alibabacloud.com/gpu-core.percentage", 30, 40),
    Example(
        "aliyun.com/gpu-count (above 1)",
        asks(limits=GPU_MEMORY, labels={"aliyun.com/gpu-count": "2"}),
        asks(limits=GPU_MEMORY),
    ),
    Example("ALIYUN_COM_GPU_MEM_CONTAINER", asks(limits=GPU_MEMORY), asks(limits={})),
    Example("ALIYUN_COM_GPU_MEM_DEV", asks(limits=GPU_MEMORY), asks(limits=GPU_MEMORY)),
)


def card_share(prefix: str) -> tuple[Example, ...]:
    """Examples of a percentage of a card, and of its memory."""
    cores, memory = f"{prefix}-core", f"{prefix}-memory"
    return tuple(
        Example(row, asks(limits=share | {row: 10}), asks(limits=share | {row: 20}))
        for row in (cores, memory)
        for share in ({cores: 50, memory: 4},)
    )


MGPU: Final = {"vke.volcengine.com/mgpu-core": 50, "vke.volcengine.com/mgpu-memory": 4000}
TENCENT_ROWS: Final = (
    *card_share("tencent.com/vcuda"),
    *card_share("tke.cloud.tencent.com/qgpu"),
    annotation(
        "tencent.com/vcuda-core-limit",
        "50",
        {"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 30},
    ),
)
VOLCENGINE_ROWS: Final = (
    *card_share("vke.volcengine.com/mgpu"),
    annotation("vke.volcengine.com/container-multiple-gpu", "2", MGPU),
    annotation("vke.volcengine.com/mgpu-compute-policy (`fixed-share`)", "fixed-share", MGPU),
    annotation("vke.volcengine.com/mgpu-compute-policy (any other)", "native-burst-share", MGPU),
)


HCU: Final = {"hygon.com/dcunum": 1, "hygon.com/dcumem": 4000}
HYGON_ROWS: Final = (
    *(
        example
        for prefix in ("hygon.com/dcu", "hygon.com/hcu")
        for example in (
            amount(f"{prefix}num", 2, 1),
            Example(
                f"{prefix}mem",
                asks(limits={f"{prefix}num": 1, f"{prefix}mem": 4000}),
                asks(limits={f"{prefix}num": 1}),
            ),
            Example(
                f"{prefix}cores",
                asks(limits={f"{prefix}num": 1, f"{prefix}cores": 30}),
                asks(limits={f"{prefix}num": 1}),
            ),
        )
    ),
    annotation("hygon.com/use-gpuuuid", "HCU-0", HCU),
    annotation("hygon.com/nouse-gpuuuid", "HCU-0", HCU),
    annotation("hygon.com/use-dcutype", "K100", HCU),
    annotation("hygon.com/nouse-dcutype", "K100", HCU),
    annotation("hami.io/gpu-scheduler-policy (`mutex`)", "mutex", HCU),
    annotation("hami.io/gpu-scheduler-policy (any other)", "binpack", HCU),
    annotation("hami.io/node-scheduler-policy", "spread", HCU),
    annotation("hami.io/device-scoring-weights", "a", HCU),
)

_CHIPS: Final = ("910A", "910B2", "910B3", "910B4-1", "910B4", "310P", "910C")
NPU: Final = {"huawei.com/Ascend310P": 1, "huawei.com/Ascend310P-memory": 4000}
SOFT: Final = {"huawei.com/vnpu-mode": "hami-core"}
ASCEND_ROWS: Final = (
    amount("huawei.com/Ascend*", 2, 1),
    Example(
        "huawei.com/Ascend* (a number of cores at the end, as in `-2c` or `-4c.3cpu`)",
        asks(limits={"huawei.com/Ascend310P-2c": 1}),
        asks(limits={"huawei.com/Ascend310P": 1}),
    ),
    Example(
        "huawei.com/Ascend*-memory", asks(limits=NPU), asks(limits={"huawei.com/Ascend310P": 1})
    ),
    Example(
        "huawei.com/Ascend*-core",
        asks(limits=NPU | {"huawei.com/Ascend310P-core": 30}, annotations=SOFT),
        asks(limits=NPU | {"huawei.com/Ascend310P-core": 40}, annotations=SOFT),
    ),
    *(
        annotation(f"hami.io/{use}-Ascend{chip}-uuid", "NPU-0", {f"huawei.com/Ascend{chip}": 1})
        for chip in _CHIPS
        for use in ("use", "no-use")
    ),
    annotation("hami.io/use-nputype", "310P", NPU),
    annotation("huawei.com/vnpu-mode (`hami-core`)", "hami-core", NPU),
    annotation("huawei.com/vnpu-mode (any other)", "template", NPU),
    annotation("hami.io/gpu-scheduler-policy (`mutex`)", "mutex", NPU),
    annotation("hami.io/gpu-scheduler-policy (any other)", "binpack", NPU),
    annotation("hami.io/node-scheduler-policy", "spread", NPU),
    annotation("hami.io/device-scoring-weights", "a", NPU),
)


ADOPTING: Final = TranslationOptions(adopt_schedulers={"kai-scheduler": "default-scheduler"})


def of_kai(row: str, text: str, without: Mapping[str, str], **beside: str) -> Example:
    """An example of an annotation in a pod of KAI's scheduler; `without` is the other pod's."""
    name = row.partition(" (")[0]
    annotations = {key.replace("_", "-"): value for key, value in beside.items()}
    return Example(
        row,
        asks(limits={}, annotations={**annotations, name: text}, schedulerName="kai-scheduler"),
        asks(limits={}, annotations=without, schedulerName="kai-scheduler"),
        ADOPTING,
    )


HALF_OF_KAI: Final = {"gpu-fraction": "0.5"}
KAI_ROWS: Final = (
    of_kai("gpu-fraction", "0.25", HALF_OF_KAI),
    of_kai("gpu-memory", "2000", {"gpu-memory": "3000"}),
    of_kai("gpu-fraction-num-devices", "2", HALF_OF_KAI, gpu_fraction="0.5"),
    of_kai("gpu-fraction-container-name", "main", HALF_OF_KAI, gpu_fraction="0.5"),
    of_kai("mps (beside a share)", "true", HALF_OF_KAI, gpu_fraction="0.5"),
)


WITH_TFLOPS: Final = translation_snapshot(
    driver_slice(
        "gpu.drawbridge.internal",
        device(
            shared=True,
            attributes={"type": "gpu"},
            capacity={"memory": "80Gi", "cores": "100", "tflops": "312"},
        ),
    )
)
"""A cluster whose GPUs have TFLOPS."""


WORKLOAD_PROFILES: Final = {
    (NAMESPACE, "half"): ProfileSummary(
        annotations={"tensor-fusion.ai/compute-percent-request": "50"}
    )
}


def of_enabled(annotations: Mapping[str, str]) -> Document:
    """A pod of tensor-fusion's."""
    labels = {"tensor-fusion.ai/enabled": "true"}
    return asks(limits={}, annotations=annotations, labels=labels)


def of_tensor_fusion(row: str, text: str, **beside: str) -> Example:
    """An example of an annotation in a pod of tensor-fusion's with another request for memory."""
    name = row.partition(" (")[0]
    annotations = {
        "tensor-fusion.ai/vram-request": "8Gi",
        **{f"tensor-fusion.ai/{key.replace('_', '-')}": value for key, value in beside.items()},
    }
    labels = {"tensor-fusion.ai/enabled": "true"}
    return Example(
        row,
        asks(limits={}, annotations={**annotations, name: text}, labels=labels),
        asks(limits={}, annotations=annotations, labels=labels),
        snapshot=WITH_TFLOPS if "tflops" in row else SNAPSHOT,
    )


TENSOR_FUSION_ROWS: Final = (
    Example(
        "tensor-fusion.ai/enabled (`true`)",
        asks(
            limits={},
            annotations={"tensor-fusion.ai/vram-request": "8Gi"},
            labels={"tensor-fusion.ai/enabled": "true"},
        ),
        asks(limits={}, annotations={"tensor-fusion.ai/vram-request": "8Gi"}),
    ),
    *(
        of_tensor_fusion(f"tensor-fusion.ai/{row}", text)
        for row, text in {
            "gpu-count": "2",
            "vram-request": "4Gi",
            "tflops-request": "40",
            "tflops-limit": "40",
            "compute-percent-request": "30",
            "compute-percent-limit": "30",
            "gpu-model": "A100",
            "vendor (`NVIDIA`)": "NVIDIA",
            "vendor (any other)": "AMD",
            "gpu-indices": "0",
            "isolation (`soft`)": "soft",
            "isolation (`hard`)": "hard",
            "isolation (`partitioned`)": "partitioned",
            "isolation (any other)": "none",
            "inject-container": "main",
            "workload-profile (it does not)": "small",
            "is-local-gpu (`true`)": "true",
            "is-local-gpu (`false`)": "false",
            "container-gpu-count": '{"main": 1}',
            "container-gpus": '{"main": ["a"]}',
            "gpupool": "a",
            "qos": "high",
            "autoscale": "true",
            "gang-enabled": "true",
            "gang-min-members": "2",
            "gang-timeout": "60s",
            "enabled-replicas": "1",
            "disable-features": "gpu-limiter",
            "sidecar-worker": "true",
            "workload": "a",
        }.items()
    ),
    Example(
        "tensor-fusion.ai/workload-profile (it exists)",
        of_enabled(
            {"tensor-fusion.ai/workload-profile": "half", "tensor-fusion.ai/vram-request": "8Gi"}
        ),
        of_enabled({"tensor-fusion.ai/vram-request": "8Gi"}),
        snapshot=msgspec.structs.replace(SNAPSHOT, workload_profiles=WORKLOAD_PROFILES),
    ),
    of_tensor_fusion("tensor-fusion.ai/dedicated-gpu (`true`)", "true", gpu_model="A100"),
    of_tensor_fusion(
        "tensor-fusion.ai/partition-id (beside isolation `partitioned`)",
        "1g.10gb",
        isolation="partitioned",
    ),
    Example(
        "tensor-fusion.ai/vram-limit",
        of_enabled({"tensor-fusion.ai/vram-limit": "8Gi"}),
        of_enabled({"tensor-fusion.ai/vram-limit": "4Gi"}),
    ),
    Example(
        "tensor-fusion.ai/isolation (`shared`)",
        of_enabled({"tensor-fusion.ai/gpu-count": "1", "tensor-fusion.ai/isolation": "shared"}),
        of_enabled({"tensor-fusion.ai/gpu-count": "1", "tensor-fusion.ai/vram-request": "8Gi"}),
    ),
)


def rejected(row: str) -> Example:
    """An example of a key with all amounts rejected."""
    return amount(row, 1, 0)


AMD: Final = {"amd.com/gpu": 1}
RESOURCES_ROWS: Final = (
    annotation("amd.com/use-gputype", "MI300X", AMD),
    annotation("amd.com/nouse-gputype", "MI210", AMD),
    *(annotation(f"amd.com/{use}-gpu-uuid", "AMD-0", AMD) for use in ("use", "nouse")),
    *(
        annotation(f"aws.amazon.com/{use}-{name}", "node-AWSNeuron-0", {"aws.amazon.com/neuron": 1})
        for use in ("use", "nouse")
        for name in ("neuron-uuid", "gpuuuid")
    ),
    *(
        amount(row, 2, 1)
        for row in (
            "amd.com/gpu",
            "amd.com/spx_*",
            "amd.com/dpx_*",
            "amd.com/qpx_*",
            "amd.com/cpx_*",
            "gpu.intel.com/i915",
            "gpu.intel.com/xe",
            "intel.com/gpu",
            "habana.ai/gaudi",
            "intel.com/gaudi",
            "intel.com/qat",
            "aws.amazon.com/neuron",
            "aws.amazon.com/neurondevice",
            "rebellions.ai/npu",
            "rebellions.ai/*",
        )
    ),
    amount("google.com/tpu", 8, 4),
    *(
        rejected(row)
        for row in (
            "amd.com/gpumem",
            "amd.com/gpucores",
            "gpu.intel.com/millicores",
            "gpu.intel.com/memory.max",
            "gpu.intel.com/tiles",
            "gpu.intel.com/monitoring",
            "gpu.intel.com/i915_monitoring",
            "gpu.intel.com/xe_monitoring",
            "aws.amazon.com/neuroncore",
        )
    ),
)

_HINT: Final = "scheduling.koordinator.sh/device-allocate-hint"
_JOINT: Final = "scheduling.koordinator.sh/device-joint-allocate"
_PARTITION: Final = "scheduling.koordinator.sh/gpu-partition-spec"
_REPLACE: Final = "pod.koordinator.sh/replace-resources"
HALF: Final = {"koordinator.sh/gpu": 50}
WHOLE: Final = {"koordinator.sh/gpu": 200}
NIC: Final = {"koordinator.sh/rdma": 100}
FEW_NICS: Final = {"koordinator.sh/rdma": 4}
TOGETHER: Final = {"deviceTypes": ["gpu", "rdma"]}


def hint(case: str, device_type: str, /, limits: Mapping[str, object], **fields: object) -> Example:
    """An example of the hint's content about one type of device."""
    text = koordinator_annotations(hint={device_type: fields})[_HINT]
    return annotation(f"{_HINT} ({case})", text, limits, WITH_OTHERS)


KOORDINATOR_ROWS: Final = (
    amount("koordinator.sh/gpu", 30, 40),
    amount("koordinator.sh/gpu.shared", 2, 1, ratio=50),
    amount("koordinator.sh/gpu-core", 30, 40, ratio=50),
    amount("koordinator.sh/gpu-memory", 2**30, 2**31),
    amount("koordinator.sh/gpu-memory-ratio", 30, 40),
    Example(
        "nvidia.com/gpu",
        asks(limits=GPUS | NIC, annotations=koordinator_annotations(joint=TOGETHER)),
        asks(limits=GPU | NIC, annotations=koordinator_annotations(joint=TOGETHER)),
    ),
    amount("koordinator.sh/rdma (100 and above)", 200, 100),
    amount("koordinator.sh/rdma (below 100)", 30, 40, WITH_OTHERS),
    amount("koordinator.sh/fpga (a profile has any)", 200, 100, WITH_OTHERS),
    amount("koordinator.sh/fpga (no profile has any)", 200, 0),
    *(
        Example(key, asks(limits=HALF | {key: 1}), asks(limits=HALF))
        for key in VOCABULARIES["koordinator"].foreign
    ),
    annotation(
        f"{_JOINT} (`requiredScope: SamePCIe`)",
        json.dumps(TOGETHER | {"requiredScope": "SamePCIe"}),
        WHOLE | NIC,
    ),
    annotation(f"{_JOINT} (without)", json.dumps(TOGETHER), WHOLE | NIC),
    hint("`allocateStrategy: ApplyForAll` of `rdma`", "rdma", NIC, allocateStrategy="ApplyForAll"),
    hint(
        "`allocateStrategy: RequestsAsCount` of `rdma`",
        "rdma",
        FEW_NICS,
        allocateStrategy="RequestsAsCount",
    ),
    hint("`allocateStrategy` of `gpu`", "gpu", HALF, allocateStrategy="ApplyForAll"),
    hint("`requiredTopologyScope: PCIe`, `NUMANode`", "gpu", WHOLE, requiredTopologyScope="PCIe"),
    hint("`requiredTopologyScope: Node`", "gpu", WHOLE, requiredTopologyScope="Node"),
    hint(
        "`requiredTopologyScope` of other devices, or beside a partition",
        "rdma",
        {"koordinator.sh/rdma": 200},
        requiredTopologyScope="PCIe",
    ),
    hint(
        "`requiredTopologyScope: Device` of several", "gpu", WHOLE, requiredTopologyScope="Device"
    ),
    hint("`exclusivePolicy: DeviceLevel`", "gpu", HALF, exclusivePolicy="DeviceLevel"),
    hint("`exclusivePolicy: PCIeLevel`", "gpu", HALF, exclusivePolicy="PCIeLevel"),
    hint(
        "`selector`, `vfSelector`: a profile has the labels",
        "rdma",
        NIC,
        selector={"matchLabels": {"a": "b"}},
    ),
    hint(
        "`selector`, `vfSelector`: no profile has a label",
        "gpu",
        HALF,
        selector={"matchLabels": {"a": "b"}},
    ),
    hint("`selector: {}`", "gpu", HALF, selector={}),
    hint("`vfSelector: {}`: a profile says which they are", "rdma", NIC, vfSelector={}),
    annotation(
        f"{_HINT} (`vfSelector: {{}}`: no profile says it)",
        koordinator_annotations(hint={"rdma": {"vfSelector": {}}})[_HINT],
        NIC,
    ),
    Example(
        f"{_PARTITION} (whole GPUs)",
        asks(limits=GPUS, annotations={_PARTITION: "{}"}),
        asks(limits=GPUS),
        snapshot=PARTITIONED,
    ),
    annotation(f"{_PARTITION} (shares)", '{"allocatePolicy": "BestEffort"}', HALF),
    annotation(f"{_PARTITION} (`ringBusBandwidth`)", '{"ringBusBandwidth": "200Gi"}', GPUS),
    annotation("scheduling.koordinator.sh/device-allocated", '{"gpu": [{"minor": 0}]}', HALF),
    annotation(
        f"{_REPLACE} (to a key of Koordinator's)",
        "koordinator.sh/gpu:koordinator.sh/gpu-memory-ratio",
        HALF,
    ),
    annotation(f"{_REPLACE} (to another key)", "koordinator.sh/gpu:acme.example/card", HALF),
    Example(
        "koordinator.sh/gpu-isolation-provider (beside a share)",
        asks(limits=HALF, labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"}),
        asks(limits=HALF),
    ),
)

CNI: Final = "cni.dra.networking.x-k8s.io"
SHAPED: Final = {"name": "fast", "bandwidth": {"egressRate": 1000}}
MULTUS_ROWS: Final = tuple(
    Example(
        f"k8s.v1.cni.cncf.io/networks ({case})",
        asks(limits=GPUS, annotations={"k8s.v1.cni.cncf.io/networks": json.dumps([network])}),
        asks(limits=GPUS),
        options=TranslationOptions(profiles={**AS_SHIPPED.profiles, "multus": CNI}),
        snapshot=translation_snapshot(
            driver_slice(
                CNI,
                device(
                    shared=True,
                    attributes={"interfaceName": "eth1"},
                    capacity={"bandwidth": "10G"},
                ),
            ),
            networks={(NAMESPACE, "fast"): NetworkSummary(config='{"type": "macvlan"}')},
        ),
    )
    for case, network in (
        (
            "a network with a `bandwidth`, where a driver serves `multus` and publishes bandwidth",
            SHAPED,
        ),
        ("any other network", {"name": "fast"}),
    )
)

EXAMPLES: Final[Mapping[str, Sequence[Example]]] = {
    "hami": HAMI_ROWS,
    "nvidia": NVIDIA_ROWS,
    "koordinator": KOORDINATOR_ROWS,
    "rdma": RDMA_ROWS,
    "sriov": SRIOV_ROWS,
    "multus": MULTUS_ROWS,
    "resources": RESOURCES_ROWS,
    "kai": KAI_ROWS,
    "tensorfusion": TENSOR_FUSION_ROWS,
    "hygon": HYGON_ROWS,
    "ascend": ASCEND_ROWS,
    "volcano": VOLCANO_ROWS,
    "aliyun": ALIYUN_ROWS,
    "tencent": TENCENT_ROWS,
    "volcengine": VOLCENGINE_ROWS,
}


# --- what is observed -----------------------------------------------------------------------------


def parts(outcome: Outcome) -> Mapping[KeyOutcome, Any]:
    """Return the parts of a pod's claims, by the outcomes that they may come from."""
    if not isinstance(outcome, Translated):
        return {}
    devices = [devices_of(claim) for claim in outcome.claims]
    alternatives = [
        way
        for claim in devices
        for request in claim["requests"]
        for way in request.get("firstAvailable") or [request["exactly"]]
    ]
    return {
        KeyOutcome.COUNT: [(way["allocationMode"], way.get("count")) for way in alternatives],
        KeyOutcome.CLASS: [way["deviceClassName"] for way in alternatives],
        KeyOutcome.CAPACITY: [way.get("capacity") for way in alternatives],
        KeyOutcome.SELECTOR: [way.get("selectors") for way in alternatives],
        KeyOutcome.CONSTRAINT: [claim.get("constraints") for claim in devices],
        KeyOutcome.CONFIG: [claim.get("config") for claim in devices],
        KeyOutcome.VARIABLE: [(variable.name, variable.value) for variable in outcome.variables],
    }


def complaints(outcome: Outcome, name: str, severity: Severity) -> list[str]:
    """Return the findings about a name, or about the prefix of its pattern."""
    start = name.partition(keys.ANY)[0]
    return [
        finding.message
        for finding in outcome.findings
        if finding.severity is severity and start in f"{finding.path} {finding.message}"
    ]


def says(document: Document, key: Key) -> bool:
    return key.name.partition(keys.ANY)[0] in json.dumps(document)


ROWS: Final = [
    pytest.param(row, example, id=f"{vocabulary}: {row.title}")
    for vocabulary, examples in EXAMPLES.items()
    for example in examples
    for row in VOCABULARIES[vocabulary].table
    if row.title == example.row
]


@pytest.mark.parametrize(("row", "example"), ROWS)
def test_the_outcome_of_a_name_is_as_its_row_says(row: Key, example: Example) -> None:
    got = translation_outcome(example.pod, example.snapshot, example.options)
    without = translation_outcome(example.without, example.snapshot, example.options)
    after, _ = admit(example.pod, example.snapshot, example.options)
    warned = complaints(got, row.name, Severity.WARNING)
    same = parts(got) == parts(without)

    match row.outcome:
        case KeyOutcome.REFUSED:
            assert isinstance(got, Refused)
            assert complaints(got, row.name, Severity.ERROR)
            assert not isinstance(without, Refused)
        case KeyOutcome.SKIPPED:
            assert (Untouched, Translated) == (type(got), type(without))
        case KeyOutcome.DROPPED:
            assert isinstance(got, Translated)
            assert (True, True) == (same, bool(warned))
        case KeyOutcome.WARNED:
            assert isinstance(got, Translated)
            assert (True, True, True) == (same, bool(warned), says(after, row))
        case KeyOutcome.KEPT:
            assert not isinstance(got, Refused)
            assert (True, [], True) == (same, warned, says(after, row))
        case KeyOutcome.COMPANION:
            assert isinstance(got, Translated)
            assert same
            assert not after["spec"]["containers"][0]["resources"].get("limits")
        case KeyOutcome.READING:
            assert isinstance(got, Translated)
            assert not same
        case _:
            assert isinstance(got, Translated)
            assert parts(got)[row.outcome] != parts(without).get(row.outcome)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_every_row_has_an_example(name: str) -> None:
    rows = [row.title for row in VOCABULARIES[name].table]

    assert sorted(rows) == sorted(example.row for example in EXAMPLES[name])


@pytest.mark.parametrize(
    "vocabulary", VOCABULARIES.values(), ids=lambda vocabulary: vocabulary.name
)
def test_every_name_that_a_vocabulary_knows_has_its_row(vocabulary: Vocabulary) -> None:
    table = vocabulary.table
    limits, annotations = (
        {*keys.names(table, place), *keys.prefixes(table, place)}
        for place in (Place.LIMIT, Place.ANNOTATION)
    )

    assert limits == {*vocabulary.keys, *vocabulary.key_prefixes}
    assert {*vocabulary.annotations, *vocabulary.triggers} <= annotations
    assert set(vocabulary.labels) <= set(keys.names(table, Place.LABEL))
    assert set(vocabulary.foreign) == set(keys.names(table, Place.FOREIGN))


GKE: Final = (
    "cloud.google.com/gke-gpu-partition-size",
    "cloud.google.com/gke-gpu-sharing-strategy",
    "cloud.google.com/gke-max-shared-clients-per-gpu",
)


def test_what_a_translation_may_look_at_has_its_row() -> None:
    """The view of a pod holds nothing else, so nothing else can have an outcome."""
    table = [row for vocabulary in VOCABULARIES.values() for row in vocabulary.table]
    known = {
        place: {row.name for row in table if row.place is place} | OURS.get(place, set())
        for place in Place
    }
    everything = asks(
        limits={},
        env=dict.fromkeys(known[Place.VARIABLE] | {"OTHER"}, "a"),
        annotations=dict.fromkeys(known[Place.ANNOTATION] | {"other"}, "a"),
        labels=dict.fromkeys(known[Place.LABEL] | {"other"}, "a"),
        nodeSelector={"nvidia.com/a": "a", "other.example/a": "a", **dict.fromkeys(GKE, "a")},
    )

    view = legacy_pod(pod_view(everything))

    assert set(view.annotations) <= known[Place.ANNOTATION]
    assert set(view.labels) <= known[Place.LABEL]
    assert set(view.containers[0].environment) <= known[Place.VARIABLE]
    assert {"nvidia.com/a", *GKE} == set(view.node_selector)


OURS: Final = {
    Place.ANNOTATION: {"kubernetes.io/config.mirror"},
    Place.LABEL: {"drawbridge.internal/translate"},
}
"""The names that are read and belong to no vocabulary."""
