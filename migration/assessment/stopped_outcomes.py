"""Workloads without pods: the outcome of one of another project, by its templates, and the texts on suspended ones and on CronJobs. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from admission.native_mappings import MappableNames
from findings.text import count_text, join_names
from migration.assessment.outcomes import AssessedWorkload, Outcome, assess_workload
from migration.cluster.device_pods import next_device_pods
from migration.cluster.workloads import Workload
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)

_ORDER: Final = (
    Outcome.REFUSED,
    Outcome.LOSSY,
    Outcome.TRANSLATED,
    Outcome.UNKNOWN,
    Outcome.NATIVE,
)
"""The outcomes of templates: those first that keep a namespace, or need its opt-in."""


def assess_templates(
    workload: Workload,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    namespace: str,
    mapped_resources: Mapping[str, str] | None,
    *,
    mappable_names: MappableNames,
) -> AssessedWorkload | None:
    """Return the outcome of a workload, by its pods or, if none has devices, by the first of its worst templates.

    Takes the arguments of `assess_workload`.
    """
    templates = next_device_pods(workload, vocabularies_in_force(options, snapshot.profiles))
    entries = (
        [Workload(key=workload.key, owner=template.pod, pods=()) for template in templates]
        if templates
        else [workload]
    )
    outcomes = [
        assess_workload(
            *(entry, snapshot, options, namespace, mapped_resources), mappable_names=mappable_names
        )
        for entry in entries
    ]
    if not templates:
        return outcomes[0]
    assessed = [
        (entry, template.number)
        for entry, template in zip(outcomes, templates, strict=True)
        if entry is not None
    ]
    if not assessed:
        return None
    worst, _ = min(assessed, key=lambda pair: _ORDER.index(pair[0].outcome))
    number = sum(number for entry, number in assessed if entry.keys == worst.keys)
    return msgspec.structs.replace(worst, pods=0, suspended=workload.is_suspended, next_pods=number)


def suspended_text(workloads: Iterable[AssessedWorkload]) -> str:
    """Return the text about the workloads without pods that are suspended; empty without any."""
    names = [workload.key.reference for workload in workloads if workload.suspended]
    if not names:
        return ""
    if len(names) == 1:
        return f"{names[0]} is suspended, and counted with no pods: once resumed, it needs free devices"
    return f"{join_names(names)} are suspended, and counted with no pods: once resumed, they need free devices"


def next_runs_text(workloads: Iterable[AssessedWorkload]) -> str:
    """Return the text about the CronJobs without a run that count with the pods of the next one; empty without any."""
    waiting = [
        workload
        for workload in workloads
        if workload.key.kind == "CronJob" and workload.pods and not workload.members
    ]
    if not waiting:
        return ""
    number = sum(workload.pods for workload in waiting)
    names = join_names([workload.key.reference for workload in waiting])
    pods = f"{count_text(number, 'pod')} of the next"
    if len(waiting) == 1:
        return f"{names} has no run now, and counts with {pods} run"
    return f"{names} have no run now, and count with {pods} runs"
