"""The event of mode Shadow about a stored workload or pod. Pure.

Stored objects go through the pipeline of new ones: a live pod as its author created it, without a
node and a status. The event is about the object that a person applied: the top-level owner.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from admission.pods import Answer, Decision, admit_created
from admission.shadow import describe_shadowed
from admission.workloads import Workload, validate_workload
from findings.finding import Finding, Severity
from kube.api.core import Pod
from kube.api.events import Event, ObjectReference
from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.api.meta import ObjectHead, ObjectMeta, convert, decode
from kube.api.workloads import VALIDATED_KINDS, pod_path, resolve_path
from kube.names import REQUEST_ANNOTATION
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.model.intents import Vocabulary

ACTION: Final = "Evaluate"
"""The action in events."""
POD_KIND: Final = ("v1", "Pod")


class Reason(StrEnum):
    """Reasons of events."""

    WOULD_BE_TRANSLATED = "WouldBeTranslated"
    WOULD_BE_REJECTED = "WouldBeRejected"
    WOULD_BE_LEFT_ALONE = "WouldBeLeftAlone"


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """A stored object with pods.

    Attributes:
        kind: Its apiVersion and kind, which lists leave out.
        metadata: The object's own metadata.
        document: The object as it was created.
    """

    kind: tuple[str, str]
    metadata: ObjectMeta
    document: Mapping[str, Any]

    @property
    def reported(self) -> ObjectReference:
        """Return the object that the event is about: itself, or the custom owner of a pod."""
        owner = _controller_of(self.metadata)
        if owner is None:
            return ObjectReference.of(*self.kind, self.metadata)
        return msgspec.structs.replace(owner, namespace=self.metadata.namespace)


def key_texts(vocabularies: Iterable[Vocabulary]) -> tuple[bytes, ...]:
    """Return texts; the JSON of every object with device keys has at least one of them."""
    texts = {IMPLICIT_PREFIX}
    for vocabulary in vocabularies:
        texts |= {*vocabulary.keys, *vocabulary.key_prefixes, *vocabulary.requesting}
        if vocabulary.requesting_label is not None:
            texts.add(vocabulary.requesting_label[0])
    return tuple(sorted(text.encode() for text in texts))


def stored_object(raw: bytes, kind: tuple[str, str], texts: Iterable[bytes]) -> StoredObject | None:
    """Return an object with device keys that is reported itself; None for others.

    Pods and workloads of a built-in workload are reported with that, translated pods not at all.

    Args:
        kind: Its apiVersion and kind.
        texts: The result of `key_texts`, so that most objects need not be decoded.
    """
    if not any(text in raw for text in texts):
        return None
    try:
        document = decode(raw, dict[str, Any])
        metadata = convert(document, ObjectHead).metadata
    except (msgspec.DecodeError, RecursionError):
        return None
    owner = _controller_of(metadata)
    if owner is not None and (kind != POD_KIND or _is_built_in(owner)):
        return None
    if REQUEST_ANNOTATION in (metadata.annotations or {}):
        return None
    return StoredObject(kind=kind, metadata=metadata, document=_as_created(document, kind))


def _controller_of(metadata: ObjectMeta) -> ObjectReference | None:
    # Kubernetes validates no names of owners, and people read events at a terminal.
    owners = (
        owner
        for owner in metadata.owner_references or ()
        if owner.controller and f"{owner.api_version}{owner.kind}{owner.name}".isprintable()
    )
    return next(
        (
            ObjectReference(
                api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid
            )
            for owner in owners
        ),
        None,
    )


def _is_built_in(owner: ObjectReference) -> bool:
    return (owner.api_version, owner.kind) in VALIDATED_KINDS


def _as_created(document: dict[str, Any], kind: tuple[str, str]) -> dict[str, Any]:
    created = {field: value for field, value in document.items() if field != "status"}
    spec = created.get("spec")
    if kind == POD_KIND and isinstance(spec, dict):
        created["spec"] = {field: value for field, value in spec.items() if field != "nodeName"}
    return created


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
    """Return the event about an object; None where another mode would not touch it either."""
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
    """Return the event's reason and text; None and no text where there is no event."""
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
            text = f"{finding.path}: {finding.message}"
            yield f"{text}; {finding.fix}" if finding.fix else text
