"""HAMi on NVIDIA GPUs: nvidia.com/gpu with gpumem, gpumem-percentage, gpucores and annotations.

Amounts are per GPU. Source: Project-HAMi/HAMi v2.10, pkg/device/nvidia/device.go
(MutateAdmission, GenerateResourceRequests) and pkg/device/devices.go (CheckType, CheckUUID), with
the defaults of its chart: defaultGPUNum 1, defaultMemory 0, defaultCores 0, memoryFactor 1.
Not translated: other vendors' keys, and the chart's own settings where they differ from these.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from string import ascii_lowercase, ascii_uppercase
from typing import Final

import msgspec

from kube.quantity import Format, Quantity
from webhook.amounts import says_bytes, whole
from webhook.findings import Code, Finding, error, has_errors, shown, warning
from webhook.intents import (
    MEBIBYTE,
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Variable,
    Vocabulary,
)
from webhook.keys import Fate, Place, Table, annotation, annotations, label, limit, names

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
GPU_POLICY: Final = "hami.io/gpu-scheduler-policy"
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
SCORING_WEIGHTS: Final = "hami.io/device-scoring-weights"

OPT_OUT: Final = "hami.io/webhook"
CONVERTED: Final = "hami.io/dra"

OWN_KEYS: Final = (MEMORY_MIB, MEMORY_PERCENT, CORES_PERCENT, PRIORITY)
"""Keys that nobody but HAMi has; `COUNT` is shared with the device plugin."""

TABLE: Final[Table] = (
    limit(
        COUNT,
        "devices",
        Fate.COUNT,
        "N devices, all different. Absent beside `gpumem`, `gpumem-percentage` or `gpucores` it is "
        "1; `0` asks for nothing, with a warning where other keys stand beside it. Without an "
        "amount, or with all memory and all cores, it is the whole card for nobody else: "
        "`cores: 100`, memory at its default, which is all",
    ),
    limit(
        MEMORY_MIB,
        "MiB",
        Fate.CAPACITY,
        "`memory: <M>Mi`. A count of MiB: `5k` is 5000, `8Gi` is refused. `0` is all of it",
    ),
    limit(
        MEMORY_PERCENT,
        "percent",
        Fate.CAPACITY,
        "one alternative per published memory size, each with its share rounded down. Refused "
        "above 100, and where no size is known; `100` and `0` are all of it; `gpumem` beats it",
    ),
    limit(
        CORES_PERCENT,
        "percent",
        Fate.CAPACITY,
        "`cores: <C>`; absent it is `0`, which reserves none and caps none. Above 100 it is 100, "
        "with a warning",
    ),
    limit(
        PRIORITY,
        "",
        Fate.VARIABLE,
        "`CUDA_TASK_PRIORITY`, unless the container sets it. Alone it asks for no device",
    ),
    annotation(
        USE_TYPE,
        Fate.SELECTOR,
        "the product's name contains one of the items, whatever the case. Only commas is refused",
    ),
    annotation(NO_USE_TYPE, Fate.SELECTOR, "the product's name contains none of the items"),
    annotation(USE_UUID, Fate.SELECTOR, "the UUID is one of the items. Only commas is refused"),
    annotation(NO_USE_UUID, Fate.SELECTOR, "the UUID is none of the items"),
    annotation(
        NUMA_BIND,
        Fate.CONSTRAINT,
        "the same NUMA node for all devices of a container",
        case="the driver publishes it",
    ),
    annotation(
        NUMA_BIND,
        Fate.DROPPED,
        "the devices may be apart",
        case="it does not, as HAMi's",
    ),
    annotation(MODE, Fate.KEPT, "it is how every share is kept", case="`hami-core`"),
    annotation(
        MODE,
        Fate.CLASS,
        "MIG devices of `gpu.nvidia.com` with at least that memory, the smallest first. Needs "
        "`gpumem`; cores are dropped with a warning",
        case="`mig`",
    ),
    annotation(
        MODE,
        Fate.CONFIG,
        "whole GPUs of `gpu.nvidia.com` with an MPS server for this pod alone, with a warning",
        case="`mps`",
    ),
    annotation(MODE, Fate.REFUSED, "a card has no such mode", case="any other"),
    annotation(GPU_POLICY, Fate.CAPACITY, "the whole card", case="`mutex`"),
    annotation(GPU_POLICY, Fate.CONSTRAINT, f"as `{NUMA_BIND}`", case="`numa`"),
    annotation(GPU_POLICY, Fate.DROPPED, "it steers HAMi's scheduler", case="any other"),
    annotation(NODE_POLICY, Fate.DROPPED, "it steers HAMi's scheduler"),
    annotation(SCORING_WEIGHTS, Fate.DROPPED, "it steers HAMi's scheduler"),
    label(OPT_OUT, Fate.SKIPPED, "on a pod that HAMi owns, or its namespace", case="`ignore`"),
    label(CONVERTED, Fate.SKIPPED, "HAMi's own converter made the claims", case="`true`"),
)

DEFAULT_COUNT: Final = 1
MAX_MEMORY_MIB: Final = 2**31 - 1
TASK_PRIORITY: Final = "CUDA_TASK_PRIORITY"

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
"""What Go's strconv.ParseBool takes for true."""


