"""The answer to a review of a pod: the pipeline of the mutating webhook, pure.

* CREATE without a translation record: translated, left untouched, or refused.
* CREATE with one (another round of admission, or the output of `drawbridge translate`): the record
  gives nothing that its keys would not give. The pod's claims must derive from it, and its keys are
  put back and translated again, with every preflight check. It is accepted if that gives the same
  record; where other facts are published by now, or keys were added, it gets the new claims.
* CREATE of any pod with the implicit name of a DeviceClass: refused if a quota would not count it.
* UPDATE of a translated pod: the recorded keys are stripped again, so that a second `kubectl apply`
  of the legacy manifest changes nothing; the record cannot change, and the signature stays as it was
  settled when the pod was created.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, Final, Protocol

import msgspec

from admission.recorded_pods import (
    ANNOTATION_PATH,
    at_annotation,
    check_amounts,
    check_claims,
    check_profiles,
    check_recorded_keys,
    malformed_finding,
    read_record,
    record_changed_finding,
    recorded_limits,
    restored_view,
)
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors, warning
from kube.api.core import Container, Pod
from kube.api.meta import convert
from kube.jsonpatch import Operation, add, apply, pointer, remove
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION
from translation.cluster.schedulers import check_kept_scheduler
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.intents import LegacyPod, Vocabulary
from translation.model.limit_ranges import default_amounts
from translation.pipeline.patch import restore_pod, strip_keys, translate_pod
from translation.pipeline.translate import Outcome, Refused, Translated, Untouched, translate
from translation.preflight.checks import check_duplicate_claims, check_template_names, skip_reasons
from translation.preflight.quota_checks import check_implicit_names
from translation.reading.arbiter import VOCABULARIES
from translation.reading.host_network import check_host_network, vocabularies_for
from translation.reading.legacy_pod import (
    containers,
    containers_with_devices,
    device_keys,
    has_device_keys,
    legacy_pod,
)
from translation.record.record import MAX_CONTAINERS, RecordError, TranslationRecord, decode_record

MAX_AMOUNTS: Final = 4096
MAX_CLAIMS: Final = 1024
MAX_ALL_CONTAINERS: Final = 1024
"""Per pod, more than any node can run. A larger body would take seconds, not milliseconds."""
MAX_ANNOTATIONS: Final = 256 * 1024
"""In characters; the API server limits bytes, after mutation: TotalAnnotationSizeLimitB."""
SIGNATURE_POINTER: Final = pointer("metadata", "annotations", SIGNATURE_ANNOTATION)


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
    ROUTED = "routed"
    """A pod whose devices the bridge allocates, and that got its schedulerName."""
    REFUSED = "refused"
    POSTPONED = "postponed"
    """There was no time for the review: the client tries again."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one review.

    Attributes:
        operations: The patch; empty for no change.
        claims: The claims of the pod, translated now or before.
        reason: Why it is postponed; empty if it is not.
    """

    decision: Decision
    operations: tuple[Operation, ...] = ()
    findings: tuple[Finding, ...] = ()
    claims: tuple[Claim, ...] = ()
    reason: str = ""

    @property
    def allowed(self) -> bool:
        """Return whether the object is admitted."""
        return self.decision not in {Decision.REFUSED, Decision.POSTPONED}


UNTOUCHED: Final = Answer(decision=Decision.UNTOUCHED)
_UNSERVED: Final = warning(
    Code.TRANSLATION_NOT_SIGNED,
    ANNOTATION_PATH,
    "its keys would not be translated here, so no ResourceClaimTemplate is created for the pod",
    "remove the annotation; apply the templates that `drawbridge translate` prints",
)


def postponed(reason: str) -> Answer:
    """Return the answer to a review for which there was no time.

    Args:
        reason: Why, for people.
    """
    return Answer(decision=Decision.POSTPONED, reason=reason)


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
        passes_through: bool = True,
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
    all_vocabularies = vocabularies_in_force(options, snapshot.profiles)
    vocabularies = vocabularies_for(pod, all_vocabularies)
    answer = (
        UNTOUCHED
        if _is_beyond_nodes(pod, vocabularies)
        else _admit_created(
            document,
            pod,
            vocabularies=vocabularies,
            namespace=namespace,
            snapshot=snapshot,
            options=options,
            translator=translator,
        )
    )
    if answer.decision is Decision.UNTRANSLATED:
        # It has its keys again, so it must pass as a pod that was created with them.
        restored_document = apply(copy.deepcopy(document), answer.operations)
        again = admit_created(
            restored_document,
            convert(restored_document, Pod),
            namespace=namespace,
            snapshot=snapshot,
            options=options,
            translator=translator,
        )
        if not again.allowed:
            return Answer(decision=Decision.REFUSED, findings=again.findings)
    findings = (
        *_check_host_network(pod, all_vocabularies, namespace, snapshot, options),
        *check_implicit_names(pod, namespace=namespace, snapshot=snapshot, options=options),
    )
    if not findings:
        return answer
    if has_errors(findings):
        return Answer(decision=Decision.REFUSED, findings=(*answer.findings, *findings))
    return msgspec.structs.replace(answer, findings=(*answer.findings, *findings))


def _check_host_network(
    pod: Pod,
    vocabularies: Mapping[str, Vocabulary],
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Iterator[Finding]:
    """Yield the findings about NICs of a pod in the network of its node, where it is translated."""
    if pod.spec.host_network and not skip_reasons(
        legacy_pod(pod, vocabularies), namespace, snapshot, options
    ):
        yield from check_host_network(pod, vocabularies)


def _admit_created(
    document: Mapping[str, Any],
    pod: Pod,
    *,
    vocabularies: Mapping[str, Vocabulary],
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    translator: Translator,
) -> Answer:
    faults = tuple(_check_sizes(pod, vocabularies))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)

    def translate_legacy(
        pod: Pod, *, passes_through: bool = True, drivers: Mapping[str, str] = {}
    ) -> Outcome:
        return translator(
            msgspec.structs.replace(legacy_pod(pod, vocabularies), recorded_drivers=drivers),
            namespace=namespace,
            snapshot=snapshot,
            options=options,
            passes_through=passes_through,
        )

    if REQUEST_ANNOTATION not in pod.annotations:
        outcome = translate_legacy(pod)
        return _answer_legacy(document, pod, namespace, snapshot, outcome)
    record, derivation = read_record(pod, snapshot)
    if record is None:
        return Answer(decision=Decision.REFUSED, findings=derivation.findings)
    faults = (
        *check_recorded_keys(record, vocabularies),
        *check_claims(pod, derivation.claims),
        *check_template_names(derivation.claims, namespace, snapshot),
    )
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    was_extended = has_device_keys(pod, vocabularies)
    faults = tuple(
        check_amounts(
            pod,
            record,
            vocabularies,
            only_recorded=True,
            defaults=default_amounts(snapshot.limit_ranges.get(namespace, {}).values()),
        )
    )
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    restored_pod = restored_view(pod, record, derivation.claims)
    # What was translated stays so, also where a class maps the keys by now.
    outcome = translate_legacy(restored_pod, passes_through=was_extended, drivers=record.drivers())
    if not was_extended:
        answer = _answer_recorded(record, derivation.claims, outcome, snapshot)
        if answer is not None:
            return answer
    undo_operations = tuple(restore_pod(document, derivation.claims, recorded_limits(record)))
    legacy = apply(copy.deepcopy(document), undo_operations)
    answer = _answer_legacy(legacy, restored_pod, namespace, snapshot, outcome)
    if not answer.allowed:
        return answer
    untouched = answer.decision is Decision.UNTOUCHED
    return msgspec.structs.replace(
        answer,
        decision=Decision.UNTRANSLATED if untouched else answer.decision,
        operations=(*undo_operations, *answer.operations),
    )


def _answer_recorded(
    record: TranslationRecord,
    claims: tuple[Claim, ...],
    outcome: Outcome,
    snapshot: TranslationSnapshot,
) -> Answer | None:
    """Answer for a pod as it was translated before; None if its keys have other claims by now.

    Args:
        claims: The claims that the pod uses.
        outcome: The translation of its recorded keys.
    """
    # Without a cluster nothing is published, so what was recorded is all that is known.
    is_offline = snapshot.classes is None
    match outcome:
        case Untouched():
            # Its claims are its own affair, as with an object of somebody else.
            return Answer(decision=Decision.UNTOUCHED, findings=(*outcome.findings, _UNSERVED))
        case Refused() if is_offline:
            return Answer(decision=Decision.ACCEPTED, claims=claims)
        case Refused():
            return Answer(
                decision=Decision.REFUSED, findings=tuple(map(at_annotation, outcome.findings))
            )
        case Translated():
            faults = tuple(check_profiles(record, outcome.record))
            if faults:
                return Answer(decision=Decision.REFUSED, findings=faults)
            if outcome.record != record and not is_offline:
                return None
            # Its other findings were told when it was translated.
            quotas = (
                finding for finding in outcome.findings if finding.code is Code.QUOTA_NOT_COUNTED
            )
            return Answer(
                decision=Decision.ACCEPTED,
                findings=tuple(map(at_annotation, quotas)),
                claims=claims,
            )


def admit_updated(
    document: Mapping[str, Any],
    pod: Pod,
    old: Pod,
    *,
    options: TranslationOptions,
    vocabularies: Mapping[str, Vocabulary] = VOCABULARIES,
    opted_in: bool = False,
) -> Answer:
    """Answer the update of a pod, or of its status.

    Args:
        opted_in: The label of its namespace may have replaced the pod's scheduler.
        vocabularies: Extended by the resource names in profiles.
    """
    vocabularies = vocabularies_for(pod, vocabularies)
    record_text = old.annotations.get(REQUEST_ANNOTATION)
    if pod.annotations.get(REQUEST_ANNOTATION) != record_text:
        return Answer(decision=Decision.REFUSED, findings=(record_changed_finding(record_text),))
    if record_text is None:
        return UNTOUCHED
    signature_operations = _restore_signature(pod, old)
    if not has_device_keys(pod, vocabularies):
        decision = Decision.STRIPPED if signature_operations else Decision.UNTOUCHED
        return Answer(decision=decision, operations=signature_operations)
    faults = tuple(_check_sizes(pod, vocabularies))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    try:
        record = decode_record(record_text)
    except RecordError as fault:
        return Answer(decision=Decision.REFUSED, findings=(malformed_finding(fault),))
    faults = tuple(check_amounts(pod, record, vocabularies))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    keys = {
        container.name: device_keys(container, vocabularies) for _, container in containers(pod)
    }
    operations = (*signature_operations, *strip_keys(document, keys))
    if not _keeps_scheduler(pod, old, options, opted_in=opted_in):
        return Answer(decision=Decision.STRIPPED, operations=operations)
    kept_name = old.spec.scheduler_name
    return Answer(
        decision=Decision.STRIPPED,
        operations=(*operations, add(pointer("spec", "schedulerName"), kept_name)),
        findings=tuple(check_kept_scheduler(pod.spec.scheduler_name, kept_name, options)),
    )


def _restore_signature(pod: Pod, old: Pod) -> tuple[Operation, ...]:
    """Return the operations that give a pod the signature, or the lack of one, that it had.

    A signature that was copied from a pod of the same content would pass for the result of this pod's
    own review, in which it was taken away.

    Args:
        pod: With a record, so that it has annotations.
    """
    signature = old.annotations.get(SIGNATURE_ANNOTATION)
    if pod.annotations.get(SIGNATURE_ANNOTATION) == signature:
        return ()
    return (remove(SIGNATURE_POINTER) if signature is None else add(SIGNATURE_POINTER, signature),)


def _answer_legacy(
    document: Mapping[str, Any],
    pod: Pod,
    namespace: str,
    snapshot: TranslationSnapshot,
    outcome: Outcome,
) -> Answer:
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


def _is_beyond_nodes(pod: Pod, vocabularies: Mapping[str, Vocabulary]) -> bool:
    """Return whether a pod without record and device keys has more containers than any node can run.

    Annotations may request devices without keys, and to read so many containers takes long.
    """
    every = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    return (
        len(every) > MAX_ALL_CONTAINERS
        and REQUEST_ANNOTATION not in pod.annotations
        and not any(containers_with_devices(every, vocabularies))
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
    # Where they are too many, it is enough that one has devices.
    counted = 1 if len(every) > MAX_ALL_CONTAINERS else None
    with_devices = tuple(islice(containers_with_devices(every, vocabularies), counted))
    for path, part, size, maximum in _sizes(pod, with_devices) if with_devices else ():
        if size > maximum:
            yield error(
                Code.TOO_LARGE,
                path,
                f"{size} {part}, but a pod that requests devices may have at most {maximum}",
            )


def _sizes(
    pod: Pod, with_devices: Sequence[Container]
) -> Iterator[tuple[FieldPath, str, int, int]]:
    """Yield the path, name, size and maximum of each part of a pod."""
    spec, annotations = FieldPath.of("spec"), FieldPath.of("metadata", "annotations")
    uses = sum(len(container.claims) for _, container in containers(pod))
    number = len(pod.spec.init_containers or ()) + len(pod.spec.containers or ())
    yield spec, "containers", number, MAX_ALL_CONTAINERS
    yield spec, "containers with devices", len(with_devices), MAX_CONTAINERS
    yield spec, "amounts of resources", sum(map(_amount_count, with_devices)), MAX_AMOUNTS
    yield spec, "claims", len(pod.spec.resource_claims or ()), MAX_CLAIMS
    yield spec, "uses of claims", uses, MAX_CLAIMS
    characters = sum(map(len, pod.annotations.values()))
    yield annotations, "characters in annotations", characters, MAX_ANNOTATIONS


def _amount_count(container: Container) -> int:
    return len(container.limits) + len(container.requests)


def _keeps_scheduler(pod: Pod, old: Pod, options: TranslationOptions, *, opted_in: bool) -> bool:
    """Return whether a pod has got its scheduler from a translation; its manifest has the foreign one."""
    new_name, old_name = pod.spec.scheduler_name, old.spec.scheduler_name
    return new_name != old_name and options.scheduler_for(new_name, opted_in=opted_in) == old_name
