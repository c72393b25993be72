"""Tencent's shares of NVIDIA GPUs: vcuda of GPU manager, and qGPU of Tencent Kubernetes Engine.

Source: tkestack/gpu-admission 36c722f, pkg/util/util.go and pkg/predicate/gpu_predicate.go, and
tkestack/gpu-manager, whose memory is in blocks of 256 MiB; Tencent Cloud's documentation of qGPU,
"qGPU overview": memory in GiB, and cores in steps of 5 percent.
"""

from typing import Final

from findings.finding import Code, Finding, warning
from findings.text import quote_text
from translation.model.card_shares import CardShare, translate_share
from translation.model.intents import (
    Intent,
    LegacyPod,
    Translation,
    Vocabulary,
    annotation_path,
)
from translation.model.keys import KeyOutcome, Place, Table, annotation, annotations, limit, names
from translation.model.share_amounts import BLOCKS, GIB

VCUDA: Final = CardShare(
    cores="tencent.com/vcuda-core", memory="tencent.com/vcuda-memory", unit=BLOCKS
)
QGPU: Final = CardShare(
    cores="tke.cloud.tencent.com/qgpu-core",
    memory="tke.cloud.tencent.com/qgpu-memory",
    unit=GIB,
    step=5,
)
SHARES: Final = (VCUDA, QGPU)
CORE_LIMIT: Final = "tencent.com/vcuda-core-limit"

_LIMITS: Final[Table] = tuple(
    row
    for share in SHARES
    for row in (
        limit(
            share.cores,
            "percent",
            KeyOutcome.CAPACITY,
            "below 100 `cores: <C>` of one GPU, which needs an amount of memory; N x 100 are N whole "
            "GPUs. Other amounts are rejected",
        ),
        limit(
            share.memory,
            share.unit.name,
            KeyOutcome.CAPACITY,
            "the memory of a share. No effect beside whole GPUs; rejected alone",
        ),
    )
)
TABLE: Final[Table] = (
    *_LIMITS,
    annotation(
        CORE_LIMIT,
        KeyOutcome.DROPPED,
        f"the driver limits a share to the cores that it reserves, `{VCUDA.cores}`",
    ),
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the shares of GPUs that each container requests."""
    findings: list[Finding] = []
    intents: list[Intent] = []
    has_limit = False
    for container in pod.containers:
        for share in SHARES:
            shares = list(translate_share(container, share, findings))
            takes_part = any(intent.takes_part_of_cores for intent in shares)
            has_limit = has_limit or (share is VCUDA and takes_part)
            intents += shares
    if has_limit and CORE_LIMIT in pod.annotations:
        findings.append(_limit_finding(pod.annotations[CORE_LIMIT]))
    return Translation(intents=tuple(intents), findings=tuple(findings))


def _limit_finding(text: str) -> Finding:
    """Return the warning about a limit of cores beside those that are reserved.

    Source: tkestack/gpu-manager, pkg/services/virtual-manager/manager.go, VCoreLimitAnnotation.
    """
    return warning(
        Code.POLICY_DROPPED,
        annotation_path(CORE_LIMIT),
        f"the limit {quote_text(text)} is dropped: the driver limits each share to the cores that it reserves",
        f"write the limit as {VCUDA.cores}, which reserves as much",
    )


VOCABULARY: Final = Vocabulary(
    name="tencent",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    annotations=annotations(TABLE),
    translate=translate,
)
