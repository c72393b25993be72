"""The answer to a review of a pod: the pipeline of the mutating webhook, pure.

* CREATE without a translation record: translated, left untouched, or refused.
* CREATE with one (another round of admission, or the output of `drawbridge translate`): the record
  gives nothing that its keys would not give. The pod's claims must derive from it, and its keys are
  put back and translated again, with every preflight check. It is accepted if that gives the same
  record; where other facts are published by now, or keys were added, it gets the new claims.
* CREATE of any pod with the implicit name of a DeviceClass: refused if a quota would not count it.
* UPDATE of a translated pod, in `admission.updated_pods`: the recorded keys are stripped again, so that a
  second `kubectl apply` of the legacy manifest changes nothing; the record cannot change, and the signature
  stays as it was settled when the pod was created.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from admission.pod_sizes import check_sizes, has_usual_size, is_beyond_nodes, is_too_large
from admission.recorded_pods import (
    ANNOTATION_PATH,
    at_annotation,
    check_amounts,
    check_claims,
    check_profiles,
    check_recorded_keys,
    keys_by_container,
    read_record,
    recorded_limits,
    restored_view,
)
from findings.finding import Code, Finding, has_errors, warning
from kube.api.core import Pod
from kube.api.meta import convert
from kube.jsonpatch import Operation, apply, pointer
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.intents import LegacyPod, Vocabulary
from translation.model.limit_ranges import default_amounts
from translation.pipeline.patch import restore_pod, translate_pod
from translation.pipeline.translate import Outcome, Refused, Translated, Untouched, translate
from translation.preflight.chain.preconditions import OPT_OUTS, first_stop
from translation.preflight.model.inputs import PodInput
from translation.preflight.pods.duplicate_claims import check_duplicate_claims
from translation.preflight.pods.host_network import check_host_network
from translation.preflight.pods.implicit_names import check_implicit_names
from translation.preflight.pods.kept_keys import check_kept_keys
from translation.preflight.pods.template_names import check_template_names
from translation.preflight.pods.tolerations import add_tolerations, check_tolerations
from translation.reading.arbiter import requests_devices, translating_vocabularies
from translation.reading.legacy_pod import (
    has_device_keys,
    legacy_pod,
)
from translation.reading.untranslated_keys import check_untranslated_keys
from translation.record.record import (
    TranslationRecord,
    VocabularyDriver,
)

MAX_FINDINGS: Final = 100
"""The largest number of findings of one pod; more are most likely one mistake repeated."""
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
        record: The record of a translation that is made now; None for others.
        drivers: The vocabularies of a pod that is translated or refused now, with their drivers.
        reason: The reason it is postponed; empty if it is not.
    """

    decision: Decision
    operations: tuple[Operation, ...] = ()
    findings: tuple[Finding, ...] = ()
    claims: tuple[Claim, ...] = ()
    record: TranslationRecord | None = None
    drivers: tuple[VocabularyDriver, ...] = ()
    reason: str = ""

    @property
    def allowed(self) -> bool:
        """Return True if the object is admitted."""
        return self.decision is not Decision.REFUSED and self.decision is not Decision.POSTPONED


UNTOUCHED: Final = Answer(decision=Decision.UNTOUCHED)
_UNSERVED: Final = warning(
    Code.TRANSLATION_NOT_SIGNED,
    ANNOTATION_PATH,
    "its keys would not be translated here, so no ResourceClaimTemplate is created for the pod",
    "remove the annotation; apply the templates that `drawbridge translate` prints",
)


