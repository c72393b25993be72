"""tensor-fusion's shares of GPUs, requested by annotations: vram, tflops and percentages.

Amounts are per GPU and of the whole pod: every injected container sees the same devices. A claim has one
amount of each, which is the request; a higher limit is told, since the driver enforces the request.
Compute in TFLOPS needs a driver that publishes it.

Source: NexusGPU/tensor-fusion 3e0a490, pkg/constants/constants.go, internal/webhook/v1/tf_parser.go and
pod_webhook.go. An amount that is no quantity is ignored there, and an error here.
The fields of a WorkloadProfile are read as annotations (`translation.reading.workload_profiles`).
Not translated: the remote mode, whose devices are on other nodes than the pod.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors, warning
from findings.text import quote_text
from kube.errors import QuantityError
from kube.quantity import ZERO, Format, Quantity
from translation.model.amounts import suggest_amount
from translation.model.card_types import WHOLE_OR_PART, filter_of_model
from translation.model.container_names import suggest_container
from translation.model.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyPod,
    Translation,
    Vocabulary,
    annotation_path,
)
from translation.model.keys import KeyOutcome, Place, Table, annotation, label, names
from translation.model.share_amounts import list_items, lower_ascii, too_few_bytes

DOMAIN: Final = "tensor-fusion.ai/"
ENABLED: Final = f"{DOMAIN}enabled"
COUNT: Final = f"{DOMAIN}gpu-count"
MODEL: Final = f"{DOMAIN}gpu-model"
VENDOR: Final = f"{DOMAIN}vendor"
POOL: Final = f"{DOMAIN}gpupool"
INDICES: Final = f"{DOMAIN}gpu-indices"
MEMORY: Final = (f"{DOMAIN}vram-request", f"{DOMAIN}vram-limit")
TFLOPS: Final = (f"{DOMAIN}tflops-request", f"{DOMAIN}tflops-limit")
PERCENT: Final = (f"{DOMAIN}compute-percent-request", f"{DOMAIN}compute-percent-limit")
ISOLATION: Final = f"{DOMAIN}isolation"
PARTITION: Final = f"{DOMAIN}partition-id"
DEDICATED: Final = f"{DOMAIN}dedicated-gpu"
CONTAINERS: Final = f"{DOMAIN}inject-container"
PROFILE: Final = f"{DOMAIN}workload-profile"
LOCAL: Final = f"{DOMAIN}is-local-gpu"
BY_CONTAINER: Final = (f"{DOMAIN}container-gpu-count", f"{DOMAIN}container-gpus")
QOS: Final = f"{DOMAIN}qos"
AUTOSCALE: Final = f"{DOMAIN}autoscale"
SCHEDULER: Final = "tensor-fusion-scheduler"
GPU_COUNT: Final = "nvidia.com/gpu"
MAX_COUNT: Final = 128

_DROPPED: Final[Mapping[str, str]] = {
    POOL: "a claim does not choose nodes: select those of the pool by their label",
    QOS: "the claim has no priority: set priorityClassName",
    AUTOSCALE: "the amounts of a claim do not change",
    f"{DOMAIN}gang-enabled": "a claim relates devices of one pod",
    f"{DOMAIN}gang-min-members": "a claim relates devices of one pod",
    f"{DOMAIN}gang-timeout": "a claim relates devices of one pod",
    f"{DOMAIN}enabled-replicas": "every pod is translated",
    f"{DOMAIN}disable-features": "it configures the limiter of tensor-fusion",
    f"{DOMAIN}sidecar-worker": "the driver limits the containers themselves",
    f"{DOMAIN}workload": "it names an object of tensor-fusion",
}
TABLE: Final[Table] = (
    label(
        ENABLED,
        KeyOutcome.READING,
        "the annotations have an effect in pods with it",
        case="`true`",
    ),
    annotation(
        COUNT,
        KeyOutcome.COUNT,
        f"N distinct GPUs, 1 without it. Rejected unless it is 1 to {MAX_COUNT}",
    ),
    annotation(
        MEMORY[0],
        KeyOutcome.CAPACITY,
        "`memory`, a quantity of bytes; absent it is `vram-limit`. Rejected if it is no quantity",
    ),
    annotation(
        MEMORY[1],
        KeyOutcome.CAPACITY,
        "`memory` without `vram-request`; beside a smaller one a warning, since that is the limit",
    ),
    annotation(
        TFLOPS[0],
        KeyOutcome.CAPACITY,
        "`tflops`, where the driver publishes it, such as Drawbridge's; elsewhere dropped with a "
        "warning. Absent it is `tflops-limit`",
    ),
    annotation(TFLOPS[1], KeyOutcome.CAPACITY, "as `vram-limit`"),
    annotation(
        PERCENT[0],
        KeyOutcome.CAPACITY,
        "`cores: <P>`, rounded down. No effect beside TFLOPS. Rejected above 100",
    ),
    annotation(PERCENT[1], KeyOutcome.CAPACITY, "as `vram-limit`"),
    annotation(MODEL, KeyOutcome.SELECTOR, WHOLE_OR_PART),
    annotation(VENDOR, KeyOutcome.KEPT, "the GPUs are NVIDIA's", case="`NVIDIA`"),
    annotation(VENDOR, KeyOutcome.REFUSED, "request them by their own keys", case="any other"),
    annotation(INDICES, KeyOutcome.REFUSED, "a claim does not select by number on a node"),
    annotation(ISOLATION, KeyOutcome.KEPT, "the default", case="`soft`"),
    annotation(
        ISOLATION,
        KeyOutcome.CAPACITY,
        "whole GPUs without amounts; with amounts the driver limits them, with a warning. Beside "
        "`nvidia.com/gpu` of one container and nothing else, the GPUs are those of that key",
        case="`shared`",
    ),
    annotation(
        ISOLATION, KeyOutcome.DROPPED, "the driver limits as it does for any share", case="`hard`"
    ),
    annotation(
        ISOLATION,
        KeyOutcome.CLASS,
        "MIG devices: of the profile in `partition-id`, else with at least that memory",
        case="`partitioned`",
    ),
    annotation(ISOLATION, KeyOutcome.REFUSED, "no such mode", case="any other"),
    annotation(
        PARTITION, KeyOutcome.SELECTOR, "the MIG profile", case="beside isolation `partitioned`"
    ),
    annotation(DEDICATED, KeyOutcome.CAPACITY, "whole GPUs. Needs `gpu-model`", case="`true`"),
    annotation(
        CONTAINERS,
        KeyOutcome.KEPT,
        "the containers that use the claim, separated by commas; needed where a pod has several",
    ),
    annotation(
        PROFILE,
        KeyOutcome.CAPACITY,
        "the fields of the WorkloadProfile in the pod's namespace, each as the annotation that it stands "
        "for: amounts, number, model, vendor and QoS. Annotations of the pod precede; an edit of the "
        "profile changes no pod that is translated",
        case="it exists",
    ),
    annotation(
        PROFILE,
        KeyOutcome.REFUSED,
        "create the profile, or write its fields as annotations",
        case="it does not",
    ),
    annotation(LOCAL, KeyOutcome.KEPT, "the default", case="`true`"),
    annotation(
        LOCAL, KeyOutcome.REFUSED, "the devices of a claim are on the pod's node", case="`false`"
    ),
    *(
        annotation(name, KeyOutcome.REFUSED, "all containers see the same devices")
        for name in BY_CONTAINER
    ),
    *(annotation(name, KeyOutcome.DROPPED, why) for name, why in _DROPPED.items()),
)

_NUMBER: Final = re.compile(r"\d{1,4}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,62}", re.ASCII)
_SOFT, _SHARED, _HARD, _PARTITIONED = "soft", "shared", "hard", "partitioned"


class _Amounts(msgspec.Struct, frozen=True, kw_only=True):
    memory: Quantity | None
    tflops: Quantity | None
    percent: int | None

    @property
    def is_empty(self) -> bool:
        """Return True if no amount is above zero."""
        return not (self.memory or self.tflops or self.percent)


def leaves_whole_gpus(pod: LegacyPod) -> bool:
    """Return True if a pod's GPUs are the whole ones that one container requests by the device plugin's key.

    With isolation shared, no amounts and no number, tensor-fusion gives the container as many whole GPUs.

    Source: NexusGPU/tensor-fusion 0343c94, internal/webhook/v1/tf_parser.go, parseGPUResourcesAnnotations.
    """
    own = {name for name in pod.annotations if name.startswith(DOMAIN)}
    requesting = [container for container in pod.containers if container.limits.get(GPU_COUNT)]
    return (
        pod.annotations.get(ISOLATION) == _SHARED
        and own <= {ISOLATION, CONTAINERS}
        and len(requesting) == 1
        and not requesting[0].init
        and pod.annotations.get(CONTAINERS, requesting[0].name) == requesting[0].name
    )


def translate(pod: LegacyPod) -> Translation:
    """Translate the share that the annotations of a pod request for its injected containers."""
    if not any(name in pod.annotations for name in REQUESTING):
        return Translation()
    findings = [*_check_refused(pod), *_check_dropped(pod)]
    containers = _containers(pod, findings)
    count = _count(pod, findings)
    amounts = _amounts(pod, findings)
    device_filter = _filter(pod, findings)
    if has_errors(findings) or not containers:
        return Translation(findings=tuple(findings))
    intent = Intent(
        container=containers[0],
        also=tuple(containers[1:]),
        kind=DeviceKind.GPU,
        count=count,
        filter=device_filter,
        paths=_paths(pod),
    )
    translated = _of_mode(pod, intent, amounts, findings)
    intents = (translated,) if translated is not None and not has_errors(findings) else ()
    return Translation(intents=intents, findings=tuple(findings))


def _of_mode(
    pod: LegacyPod, intent: Intent, amounts: _Amounts, findings: list[Finding]
) -> Intent | None:
    """Return the intent with amounts, as the isolation mode means them."""
    mode = pod.annotations.get(ISOLATION, _SOFT)
    whole = msgspec.structs.replace(intent, exclusive=True, cores_percent=100)
    if mode == _PARTITIONED:
        return _partition(pod, intent, amounts, findings)
    if pod.annotations.get(DEDICATED) == "true":
        if MODEL not in pod.annotations:
            findings.append(
                error(
                    Code.INVALID_COMBINATION,
                    annotation_path(DEDICATED),
                    f"needs {MODEL}, as in tensor-fusion",
                    f"name the model in {MODEL}",
                )
            )
        return whole
    if mode == _SHARED and amounts.is_empty:
        return whole
    if mode in (_SHARED, _HARD):
        message = {
            _SHARED: "the driver limits the containers to their amounts, which shared does not",
            _HARD: "the driver limits the share as any other: it has no cores of its own",
        }[mode]
        findings.append(warning(Code.POLICY_DROPPED, annotation_path(ISOLATION), message))
    if amounts.is_empty:
        findings.append(
            error(
                Code.MEMORY_AMOUNT_REQUIRED,
                intent.path("memory"),
                "requests no amount of a GPU, which tensor-fusion rejects",
                f"set {MEMORY[0]}, {TFLOPS[0]} or {PERCENT[0]}",
            )
        )
        return None
    if amounts.memory is None:
        # The smallest amount would be the limit of the driver, with which no program runs.
        findings.append(
            warning(
                Code.WHOLE_DEVICE,
                intent.path("memory"),
                "requests no memory: the driver gives a share all memory of the GPU, so no other fits "
                "there, where tensor-fusion reserves none",
                f"set {MEMORY[0]}",
            )
        )
    return msgspec.structs.replace(
        intent,
        memory=amounts.memory,
        cores_percent=amounts.percent or 0,
        tflops=amounts.tflops,
    )


def _partition(
    pod: LegacyPod, intent: Intent, amounts: _Amounts, findings: list[Finding]
) -> Intent | None:
    partition = pod.annotations.get(PARTITION)
    if partition is None and amounts.memory is None:
        findings.append(
            error(
                Code.MEMORY_AMOUNT_REQUIRED,
                annotation_path(ISOLATION),
                "a partition is chosen by its memory or its profile, and neither is given",
                f"set {MEMORY[0]} or {PARTITION}",
            )
        )
        return None
    mig = msgspec.structs.replace(intent, kind=DeviceKind.MIG, exclusive=True)
    if partition is None:
        return msgspec.structs.replace(mig, memory=amounts.memory)
    device_filter = msgspec.structs.replace(intent.filter, mig_profile=partition)
    return msgspec.structs.replace(mig, filter=device_filter)


# --- annotations ----------------------------------------------------------------------------------


def _check_refused(pod: LegacyPod) -> Iterator[Finding]:
    refused = {
        PROFILE: (
            "no WorkloadProfile of this name is known in the pod's namespace",
            f"create it, or write its fields as annotations, such as {MEMORY[0]}",
        ),
        INDICES: (
            "a claim does not select a GPU by its number on a node",
            f"select by model in {MODEL}",
        ),
        **dict.fromkeys(
            BY_CONTAINER,
            (
                "the devices of a claim are those of all its containers",
                f"name the containers in {CONTAINERS}, or make pods of them",
            ),
        ),
    }
    for name, (message, fix) in refused.items():
        if name in pod.annotations:
            yield error(Code.CANNOT_EXPRESS, annotation_path(name), message, fix)
    if pod.annotations.get(LOCAL) == "false":
        yield error(
            Code.CANNOT_EXPRESS,
            annotation_path(LOCAL),
            "requests GPUs of other nodes, and the devices of a claim are on the pod's node",
            "remove the annotation, or keep tensor-fusion for this pod",
        )
    vendor = pod.annotations.get(VENDOR, "")
    if vendor and lower_ascii(vendor) != "nvidia":
        yield error(
            Code.CANNOT_EXPRESS,
            annotation_path(VENDOR),
            f"{quote_text(vendor)} is not translated, only NVIDIA is",
            "request the devices by the vendor's own resource names",
        )
    mode = pod.annotations.get(ISOLATION, _SOFT)
    if mode not in {_SOFT, _SHARED, _HARD, _PARTITIONED}:
        yield error(
            Code.MALFORMED_ANNOTATION,
            annotation_path(ISOLATION),
            f"{quote_text(mode)} is no isolation mode",
            "write soft, shared, hard or partitioned",
        )


def _check_dropped(pod: LegacyPod) -> Iterator[Finding]:
    for name, why in _DROPPED.items():
        if name in pod.annotations:
            yield warning(Code.POLICY_DROPPED, annotation_path(name), f"is dropped: {why}")


def _containers(pod: LegacyPod, findings: list[Finding]) -> list[str]:
    """Return the names of the containers that get the devices, at least one without an error."""
    names = [container.name for container in pod.containers if not container.init]
    injected = list(dict.fromkeys(list_items(pod.annotations.get(CONTAINERS, ""))))
    if not injected and len(names) > 1:
        findings.append(
            error(
                Code.MALFORMED_ANNOTATION,
                FieldPath.of("metadata", "annotations"),
                f"the pod has {len(names)} containers, and none is named in {CONTAINERS}",
                f"name the containers that use GPUs in {CONTAINERS}",
            )
        )
    unknown = [name for name in injected if name not in names]
    if unknown:
        findings.append(
            error(
                Code.MALFORMED_ANNOTATION,
                annotation_path(CONTAINERS),
                f"{quote_text(unknown[0])} is no container of the pod",
                suggest_container(unknown[0], names),
            )
        )
    return injected or names[:1]


def _count(pod: LegacyPod, findings: list[Finding]) -> int:
    text = pod.annotations.get(COUNT, "1")
    if _NUMBER.fullmatch(text) and 1 <= int(text) <= MAX_COUNT:
        return int(text)
    findings.append(
        error(
            Code.OUT_OF_RANGE,
            annotation_path(COUNT),
            f"{quote_text(text)} is not a whole number from 1 to {MAX_COUNT}",
            "write the number of GPUs",
        )
    )
    return 1


def _filter(pod: LegacyPod, findings: list[Finding]) -> DeviceFilter:
    model, partition = pod.annotations.get(MODEL), pod.annotations.get(PARTITION)
    for name, text in ((MODEL, model), (PARTITION, partition)):
        if text is not None and (
            not text.strip() or (name == PARTITION and not _NAME.fullmatch(text))
        ):
            findings.append(
                error(
                    Code.MALFORMED_ANNOTATION,
                    annotation_path(name),
                    f"{quote_text(text)} names nothing",
                    "write a name, or remove the annotation",
                )
            )
    return DeviceFilter() if model is None else filter_of_model(model.strip())


def _amounts(pod: LegacyPod, findings: list[Finding]) -> _Amounts:
    memory = _requested(pod, MEMORY, findings)
    tflops = _requested(pod, TFLOPS, findings)
    percent = None if tflops else _requested(pod, PERCENT, findings)
    if percent is not None and percent > Quantity(100):
        key = PERCENT[0] if PERCENT[0] in pod.annotations else PERCENT[1]
        message = f"{percent} is more than 100 percent"
        finding = error(Code.OUT_OF_RANGE, annotation_path(key), message, "write at most 100")
        findings.append(finding.rewritten(pod.annotations[key], "100"))
    return _Amounts(
        memory=None if not memory else Quantity.from_nanos(memory.nanos, Format.BINARY),
        tflops=tflops or None,
        percent=None if percent is None else max(percent.nanos // 10**9, 1 if percent else 0),
    )


def _requested(pod: LegacyPod, names: tuple[str, str], findings: list[Finding]) -> Quantity | None:
    """Return the request, or the limit without one; None without both."""
    request, limit = (_quantity(pod, name, findings) for name in names)
    if request and limit and limit > request:
        findings.append(
            warning(
                Code.CLAMPED,
                annotation_path(names[1]),
                f"{limit} is dropped: the driver limits the containers to the request, {request}",
                f"write the limit as {names[0]}",
            )
        )
    return request or limit


def _quantity(pod: LegacyPod, name: str, findings: list[Finding]) -> Quantity | None:
    text = pod.annotations.get(name)
    if not text:
        return None
    try:
        amount = Quantity(text)
    except QuantityError:
        amount = Quantity(-1)
    if amount < ZERO or (name in MEMORY and not amount.is_whole):
        is_memory = name in MEMORY
        meant = suggest_amount(text, with_unit=is_memory)
        finding = error(
            Code.INVALID_QUANTITY,
            annotation_path(name),
            f"{quote_text(text)} is not an amount, so tensor-fusion would ignore it",
            f"write {meant or ('a quantity such as 10Gi' if is_memory else 'a number')}",
        )
        findings.append(finding.rewritten(text, meant))
        return None
    wrong = too_few_bytes(annotation_path(name), amount) if name in MEMORY else None
    findings += [] if wrong is None else [wrong]
    return amount


def _paths(pod: LegacyPod) -> Mapping[str, FieldPath]:
    def first(*names: str) -> FieldPath | None:
        return next((annotation_path(name) for name in names if name in pod.annotations), None)

    memory, tflops, percent = first(*MEMORY), first(*TFLOPS), first(*PERCENT)
    count = first(COUNT) or memory or tflops or percent or first(*REQUESTING)
    aspects = {
        "count": count,
        "memory": memory,
        "tflops": tflops,
        "cores": percent or tflops,
        "models": first(MODEL),
        "mig_profile": first(PARTITION),
        "mode": first(ISOLATION),
    }
    return {aspect: path for aspect, path in aspects.items() if path is not None}


REQUESTING: Final = (*MEMORY, *TFLOPS, *PERCENT, COUNT, ISOLATION, DEDICATED, PROFILE)
"""The annotations that request devices in a pod with the label."""

VOCABULARY: Final = Vocabulary(
    name="tensorfusion",
    table=TABLE,
    keys=(),
    annotations=names(TABLE, Place.ANNOTATION),
    requesting=REQUESTING,
    requesting_label=(ENABLED, "true"),
    labels=(ENABLED,),
    whole_pod=True,
    translate=translate,
)
