"""HAMi on NVIDIA GPUs: nvidia.com/gpu with gpumem, gpumem-percentage, gpucores and annotations.

Amounts are per GPU. Source: Project-HAMi/HAMi v2.10, pkg/device/nvidia/device.go
(MutateAdmission, GenerateResourceRequests) and pkg/device/devices.go (CheckType, CheckUUID), with
the defaults that `translation.model.choices.HamiDefaults` has.
Not translated: other vendors' keys.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors, warning
from kube.quantity import ZERO, Format, Quantity
from translation.model.amounts import is_meant_in_bytes, whole_amount
from translation.model.choices import (
    MAX_MEMORY_MIB,
    Choices,
    CorePolicy,
    Exclusivity,
    HamiDefaults,
)
from translation.model.device_policies import GPU_POLICY
from translation.model.init_containers import check_sidecars
from translation.model.intents import (
    MEBIBYTE,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Variable,
    Vocabulary,
    annotation_path,
)
from translation.model.keys import Place, annotations, names
from translation.model.share_amounts import (
    Unit,
    above_all_of_each,
    clamped,
    units_of_mebibytes,
    with_pod_findings,
    wrong_unit,
)
from translation.vocabularies.hami.annotations import (
    Mode,
    Requirements,
    read_annotations,
)
from translation.vocabularies.hami.keys import (
    CORES_PERCENT,
    COUNT,
    MEMORY_MIB,
    MEMORY_PERCENT,
    MODE,
    NO_USE_TYPE,
    NO_USE_UUID,
    NUMA_BIND,
    OWN_KEYS,
    PRIORITY,
    TABLE,
    USE_TYPE,
    USE_UUID,
)

TASK_PRIORITY: Final = "CUDA_TASK_PRIORITY"
CORE_POLICY: Final = "GPU_CORE_UTILIZATION_POLICY"

_ANNOTATION_PATHS: Final = {
    "mode": annotation_path(MODE),
    "numa": annotation_path(NUMA_BIND),
    "models": annotation_path(USE_TYPE),
    "not_models": annotation_path(NO_USE_TYPE),
    "uuids": annotation_path(USE_UUID),
    "not_uuids": annotation_path(NO_USE_UUID),
}
"""Aspect of an intent to the path of the annotation that requests it."""


class _Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """The integer amounts of one container; None if a key is absent.

    Attributes:
        memory_mib: The memory in MiB, regardless of the key's unit.
        defaults: The defaults for keys that are absent.
    """

    defaults: HamiDefaults
    count: int | None
    memory_mib: int | None
    memory_percent: int | None
    cores_percent: int | None
    priority: int | None


def translate(pod: LegacyPod) -> Translation:
    """Translate the GPUs and shares of GPUs that each container requests."""
    requirements, annotation_findings = read_annotations(pod.annotations)
    findings: list[Finding] = []
    intents: list[Intent] = []
    variables: list[Variable] = []
    for container in pod.containers:
        if not container.limits:
            continue
        amounts, amount_findings = _read_amounts(container, pod.choices.hami)
        findings += amount_findings
        if has_errors(amount_findings):
            continue
        if amounts.priority is not None:
            variables.append(_priority(container, amounts.priority))
        intent, intent_findings = _intent(container, amounts, requirements, pod.choices)
        findings += intent_findings
        if intent is not None:
            intents.append(intent)
            variables += _core_policy(intent, amounts.defaults.core_policy)
    findings = with_pod_findings(intents, annotation_findings, findings)
    if intents:
        findings += _check_privileged(pod)
        findings += check_sidecars(intents, pod.containers)
    return Translation(intents=tuple(intents), variables=tuple(variables), findings=tuple(findings))


# --- amounts --------------------------------------------------------------------------------------


def _read_amounts(
    container: LegacyContainer, defaults: HamiDefaults
) -> tuple[_Amounts, list[Finding]]:
    findings: list[Finding] = []

    def integer(key: str) -> int | None:
        amount = whole_amount(container, key)
        if isinstance(amount, Finding):
            findings.append(_with_percent(amount, container, key))
            return None
        return amount

    amounts = _Amounts(
        defaults=defaults,
        count=integer(COUNT),
        memory_mib=integer(MEMORY_MIB),
        memory_percent=integer(MEMORY_PERCENT),
        cores_percent=integer(CORES_PERCENT),
        priority=integer(PRIORITY),
    )
    findings += _check_ranges(container, amounts)
    if amounts.cores_percent is not None and amounts.cores_percent > 100:
        amounts = msgspec.structs.replace(amounts, cores_percent=100)
    if amounts.memory_mib is not None and defaults.memory_factor != 1:
        memory_mib = amounts.memory_mib * defaults.memory_factor
        amounts = msgspec.structs.replace(amounts, memory_mib=memory_mib)
    return amounts, findings


def _with_percent(finding: Finding, container: LegacyContainer, key: str) -> Finding:
    """Return a finding on an amount; for a part of one it names the percentage."""
    amount = container.limits[key]
    if key not in {MEMORY_PERCENT, CORES_PERCENT} or not ZERO < amount < Quantity(1):
        return finding
    percent = amount.nanos * 100 // Quantity(1).nanos
    fix = f"write {percent} for {amount} of a GPU" if percent else "write 1 or more, in percent"
    in_percent = msgspec.structs.replace(finding, fix=fix)
    return in_percent.corrected_by(Quantity(percent)) if percent else in_percent


def _check_ranges(container: LegacyContainer, amounts: _Amounts) -> Iterator[Finding]:
    memory = amounts.memory_mib
    if memory is not None:
        amount = container.limits[MEMORY_MIB]
        if is_meant_in_bytes(amount):
            path, original = container.limit_path(MEMORY_MIB), container.original_key(MEMORY_MIB)
            yield wrong_unit(path, original, amount, _memory_unit(amounts.defaults))
        elif memory * amounts.defaults.memory_factor > MAX_MEMORY_MIB:
            largest = MAX_MEMORY_MIB // amounts.defaults.memory_factor
            yield error(
                Code.OUT_OF_RANGE,
                container.limit_path(MEMORY_MIB),
                f"{amount} is more than {MAX_MEMORY_MIB} MiB",
                f"write {largest} or less, in {_memory_unit(amounts.defaults).name}",
            ).corrected_by(Quantity(largest))
    count = _count(amounts)
    percent = amounts.memory_percent
    if percent is not None and percent > 100:
        path = container.limit_path(MEMORY_PERCENT)
        original = container.original_key(MEMORY_PERCENT)
        yield above_all_of_each(path, original, percent, count, memory_key=MEMORY_MIB)
    cores = amounts.cores_percent
    if cores is not None and cores > 100:
        yield clamped(container.limit_path(CORES_PERCENT), cores, count, "GPU")


def _memory_unit(defaults: HamiDefaults) -> Unit:
    return units_of_mebibytes(defaults.memory_factor)


# --- one container --------------------------------------------------------------------------------


def _intent(
    container: LegacyContainer,
    amounts: _Amounts,
    requirements: Requirements,
    choices: Choices,
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
            mig, findings = _as_mig(intent, amounts)
            return mig, [*findings, *_check_dropped_mutex(requirements)]
        case Mode.MPS:
            if amounts.defaults.memory_factor == 1:
                amount = container.limit_path(MEMORY_MIB)
                intent = msgspec.structs.replace(intent, paths={**intent.paths, "amount": amount})
            return _as_mps(intent, amounts), list(_check_dropped_mutex(requirements))
        case Mode.CORE:
            return _as_share(intent, amounts, choices.exclusivity, mutex=requirements.mutex)


def _count(amounts: _Amounts) -> int:
    # Source: mutateContainerResource. The priority key alone requests no device.
    if amounts.count is not None:
        return amounts.count
    companions = (amounts.cores_percent, amounts.memory_mib, amounts.memory_percent)
    return amounts.defaults.count if any(amount is not None for amount in companions) else 0


def _as_share(
    intent: Intent, amounts: _Amounts, exclusivity: Exclusivity, *, mutex: bool
) -> tuple[Intent, list[Finding]]:
    cores, (memory, percent) = _cores(amounts), _memory(amounts)
    if cores == 100 and memory is None and percent is None:
        return _as_whole(intent), []
    if mutex and exclusivity is not Exclusivity.NEVER:
        return _as_whole(intent), [_mutex_finding(intent)]
    if cores == 100 and exclusivity is Exclusivity.ALWAYS:
        return _as_whole(intent), [_all_cores_finding(intent)]
    share = msgspec.structs.replace(
        intent, memory=memory, memory_percent=percent, cores_percent=cores
    )
    return share, [_shared_mutex_finding()] if mutex else []


def _as_whole(intent: Intent) -> Intent:
    return msgspec.structs.replace(intent, exclusive=True, cores_percent=100)


def _cores(amounts: _Amounts) -> int:
    """Return the percentage of each GPU's cores; 0 is no limit.

    Source: defaultExclusiveCoreIfNeeded. It depends on which keys are present: `gpumem: 0` and
    `gpumem-percentage: 0` set no limit of cores, although the memory then resolves to all of it, and
    a percentage of 100 takes all cores, although a memory in MiB takes precedence over it.
    """
    if amounts.cores_percent is not None:
        return amounts.cores_percent
    default = amounts.defaults.cores
    if amounts.memory_percent is not None:
        return 100 if amounts.memory_percent == 100 else default
    return 100 if amounts.memory_mib is None else default


def _memory(amounts: _Amounts) -> tuple[Quantity | None, int | None]:
    """Return bytes or percent per GPU, at most one of them; neither means all of it.

    Source: GenerateResourceRequests: zero is unset, and an amount takes precedence over a percentage.
    """
    if amounts.memory_mib:
        return Quantity.from_int(amounts.memory_mib * MEBIBYTE, Format.BINARY), None
    if amounts.memory_percent:
        return None, amounts.memory_percent if amounts.memory_percent < 100 else None
    if amounts.defaults.memory:
        return Quantity.from_int(amounts.defaults.memory * MEBIBYTE, Format.BINARY), None
    return None, None


def _all_cores_finding(intent: Intent) -> Finding:
    return warning(
        Code.WHOLE_DEVICE,
        intent.path("cores"),
        "HAMi gives all cores only of an unused GPU: the claim requests all its memory, too, which is "
        "the container's limit then",
    )


def _shared_mutex_finding() -> Finding:
    return warning(
        Code.NOT_EXCLUSIVE,
        annotation_path(GPU_POLICY),
        "policy mutex requires an unused GPU; the claim requests a share, and others may be on the GPU",
        "for a GPU of its own, set translation.exclusivity to policies",
    )


def _mutex_finding(intent: Intent) -> Finding:
    return warning(
        Code.WHOLE_DEVICE,
        intent.path("count"),
        "policy mutex requires an exclusive GPU: the claim requests all its memory and cores",
        "for a share, which others may join later, set translation.exclusivity to never",
    )


def _check_dropped_mutex(requirements: Requirements) -> Iterator[Finding]:
    if requirements.mutex:
        yield warning(
            Code.POLICY_DROPPED,
            annotation_path(GPU_POLICY),
            f"policy mutex requires an unused GPU, which a claim in vgpu-mode {requirements.mode} cannot; it is dropped",
        )


def _as_mig(intent: Intent, amounts: _Amounts) -> tuple[Intent | None, list[Finding]]:
    memory, percent = _memory(amounts)
    if memory is None and percent is None:
        return None, [
            error(
                Code.MEMORY_AMOUNT_REQUIRED,
                intent.path("memory"),
                "in vgpu-mode mig the memory selects the MIG profile",
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
        msgspec.structs.replace(
            intent, kind=DeviceKind.MIG, memory=memory, memory_percent=percent, exclusive=True
        ),
        findings,
    )


def _as_mps(intent: Intent, amounts: _Amounts) -> Intent:
    memory, percent = _memory(amounts)
    return msgspec.structs.replace(
        intent,
        through_mps=True,
        memory=memory,
        memory_percent=percent,
        cores_percent=_limited_cores(amounts),
    )


def _limited_cores(amounts: _Amounts) -> int | None:
    cores = amounts.cores_percent
    return (amounts.defaults.cores if cores is None else cores) or None


def _paths(container: LegacyContainer) -> Mapping[str, FieldPath]:
    keys = {"count": COUNT, "memory": MEMORY_MIB, "cores": CORES_PERCENT}
    paths = container.limit_paths(keys)
    if MEMORY_MIB not in container.limits and MEMORY_PERCENT in container.limits:
        paths["memory"] = container.limit_path(MEMORY_PERCENT)
    if COUNT not in container.limits:
        paths["count"] = container.limit_path(min(container.limits))
    return paths | _ANNOTATION_PATHS


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


def _core_policy(intent: Intent, policy: CorePolicy) -> Iterator[Variable]:
    # Source: MutateAdmission. HAMi's library reads it.
    if policy is not CorePolicy.DEFAULT:
        yield Variable(
            container=intent.container,
            name=CORE_POLICY,
            value=policy.value,
            path=intent.path("cores"),
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


VOCABULARY: Final = Vocabulary(
    name="hami",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    annotations=annotations(TABLE),
    variables=(TASK_PRIORITY, CORE_POLICY),
    added_key=COUNT,
    translate=translate,
)