_ASPECTS: Final = {
    "mode": MODE,
    "numa": NUMA_BIND,
    "models": USE_TYPE,
    "not_models": NO_USE_TYPE,
    "uuids": USE_UUID,
    "not_uuids": NO_USE_UUID,
}
"""Which annotation to blame for what an intent says."""


class Mode(StrEnum):
    """How a card is shared, in the order in which we prefer them when a pod allows several."""

    CORE = "hami-core"
    MIG = "mig"
    MPS = "mps"


class _Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotations say for every container of the pod."""

    filter: DeviceFilter = DeviceFilter()
    mode: Mode = Mode.CORE
    same_numa: bool = False
    mutex: bool = False


class _Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """The integer amounts of one container; None where the key is absent."""

    count: int | None
    memory_mib: int | None
    memory_percent: int | None
    cores_percent: int | None
    priority: int | None


def translate(pod: LegacyPod) -> Translation:
    """Return the GPUs and shares of GPUs that each container asks for."""
    wishes, said_of_annotations = _read_annotations(pod.annotations)
    findings: list[Finding] = []
    intents: list[Intent] = []
    variables: list[Variable] = []
    for container in (c for c in pod.containers if c.limits):
        amounts, faults = _read_amounts(container)
        findings += faults
        if has_errors(faults):
            continue
        if amounts.priority is not None:
            variables.append(_priority(container, amounts.priority))
        intent, said = _intent(container, amounts, wishes)
        findings += said
        if intent is not None:
            intents.append(intent)
    if intents or has_errors(findings):
        # Annotations mean nothing to a pod that asks for no GPU.
        findings = [*said_of_annotations, *findings]
    if intents:
        findings += _privileged(pod)
    return Translation(intents=tuple(intents), variables=tuple(variables), findings=tuple(findings))


# --- amounts --------------------------------------------------------------------------------------


def _read_amounts(container: LegacyContainer) -> tuple[_Amounts, list[Finding]]:
    findings: list[Finding] = []

    def integer(key: str) -> int | None:
        amount = whole(container, key)
        if isinstance(amount, Finding):
            findings.append(amount)
            return None
        return amount

    amounts = _Amounts(
        count=integer(COUNT),
        memory_mib=integer(MEMORY_MIB),
        memory_percent=integer(MEMORY_PERCENT),
        cores_percent=integer(CORES_PERCENT),
        priority=integer(PRIORITY),
    )
    findings += _out_of_range(container, amounts)
    if amounts.cores_percent is not None and amounts.cores_percent > 100:
        amounts = msgspec.structs.replace(amounts, cores_percent=100)
    return amounts, findings


def _out_of_range(container: LegacyContainer, amounts: _Amounts) -> Iterator[Finding]:
    memory = amounts.memory_mib
    if memory is not None:
        written = container.limits[MEMORY_MIB]
        path = container.limit_path(MEMORY_MIB)
        if says_bytes(written):
            yield error(
                Code.WRONG_UNIT,
                path,
                f"Invalid value: {written}: the amount is a count of MiB, not of bytes",
                f"write {int(written) // MEBIBYTE} for {written}",
            )
        elif memory > MAX_MEMORY_MIB:
            yield error(
                Code.OUT_OF_RANGE,
                path,
                f"Invalid value: {written}: must be at most {MAX_MEMORY_MIB} MiB",
                "count in MiB",
            )
    percent = amounts.memory_percent
    if percent is not None and percent > 100:
        yield error(
            Code.OUT_OF_RANGE,
            container.limit_path(MEMORY_PERCENT),
            f"Invalid value: {percent}: must be between 0 and 100 percent",
            "write 100 for all memory of the GPU",
        )
    cores = amounts.cores_percent
    if cores is not None and cores > 100:
        yield warning(
            Code.CLAMPED,
            container.limit_path(CORES_PERCENT),
            f"{cores} percent of a GPU's cores means 100, as in HAMi",
            "write 100",
        )


# --- one container --------------------------------------------------------------------------------


def _intent(
    container: LegacyContainer, amounts: _Amounts, wishes: _Wishes
) -> tuple[Intent | None, list[Finding]]:
    count = _count(amounts)
    if not count:
        return None, list(_no_device(container, amounts))
    intent = Intent(
        container=container.name,
        kind=DeviceKind.GPU,
        count=count,
        same_numa=wishes.same_numa,
        filter=wishes.filter,
        paths=_paths(container),
    )
    match wishes.mode:
        case Mode.MIG:
            return _as_mig(intent, amounts)
        case Mode.MPS:
            return _as_mps(intent, amounts), []
        case Mode.CORE:
            return _as_share(intent, amounts, mutex=wishes.mutex)


def _count(amounts: _Amounts) -> int:
    # Source: mutateContainerResource. The priority key alone brings no device.
    if amounts.count is not None:
        return amounts.count
    companions = (amounts.cores_percent, amounts.memory_mib, amounts.memory_percent)
    return DEFAULT_COUNT if any(amount is not None for amount in companions) else 0


def _as_share(intent: Intent, amounts: _Amounts, *, mutex: bool) -> tuple[Intent, list[Finding]]:
    takes_all = _cores(amounts) == 100 and _memory(amounts) == (None, None)
    if takes_all or mutex:
        said = [] if takes_all else [_mutex_takes_all(intent)]
        return msgspec.structs.replace(intent, exclusive=True, cores_percent=100), said
    memory, percent = _memory(amounts)
    return (
        msgspec.structs.replace(
            intent, memory=memory, memory_percent=percent, cores_percent=_cores(amounts)
        ),
        [],
    )


def _cores(amounts: _Amounts) -> int:
    """Return the percentage of each GPU's cores; 0 is uncapped.

    Source: defaultExclusiveCoreIfNeeded. What counts is which keys are present: `gpumem: 0` and
    `gpumem-percentage: 0` leave the cores uncapped, although the memory then resolves to all of it,
    and a percentage of 100 takes them all, although a memory in MiB then beats it.
    """
    if amounts.cores_percent is not None:
        return amounts.cores_percent
    if amounts.memory_percent is not None:
        return 100 if amounts.memory_percent == 100 else 0
    return 100 if amounts.memory_mib is None else 0


def _memory(amounts: _Amounts) -> tuple[Quantity | None, int | None]:
    """Return bytes or percent per GPU, at most one of them; neither means all of it.

    Source: GenerateResourceRequests: zero is unset, and an absolute amount beats a percentage.
    """
    if amounts.memory_mib:
        return Quantity.from_int(amounts.memory_mib * MEBIBYTE, Format.BINARY), None
    if amounts.memory_percent and amounts.memory_percent < 100:
        return None, amounts.memory_percent
    return None, None


def _mutex_takes_all(intent: Intent) -> Finding:
    return warning(
        Code.WHOLE_DEVICE,
        intent.path("count"),
        "policy mutex wants the GPU for itself: all its memory and cores are claimed",
    )


def _as_mig(intent: Intent, amounts: _Amounts) -> tuple[Intent | None, list[Finding]]:
    memory, _ = _memory(amounts)
    if memory is None:
        return None, [
            error(
                Code.CANNOT_EXPRESS,
                intent.path("memory"),
                "in vgpu-mode mig the memory chooses the MIG profile, and none is given in MiB",
                f"set {MEMORY_MIB}, or ask for a profile with nvidia.com/mig-<profile>",
            )
        ]
    findings = []
    if amounts.cores_percent:
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                intent.path("cores"),
                "a MIG device brings its own share of cores; the percentage is dropped",
            )
        )
    return (
        msgspec.structs.replace(intent, kind=DeviceKind.MIG, memory=memory, exclusive=True),
        findings,
    )


def _as_mps(intent: Intent, amounts: _Amounts) -> Intent:
    memory, percent = _memory(amounts)
    return msgspec.structs.replace(
        intent,
        through_mps=True,
        memory=memory,
        memory_percent=percent,
        cores_percent=amounts.cores_percent or None,
    )


def _paths(container: LegacyContainer) -> Mapping[str, str]:
    named = {"count": COUNT, "memory": MEMORY_MIB, "cores": CORES_PERCENT}
    paths = {aspect: container.limit_path(key) for aspect, key in named.items()}
    if MEMORY_MIB not in container.limits and MEMORY_PERCENT in container.limits:
        paths["memory"] = container.limit_path(MEMORY_PERCENT)
    if COUNT not in container.limits:
        paths["count"] = container.limit_path(min(container.limits))
    return paths | {aspect: _annotation_path(key) for aspect, key in _ASPECTS.items()}


def _no_device(container: LegacyContainer, amounts: _Amounts) -> Iterator[Finding]:
    beside = [key for key in OWN_KEYS if key in container.limits]
    if beside:
        found = "is 0" if amounts.count == 0 else "is absent"
        yield warning(
            Code.NO_DEVICE_ASKED,
            container.limit_path(beside[0]),
            f"{', '.join(beside)} means nothing where {COUNT} {found}: no GPU is claimed",
        )


def _priority(container: LegacyContainer, priority: int) -> Variable:
    # Source: MutateAdmission. HAMi's library reads it; it has no meaning for placement.
    return Variable(
        container=container.name,
        name=TASK_PRIORITY,
        value=str(priority),
        path=container.limit_path(PRIORITY),
    )


def _privileged(pod: LegacyPod) -> Iterator[Finding]:
    for container in pod.containers:
        if container.privileged:
            yield error(
                Code.PRIVILEGED_SHARE,
                f"{container.path}.securityContext.privileged",
                "a privileged container sees every GPU of its node; HAMi refuses it beside a share",
                "drop privileged, or ask for whole GPUs without HAMi's keys",
            )


# --- annotations ----------------------------------------------------------------------------------


def _read_annotations(annotations: Mapping[str, str]) -> tuple[_Wishes, list[Finding]]:
    findings: list[Finding] = []
    policies = _items(annotations.get(GPU_POLICY, ""))
    wishes = _Wishes(
        filter=_filter(annotations, findings),
        mode=_mode(annotations.get(MODE, ""), findings),
        same_numa=annotations.get(NUMA_BIND, "") in _TRUE or "numa" in policies,
        mutex="mutex" in policies,
    )
    for policy in policies:
        if policy not in ("mutex", "numa"):
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    _annotation_path(GPU_POLICY),
                    f"a claim cannot say the GPU policy {shown(policy)}; it is dropped",
                )
            )
    for key in (NODE_POLICY, SCORING_WEIGHTS):
        if annotations.get(key, "").strip():
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    _annotation_path(key),
                    f"{key} steers HAMi's own scheduler; the claim drops it",
                )
            )
    return wishes, findings


def _filter(annotations: Mapping[str, str], findings: list[Finding]) -> DeviceFilter:
    def listed(key: str, *, excludes: bool) -> tuple[str, ...] | None:
        text = annotations.get(key, "")
        if not text.strip():  # Blank means no constraint.
            return None
        items = _items(text)
        if not items and not excludes:
            findings.append(
                error(
                    Code.NOTHING_MATCHES,
                    _annotation_path(key),
                    f"{shown(text)} names nothing, so no GPU would match",
                    "name a GPU, or remove the annotation",
                )
            )
        return items

    models = listed(USE_TYPE, excludes=False)
    return DeviceFilter(
        models=None if models is None else tuple(_model(item) for item in models),
        not_models=tuple(_model(item) for item in listed(NO_USE_TYPE, excludes=True) or ()),
        uuids=listed(USE_UUID, excludes=False),
        not_uuids=listed(NO_USE_UUID, excludes=True) or (),
    )


def _items(text: str) -> tuple[str, ...]:
    return tuple(item for part in text.split(",") if (item := part.strip()))


_LOWER_ASCII: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


def _model(item: str) -> str:
    # Older HAMi registered every card as "NVIDIA-<name>", so manifests say "NVIDIA-NVIDIA A100".
    prefix = "nvidia-"
    # As lowerAscii in the selector: other letters keep their case on both sides.
    lowered = item.translate(_LOWER_ASCII)
    return lowered.removeprefix(prefix) or lowered


def _mode(text: str, findings: list[Finding]) -> Mode:
    if not text.strip():
        return Mode.CORE
    # Source: checkType. The mode of a card must be contained in the text.
    allowed = [mode for mode in Mode if mode.value in text]
    if not allowed:
        findings.append(
            error(
                Code.UNKNOWN_MODE,
                _annotation_path(MODE),
                f"{shown(text)} names no mode of a card",
                f"write one of {', '.join(Mode)}",
            )
        )
        return Mode.CORE
    return allowed[0]


def _annotation_path(key: str) -> str:
    return f"metadata.annotations[{key}]"


VOCABULARY: Final = Vocabulary(
    name="hami",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    annotations=annotations(TABLE),
    variables=(TASK_PRIORITY,),
    added_key=COUNT,
    translate=translate,
)
