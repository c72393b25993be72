"""Alibaba Cloud's shares of NVIDIA GPUs: aliyun.com/gpu-mem and gpu-core.percentage, and those of ACS.

The containers of a pod share one card, and their amounts are added: the claim is the pod's, and every
container with a key sees the total. The amounts of ACS are percentages of one card.

Source: AliyunContainerService/gpushare-scheduler-extender, pkg/utils/const.go and docs/userguide.md;
gpushare-device-plugin, its flag memory-unit, GiB by default; the documentation of ACK, "Enable GPU
sharing", and of ACS.
"""

from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from translation.model.intents import (
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Variable,
    Vocabulary,
)
from translation.model.keys import KeyOutcome, Place, Table, label, limit, names, variable
from translation.model.share_amounts import GIB, MIB, AmountReader, in_bytes

MEMORY: Final = "aliyun.com/gpu-mem"
CORES: Final = "aliyun.com/gpu-core.percentage"
COUNT_LABEL: Final = "aliyun.com/gpu-count"
ACS_MEMORY: Final = "alibabacloud.com/gpu-memory.percentage"
ACS_CORES: Final = "alibabacloud.com/gpu-core.percentage"
CONTAINER_MEMORY: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"
CARD_MEMORY: Final = "ALIYUN_COM_GPU_MEM_DEV"
MAX_GIB: Final = 1024
"""More than any card has: a larger amount counts MiB."""
CORE_STEP: Final = 5

TABLE: Final[Table] = (
    limit(
        MEMORY,
        "GiB",
        KeyOutcome.CAPACITY,
        "`memory`, the sum of the containers, on one GPU that all of them use. An amount above 1024 "
        "counts MiB, as a plugin with `--memory-unit=MiB` has it, with a warning",
    ),
    limit(
        CORES,
        "percent",
        KeyOutcome.CAPACITY,
        "`cores`, the sum of the containers; in steps of 5. Rejected without `gpu-mem`",
    ),
    limit(
        ACS_MEMORY,
        "percent",
        KeyOutcome.CAPACITY,
        "one alternative per published memory size, each with that share",
    ),
    limit(ACS_CORES, "percent", KeyOutcome.CAPACITY, "`cores: <C>` of one GPU"),
    label(
        COUNT_LABEL,
        KeyOutcome.REFUSED,
        "it divides `gpu-mem` among N GPUs, and claims cannot depend on a label, which may change",
        case="above 1",
    ),
    variable(
        CONTAINER_MEMORY,
        KeyOutcome.VARIABLE,
        "set to the amount of the container, as the device plugin does",
    ),
    variable(
        CARD_MEMORY,
        KeyOutcome.DROPPED,
        "the device plugin sets it to the memory of the card, which is not known before",
    ),
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the share of one GPU that a pod requests, and the shares of ACS."""
    findings: list[Finding] = list(_check_label(pod))
    variables: list[Variable] = []
    shares: list[tuple[LegacyContainer, int, int]] = []
    intents: list[Intent] = []
    for container in pod.containers:
        reader = AmountReader(container, findings)
        memory, cores = reader.memory(MEMORY, GIB), reader.percent(CORES)
        if cores is not None and cores % CORE_STEP:
            reader.fail(
                Code.OUT_OF_RANGE,
                CORES,
                f"{cores} percent is not a multiple of {CORE_STEP}",
                f"write a multiple of {CORE_STEP}",
            )
        elif cores and not memory:
            reader.fail(
                Code.INVALID_COMBINATION,
                CORES,
                f"requests no GPU without {MEMORY}",
                f"add {MEMORY}",
            )
        elif memory:
            shares.append((container, memory, cores or 0))
            variables.append(_variable(container, memory))
        intents += _percentages(container, reader)
    if shares:
        intents.append(_pod_share(shares, findings))
    return Translation(intents=tuple(intents), variables=tuple(variables), findings=tuple(findings))


def _pod_share(shares: list[tuple[LegacyContainer, int, int]], findings: list[Finding]) -> Intent:
    """Return the intent for the sum of what the containers request, on one GPU."""
    first, *others = shares
    container = first[0]
    path = container.limit_path(MEMORY)
    total = sum(memory for _, memory, _ in shares)
    unit = GIB if total <= MAX_GIB else MIB
    cores = sum(percent for _, _, percent in shares)
    if unit is MIB:
        findings.append(
            warning(Code.WRONG_UNIT, path, f"{total} GiB is more than a GPU has: it counts MiB")
        )
    if cores > 100:
        findings.append(
            error(
                Code.OUT_OF_RANGE,
                container.limit_path(CORES),
                f"{cores} percent of one GPU in all containers is more than 100",
                "request at most 100 percent in the pod",
            )
        )
    findings.append(
        warning(
            Code.ENV_VAR_NOT_PROVIDED,
            path,
            f"{CARD_MEMORY}, which the device plugin sets to the memory of the card, is not set",
            "read the memory of the card from its driver",
        )
    )
    return Intent(
        container=container.name,
        kind=DeviceKind.GPU,
        count=1,
        memory=in_bytes(total, unit),
        cores_percent=min(cores, 100),
        also=tuple(other.name for other, _, _ in others),
        paths={
            "count": path,
            "memory": path,
            **({"cores": container.limit_path(CORES)} if CORES in container.limits else {}),
        },
    )


def _percentages(container: LegacyContainer, reader: AmountReader) -> list[Intent]:
    memory, cores = reader.percent(ACS_MEMORY), reader.percent(ACS_CORES)
    if not (memory or cores):
        return []
    keys = {"memory": ACS_MEMORY, "cores": ACS_CORES}
    paths = container.limit_paths(keys)
    paths["count"] = next(iter(paths.values()))
    return [
        Intent(
            container=container.name,
            kind=DeviceKind.GPU,
            count=1,
            memory_percent=memory if memory and memory < 100 else None,
            cores_percent=cores or 0,
            paths=paths,
        )
    ]


def _variable(container: LegacyContainer, memory: int) -> Variable:
    return Variable(
        container=container.name,
        name=CONTAINER_MEMORY,
        value=str(memory),
        path=container.limit_path(MEMORY),
    )


def _check_label(pod: LegacyPod) -> list[Finding]:
    text = pod.labels.get(COUNT_LABEL, "1")
    if text in {"0", "1"} or not any(MEMORY in container.limits for container in pod.containers):
        return []
    return [
        error(
            Code.CANNOT_EXPRESS,
            FieldPath.of("metadata", "labels").key(COUNT_LABEL),
            f"{COUNT_LABEL} divides {MEMORY} among several GPUs, and claims cannot depend on a label",
            "write nvidia.com/gpu with nvidia.com/gpumem, which is the amount per GPU",
        )
    ]


VOCABULARY: Final = Vocabulary(
    name="aliyun",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    labels=(COUNT_LABEL,),
    variables=(CONTAINER_MEMORY,),
    translate=translate,
)
