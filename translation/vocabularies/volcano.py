"""Volcano's shares of NVIDIA GPUs: volcano.sh/vgpu-number, vgpu-memory, vgpu-cores and annotations.

Amounts are per GPU; HAMi-core limits them, as with HAMi's own keys. Unlike with HAMi, a number of GPUs
alone takes all memory and no cores, and an annotation of excluded types has no effect beside one of
types to use.

Source: volcano-sh/volcano, pkg/scheduler/api/devices/nvidia/vgpu/utils.go (resourcereqs, checkGPUtype)
and pkg/scheduler/api/devices/config/vgpu.go. Its versions differ in which of vgpu-memory and
vgpu-memory-percentage precedes, so both together are rejected.
Not translated: volcano.sh/gpu-memory and gpu-number, deprecated since 1.9.
"""

from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from translation.model.card_types import NVIDIA_PREFIXES, excluded_models, wanted_models
from translation.model.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Vocabulary,
    annotation_path,
)
from translation.model.keys import KeyOutcome, Place, Table, annotation, annotations, limit, names
from translation.model.share_amounts import (
    MIB,
    AmountReader,
    Unit,
    in_bytes,
    list_items,
    units_of_mebibytes,
    with_pod_findings,
)

COUNT: Final = "volcano.sh/vgpu-number"
MEMORY_MIB: Final = "volcano.sh/vgpu-memory"
MEMORY_PERCENT: Final = "volcano.sh/vgpu-memory-percentage"
CORES_PERCENT: Final = "volcano.sh/vgpu-cores"
MODE: Final = "volcano.sh/vgpu-mode"
USE_UUID: Final = "volcano.sh/vgpu-use-gpuuuid"
NO_USE_UUID: Final = "volcano.sh/vgpu-nouse-gpuuuid"
USE_TYPE: Final = "nvidia.com/use-gputype"
NO_USE_TYPE: Final = "nvidia.com/nouse-gputype"
PODGROUP_POLICY: Final = "volcano.sh/vgpu-podgroup-policy"
CORE: Final = "hami-core"
MIG: Final = "mig"

