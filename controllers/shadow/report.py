"""The event of mode Shadow about a stored workload or pod. Pure.

Stored objects go through the pipeline of new ones: a live pod as its author created it, without a
node and a status. The event is about the object that a person applied: the top-level owner.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from admission.pods import Answer, Decision, admit_created
from admission.shadow import describe_shadowed
from admission.workloads import Workload, validate_workload
from controllers.model.stored_objects import StoredObject
from findings.finding import Finding, Severity
from kube.api.core import Pod
from kube.api.events import Event
from kube.api.meta import convert
from kube.api.workloads import pod_path, resolve_path
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot

ACTION: Final = "Evaluate"
"""The action in events."""


class Reason(StrEnum):
    """Reasons of events."""

    WOULD_BE_TRANSLATED = "WouldBeTranslated"
    WOULD_BE_REJECTED = "WouldBeRejected"
    WOULD_BE_LEFT_ALONE = "WouldBeLeftAlone"


def evaluate_stored(
    workload: StoredObject, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Answer | None:
    """Return the answer that the object's creation would get in mode OptOut.

    None for an object with values of wrong types, which no pod can be made of.
    """
    namespace = workload.metadata.namespace
    path = pod_path(*workload.kind) or ()
    _, template = resolve_path(workload.document, path)
    try:
        pod = convert(template, Pod)
    except (msgspec.ValidationError, RecursionError):
        return None
    if not path:
        return admit_created(template, pod, namespace=namespace, snapshot=snapshot, options=options)
    return validate_workload(
        Workload(
            metadata=workload.metadata,
            path=path,
            template=template,
            pod=pod,
            kind_name=workload.kind[1],
        ),
        None,
        namespace=namespace,
        snapshot=snapshot,
        options=options,
    )


def shadow_event(workload: StoredObject, answer: Answer) -> Event | None:
    """Return the event about an object; None if another mode would not touch it either."""
    reason, words = _summary(answer)
    if reason is None:
        return None
    pods = "it" if workload.reported.kind == "Pod" else "its pods"
    notes = [f"In mode Shadow nothing is changed; else {pods} {words}", *_notes(answer.findings)]
    return Event(
        regarding=workload.reported,
        reason=reason,
        action=ACTION,
        note=". ".join(notes),
        type="Normal" if answer.allowed else "Warning",
        # Without messages, in which numbers change.
        identity="\n".join(
            [
                reason,
                words,
                *sorted(f"{finding.code} {finding.path}" for finding in answer.findings),
            ]
        ),
    )


def _summary(answer: Answer) -> tuple[Reason | None, str]:
    """Return the event's reason and text; None and no text if there is no event."""
    words = describe_shadowed(answer)
    if words:
        return Reason.WOULD_BE_TRANSLATED if answer.allowed else Reason.WOULD_BE_REJECTED, words
    if answer.decision is Decision.UNTOUCHED and any(
        finding.severity is Severity.WARNING for finding in answer.findings
    ):
        return Reason.WOULD_BE_LEFT_ALONE, "would be left as they are"
    return None, ""


def _notes(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        if finding.severity is not Severity.INFO:
            yield f"{finding.path}: {finding.advice}"
