"""Koordinator's replacement of resource names, and its ownership of `nvidia.com/gpu`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from findings.finding import Code, Finding, error, info, warning
from findings.text import quote_text
from kube.api.resource import MAX_RESULTS
from kube.quantity import Quantity
from translation.model.intents import (
    LegacyPod,
    annotation_path,
)
from translation.vocabularies.koordinator.annotations import hints_gpus
from translation.vocabularies.koordinator.keys import (
    CORE,
    FOREIGN_GPUS,
    HINT,
    JOINT,
    OWN_KEYS,
    PARTITION,
    PERCENT,
    RATIO,
    REPLACE,
    WHOLE_GPU,
)

_PERCENTAGES: Final = frozenset({PERCENT, CORE, RATIO})
_MOST_GPUS: Final = Quantity(MAX_RESULTS)
_GPU_ANNOTATIONS: Final = frozenset({HINT, JOINT, PARTITION, REPLACE})


def takes_whole_gpus(pod: LegacyPod) -> bool:
    """Return True if `nvidia.com/gpu` belongs to Koordinator in this pod.

    It does beside an annotation about GPUs that only Koordinator has: a hint, joint allocation,
    partitions, or the replacement of a key.
    """
    if _GPU_ANNOTATIONS.isdisjoint(pod.annotations):
        return False  # As of most pods, each of which asks several times.
    keys = {key for container in pod.containers for key in container.limits}
    return (
        (JOINT in pod.annotations and any(key in keys for key in OWN_KEYS))
        or PARTITION in pod.annotations
        or (HINT in pod.annotations and hints_gpus(pod.annotations[HINT]))
        or any(WHOLE_GPU in pair for pair in _replacements(pod.annotations.get(REPLACE, "")))
    )


def _replacements(text: str) -> list[tuple[str, str]]:
    """Return old and new key of each pair; an empty new key removes the old one.

    >>> _replacements("a:b,c:,d")
    [('a', 'b'), ('c', '')]
    """
    split = (pair.strip().partition(":") for pair in text.split(","))
    return [(old.strip(), new.strip()) for old, colon, new in split if colon]


def apply_replacements(pod: LegacyPod, findings: list[Finding]) -> LegacyPod:
    """Return the pod with its keys renamed by the annotation, as Koordinator does first."""
    pairs = _replacements(pod.annotations.get(REPLACE, ""))
    if not pairs:
        return pod
    known_keys = {WHOLE_GPU, *OWN_KEYS, *FOREIGN_GPUS}
    keys = {key for container in pod.containers for key in container.limits}
    if any(old in keys and new in known_keys for old, new in pairs):
        # Source: a7a1b76, pkg/util/transformer/pod_transformer.go, ReplaceResourcesTransformer.
        findings.append(
            info(
                Code.REQUIRES_FEATURE_GATE,
                annotation_path(REPLACE),
                "read as Koordinator reads it with its gate ReplaceResourcesTransformer, which is off by "
                "default",
                "remove the annotation, if the gate was off",
            )
        )
    findings += _check_percentages(pod, pairs)
    for old, new in pairs:
        if new and new not in known_keys and old in keys:
            findings.append(
                error(
                    Code.CANNOT_EXPRESS,
                    annotation_path(REPLACE),
                    f"{quote_text(old)} would become {quote_text(new)}, which is not a key of Koordinator",
                    "write the resource that the pod needs, and remove the annotation",
                )
            )
        elif old not in keys and new in known_keys:
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    annotation_path(REPLACE),
                    f"{quote_text(old)} is not read here, so it is not replaced by {quote_text(new)}",
                )
            )
    return msgspec.structs.replace(
        pod,
        containers=tuple(
            msgspec.structs.replace(
                container,
                limits=_renamed_limits(container.limits, pairs),
                original_keys={new: old for old, new in pairs if new and old in container.limits},
            )
            for container in pod.containers
        ),
    )


def _check_percentages(pod: LegacyPod, pairs: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Yield an error for each percentage that would become as many whole GPUs."""
    for old, new in pairs:
        if new != WHOLE_GPU or old not in _PERCENTAGES:
            continue
        for container in pod.containers:
            amount = container.limits.get(old)
            if amount is not None and amount > _MOST_GPUS:
                yield error(
                    Code.INVALID_COMBINATION,
                    annotation_path(REPLACE),
                    f"{old}: {amount} would become {amount} whole GPUs with Koordinator's gate "
                    "ReplaceResourcesTransformer, and is a percentage without it",
                    "remove the annotation, if the gate was off, as it is by default",
                )


def _renamed_limits(
    limits: Mapping[str, Quantity], pairs: Iterable[tuple[str, str]]
) -> Mapping[str, Quantity]:
    renamed_limits = dict(limits)
    for old, new in pairs:
        amount = renamed_limits.pop(old, None)
        if amount is not None and new:
            renamed_limits[new] = amount
    return renamed_limits
