"""HAMi's policies for the devices of a pod, of vendors beside NVIDIA.

Source: Project-HAMi/HAMi v2.10, Fit in pkg/device/ascend/device.go and pkg/device/hygon/device.go: with `mutex`
a device must be unused.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from findings.finding import Code, Finding, warning
from findings.text import quote_text
from translation.model.choices import Exclusivity
from translation.model.intents import Intent, annotation_path
from translation.model.keys import KeyOutcome, Table, annotation
from translation.model.share_amounts import list_items

GPU_POLICY: Final = "hami.io/gpu-scheduler-policy"
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
SCORING_WEIGHTS: Final = "hami.io/device-scoring-weights"
MUTEX: Final = "mutex"
_OF_SCHEDULER: Final = "it configures HAMi's scheduler"

SCHEDULER_TABLE: Final[Table] = (
    annotation(GPU_POLICY, KeyOutcome.DROPPED, _OF_SCHEDULER, case="any other"),
    annotation(NODE_POLICY, KeyOutcome.DROPPED, _OF_SCHEDULER),
    annotation(SCORING_WEIGHTS, KeyOutcome.DROPPED, _OF_SCHEDULER),
)
TABLE: Final[Table] = (
    annotation(
        GPU_POLICY,
        KeyOutcome.CAPACITY,
        "the whole device; a share with a warning, if the setting `translation.exclusivity` is `never`",
        case=f"`{MUTEX}`",
    ),
    *SCHEDULER_TABLE,
)


def read_policies(annotations: Mapping[str, str], findings: list[Finding]) -> bool:
    """Return True for policy `mutex`; others become findings."""
    policies = list_items(annotations.get(GPU_POLICY, ""))
    for policy in policies:
        if policy != MUTEX:
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    annotation_path(GPU_POLICY),
                    f"a claim cannot express the policy {quote_text(policy)}; it is dropped",
                )
            )
    for key in (NODE_POLICY, SCORING_WEIGHTS):
        if annotations.get(key, "").strip():
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    annotation_path(key),
                    f"{key} configures HAMi's own scheduler; it is dropped",
                )
            )
    return MUTEX in policies


def as_unused(
    intent: Intent, exclusivity: Exclusivity, device: str, findings: list[Finding]
) -> Intent:
    """Return the intent of a pod with policy `mutex`: that of whole devices, if the setting allows it.

    Args:
        device: The word for a device, such as NPU.
        findings: The list that findings are added to.
    """
    if intent.takes_all_memory and intent.cores_percent is None:
        return intent
    if exclusivity is Exclusivity.NEVER:
        findings.append(
            warning(
                Code.NOT_EXCLUSIVE,
                annotation_path(GPU_POLICY),
                f"policy mutex requires an unused {device}; the claim requests a share, and others may be on "
                f"the {device}",
                f"for {device}s of its own, set translation.exclusivity to policies",
            )
        )
        return intent
    findings.append(
        warning(
            Code.WHOLE_DEVICE,
            intent.path("count"),
            f"policy mutex requires an exclusive {device}: the claim requests all its memory and cores",
            "for a share, which others may join later, set translation.exclusivity to never",
        )
    )
    return msgspec.structs.replace(intent, memory=None, memory_percent=None, cores_percent=None)
