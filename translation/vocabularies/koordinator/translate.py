"""Koordinator: shares of GPUs, RDMA NICs and FPGAs, their joint allocation, and its hints.

Amounts are totals of the pod, divided by the number of devices; all containers of the pod see all
of the devices. Source: koordinator-sh/koordinator, pkg/scheduler/plugins/deviceshare (utils.go,
devicehandler_gpu.go, devicehandler_default.go, device_allocator.go), apis/extension, and
pkg/webhook/pod/mutating/device_resource_spec.go, whose defaults (on, unless the gate
DisableDeviceResourceSpec is) are applied here.
Not translated: the keys of other vendors that Koordinator reads (Huawei, AMD, Hygon), labels of its
Device objects, and the bandwidth of partitions.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors, info
from kube.quantity import Format, Quantity
from translation.model.amounts import whole_amount
from translation.model.choices import Exclusivity
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
from translation.model.keys import Place, annotations, names
from translation.model.share_amounts import too_few_bytes
from translation.vocabularies.koordinator.annotations import (
    Annotations,
    Hint,
    alignment_of,
    apply_hint,
    apply_partition,
    check_isolation,
    read_annotations,
)
from translation.vocabularies.koordinator.gpu_totals import (
    Totals,
    check_few_percent,
    check_gpu_keys,
    not_a_multiple,
)
from translation.vocabularies.koordinator.keys import (
    CORE,
    FOREIGN_GPUS,
    FPGA,
    GPU_KEYS,
    HINT,
    MEMORY,
    PARTITION,
    PERCENT,
    RATIO,
    RDMA,
    SHARED,
    TABLE,
    WHOLE,
    WHOLE_GPU,
)
from translation.vocabularies.koordinator.replacements import apply_replacements

MAX_AMOUNT: Final = 2**63 - 1
"""The largest amount in a quantity of the API server."""


def translate(pod: LegacyPod) -> Translation:
    """Translate the devices of the pod, for all of its containers."""
    findings: list[Finding] = []
    replaced_pod = apply_replacements(pod, findings)
    totals = _totals(replaced_pod, findings)
    if has_errors(findings):
        return Translation(findings=tuple(findings))
    requirements = read_annotations(pod.annotations, findings)
    users = _users(pod)
    intents = [
        intent
        for intent in (
            _gpu_intent(totals, requirements, pod.choices.exclusivity, findings),
            _percent_intent(_NIC, totals, requirements, pod.choices.exclusivity, findings),
            _percent_intent(_FPGA, totals, requirements, pod.choices.exclusivity, findings),
        )
        if intent is not None
    ]
    if not intents and not has_errors(findings):
        return Translation()  # Annotations have no effect on a pod that requests no device.
    findings += check_isolation(pod, intents)
    findings += _check_deprecated_form(replaced_pod)
    findings += _check_zero_number(replaced_pod)
    findings += check_few_percent(totals)
    return Translation(
        intents=tuple(
            msgspec.structs.replace(intent, container=users[0], also=users[1:])
            for intent in intents
        ),
        alignment=alignment_of(requirements.joint, intents, findings),
        findings=tuple(findings),
    )


def _users(pod: LegacyPod) -> tuple[str, ...]:
    """Return the containers that use the devices, first one that requests them.

    These are all app containers, as koordlet exposes the devices to each, and the init containers
    that request them.
    """
    ordered_containers = sorted(
        pod.containers, key=lambda container: (not container.limits, container.init)
    )
    return tuple(
        dict.fromkeys(
            container.name
            for container in ordered_containers
            if container.limits or not container.init
        )
    )


# --- totals ---------------------------------------------------------------------------------------


def _totals(pod: LegacyPod, findings: list[Finding]) -> Totals:
    """Return the pod's totals: the larger of the init containers and the sum of the others.

    Source: k8s.io/component-helpers/resource, PodRequests.
    """
    paths: dict[str, FieldPath] = {}
    running: dict[str, int] = {}
    init: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    apps_request_gpus = _apps_request_gpus(pod)
    for container in pod.containers:
        if not container.limits:
            continue
        for key in container.limits:
            paths.setdefault(key, container.limit_path(key))
        amounts = _with_defaults(
            _read_amounts(container, findings),
            counts=not (container.sidecar and apps_request_gpus),
        )
        runs_first = container.init and not container.sidecar
        if runs_first:
            for key, amount in amounts.items():
                init[key] = max(init.get(key, 0), amount + sidecars.get(key, 0))
            continue
        for key, amount in amounts.items():
            running[key] = running.get(key, 0) + amount
            if container.sidecar:
                sidecars[key] = sidecars.get(key, 0) + amount
    totals = {key: max(running.get(key, 0), init.get(key, 0)) for key in sorted({*running, *init})}
    for key in (CORE, RATIO):
        if PERCENT in paths:
            paths.setdefault(key, paths[PERCENT])
    gpu_containers = sum(
        not container.limits.keys().isdisjoint(GPU_KEYS) for container in pod.containers
    )
    return Totals(
        amounts=totals, paths=paths, sets_shared=SHARED in paths, is_sum=gpu_containers > 1
    )


def _apps_request_gpus(pod: LegacyPod) -> bool:
    return any(
        key in GPU_KEYS
        for container in pod.containers
        if not container.init
        for key, amount in container.limits.items()
        if amount
    )


def _check_deprecated_form(pod: LegacyPod) -> Iterator[Finding]:
    """Yield a finding for each deprecated key that Koordinator leaves beside its own form.

    Source: injectGPU, which rewrites it in app containers only, and ValidateDeviceRequest.
    """
    if not _apps_request_gpus(pod):
        return
    for container in pod.containers:
        if container.init and container.limits.get(PERCENT):
            yield info(
                Code.GRANTED_WHERE_REJECTED,
                container.limit_path(PERCENT),
                "is read like gpu-core and gpu-memory-ratio; Koordinator rewrites it in app "
                "containers only, and its scheduler rejects the mixture",
                f"write {CORE} and {RATIO} instead",
            )


def _check_zero_number(pod: LegacyPod) -> Iterator[Finding]:
    """Yield a finding for each number of GPUs of zero; it counts as absent.

    Source: pkg/webhook/pod/validating/verify_device_resource.go, validateGPUShare, for app containers.
    """
    for container in pod.containers:
        amount = container.limits.get(SHARED)
        if amount is not None and not amount and not container.init:
            yield info(
                Code.GRANTED_WHERE_REJECTED,
                container.limit_path(SHARED),
                "0 counts as absent; Koordinator's webhook rejects the pod",
                "remove the key, or write the number of GPUs",
            )


def _read_amounts(container: LegacyContainer, findings: list[Finding]) -> Mapping[str, int]:
    """Return the amounts of one container; invalid ones become findings."""
    amounts: dict[str, int] = {}
    for key in sorted(container.limits):
        path = container.limit_path(key)
        amount = whole_amount(container, key)
        if isinstance(amount, Finding):
            findings.append(amount)
        elif key in FOREIGN_GPUS:
            findings.append(
                error(
                    Code.CANNOT_EXPRESS,
                    path,
                    "another vendor's device beside Koordinator's keys, for which there is no driver",
                    "request the vendor's device without Koordinator's keys",
                )
            )
        elif amount is not None and amount > MAX_AMOUNT:
            findings.append(
                error(
                    Code.OUT_OF_RANGE,
                    path,
                    f"{container.limits[key]} is more than {MAX_AMOUNT}",
                    "request less",
                )
            )
        elif amount is not None:
            amounts[key] = amount
            wrong = too_few_bytes(path, container.limits[key]) if key == MEMORY else None
            findings += [] if wrong is None else [wrong]
    # Source: injectGPU, which keeps gpu.shared beside the deprecated form.
    others = [key for key in GPU_KEYS if key in amounts and key not in {PERCENT, SHARED}]
    if PERCENT in amounts and others:
        findings.append(_deprecated_beside(others, container))
    return amounts


def _deprecated_beside(others: Sequence[str], container: LegacyContainer) -> Finding:
    """Return the error of the deprecated form beside keys of the other one, with the key in its place.

    Args:
        others: The keys of the container that the deprecated form excludes, at least one.
    """
    path, limits = container.limit_path(PERCENT), container.limits
    message = f"means gpu-core and gpu-memory-ratio, so it cannot be combined with {others[0]}"
    missing = CORE if CORE not in others else RATIO
    if missing == RATIO and len(others) > 1:
        fix = f"remove it, and keep {' and '.join(others)}"
        return error(Code.INVALID_COMBINATION, path, message, fix)
    # What the author wrote of the other form stays, as it may differ from what the key means.
    beside = others[0]
    fix = f"write {missing}: {limits[PERCENT]} in its place, beside {beside}: {limits[beside]}"
    return error(Code.INVALID_COMBINATION, path, message, fix).renamed_to(missing)


def _with_defaults(amounts: Mapping[str, int], *, counts: bool) -> Mapping[str, int]:
    """Return one container's amounts with the defaults that Koordinator's webhook sets.

    Unlike there, init containers get the same defaults: sums of both forms are no legal set.

    Args:
        counts: The container counts as a GPU by default. A sidecar beside app containers with GPUs does
            not: the webhook looks at app containers only, and the amounts of both are added.
    """
    other_amounts = {key: amount for key, amount in amounts.items() if key != PERCENT}
    if PERCENT in amounts:
        other_amounts |= {CORE: amounts[PERCENT], RATIO: amounts[PERCENT]}
    if not counts or SHARED in other_amounts:
        return other_amounts
    if not any(key in other_amounts for key in GPU_KEYS):
        return other_amounts
    return other_amounts | {SHARED: _default_shared(other_amounts)}


def _default_shared(amounts: Mapping[str, int]) -> int:
    """Return the number of GPUs to divide amounts among that set no number."""
    percent = amounts.get(RATIO, amounts.get(CORE, 0))
    several = percent > WHOLE and percent % WHOLE == 0
    return percent // WHOLE if several else 1


# --- GPUs -----------------------------------------------------------------------------------------


def _gpu_intent(
    totals: Totals,
    requirements: Annotations,
    exclusivity: Exclusivity,
    findings: list[Finding],
) -> Intent | None:
    amounts = {
        key: totals.amounts[key]
        for key in (WHOLE_GPU, CORE, MEMORY, RATIO, SHARED)
        # Source: RemoveZeros in the scheduler, before it validates the keys.
        if totals.amounts.get(key)
    }
    if not any(key != SHARED or totals.sets_shared for key in amounts):
        return None
    if SHARED not in amounts and WHOLE_GPU not in amounts:
        amounts[SHARED] = _default_shared(amounts)
    # Both keys of the deprecated form have the same faults.
    faults = dict.fromkeys(check_gpu_keys(amounts, totals))
    if faults:
        findings += faults
        return None
    count = amounts.get(WHOLE_GPU) or amounts[SHARED]
    intent = Intent(
        container="",
        kind=DeviceKind.GPU,
        count=count,
        paths={
            "count": totals.path(SHARED, WHOLE_GPU, PERCENT, RATIO, MEMORY),
            "memory": totals.path(MEMORY, RATIO, PERCENT),
            "cores": totals.path(CORE, PERCENT),
            "scope": annotation_path(HINT),
            "partition": annotation_path(PARTITION),
        },
    )
    if WHOLE_GPU in amounts:
        intent = msgspec.structs.replace(intent, exclusive=True, cores_percent=WHOLE)
    else:
        intent = _share(intent, amounts, count)
    if requirements.partition:
        intent = apply_partition(intent, findings)
    return apply_hint(intent, requirements.hints.get("gpu", Hint()), exclusivity, findings)


def _share(intent: Intent, amounts: Mapping[str, int], count: int) -> Intent:
    """Return the intent with the amounts per GPU: the totals, divided and rounded down."""
    cores = amounts[CORE] // count if CORE in amounts else None
    if MEMORY in amounts:
        memory = Quantity.from_int(amounts[MEMORY] // count, Format.BINARY)
        return msgspec.structs.replace(intent, memory=memory, cores_percent=cores or 0)
    percent = amounts[RATIO] // count
    if percent < WHOLE:
        return msgspec.structs.replace(intent, memory_percent=percent, cores_percent=cores or 0)
    # All of the memory leaves nothing for others, whatever the cores.
    takes_all = cores is None or cores == WHOLE
    return msgspec.structs.replace(
        intent, exclusive=takes_all, cores_percent=WHOLE if takes_all else cores
    )


# --- NICs and FPGAs -------------------------------------------------------------------------------


class _PercentKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key with one device for a value of 100 percent."""

    kind: DeviceKind
    key: str
    hint: str