def first_findings(*parts: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings of several checks, in order; of more than `MAX_FINDINGS` the errors before the others.

    The event loop counts and logs what an answer has, and users choose how many of them a pod has.
    """
    findings = tuple(finding for part in parts for finding in part)
    if len(findings) <= MAX_FINDINGS:
        return findings
    errors = tuple(finding for finding in findings if finding.is_error)
    others = tuple(finding for finding in findings if not finding.is_error)
    return (*errors, *others)[:MAX_FINDINGS]


def postponed(reason: str) -> Answer:
    """Return the answer to a review without time for it.

    Args:
        reason: The reason, for people.
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


class _Creation(msgspec.Struct, frozen=True, kw_only=True):
    """The creation of a pod, and all that decides about it.

    Attributes:
        document: The pod as it was parsed; not changed.
        pod: The typed view of the same document.
        vocabularies: The vocabularies that translate the pod.
        has_usual_size: Whether the pod is within all bounds on its size.
    """

    document: Mapping[str, Any]
    pod: Pod
    namespace: str
    snapshot: TranslationSnapshot
    options: TranslationOptions
    vocabularies: Mapping[str, Vocabulary]
    translator: Translator
    has_usual_size: bool

    def translate(
        self, pod: Pod, *, passes_through: bool = True, drivers: Mapping[str, str] = {}
    ) -> Outcome:
        """Translate the pod as it is, or as it was before an earlier translation.

        Args:
            drivers: Vocabulary name to the driver of the earlier translation.
        """
        legacy = legacy_pod(pod, self.vocabularies)
        return self.translator(
            msgspec.structs.replace(legacy, recorded_drivers=drivers) if drivers else legacy,
            namespace=self.namespace,
            snapshot=self.snapshot,
            options=self.options,
            passes_through=passes_through,
        )


class _RecordedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that was translated before.

    Attributes:
        claims: The claims that derive from its record, which the pod uses.
        is_extended: Whether it has device keys beside its record.
    """

    record: TranslationRecord
    claims: tuple[Claim, ...]
    is_extended: bool


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
    creation = _Creation(
        document=document,
        pod=pod,
        namespace=namespace,
        snapshot=snapshot,
        options=options,
        vocabularies=translating_vocabularies(pod, all_vocabularies),
        translator=translator,
        has_usual_size=has_usual_size(pod),
    )
    answer = _answer_creation(creation)
    if answer.decision is Decision.UNTRANSLATED:
        restored_answer = _answer_restored(creation, answer.operations)
        if not restored_answer.allowed:
            return restored_answer
    findings = (
        *_check_left_keys(creation, all_vocabularies),
        *check_implicit_names(pod, namespace=namespace, snapshot=snapshot, options=options),
        *(
            ()
            if not creation.has_usual_size and is_too_large(pod)
            else check_untranslated_keys(
                pod, all_vocabularies, snapshot.extended_resources, options.kept
            )
        ),
    )
    if not findings and len(answer.findings) <= MAX_FINDINGS:
        return answer
    all_findings = first_findings(answer.findings, findings)
    if has_errors(findings):
        return Answer(decision=Decision.REFUSED, findings=all_findings, drivers=answer.drivers)
    return msgspec.structs.replace(answer, findings=all_findings)


def _answer_creation(creation: _Creation) -> Answer:
    """Answer by the pod's keys and its translation record."""
    if not creation.has_usual_size:
        if is_beyond_nodes(creation.pod, creation.vocabularies):
            return UNTOUCHED
        faults = tuple(check_sizes(creation.pod, creation.vocabularies))
        if faults:
            return Answer(decision=Decision.REFUSED, findings=faults)
    if REQUEST_ANNOTATION not in creation.pod.annotations:
        outcome = creation.translate(creation.pod)
        return _answer_legacy(creation, creation.document, creation.pod, outcome)
    recorded = _read_recorded(creation)
    if isinstance(recorded, Answer):
        return recorded
    return _answer_recorded(creation, recorded)


def _answer_restored(creation: _Creation, operations: Sequence[Operation]) -> Answer:
    """Answer a pod that has its keys again: it must pass as a pod that was created with them."""
    restored_document = apply(creation.document, operations)
    return admit_created(
        restored_document,
        convert(restored_document, Pod),
        namespace=creation.namespace,
        snapshot=creation.snapshot,
        options=creation.options,
        translator=creation.translator,
    )


def _check_left_keys(
    creation: _Creation, vocabularies: Mapping[str, Vocabulary]
) -> Iterator[Finding]:
    """Yield the findings about keys that a pod keeps beside others: NICs in the network of its node, and kept ones."""
    kept_names = creation.options.kept
    if not kept_names and not creation.pod.spec.host_network:
        return
    inputs = PodInput(
        legacy=legacy_pod(creation.pod, vocabularies),
        namespace=creation.namespace,
        snapshot=creation.snapshot,
        options=creation.options,
    )
    if first_stop(OPT_OUTS, inputs) is not None:
        return
    yield from check_host_network(creation.pod, vocabularies)
    if requests_devices(inputs.legacy, vocabularies):
        yield from check_kept_keys(creation.pod, kept_names)


def _read_recorded(creation: _Creation) -> _RecordedPod | Answer:
    """Return the contents of a pod's record; a refusal if the pod does not match it."""
    pod, vocabularies, snapshot = creation.pod, creation.vocabularies, creation.snapshot
    record, derivation = read_record(pod, snapshot)
    if record is None:
        return Answer(decision=Decision.REFUSED, findings=derivation.findings)
    faults = (
        *check_recorded_keys(record, vocabularies),
        *check_claims(pod, derivation.claims),
        *check_template_names(derivation.claims, creation.namespace, snapshot),
    )
    if not faults:
        defaults = default_amounts(snapshot.limit_ranges.get(creation.namespace, {}).values())
        keys = keys_by_container(pod, vocabularies)
        faults = tuple(check_amounts(pod, record, keys, only_recorded=True, defaults=defaults))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    return _RecordedPod(
        record=record,
        claims=derivation.claims,
        is_extended=has_device_keys(pod, vocabularies),
    )


def _answer_recorded(creation: _Creation, recorded: _RecordedPod) -> Answer:
    """Answer a pod that was translated before: as it is, or translated again from its keys."""
    record, claims = recorded.record, recorded.claims
    restored_pod = restored_view(creation.pod, record, claims)
    # What was translated stays so, also where a class maps the keys by now.
    outcome = creation.translate(
        restored_pod, passes_through=recorded.is_extended, drivers=record.drivers()
    )
    if not recorded.is_extended:
        answer = _answer_unchanged(creation, recorded, outcome)
        if answer is not None:
            return answer
    undo_operations = tuple(restore_pod(creation.document, claims, recorded_limits(record)))
    restored_document = apply(creation.document, undo_operations)
    answer = _answer_legacy(creation, restored_document, restored_pod, outcome)
    if not answer.allowed:
        return answer
    if answer.decision is Decision.UNTOUCHED:
        return msgspec.structs.replace(
            answer, decision=Decision.UNTRANSLATED, operations=undo_operations
        )
    operations = (*undo_operations, *answer.operations)
    if apply(creation.document, operations) == creation.document:
        # Its other keys stay beside the claims, so it has keys however often it is translated.
        return msgspec.structs.replace(answer, decision=Decision.ACCEPTED, operations=())
    return msgspec.structs.replace(answer, operations=operations)


def _answer_unchanged(
    creation: _Creation, recorded: _RecordedPod, outcome: Outcome
) -> Answer | None:
    """Answer for a pod as it was translated before; None if its keys have other claims by now.

    Args:
        outcome: The translation of its recorded keys.
    """
    record, claims, snapshot = recorded.record, recorded.claims, creation.snapshot
    # Without a cluster nothing is published, so what was recorded is all that is known.
    is_offline = snapshot.classes is None
    match outcome:
        case Untouched():
            # Its claims are its own affair, as with an object of somebody else.
            return Answer(decision=Decision.UNTOUCHED, findings=(*outcome.findings, _UNSERVED))
        case Refused() if is_offline:
            return Answer(decision=Decision.ACCEPTED, claims=claims)
        case Refused():
            return _refuse(outcome, tuple(map(at_annotation, outcome.findings)))
        case Translated():
            faults = tuple(check_profiles(record, outcome.record))
            if faults:
                return _refuse(outcome, faults)
            if outcome.record != record and not is_offline:
                return None
            # Its other findings were told when it was translated.
            quotas = (
                finding for finding in outcome.findings if finding.code is Code.QUOTA_NOT_COUNTED
            )
            operations = add_tolerations(creation.pod, record.keys(), snapshot, creation.options)
            return Answer(
                decision=Decision.ACCEPTED,
                operations=tuple(operations),
                findings=tuple(map(at_annotation, quotas)),
                claims=claims,
            )


def _answer_legacy(
    creation: _Creation, document: Mapping[str, Any], pod: Pod, outcome: Outcome
) -> Answer:
    """Answer with the translation of a pod's keys.

    Args:
        document: The pod with its keys, as a document.
        pod: The typed view of it.
    """
    namespace, snapshot, options = creation.namespace, creation.snapshot, creation.options
    match outcome:
        case Untouched():
            return Answer(decision=Decision.UNTOUCHED, findings=outcome.findings)
        case Refused():
            return _refuse(outcome, outcome.findings)
        case Translated():
            drivers = [used.name for used in outcome.record.profiles]
            keys = outcome.record.keys()
            faults = tuple(check_template_names(outcome.claims, namespace, snapshot))
            if faults:
                return _refuse(outcome, (*outcome.findings, *faults))
            duplicates = check_duplicate_claims(pod, drivers, namespace, snapshot)
            return Answer(
                decision=Decision.TRANSLATED,
                operations=(
                    *translate_pod(document, outcome),
                    *add_tolerations(pod, keys, snapshot, options),
                ),
                findings=(
                    *outcome.findings,
                    *duplicates,
                    *check_tolerations(pod, keys, drivers, snapshot, options),
                ),
                claims=outcome.claims,
                record=outcome.record,
                drivers=outcome.drivers,
            )


def _refuse(outcome: Refused | Translated, findings: tuple[Finding, ...]) -> Answer:
    return Answer(decision=Decision.REFUSED, findings=findings, drivers=outcome.drivers)
