"""The answer to a review of a pod: the pipeline of the mutating webhook, pure.

* CREATE without a translation record: translated, left untouched, or refused.
* CREATE with one: accepted if the pod's claims derive from it (another round of admission, or the
  output of `drawbridge translate`); keys that were added since are translated with the rest.
* UPDATE of a translated pod: the recorded keys are stripped again, so that a second `kubectl apply`
  of the legacy manifest changes nothing; the record cannot change.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors
from findings.text import printable
from kube.api.core import Container, Pod
from kube.api.meta import convert
from kube.jsonpatch import Operation, add, apply, pointer
from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity
from translation.arbiter import VOCABULARIES
from translation.claims import MAX_LABEL, Claim
from translation.derive import Derivation, derive
from translation.intents import LegacyPod, Vocabulary
from translation.legacy_pod import (
    container_paths,
    containers,
    device_keys,
    has_device_keys,
    legacy_pod,
)
from translation.patch import restore_pod, strip_keys, translate_pod
from translation.preflight import check_duplicate_claims, check_template_names
from translation.record import MAX_CONTAINERS, RecordError, TranslationRecord, decode_record
from translation.snapshot import TranslationOptions, TranslationSnapshot, vocabularies_in_force
from translation.translate import Outcome, Refused, Translated, Untouched, translate

MAX_AMOUNTS: Final = 4096
MAX_CLAIMS: Final = 1024
"""Per pod, more than any node can run. A larger body would take seconds, not milliseconds."""
MAX_ANNOTATIONS: Final = 256 * 1024
"""In characters; the API server limits bytes, after mutation: TotalAnnotationSizeLimitB."""
MAX_USERS: Final = 5
"""Containers that are named in a message."""

ANNOTATION_PATH: Final = FieldPath.of("metadata", "annotations").key(REQUEST_ANNOTATION)


class Decision(StrEnum):
    """The decision about an object, for logs, metrics and the audit annotation."""

    UNTOUCHED = "untouched"
    TRANSLATED = "translated"
    ACCEPTED = "accepted"
    """The pod was translated before."""
    UNTRANSLATED = "untranslated"
    """The pod was translated before, and the keys that were added since rule a translation out."""
    STRIPPED = "stripped"
    VALIDATED = "validated"
    """A workload whose pods will be translated, or an object with findings that admit it."""
    REFUSED = "refused"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one review.

    Attributes:
        operations: The patch; empty for no change.
        claims: The claims of the pod, translated now or before.
    """

    decision: Decision
    operations: tuple[Operation, ...] = ()
    findings: tuple[Finding, ...] = ()
    claims: tuple[Claim, ...] = ()

    @property
    def allowed(self) -> bool:
        """Return whether the object is admitted."""
        return self.decision is not Decision.REFUSED


UNTOUCHED: Final = Answer(decision=Decision.UNTOUCHED)


class Translator(Protocol):
    """The signature of `translate` and of a cache of its results."""

    def __call__(
        self,
        legacy: LegacyPod,
        /,
        *,
        namespace: str,
        snapshot: TranslationSnapshot,
        options: TranslationOptions,
    ) -> Outcome:
        """Translate a pod."""


def admit_created(
    document: Mapping[str, Any],
    pod: Pod,
    *,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    translator: Translator = translate,
) -> Answer:
    """Answer the creation of a pod.

    Args:
        document: The pod as it was parsed; not changed.
        pod: The typed view of the same document.
        namespace: The pod's namespace.
        translator: Translates a pod without a record.
    """
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    faults = tuple(_check_sizes(pod, vocabularies))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)

    def translate_legacy(pod: Pod) -> Outcome:
        return translator(
            legacy_pod(pod, vocabularies), namespace=namespace, snapshot=snapshot, options=options
        )

    if REQUEST_ANNOTATION not in pod.annotations:
        return _answer_legacy(document, pod, namespace, snapshot, translate_legacy)
    record, derivation = _read_record(pod, snapshot)
    if record is None:
        return Answer(decision=Decision.REFUSED, findings=derivation.findings)
    faults = (
        *_check_claims(pod, derivation.claims),
        *check_template_names(derivation.claims, namespace, snapshot),
    )
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    if not has_device_keys(pod, vocabularies):
        return Answer(decision=Decision.ACCEPTED, claims=derivation.claims)
    faults = tuple(_check_amounts(pod, record, vocabularies, only_recorded=True))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    # Keys were added since: undo the translation, and translate all keys together.
    undo = tuple(restore_pod(document, derivation.claims, _recorded_limits(record)))
    legacy = apply(copy.deepcopy(document), undo)
    answer = _answer_legacy(legacy, convert(legacy, Pod), namespace, snapshot, translate_legacy)
    if not answer.allowed:
        return answer
    untouched = answer.decision is Decision.UNTOUCHED
    return msgspec.structs.replace(
        answer,
        decision=Decision.UNTRANSLATED if untouched else answer.decision,
        operations=(*undo, *answer.operations),
    )


