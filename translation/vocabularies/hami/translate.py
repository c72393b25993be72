"""HAMi on NVIDIA GPUs: nvidia.com/gpu with gpumem, gpumem-percentage, gpucores and annotations.

Amounts are per GPU. Source: Project-HAMi/HAMi v2.10, pkg/device/nvidia/device.go
(MutateAdmission, GenerateResourceRequests) and pkg/device/devices.go (CheckType, CheckUUID), with
the defaults of its chart: defaultGPUNum 1, defaultMemory 0, defaultCores 0, memoryFactor 1.
Not translated: other vendors' keys, and settings of the chart that differ from these defaults.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from string import ascii_lowercase, ascii_uppercase
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors, warning
from findings.text import quote_text
from kube.quantity import Format, Quantity
from translation.amounts import is_in_bytes, whole_amount
from translation.intents import (
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
from translation.keys import Place, annotations, names
from translation.vocabularies.hami.keys import (
    CORES_PERCENT,
    COUNT,
    GPU_POLICY,
    MEMORY_MIB,
    MEMORY_PERCENT,
    MODE,
    NO_USE_TYPE,
    NO_USE_UUID,
    NODE_POLICY,
    NUMA_BIND,
    OWN_KEYS,
    PRIORITY,
    SCORING_WEIGHTS,
    TABLE,
    USE_TYPE,
    USE_UUID,
)

DEFAULT_COUNT: Final = 1
MAX_MEMORY_MIB: Final = 2**31 - 1
TASK_PRIORITY: Final = "CUDA_TASK_PRIORITY"

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
"""The values that Go's strconv.ParseBool parses as true."""


_ASPECTS: Final = {
    "mode": MODE,
    "numa": NUMA_BIND,
    "models": USE_TYPE,
    "not_models": NO_USE_TYPE,
    "uuids": USE_UUID,
    "not_uuids": NO_USE_UUID,
}
"""Aspect of an intent to the annotation that requests it."""


class Mode(StrEnum):
    """The mode of sharing of a card, in the order of preference when a pod allows several."""

    CORE = "hami-core"
    MIG = "mig"
    MPS = "mps"


