"""Tencent's shares of NVIDIA GPUs: vcuda of GPU manager, and qGPU of Tencent Kubernetes Engine.

Source: tkestack/gpu-admission 36c722f, pkg/util/util.go and pkg/predicate/gpu_predicate.go, and
tkestack/gpu-manager, whose memory is in blocks of 256 MiB; Tencent Cloud's documentation of qGPU,
"qGPU overview": memory in GiB, and cores in steps of 5 percent.
"""

from typing import Final

from findings.finding import Finding
from translation.model.card_shares import CardShare, translate_share
from translation.model.intents import Intent, LegacyPod, Translation, Vocabulary
from translation.model.keys import KeyOutcome, Place, Table, limit, names
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

TABLE: Final[Table] = tuple(
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


def translate(pod: LegacyPod) -> Translation:
    """Translate the shares of GPUs that each container requests."""
    findings: list[Finding] = []
    intents: list[Intent] = []
    for container in pod.containers:
        for share in SHARES:
            intents += translate_share(container, share, findings)
    return Translation(intents=tuple(intents), findings=tuple(findings))


VOCABULARY: Final = Vocabulary(
    name="tencent",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    translate=translate,
)