def admit_updated(
    document: Mapping[str, Any],
    pod: Pod,
    old: Pod,
    *,
    options: TranslationOptions,
    vocabularies: Mapping[str, Vocabulary] = VOCABULARIES,
) -> Answer:
    """Answer the update of a pod, or of its status.

    Args:
        vocabularies: Extended by the resource names in profiles.
    """
    recorded = old.annotations.get(REQUEST_ANNOTATION)
    if pod.annotations.get(REQUEST_ANNOTATION) != recorded:
        return Answer(decision=Decision.REFUSED, findings=(_record_changed_finding(recorded),))
    if recorded is None or not has_device_keys(pod, vocabularies):
        return Answer(decision=Decision.UNTOUCHED)
    faults = tuple(_check_sizes(pod, vocabularies))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    try:
        record = decode_record(recorded)
    except RecordError as fault:
        return Answer(decision=Decision.REFUSED, findings=(_malformed_finding(fault),))
    faults = tuple(_check_amounts(pod, record, vocabularies))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    keys = {
        container.name: device_keys(container, vocabularies) for _, container in containers(pod)
    }
    operations = (*strip_keys(document, keys), *_keep_scheduler(pod, old, options))
    return Answer(decision=Decision.STRIPPED, operations=operations)


def _answer_legacy(
    document: Mapping[str, Any],
    pod: Pod,
    namespace: str,
    snapshot: TranslationSnapshot,
    translate_legacy: Callable[[Pod], Outcome],
) -> Answer:
    outcome = translate_legacy(pod)
    match outcome:
        case Untouched():
            return Answer(decision=Decision.UNTOUCHED, findings=outcome.findings)
        case Refused():
            return Answer(decision=Decision.REFUSED, findings=outcome.findings)
        case Translated():
            drivers = [used.name for used in outcome.record.profiles]
            faults = tuple(check_template_names(outcome.claims, namespace, snapshot))
            if faults:
                return Answer(decision=Decision.REFUSED, findings=(*outcome.findings, *faults))
            duplicates = check_duplicate_claims(pod, drivers, namespace, snapshot)
            return Answer(
                decision=Decision.TRANSLATED,
                operations=tuple(translate_pod(document, outcome)),
                findings=(*outcome.findings, *duplicates),
                claims=outcome.claims,
            )


def _check_sizes(pod: Pod, vocabularies: Mapping[str, Vocabulary]) -> Iterator[Finding]:
    """Yield an error for each part of a pod that is too large to process quickly.

    Nothing is validated yet when a mutating webhook is called: a body of 3 MiB has room for tens of
    thousands of containers.
    """
    # Every review pays for this check, and these few lengths nearly always decide it.
    every = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    uses = sum(len(container.claims) for container in every)
    if (
        len(every) <= MAX_CONTAINERS
        and max(len(pod.spec.resource_claims or ()), uses) <= MAX_CLAIMS
        and sum(map(_amount_count, every)) <= MAX_AMOUNTS
        and sum(map(len, pod.annotations.values())) <= MAX_ANNOTATIONS
    ):
        return
    with_devices = [container for container in every if device_keys(container, vocabularies)]
    for path, part, size, maximum in _sizes(pod, with_devices) if with_devices else ():
        if size > maximum:
            yield error(
                Code.TOO_LARGE,
                path,
                f"{size} {part} in a pod that requests devices, at most {maximum} are supported",
            )


def _sizes(
    pod: Pod, with_devices: Sequence[Container]
) -> Iterator[tuple[FieldPath, str, int, int]]:
    """Yield the path, name, size and maximum of each part of a pod."""
    spec, annotations = FieldPath.of("spec"), FieldPath.of("metadata", "annotations")
    uses = sum(len(container.claims) for _, container in containers(pod))
    yield spec, "containers with devices", len(with_devices), MAX_CONTAINERS
    yield spec, "amounts of resources", sum(map(_amount_count, with_devices)), MAX_AMOUNTS
    yield spec, "claims", len(pod.spec.resource_claims or ()), MAX_CLAIMS
    yield spec, "uses of claims", uses, MAX_CLAIMS
    characters = sum(map(len, pod.annotations.values()))
    yield annotations, "characters in annotations", characters, MAX_ANNOTATIONS


def _amount_count(container: Container) -> int:
    return len(container.limits) + len(container.requests)


