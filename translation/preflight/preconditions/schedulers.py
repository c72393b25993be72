"""Pods with keys that are not translated, and pods with claims that may wait, for the sake of their scheduler."""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import quote_text
from kube.names import TRANSLATE_LABEL
from translation.cluster.snapshot import TranslationOptions, vocabularies_in_force
from translation.preflight.model.inputs import PodInput, Stop
from translation.reading.arbiter import requests_devices
from translation.vocabularies import kai, tensorfusion

_ALLOCATING: Final[Mapping[str, Collection[str]]] = {
    kai.VOCABULARY.name: kai.SCHEDULERS,
    tensorfusion.VOCABULARY.name: (tensorfusion.SCHEDULER,),
}
"""Vocabulary name to the schedulers that allocate what its annotations request, also in a pod with claims."""


def stop_without_scheduler(inputs: PodInput) -> Stop | None:
    """Stop at a pod that names its node, or a scheduler that may not support claims."""
    finding = _find_reason(inputs)
    return None if finding is None else Stop((finding,))


def find_foreign_scheduler(
    name: str,
    bridge_scheduler: str,
    options: TranslationOptions,
    policy_aware_schedulers: Collection[str] = (),
) -> Finding | None:
    """Return the warning about the scheduler of a new pod with claims; None if it supports claims.

    Args:
        name: The pod's schedulerName.
        policy_aware_schedulers: Names of those that evaluate DeviceCompatibilityPolicies, and so claims.
    """
    if name in policy_aware_schedulers or options.scheduler_for(name, bridge_scheduler) == name:
        return None
    return warning(
        Code.FOREIGN_SCHEDULER,
        FieldPath.of("spec", "schedulerName"),
        f"{quote_text(name)} has to allocate the ResourceClaims (DRA) of the pod itself; where it does not, or no such "
        "scheduler runs, the pod waits for ever",
        "set schedulerName to default-scheduler, or list the scheduler in adoptSchedulers with its own name if it supports claims",
    )


def _find_reason(inputs: PodInput) -> Finding | None:
    legacy = inputs.legacy
    if legacy.node_name and legacy.is_scheduled:
        return info(
            Code.NODE_NAME_SET,
            FieldPath.of("spec", "nodeName"),
            "not translated: the pod is bound already; pods that replace it are translated",
        )
    if legacy.node_name:
        return warning(
            Code.NODE_NAME_SET,
            FieldPath.of("spec", "nodeName"),
            "not translated: nodeName bypasses the scheduler, and only a scheduler allocates claims",
            "remove nodeName, or select the node with a nodeSelector",
        )
    next_scheduler = inputs.options.scheduler_for(
        legacy.scheduler_name, inputs.snapshot.bridge_scheduler, opted_in=inputs.opted_in
    )
    if next_scheduler is None:
        return warning(
            Code.FOREIGN_SCHEDULER,
            FieldPath.of("spec", "schedulerName"),
            f"not translated: {quote_text(legacy.scheduler_name)} may not support claims",
            f"{_default(inputs)}list the scheduler in adoptSchedulers, or label the namespace "
            f"{TRANSLATE_LABEL}=true",
        )
    return _find_second_allocation(inputs, next_scheduler)


def _find_second_allocation(inputs: PodInput, next_scheduler: str) -> Finding | None:
    """Return the warning about a pod of a scheduler that allocates the share of its annotations itself."""
    vocabularies = vocabularies_in_force(inputs.options, inputs.snapshot.profiles)
    for name, schedulers in _ALLOCATING.items():
        vocabulary = vocabularies.get(name)
        if (
            next_scheduler in schedulers
            and vocabulary is not None
            and vocabulary.is_requested(inputs.legacy)
        ):
            return warning(
                Code.FOREIGN_SCHEDULER,
                FieldPath.of("spec", "schedulerName"),
                f"not translated: {quote_text(next_scheduler)} gives the pod what its annotations request, and with a "
                "claim it would have both",
                "an administrator gives its pods to another scheduler in the setting translation.adoptSchedulers",
            )
    return None


def _default(inputs: PodInput) -> str:
    """Return the advice to name the default scheduler; empty if the pod then would request no devices.

    Annotations without a domain, such as KAI's, request devices only in pods of their schedulers.
    """
    vocabularies = vocabularies_in_force(inputs.options, inputs.snapshot.profiles)
    moved = msgspec.structs.replace(inputs.legacy, scheduler_name="")
    return (
        "set schedulerName to default-scheduler, " if requests_devices(moved, vocabularies) else ""
    )