_NIC: Final = _PercentKey(kind=DeviceKind.NIC, key=RDMA, hint="rdma")
_FPGA: Final = _PercentKey(kind=DeviceKind.FPGA, key=FPGA, hint="fpga")


def _percent_intent(
    percent_key: _PercentKey,
    totals: Totals,
    requirements: Annotations,
    exclusivity: Exclusivity,
    findings: list[Finding],
) -> Intent | None:
    """Return the intent for devices of 100 percent each; None without any.

    Source: DefaultDeviceHandler. The strategies have no effect on an amount above 100 percent.
    """
    kind, key = percent_key.kind, percent_key.key
    hint = requirements.hints.get(percent_key.hint, Hint())
    amount = totals.amounts.get(key, 0)
    path = totals.path(key)
    if not amount:
        return None
    if amount > WHOLE and amount % WHOLE:
        findings.append(not_a_multiple(path, amount))
        return None
    several = amount > WHOLE
    as_count = hint.allocate_strategy == "RequestsAsCount" and not several
    percent = WHOLE if several else (1 if as_count else amount)
    intent = Intent(
        container="",
        kind=kind,
        count=amount // WHOLE if several else (amount if as_count else 1),
        every=hint.allocate_strategy == "ApplyForAll" and not several,
        exclusive=percent == WHOLE,
        cores_percent=percent,
        filter=DeviceFilter(resource=key if kind is DeviceKind.NIC else None),
        paths={"count": path, "cores": path, "memory": path, "scope": annotation_path(HINT)},
    )
    return apply_hint(intent, hint, exclusivity, findings)


VOCABULARY: Final = Vocabulary(
    name="koordinator",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    foreign=names(TABLE, Place.FOREIGN),
    annotations=annotations(TABLE),
    labels=names(TABLE, Place.LABEL),
    whole_pod=True,
    translate=translate,
)