TABLE: Final[Table] = (
    limit(
        COUNT,
        "devices",
        KeyOutcome.COUNT,
        "N distinct GPUs. Absent beside `vgpu-memory` it is 1; `0` requests nothing",
    ),
    limit(
        MEMORY_MIB,
        "MiB",
        KeyOutcome.CAPACITY,
        "`memory: <M>Mi`, times `translation.volcano.memoryFactor`; absent or `0` it is all of it. Rejected beside "
        "`vgpu-memory-percentage`",
    ),
    limit(
        MEMORY_PERCENT,
        "percent",
        KeyOutcome.CAPACITY,
        "one alternative per published memory size. Rejected above 100. `0` is all of it, with a warning: "
        "Volcano reserves none then. Where it has no ConfigMap of its devices, it ignores the percentage and "
        "gives all of it",
        depends_on_device=True,
    ),
    limit(
        CORES_PERCENT,
        "percent",
        KeyOutcome.CAPACITY,
        "`cores: <C>`; absent it is `0`, which sets no limit. Rejected above 100, where Volcano finds "
        "no node. Alone it requests no GPU",
    ),
    annotation(MODE, KeyOutcome.KEPT, "the default", case=f"`{CORE}`"),
    annotation(
        MODE,
        KeyOutcome.CLASS,
        "MIG devices with at least that memory in the name of their profile, as Volcano's templates count them: `20480` "
        "is `2g.20gb`, with a warning that it has less. From version 1.12 of Volcano's device plugin on, those of an A100 "
        "with 80 GB count what they have. Each is the smallest that is free; all are of one size, with a warning, where "
        "the sizes of a node have more than 64 combinations. A percentage, and no amount, which is all of a GPU, need a "
        "whole GPU that is published; `0` is rejected. Volcano takes no two of one GPU, and a claim may",
        case=f"`{MIG}`",
    ),
    annotation(MODE, KeyOutcome.REFUSED, "no node has such a mode", case="any other"),
    annotation(USE_UUID, KeyOutcome.SELECTOR, "the UUID is one of the items"),
    annotation(NO_USE_UUID, KeyOutcome.SELECTOR, "the UUID is none of the items"),
    annotation(USE_TYPE, KeyOutcome.SELECTOR, "the product name contains one of the items"),
    annotation(
        NO_USE_TYPE,
        KeyOutcome.SELECTOR,
        "the product name contains none of the items. No effect beside `use-gputype`",
    ),
    annotation(
        PODGROUP_POLICY,
        KeyOutcome.DROPPED,
        "it relates pods, and a claim relates devices of one pod",
    ),
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the shares of GPUs that each container requests."""
    findings: list[Finding] = []
    intents: list[Intent] = []
    pod_findings: list[Finding] = []
    device_filter = _filter(pod, pod_findings)
    mode = _mode(pod, pod_findings)
    unit = units_of_mebibytes(pod.choices.volcano_memory_factor)
    for container in pod.containers:
        if container.limits:
            intents += _intents(container, device_filter, mode, unit, findings)
    findings = with_pod_findings(intents, pod_findings, findings)
    return Translation(intents=tuple(intents), findings=tuple(findings))


def _intents(
    container: LegacyContainer,
    device_filter: DeviceFilter,
    mode: str,
    unit: Unit,
    findings: list[Finding],
) -> list[Intent]:
    """Return the devices of a container.

    Source: Project-HAMi/volcano-vgpu-device-plugin 4fb76ba, pkg/plugin/server.go: the limit of a container is its
    memory times gpuMemoryFactor, in MiB; likewise volcano-sh/volcano, pkg/scheduler/api/devices/nvidia/vgpu/mig.go.
    """
    faults: list[Finding] = []
    reader = AmountReader(container, faults)
    count = reader.integer(COUNT)
    memory = reader.memory(MEMORY_MIB, unit)
    percent = reader.percent(MEMORY_PERCENT, count, memory_key=MEMORY_MIB if unit == MIB else "")
    cores = reader.percent(CORES_PERCENT, count)
    if memory and percent:
        reader.fail(
            Code.INVALID_COMBINATION,
            MEMORY_PERCENT,
            f"stands beside {MEMORY_MIB}, and versions of Volcano differ in which precedes",
            "keep one of the two",
        )
    findings += faults
    if faults:
        return []
    if count is None:
        count = 1 if memory is not None else 0
        if not count:
            key = min(container.limits)
            message = f"{key} has no effect without {COUNT} or {MEMORY_MIB}: no GPU is claimed"
            findings.append(warning(Code.NO_DEVICE_REQUESTED, container.limit_path(key), message))
    if not count:
        return []
    if percent == 0 and not memory and mode == CORE:
        findings.append(_no_memory_finding(container.limit_path(MEMORY_PERCENT)))
    intent = Intent(
        container=container.name,
        kind=DeviceKind.GPU,
        count=count,
        memory=in_bytes(memory, unit) if memory else None,
        memory_percent=percent if percent and percent < 100 and not memory else None,
        cores_percent=cores or 0,
        filter=device_filter,
        paths=_paths(container),
    )
    return [intent] if mode == CORE else _as_mig(intent, percent, findings)


def _no_memory_finding(path: FieldPath) -> Finding:
    return warning(
        Code.WHOLE_DEVICE,
        path,
        "Volcano reserves and limits no memory for 0 percent, and a claim requests all of it then: no other share "
        "fits beside it",
        "write the percentage that the container uses",
    )


def _as_mig(intent: Intent, percent: int | None, findings: list[Finding]) -> list[Intent]:
    """Return the MIG devices; without an amount they have all memory of a GPU.

    Source: pickFromGroup in volcano-sh/volcano, pkg/scheduler/api/devices/nvidia/vgpu/mig.go, compares with the
    ConfigMap of Project-HAMi/volcano-vgpu-device-plugin, which has the sizes in the names of profiles.
    """
    if intent.memory is None and percent == 0:
        findings.append(
            error(
                Code.MEMORY_AMOUNT_REQUIRED,
                intent.path("memory"),
                "in vgpu-mode mig the memory selects the MIG profile, and 0 percent selects none",
                f"write the percentage that the container uses, or {MEMORY_MIB} in its place",
            )
        )
        return []
    return [
        msgspec.structs.replace(
            intent,
            kind=DeviceKind.MIG,
            exclusive=True,
            memory_percent=(percent or 100) if intent.memory is None else None,
            nominal_memory=True,
            cores_percent=None,
        )
    ]


def _paths(container: LegacyContainer) -> dict[str, FieldPath]:
    keys = {"count": COUNT, "memory": MEMORY_MIB, "cores": CORES_PERCENT}
    paths = container.limit_paths(keys)
    if MEMORY_PERCENT in container.limits and MEMORY_MIB not in container.limits:
        paths["memory"] = container.limit_path(MEMORY_PERCENT)
    paths.setdefault("count", container.limit_path(min(container.limits)))
    aspects = {
        "mode": MODE,
        "uuids": USE_UUID,
        "not_uuids": NO_USE_UUID,
        "models": USE_TYPE,
        "not_models": NO_USE_TYPE,
    }
    return paths | {aspect: annotation_path(key) for aspect, key in aspects.items()}


def _filter(pod: LegacyPod, findings: list[Finding]) -> DeviceFilter:
    models = wanted_models(pod.annotations, USE_TYPE, NVIDIA_PREFIXES, findings)
    is_limited = pod.annotations.get(USE_TYPE, "").strip()
    not_models = (
        ()
        if is_limited
        else excluded_models(pod.annotations, NO_USE_TYPE, NVIDIA_PREFIXES, findings)
    )
    if PODGROUP_POLICY in pod.annotations:
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                annotation_path(PODGROUP_POLICY),
                f"{PODGROUP_POLICY} relates pods, and a claim relates devices of one pod; it is "
                "dropped",
            )
        )
    return DeviceFilter(
        models=models,
        not_models=not_models,
        # A list without items is no constraint: parseGPUUUIDList.
        uuids=list_items(pod.annotations.get(USE_UUID, "")) or None,
        not_uuids=list_items(pod.annotations.get(NO_USE_UUID, "")),
    )


def _mode(pod: LegacyPod, findings: list[Finding]) -> str:
    mode = pod.annotations.get(MODE, CORE)
    if mode not in {CORE, MIG}:
        findings.append(
            error(
                Code.UNKNOWN_MODE,
                annotation_path(MODE),
                f"{quote_text(mode)} is the mode of no node",
                f"write {CORE} or {MIG}",
            )
        )
    return mode


VOCABULARY: Final = Vocabulary(
    name="volcano",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    annotations=annotations(TABLE),
    translate=translate,
)
