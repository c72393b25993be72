"""Alibaba Cloud's shares of NVIDIA GPUs: aliyun.com/gpu-mem and gpu-core.percentage, and those of ACS.

The containers of a pod share one card: the claim is the pod's, and every container with a key sees the
total. The amounts of app containers and sidecars are added; an init container runs before them, so the
larger of both counts. The amounts of ACS are percentages of one card.

Source: AliyunContainerService/gpushare-scheduler-extender, pkg/utils/const.go, pkg/utils/pod.go
(GetGPUMemoryFromPodResource, which counts app containers), and docs/userguide.md; the kubelet, which
counts init containers as k8s.io/component-helpers resource, PodRequests, does;
gpushare-device-plugin, its flag memory-unit, GiB by default; the documentation of ACK, "Enable GPU
sharing", and of ACS.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from translation.model.choices import Choices, InitContainers, MemoryUnit
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
from translation.model.share_amounts import GIB, MIB, AmountReader, Unit, in_bytes

MEMORY: Final = "aliyun.com/gpu-mem"
CORES: Final = "aliyun.com/gpu-core.percentage"
COUNT_LABEL: Final = "aliyun.com/gpu-count"
ACS_MEMORY: Final = "alibabacloud.com/gpu-memory.percentage"
ACS_CORES: Final = "alibabacloud.com/gpu-core.percentage"
CONTAINER_MEMORY: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"
CARD_MEMORY: Final = "ALIYUN_COM_GPU_MEM_DEV"
MAX_GIB: Final = 320
"""More than any card has (288 is the most): a larger amount counts MiB."""
UNIT_SETTING: Final = "translation.aliyun.memoryUnit"
CORE_STEP: Final = 5

TABLE: Final[Table] = (
    limit(
        MEMORY,
        "GiB",
        KeyOutcome.CAPACITY,
        "`memory`, the sum of app containers and sidecars, or that of an init container if it is larger, "
        "on one GPU that all of them use. Above 320 it counts MiB, as a plugin with "
        "`--memory-unit=MiB` has it, with a warning; `translation.aliyun.memoryUnit` says which",
    ),
    limit(
        CORES,
        "percent",
        KeyOutcome.CAPACITY,
        "`cores`, as much as of memory; in steps of 5. Rejected without `gpu-mem`",
    ),
    limit(
        ACS_MEMORY,
        "percent",
        KeyOutcome.CAPACITY,
        "one alternative per published memory size, each with that share",
        depends_on_device=True,
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


class _Share(msgspec.Struct, frozen=True, kw_only=True):
    """The amounts of one container.

    Attributes:
        memory: The memory in the unit of the cluster.
    """

    container: LegacyContainer
    memory: int
    cores: int


def translate(pod: LegacyPod) -> Translation:
    """Translate the share of one GPU that a pod requests, and the shares of ACS."""
    findings: list[Finding] = list(_check_label(pod))
    variables: list[Variable] = []
    shares: list[_Share] = []
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
        elif cores and memory is None and MEMORY in container.limits:
            # The reader has reported the amount.
            continue
        elif cores and not memory:
            reader.fail(
                Code.INVALID_COMBINATION,
                CORES,
                f"requests no GPU without {MEMORY}",
                f"add {MEMORY}",
            )
        elif memory:
            shares.append(_Share(container=container, memory=memory, cores=cores or 0))
            variables.append(_variable(container, memory))
        intents += _percentages(container, reader)
    if shares:
        intents.append(_pod_share(shares, pod.choices, findings))
    return Translation(intents=tuple(intents), variables=tuple(variables), findings=tuple(findings))


def _pod_share(shares: Sequence[_Share], choices: Choices, findings: list[Finding]) -> Intent:
    """Return the intent for the containers' requests together, on one GPU."""
    # That of an init container would be held for the pod's lifetime.
    first, *others = sorted(shares, key=_runs_first)
    path = first.container.limit_path(MEMORY)
    total, cores = _total(shares, choices)
    unit = _unit(total, choices.aliyun_memory_unit)
    if unit is MIB and choices.aliyun_memory_unit is MemoryUnit.DETECTED:
        findings.append(
            warning(
                Code.WRONG_UNIT,
                path,
                f"{total} GiB is more than a GPU has: it counts MiB",
                f"set {UNIT_SETTING} to MiB",
            )
        )
    if cores > 100:
        findings.append(
            error(
                Code.OUT_OF_RANGE,
                first.container.limit_path(CORES),
                f"{cores} percent of one GPU in all containers is more than 100",
                "request at most 100 percent in the pod",
            )
        )
    findings += _check_init_containers(shares, f"{total} {unit.name}", total, choices)
    findings.append(
        warning(
            Code.ENV_VAR_NOT_PROVIDED,
            path,
            f"{CARD_MEMORY}, which the device plugin sets to the memory of the card, is not set",
            "read the memory of the card from its driver",
        )
    )
    return Intent(
        container=first.container.name,
        kind=DeviceKind.GPU,
        count=1,
        memory=in_bytes(total, unit),
        cores_percent=min(cores, 100),
        also=tuple(share.container.name for share in others),
        paths={
            "count": path,
            "memory": path,
            **(
                {"cores": first.container.limit_path(CORES)}
                if CORES in first.container.limits
                else {}
            ),
        },
    )


def _runs_first(share: _Share) -> bool:
    return share.container.init and not share.container.sidecar


def _check_init_containers(
    shares: Sequence[_Share], amount: str, total: int, choices: Choices
) -> Iterator[Finding]:
    """Yield a warning if the pod has more than its containers use after its init containers."""
    runs_later = [share for share in shares if not _runs_first(share)]
    later_total = sum(share.memory for share in runs_later)
    if not runs_later or total <= later_total:
        return
    path = shares[0].container.limit_path(MEMORY)
    if choices.init_containers is InitContainers.SEPARATE:
        message = f"the pod holds {amount}, the sum of all containers, for its whole lifetime"
        yield warning(Code.HELD_FOR_POD_LIFETIME, path, message)
    else:
        message = (
            f"an init container needs more: the pod reserves {amount} once, and its other containers may "
            "use it, too"
        )
        yield warning(Code.INIT_RAISES_LIMIT, path, message)


def _total(shares: Sequence[_Share], choices: Choices) -> tuple[int, int]:
    """Return the memory and cores that the pod needs at a time.

    Args:
        shares: The shares in the order of the containers, init containers first.
    """
    if choices.init_containers is InitContainers.SEPARATE:
        return sum(share.memory for share in shares), sum(share.cores for share in shares)
    memory = cores = most_memory = most_cores = 0
    for share in shares:
        most_memory = max(most_memory, memory + share.memory)
        most_cores = max(most_cores, cores + share.cores)
        if not _runs_first(share):
            # A sidecar runs beside all that start after it.
            memory, cores = memory + share.memory, cores + share.cores
    return most_memory, most_cores


def _unit(total: int, unit: MemoryUnit) -> Unit:
    if unit is MemoryUnit.DETECTED:
        return GIB if total <= MAX_GIB else MIB
    return MIB if unit is MemoryUnit.MIB else GIB


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
