"""KAI scheduler's and Run:ai's shares of GPUs, requested by annotations of the pod alone.

The annotations have no domain, so they mean this only in pods of these schedulers. A fraction is of the
memory; KAI limits nothing, and the driver limits the memory.

Source: NVIDIA/KAI-Scheduler 72de64f, pkg/common/constants/constants.go and
pkg/binder/plugins/gpusharing/gpu-request/gpu_request_validator.go; Run:ai's documentation of the same
annotations.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from findings.finding import Code, Finding, error, has_errors, info, warning
from findings.text import quote_text
from kube.quantity import Quantity
from translation.model.amounts import written_amount
from translation.model.container_names import suggest_container
from translation.model.intents import (
    DeviceKind,
    Intent,
    LegacyPod,
    Translation,
    Vocabulary,
    annotation_path,
)
from translation.model.keys import KeyOutcome, Table, annotation, annotations
from translation.model.share_amounts import MAX_MEMORY_MIB, MIB, in_bytes

FRACTION: Final = "gpu-fraction"
MEMORY_MIB: Final = "gpu-memory"
COUNT: Final = "gpu-fraction-num-devices"
CONTAINER: Final = "gpu-fraction-container-name"
MPS: Final = "mps"
SHARED_CONFIG_MAP: Final = "runai/shared-gpu-configmap"
"""The prefix of the ConfigMaps that KAI's webhook makes a pod with a share refer to."""
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
SCHEDULERS: Final = ("kai-scheduler", "runai-scheduler")
MAX_COUNT: Final = 1024

TABLE: Final[Table] = (
    annotation(
        FRACTION,
        KeyOutcome.CAPACITY,
        "that part of the memory, in whole percents rounded down: one alternative per published "
        "memory size; at least 1 percent. Rejected unless it is between 0 and 1",
    ),
    annotation(MEMORY_MIB, KeyOutcome.CAPACITY, "`memory: <M>Mi`. Rejected beside `gpu-fraction`"),
    annotation(COUNT, KeyOutcome.COUNT, "as much of each of N distinct GPUs"),
    annotation(
        CONTAINER,
        KeyOutcome.KEPT,
        "the container that uses the claim; the first app container without it. An unknown one is "
        "rejected",
    ),
    annotation(MPS, KeyOutcome.DROPPED, "the driver shares a GPU itself", case="beside a share"),
)

_DECIMAL: Final = re.compile(r"\+?\d{0,3}\.?\d{1,20}(e[+-]?\d{1,2})?", re.ASCII | re.IGNORECASE)
"""A number that KAI parses: of 20 digits, as programs print one third, and exact in a Decimal as a
percentage, so that many nines are not rounded to all of the memory."""
_NUMBER: Final = re.compile(r"\d{1,10}", re.ASCII)


def translate(pod: LegacyPod) -> Translation:
    """Translate the share that the annotations of a pod request for one container."""
    if FRACTION not in pod.annotations and MEMORY_MIB not in pod.annotations:
        return Translation()
    findings: list[Finding] = []
    percent = _percent(pod, findings)
    memory = _number(pod, MEMORY_MIB, MAX_MEMORY_MIB, findings)
    count = _number(pod, COUNT, MAX_COUNT, findings) or 1
    container = _container(pod, findings)
    if FRACTION in pod.annotations and MEMORY_MIB in pod.annotations:
        findings.append(
            error(
                Code.INVALID_COMBINATION,
                annotation_path(MEMORY_MIB),
                f"stands beside {FRACTION}, and a pod requests one of them",
                "keep one of the two",
            )
        )
    if MPS in pod.annotations:
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                annotation_path(MPS),
                f"{MPS} is dropped: the driver shares a GPU itself",
            )
        )
    if has_errors(findings) or container is None:
        return Translation(findings=tuple(findings))
    path = annotation_path(FRACTION if percent is not None else MEMORY_MIB)
    intent = Intent(
        container=container,
        kind=DeviceKind.GPU,
        count=count,
        memory=None if memory is None else in_bytes(memory, MIB),
        memory_percent=percent,
        cores_percent=0,
        paths={
            "count": annotation_path(COUNT) if COUNT in pod.annotations else path,
            "memory": path,
            "cores": path,
        },
    )
    return Translation(intents=(intent,), findings=tuple(findings))