class _Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements in the annotations, for every container of the pod."""

    filter: DeviceFilter = DeviceFilter()
    mode: Mode = Mode.CORE
    same_numa: bool = False
    mutex: bool = False


class _Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """The integer amounts of one container; None where a key is absent."""

    count: int | None
    memory_mib: int | None
    memory_percent: int | None
    cores_percent: int | None
    priority: int | None


def translate(pod: LegacyPod) -> Translation:
    """Translate the GPUs and shares of GPUs that each container requests."""
    requirements, annotation_findings = _read_annotations(pod.annotations)
    findings: list[Finding] = []
    intents: list[Intent] = []
    variables: list[Variable] = []
    for container in pod.containers:
        if not container.limits:
            continue
        amounts, amount_findings = _read_amounts(container)
        findings += amount_findings
        if has_errors(amount_findings):
            continue
        if amounts.priority is not None:
            variables.append(_priority(container, amounts.priority))
        intent, intent_findings = _intent(container, amounts, requirements)
        findings += intent_findings
        if intent is not None:
            intents.append(intent)
    if intents or has_errors(findings):
        # Annotations mean nothing to a pod that requests no GPU.
        findings = [*annotation_findings, *findings]
    if intents:
        findings += _check_privileged(pod)
    return Translation(intents=tuple(intents), variables=tuple(variables), findings=tuple(findings))


# --- amounts --------------------------------------------------------------------------------------


def _read_amounts(container: LegacyContainer) -> tuple[_Amounts, list[Finding]]:
    findings: list[Finding] = []

    def integer(key: str) -> int | None:
        amount = whole_amount(container, key)
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
    findings += _check_ranges(container, amounts)
    if amounts.cores_percent is not None and amounts.cores_percent > 100:
        amounts = msgspec.structs.replace(amounts, cores_percent=100)
    return amounts, findings


def _check_ranges(container: LegacyContainer, amounts: _Amounts) -> Iterator[Finding]:
    memory = amounts.memory_mib
    if memory is not None:
        written = container.limits[MEMORY_MIB]
        path = container.limit_path(MEMORY_MIB)
        if is_in_bytes(written):
            yield error(
                Code.WRONG_UNIT,
                path,
                f"{written} is a number of bytes, and the key counts MiB",
                f"write {int(written) // MEBIBYTE} for {written}",
            )
        elif memory > MAX_MEMORY_MIB:
            yield error(
                Code.OUT_OF_RANGE,
                path,
                f"{written} is more than {MAX_MEMORY_MIB} MiB",
                "write the amount in MiB",
            )
    percent = amounts.memory_percent
    if percent is not None and percent > 100:
        yield error(
            Code.OUT_OF_RANGE,
            container.limit_path(MEMORY_PERCENT),
            f"{percent} percent is more than 100",
            "write 100 for all memory of the GPU",
        )
    cores = amounts.cores_percent
    if cores is not None and cores > 100:
        yield warning(
            Code.CLAMPED,
            container.limit_path(CORES_PERCENT),
            f"{cores} percent of a GPU's cores counts as 100, as in HAMi",
            "write 100",
        )


# --- one container --------------------------------------------------------------------------------


def _intent(
    container: LegacyContainer, amounts: _Amounts, requirements: _Requirements
) -> tuple[Intent | None, list[Finding]]:
    count = _count(amounts)
    if not count:
        return None, list(_check_companions(container, amounts))
    intent = Intent(
        container=container.name,
        kind=DeviceKind.GPU,
        count=count,
        same_numa=requirements.same_numa,
        filter=requirements.filter,
        paths=_paths(container),
    )
    match requirements.mode:
        case Mode.MIG:
            return _as_mig(intent, amounts)
        case Mode.MPS:
            return _as_mps(intent, amounts), []
        case Mode.CORE:
            return _as_share(intent, amounts, mutex=requirements.mutex)


def _count(amounts: _Amounts) -> int:
    # Source: mutateContainerResource. The priority key alone requests no device.
    if amounts.count is not None:
        return amounts.count
    companions = (amounts.cores_percent, amounts.memory_mib, amounts.memory_percent)
    return DEFAULT_COUNT if any(amount is not None for amount in companions) else 0


def _as_share(intent: Intent, amounts: _Amounts, *, mutex: bool) -> tuple[Intent, list[Finding]]:
    takes_all = _cores(amounts) == 100 and _memory(amounts) == (None, None)
    if takes_all or mutex:
        findings = [] if takes_all else [_mutex_finding(intent)]
        return msgspec.structs.replace(intent, exclusive=True, cores_percent=100), findings
    memory, percent = _memory(amounts)
    return (
        msgspec.structs.replace(
            intent, memory=memory, memory_percent=percent, cores_percent=_cores(amounts)
        ),
        [],
    )


def _cores(amounts: _Amounts) -> int:
    """Return the percentage of each GPU's cores; 0 is no limit.

    Source: defaultExclusiveCoreIfNeeded. It depends on which keys are present: `gpumem: 0` and
    `gpumem-percentage: 0` set no limit of cores, although the memory then resolves to all of it, and
    a percentage of 100 takes all cores, although a memory in MiB takes precedence over it.
    """
    if amounts.cores_percent is not None:
        return amounts.cores_percent
    if amounts.memory_percent is not None:
        return 100 if amounts.memory_percent == 100 else 0
    return 100 if amounts.memory_mib is None else 0


def _memory(amounts: _Amounts) -> tuple[Quantity | None, int | None]:
    """Return bytes or percent per GPU, at most one of them; neither means all of it.

    Source: GenerateResourceRequests: zero is unset, and an amount takes precedence over a percentage.
    """
    if amounts.memory_mib:
        return Quantity.from_int(amounts.memory_mib * MEBIBYTE, Format.BINARY), None
    if amounts.memory_percent and amounts.memory_percent < 100:
        return None, amounts.memory_percent
    return None, None


def _mutex_finding(intent: Intent) -> Finding:
    return warning(
        Code.WHOLE_DEVICE,
        intent.path("count"),
        "policy mutex requires an exclusive GPU: the claim requests all its memory and cores",
    )


def _as_mig(intent: Intent, amounts: _Amounts) -> tuple[Intent | None, list[Finding]]:
    memory, _ = _memory(amounts)
    if memory is None:
        return None, [
            error(
                Code.MEMORY_AMOUNT_REQUIRED,
                intent.path("memory"),
                f"in vgpu-mode mig {_requested_memory(amounts)} of the GPU selects the MIG profile, "
                "and MIG devices do not publish the memory of their GPU",
                f"set {MEMORY_MIB}, or request a profile with nvidia.com/mig-<profile>",
            )
        ]
    findings = []
    if amounts.cores_percent:
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                intent.path("cores"),
                "the cores of a MIG device are fixed; the percentage is dropped",
            )
        )
    return (
        msgspec.structs.replace(intent, kind=DeviceKind.MIG, memory=memory, exclusive=True),
        findings,
    )


def _requested_memory(amounts: _Amounts) -> str:
    percent = amounts.memory_percent
    return f"{percent} percent of the memory" if percent and percent < 100 else "the memory"


def _as_mps(intent: Intent, amounts: _Amounts) -> Intent:
    memory, percent = _memory(amounts)
    return msgspec.structs.replace(
        intent,
        through_mps=True,
        memory=memory,
        memory_percent=percent,
        cores_percent=amounts.cores_percent or None,
    )


def _paths(container: LegacyContainer) -> Mapping[str, FieldPath]:
    keys = {"count": COUNT, "memory": MEMORY_MIB, "cores": CORES_PERCENT}
    paths = {
        aspect: container.limit_path(key) for aspect, key in keys.items() if key in container.limits
    }
    if MEMORY_MIB not in container.limits and MEMORY_PERCENT in container.limits:
        paths["memory"] = container.limit_path(MEMORY_PERCENT)
    if COUNT not in container.limits:
        paths["count"] = container.limit_path(min(container.limits))
    return paths | {aspect: _annotation_path(key) for aspect, key in _ASPECTS.items()}


def _check_companions(container: LegacyContainer, amounts: _Amounts) -> Iterator[Finding]:
    companions = [key for key in OWN_KEYS if key in container.limits]
    if companions:
        state = "0" if amounts.count == 0 else "absent"
        yield warning(
            Code.NO_DEVICE_REQUESTED,
            container.limit_path(companions[0]),
            f"{', '.join(companions)} has no effect, because {COUNT} is {state}: no GPU is claimed",
        )


def _priority(container: LegacyContainer, priority: int) -> Variable:
    # Source: MutateAdmission. HAMi's library reads it; it does not affect placement.
    return Variable(
        container=container.name,
        name=TASK_PRIORITY,
        value=str(priority),
        path=container.limit_path(PRIORITY),
    )


def _check_privileged(pod: LegacyPod) -> Iterator[Finding]:
    for container in pod.containers:
        if container.privileged:
            yield error(
                Code.PRIVILEGED_SHARE,
                container.path.child("securityContext", "privileged"),
                "a privileged container sees every GPU of its node, so HAMi allows no share in its pod",
                "remove privileged, or request whole GPUs without HAMi's keys",
            )


# --- annotations ----------------------------------------------------------------------------------


def _read_annotations(annotations: Mapping[str, str]) -> tuple[_Requirements, list[Finding]]:
    findings: list[Finding] = []
    policies = _items(annotations.get(GPU_POLICY, ""))
    requirements = _Requirements(
        filter=_filter(annotations, findings),
        mode=_mode(annotations.get(MODE, ""), findings),
        same_numa=annotations.get(NUMA_BIND, "") in _TRUE,
        mutex="mutex" in policies,
    )
    for policy in policies:
        if policy == "numa":
            # Source: gpu_policy.go: it sorts cards, and spans NUMA nodes where one has too few.
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    _annotation_path(GPU_POLICY),
                    "a claim cannot prefer one NUMA node; the devices may be on different ones",
                    f"to require one NUMA node, set {NUMA_BIND}",
                )
            )
        elif policy != "mutex":
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    _annotation_path(GPU_POLICY),
                    f"a claim cannot express the GPU policy {quote_text(policy)}; it is dropped",
                )
            )
    for key in (NODE_POLICY, SCORING_WEIGHTS):
        if annotations.get(key, "").strip():
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    _annotation_path(key),
                    f"{key} configures HAMi's own scheduler; it is dropped",
                )
            )
    return requirements, findings


def _filter(annotations: Mapping[str, str], findings: list[Finding]) -> DeviceFilter:
    def listed(key: str, *, excludes: bool) -> tuple[str, ...] | None:
        text = annotations.get(key, "")
        if not text.strip():  # Blank means no constraint.
            return None
        items = _items(text)
        if not items and not excludes:
            findings.append(
                error(
                    Code.EMPTY_DEVICE_LIST,
                    _annotation_path(key),
                    f"{quote_text(text)} contains only separators, so no GPU would match",
                    "name a GPU, or remove the annotation",
                )
            )
        return items

    models = listed(USE_TYPE, excludes=False)
    if models is not None and any(map(_is_every_card, models)):
        models = None
    excluded = listed(NO_USE_TYPE, excludes=True) or ()
    if any(map(_is_every_card, excluded)):
        findings.append(
            error(
                Code.EMPTY_DEVICE_LIST,
                _annotation_path(NO_USE_TYPE),
                f"{quote_text(annotations[NO_USE_TYPE])} excludes every GPU, so none would match",
                "name the types to exclude",
            )
        )
    return DeviceFilter(
        models=None if models is None else tuple(_model(item) for item in models),
        not_models=tuple(_model(item) for item in excluded),
        uuids=listed(USE_UUID, excludes=False),
        not_uuids=listed(NO_USE_UUID, excludes=True) or (),
    )


def _items(text: str) -> tuple[str, ...]:
    return tuple(item for part in text.split(",") if (item := part.strip()))


_LOWER_ASCII: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


def _is_every_card(item: str) -> bool:
    """Return whether a type is part of the name of every card: HAMi registers `NVIDIA-<name>`."""
    return item.translate(_LOWER_ASCII) in {"nvidia", "nvidia-"}


def _model(item: str) -> str:
    # Older HAMi registered every card as "NVIDIA-<name>", so manifests say "NVIDIA-NVIDIA A100".
    prefix = "nvidia-"
    # As lowerAscii in the selector, other letters keep their case.
    lowered = item.translate(_LOWER_ASCII)
    return lowered.removeprefix(prefix) or lowered


def _mode(text: str, findings: list[Finding]) -> Mode:
    if not text.strip():
        return Mode.CORE
    # Source: checkType. The text must contain the mode of a card.
    allowed = [mode for mode in Mode if mode.value in text]
    if not allowed:
        findings.append(
            error(
                Code.UNKNOWN_MODE,
                _annotation_path(MODE),
                f"{quote_text(text)} contains no mode of a card",
                f"write one of {', '.join(Mode)}",
            )
        )
        return Mode.CORE
    return allowed[0]


def _annotation_path(key: str) -> FieldPath:
    return FieldPath.of("metadata", "annotations").key(key)


VOCABULARY: Final = Vocabulary(
    name="hami",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    annotations=annotations(TABLE),
    variables=(TASK_PRIORITY,),
    added_key=COUNT,
    translate=translate,
)
