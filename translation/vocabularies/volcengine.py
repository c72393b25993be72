"""Volcano Engine's shares of NVIDIA GPUs: vke.volcengine.com/mgpu-core and mgpu-memory.

An annotation lists the number of cards of each app container, among which its amounts are divided.

Source: volcano-sh/volcano, pkg/scheduler/api/devices/nvidia/mgpu (constants.go, utils.go), which Volcano
Engine contributed, and the documentation of mGPU: memory in MiB.
"""

from typing import Final

from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from translation.model.card_shares import CardShare, translate_share
from translation.model.intents import Intent, LegacyPod, Translation, Vocabulary, annotation_path
from translation.model.keys import KeyOutcome, Place, Table, annotation, annotations, limit, names
from translation.model.share_amounts import MIB

MGPU: Final = CardShare(
    cores="vke.volcengine.com/mgpu-core",
    memory="vke.volcengine.com/mgpu-memory",
    unit=MIB,
    memory_only=True,
)
CARDS: Final = "vke.volcengine.com/container-multiple-gpu"
POLICY: Final = "vke.volcengine.com/mgpu-compute-policy"
DEFAULT_POLICY: Final = "fixed-share"
MAX_CARDS: Final = 64

TABLE: Final[Table] = (
    limit(
        MGPU.cores,
        "percent",
        KeyOutcome.CAPACITY,
        "below 100 `cores: <C>` of one GPU, which needs an amount of memory; N x 100 are N whole GPUs",
    ),
    limit(
        MGPU.memory,
        "MiB",
        KeyOutcome.CAPACITY,
        "the memory of a share; alone it sets no limit of cores. No effect beside whole GPUs",
    ),
    annotation(
        CARDS,
        KeyOutcome.COUNT,
        "a number of GPUs for each app container, separated by commas: the amounts of a container "
        "are divided among them, and rejected where that leaves a remainder",
    ),
    annotation(POLICY, KeyOutcome.KEPT, "the default", case=f"`{DEFAULT_POLICY}`"),
    annotation(
        POLICY,
        KeyOutcome.DROPPED,
        "the driver limits cores as with `fixed-share`: what others leave idle is not used",
        case="any other",
    ),
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the shares of GPUs that each container requests."""
    findings: list[Finding] = []
    intents: list[Intent] = []
    cards = _cards(pod, findings)
    apps = [container.name for container in pod.containers if not container.init]
    for container in pod.containers:
        index = apps.index(container.name) if container.name in apps else len(cards)
        count = cards[index] if index < len(cards) else 1
        intents += translate_share(container, MGPU, findings, cards=max(count, 1))
    policy = pod.annotations.get(POLICY, DEFAULT_POLICY)
    if policy != DEFAULT_POLICY and intents:
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                annotation_path(POLICY),
                f"the driver knows no compute policy {quote_text(policy)}; cores are limited as with "
                f"{DEFAULT_POLICY}",
            )
        )
    return Translation(intents=tuple(intents), findings=tuple(findings))


def _cards(pod: LegacyPod, findings: list[Finding]) -> tuple[int, ...]:
    text = pod.annotations.get(CARDS)
    if text is None:
        return ()
    numbers = text.split(",")
    valid = all(number.isascii() and number.isdigit() and len(number) < 3 for number in numbers)
    if valid and all(int(number) <= MAX_CARDS for number in numbers):
        return tuple(map(int, numbers))
    findings.append(
        error(
            Code.MALFORMED_ANNOTATION,
            annotation_path(CARDS),
            f"{quote_text(text)} is not a list of numbers up to {MAX_CARDS}, one for each container",
            "write a list such as 2,0",
        )
    )
    return ()


VOCABULARY: Final = Vocabulary(
    name="volcengine",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    annotations=annotations(TABLE),
    whole_pod=True,
    translate=translate,
)