def check_annotations_without_share(pod: LegacyPod) -> Iterator[Finding]:
    """Yield a finding for each annotation that KAI rejects in a pod without a share, and that does nothing here.

    Source: ValidateGpuRequests.
    """
    if not pod.annotations.keys().isdisjoint((FRACTION, MEMORY_MIB)):
        return
    for key in (COUNT, MPS):
        if key in pod.annotations and (key != MPS or pod.annotations[key] == "true"):
            yield info(
                Code.GRANTED_WHERE_REJECTED,
                annotation_path(key),
                f"{key} has no effect beside whole GPUs; KAI rejects it without a share",
                f"remove it, or request a share with {FRACTION} or {MEMORY_MIB}",
            )


def check_missing_config_maps(pod: LegacyPod) -> Iterator[Finding]:
    """Yield an error if KAI's webhook made a pod refer to ConfigMaps that its binder alone creates.

    Its webhook runs before ours, and a claim takes the variables, envFrom and volume of it away from no pod.

    Source: NVIDIA/KAI-Scheduler 72de64f, pkg/admission/webhook/v1alpha2/gpusharing/gpu_sharing.go, Mutate;
    pkg/operator/operands/admission/resources.go, buildWebhookSelectors.
    """
    prefix = pod.annotations.get(SHARED_CONFIG_MAP)
    # A variable with a value from elsewhere reads as empty.
    refers = any(
        not container.environment.get(VISIBLE_DEVICES, "all") for container in pod.containers
    )
    if prefix is None or not refers:
        return
    yield error(
        Code.CANNOT_EXPRESS,
        annotation_path(SHARED_CONFIG_MAP),
        f"KAI's webhook made the pod refer to the ConfigMaps {quote_text(prefix + '-...')}, which only KAI's binder "
        "creates: with another scheduler the pod would never start",
        "an administrator takes the namespace out of KAI's webhook, by a label in spec.global.namespaceLabelSelector of "
        "KAI's Config that the namespace lacks; then create the pod again",
    )


def _percent(pod: LegacyPod, findings: list[Finding]) -> int | None:
    """Return a fraction as whole percents; None without one, or with a faulty one."""
    text = pod.annotations.get(FRACTION)
    if text is None:
        return None
    fraction = Decimal(text) if _DECIMAL.fullmatch(text) else Decimal(0)
    if not 0 < fraction < 1:
        findings.append(
            error(
                Code.OUT_OF_RANGE,
                annotation_path(FRACTION),
                f"{quote_text(text)} is not a number above 0 and below 1",
                "write a fraction such as 0.5, or request nvidia.com/gpu for whole GPUs",
            )
        )
        return None
    percent = max(1, int(fraction * 100))
    if percent != fraction * 100:
        findings.append(
            warning(
                Code.CLAMPED if percent < fraction * 100 else Code.AMOUNT_ROUNDED_UP,
                annotation_path(FRACTION),
                f"{text} of the memory counts as {percent} percent",
            )
        )
    return percent


def _number(pod: LegacyPod, key: str, maximum: int, findings: list[Finding]) -> int | None:
    """Return a positive number; None without one, or with a faulty one."""
    text = pod.annotations.get(key)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) and 0 < int(text) <= maximum:
        return int(text)
    message = f"{quote_text(text)} is not a whole number from 1 to {maximum}"
    mebibytes = _mebibytes(text) if key == MEMORY_MIB else ""
    fix = f"write a whole number{' of MiB' * (key == MEMORY_MIB)}"
    if mebibytes:
        fix = f"write {mebibytes}, a number of MiB"
    finding = error(Code.OUT_OF_RANGE, annotation_path(key), message, fix)
    findings.append(finding.rewritten(text, mebibytes))
    return None


def _mebibytes(text: str) -> str:
    """Return a memory as MiB if the text has bytes with a unit, rounded up; else empty."""
    number, unit = written_amount(text)
    return str(-(-Quantity(number + unit).nanos // Quantity("1Mi").nanos)) if unit else ""


def _container(pod: LegacyPod, findings: list[Finding]) -> str | None:
    """Return the name of the container that gets the share; None without any."""
    container_name = pod.annotations.get(CONTAINER)
    names = [container.name for container in pod.containers]
    if container_name is None:
        return next((container.name for container in pod.containers if not container.init), None)
    if container_name in names:
        return container_name
    findings.append(
        error(
            Code.MALFORMED_ANNOTATION,
            annotation_path(CONTAINER),
            f"{quote_text(container_name)} is no container of the pod",
            f"{suggest_container(container_name, names)}; without the annotation it is the first one",
        )
    )
    return None


VOCABULARY: Final = Vocabulary(
    name="kai",
    table=TABLE,
    keys=(),
    annotations=(*annotations(TABLE), CONTAINER),
    requesting=(FRACTION, MEMORY_MIB),
    schedulers=SCHEDULERS,
    whole_pod=True,
    translate=translate,
)
