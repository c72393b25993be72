"""HAMi's annotations: the cards, their mode, and their exclusivity.

Source: Project-HAMi/HAMi v2.10, pkg/device/devices.go (CheckType, CheckUUID) and
pkg/device/nvidia/device.go.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

import msgspec

from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from translation.model.card_types import (
    NVIDIA_PREFIXES,
    excludes_every_card,
    is_every_card,
    model_of,
)
from translation.model.device_policies import GPU_POLICY, NODE_POLICY, SCORING_WEIGHTS
from translation.model.intents import DeviceFilter, annotation_path
from translation.model.share_amounts import list_items, lower_ascii
from translation.vocabularies.hami.keys import (
    MODE,
    NO_USE_TYPE,
    NO_USE_UUID,
    NUMA_BIND,
    USE_TYPE,
    USE_UUID,
)

MAX_MODE: Final = 63
"""Characters of a mode that are compared with the known ones."""
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
"""The values that Go's strconv.ParseBool parses as true."""


class Mode(StrEnum):
    """The mode of sharing of a card, in the order of preference when a pod allows several."""

    CORE = "hami-core"
    MIG = "mig"
    MPS = "mps"


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements in the annotations, for every container of the pod."""

    filter: DeviceFilter = DeviceFilter()
    mode: Mode = Mode.CORE
    same_numa: bool = False
    mutex: bool = False


def read_annotations(annotations: Mapping[str, str]) -> tuple[Requirements, list[Finding]]:
    """Read the annotations; values that cannot be expressed become findings."""
    findings: list[Finding] = []
    if not annotations:
        return Requirements(), findings
    policies = list_items(annotations.get(GPU_POLICY, ""))
    requirements = Requirements(
        filter=_filter(annotations, findings),
        mode=_mode(annotations.get(MODE, ""), findings),
        same_numa=annotations.get(NUMA_BIND, "") in _TRUE,
        mutex="mutex" in policies,
    )
    for policy in policies:
        if policy == "numa":
            # Source: gpu_policy.go: it sorts cards, and spans NUMA nodes where one has too few.
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    annotation_path(GPU_POLICY),
                    "a claim cannot prefer one NUMA node; the devices may be on different ones",
                    f"to require one NUMA node, set {NUMA_BIND}",
                )
            )
        elif policy != "mutex":
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    annotation_path(GPU_POLICY),
                    f"a claim cannot express the GPU policy {quote_text(policy)}; it is dropped",
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
    return requirements, findings


def _filter(annotations: Mapping[str, str], findings: list[Finding]) -> DeviceFilter:
    def listed_names(key: str, *, excludes: bool) -> tuple[str, ...] | None:
        text = annotations.get(key, "")
        if not text.strip():  # Blank means no constraint.
            return None
        items = list_items(text)
        if not items and not excludes:
            findings.append(
                error(
                    Code.EMPTY_DEVICE_LIST,
                    annotation_path(key),
                    f"{quote_text(text)} contains only separators, so no GPU would match",
                    "name a GPU, or remove the annotation",
                )
            )
        return items

    models = listed_names(USE_TYPE, excludes=False)
    if models is not None and any(is_every_card(item, NVIDIA_PREFIXES) for item in models):
        models = None
    excluded_models = listed_names(NO_USE_TYPE, excludes=True) or ()
    if any(is_every_card(item, NVIDIA_PREFIXES) for item in excluded_models):
        findings.append(excludes_every_card(NO_USE_TYPE, annotations[NO_USE_TYPE], "GPU"))
    return DeviceFilter(
        models=None if models is None else tuple(model_of(it, NVIDIA_PREFIXES) for it in models),
        not_models=tuple(model_of(item, NVIDIA_PREFIXES) for item in excluded_models),
        uuids=listed_names(USE_UUID, excludes=False),
        not_uuids=listed_names(NO_USE_UUID, excludes=True) or (),
    )


def _mode(text: str, findings: list[Finding]) -> Mode:
    if not text.strip():
        return Mode.CORE
    # Source: checkType. The text must contain the mode of a card.
    allowed_modes = _contained_modes(text)
    if not allowed_modes:
        nearest = get_close_matches(lower_ascii(text[:MAX_MODE]), list(Mode), n=1)
        finding = error(
            Code.UNKNOWN_MODE,
            annotation_path(MODE),
            f"{quote_text(text)} contains no mode of a card"
            + (", which are lower case" if _contained_modes(lower_ascii(text)) else ""),
            f"write {nearest[0]}" if nearest else f"write one of {', '.join(Mode)}",
        )
        findings.append(finding.rewritten(text, nearest[0] if nearest else ""))
        return Mode.CORE
    return allowed_modes[0]


def _contained_modes(text: str) -> list[Mode]:
    return [mode for mode in Mode if mode.value in text]