# --- pods that were translated before -------------------------------------------------------------


def _read_record(
    pod: Pod, snapshot: TranslationSnapshot
) -> tuple[TranslationRecord | None, Derivation]:
    """Return the pod's record and what derives from it; None and the reasons if it is invalid."""
    try:
        record = decode_record(pod.annotations[REQUEST_ANNOTATION])
    except RecordError as fault:
        return None, Derivation(findings=(_malformed_finding(fault),))
    derivation = derive(record, snapshot.profiles, container_paths(pod))
    if has_errors(derivation.findings):
        at_annotation = tuple(
            msgspec.structs.replace(finding, path=ANNOTATION_PATH)
            for finding in derivation.findings
            if finding.is_error
        )
        return None, Derivation(findings=at_annotation)
    return record, derivation


def _check_claims(pod: Pod, claims: Sequence[Claim]) -> Iterator[Finding]:
    """Yield an error for each claim of the record that the pod does not use."""
    templates = {
        entry.name: entry.resource_claim_template_name for entry in pod.spec.resource_claims or ()
    }
    uses = {
        container.name: {(use.name, use.request) for use in container.claims}
        for _, container in containers(pod)
    }
    unmatched = {label for label, template in templates.items() if template is not None}
    for claim in claims:
        match = next(
            (
                label
                for label in sorted(unmatched)
                if templates[label] == claim.template
                and all((label, use.request) in uses.get(use.container, ()) for use in claim.uses)
            ),
            None,
        )
        if match is None:
            yield error(
                Code.TRANSLATION_RECORD_FORGED,
                ANNOTATION_PATH,
                f"requires ResourceClaimTemplate {claim.template} for {_user_names(claim)}, "
                "but the pod does not use it so",
                "remove the annotation; the webhook writes it",
            )
        else:
            unmatched.remove(match)


def _user_names(claim: Claim) -> str:
    """Return the names of the containers that use a claim, which are untrusted."""
    users = sorted({use.container for use in claim.uses})
    names = [printable(name[:MAX_LABEL]) or '""' for name in users[:MAX_USERS]]
    return ", ".join(names + ["others"] * (len(users) > MAX_USERS))


def _keep_scheduler(pod: Pod, old: Pod, options: TranslationOptions) -> Iterator[Operation]:
    """Yield the operation that keeps an adopted pod's scheduler; its manifest has the foreign one."""
    new_name, old_name = pod.spec.scheduler_name, old.spec.scheduler_name
    if new_name != old_name and options.scheduler_for(new_name) == old_name:
        yield add(pointer("spec", "schedulerName"), old_name)


def _recorded_limits(record: TranslationRecord) -> Mapping[str, Mapping[str, str]]:
    return {
        container.name: {key: str(amount) for key, amount in container.limits.items()}
        for container in record.containers
    }


def _check_amounts(
    pod: Pod,
    record: TranslationRecord,
    vocabularies: Mapping[str, Vocabulary],
    *,
    only_recorded: bool = False,
) -> Iterator[Finding]:
    """Yield an error for each device key whose amount is not the recorded one."""
    limits = {container.name: container.limits for container in record.containers}
    for path, container in containers(pod):
        recorded = limits.get(container.name, {})
        for key in sorted(device_keys(container, vocabularies)):
            if key not in recorded and only_recorded:
                continue
            amounts = _amounts(container, key)
            if any(amount != recorded.get(key) for amount in amounts):
                yield error(
                    Code.TRANSLATION_RECORD_CHANGED,
                    path.child("resources", "limits").key(key),
                    "a pod's devices cannot change after its creation: recorded "
                    f"{recorded.get(key, 'nothing')}, found {amounts[0]}",
                    "delete the pod and create it again",
                )


def _amounts(container: Container, key: str) -> list[Quantity]:
    return [amounts[key] for amounts in (container.limits, container.requests) if key in amounts]


def _malformed_finding(fault: RecordError) -> Finding:
    return error(
        Code.TRANSLATION_RECORD_MALFORMED,
        ANNOTATION_PATH,
        printable(str(fault)[:200]),
        "remove the annotation; the webhook writes it",
    )


def _record_changed_finding(recorded: str | None) -> Finding:
    if recorded is None:
        return error(
            Code.TRANSLATION_RECORD_FORGED,
            ANNOTATION_PATH,
            "can only be set when a pod is created, and this pod was created without it",
            "remove it",
        )
    return error(
        Code.TRANSLATION_RECORD_CHANGED,
        ANNOTATION_PATH,
        "the pod's claims derive from it, so it cannot change",
        "restore it; to change the devices, create the pod again",
    )
