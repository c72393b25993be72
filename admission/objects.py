"""The answer to a review of an object of DRA, or of pods that use claims: the rules' findings; pure.

Only a new spec is validated: what exists can always be changed elsewhere, finished and deleted.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from admission.pod_sizes import is_too_large
from admission.pods import UNTOUCHED, Answer, Decision
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity, error, has_errors, warning
from kube.api.core import Pod, ResourceQuota, ResourceRequirements
from kube.api.meta import convert
from kube.api.resource import (
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from kube.api.translation_profile import DeviceTranslationProfile
from kube.names import REQUEST_ANNOTATION
from rules.context.context import Context
from rules.engine.engine import Target, validate
from translation.cluster.profile_conflicts import check_profile
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.preflight.chain.preconditions import OPT_OUTS, first_stop
from translation.preflight.model.inputs import PodInput
from translation.profiles.object_checks import check_spec
from translation.reading.legacy_pod import container_paths, has_device_keys, legacy_pod
from translation.reading.untranslated_keys import check_untranslated_keys
from translation.record.claim_sources import locate_at_keys, match_claims
from translation.record.key_fixes import with_key_fixes
from translation.record.record import RecordError, TranslationRecord, decode_record
from translation.record.recorded_translation import RecordedTranslation, derive_claims


def is_settled(target: Target, old: Target | None) -> bool:
    """Return True if an object needs no validation.

    What a controller created was validated as its template. What requests nothing new is never
    rejected.

    Args:
        old: The object before the update; None when it is created.
    """
    return target.is_controlled or (old is not None and _requests(old) == _requests(target))


_FAULTS_OF_SPEC: Final = frozenset(
    {Code.DEVICE_CLASS_MISSING, Code.SELECTOR_MATCHES_NOTHING, Code.SELECTOR_FAILS}
)
"""Codes of warnings after which people correct a claim, and apply it again."""
_NOTHING: Final = (None, ResourceRequirements())


def _requests(target: Target) -> object:
    """Return the spec of an object, but of a pod only the parts about devices."""
    if not isinstance(target.view, Pod):
        return target.raw.get("spec")
    spec = target.view.spec
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    resources = [container.resources for container in containers]
    return spec.resource_claims, [entry for entry in resources if entry not in _NOTHING]


def validate_object(
    target: Target,
    context: Context,
    claims: Sequence[Claim] = (),
    translation: RecordedTranslation | None = None,
) -> Answer:
    """Answer the creation or update of a DRA object, or of an object that uses claims.

    Args:
        claims: The translated claims of its pod, whose templates may not exist yet.
        translation: The translation that made the claims; None without claims.
    """
    if isinstance(target.view, Pod) and is_too_large(target.view):
        return _answer((_too_large(target),))
    findings = _validate(target, context, claims, translation)
    if isinstance(target.view, ResourceClaim | ResourceClaimTemplate):
        findings = tuple(map(_with_deletion, findings))
    return _answer(findings)


def _with_deletion(finding: Finding) -> Finding:
    """Return a warning about an admitted claim or template, with the deletion before a corrected one."""
    if finding.is_error or finding.code not in _FAULTS_OF_SPEC:
        return finding
    deletion = "delete the object before you apply it again: its spec is immutable"
    fix = f"{finding.fix}; {deletion}" if finding.fix else deletion
    return msgspec.structs.replace(finding, fix=fix)


def validate_profile(
    document: DeviceTranslationProfile,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    shipped_drivers: frozenset[str],
) -> Answer:
    """Answer the creation or update of a DeviceTranslationProfile.

    Args:
        shipped_drivers: The drivers with a profile in the package.
    """
    return _answer(profile_findings(document, snapshot, options, shipped_drivers))


def profile_findings(
    document: DeviceTranslationProfile,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    shipped_drivers: frozenset[str],
) -> tuple[Finding, ...]:
    """Return the faults of a DeviceTranslationProfile, and the names that it will not serve here.

    Args:
        shipped_drivers: The drivers with a profile in the package.
    """
    profile, findings = check_spec(document.metadata.name, document.spec)
    if profile is None or has_errors(findings):
        return findings
    return (*findings, *check_profile(profile, snapshot, options, shipped_drivers))


def quotas_of(
    target: Target, snapshot: TranslationSnapshot, *, is_new: bool
) -> tuple[ResourceQuota, ...]:
    """Return the ResourceQuotas on devices that count the pods of an object, with their use.

    Args:
        is_new: The object is created. The pods of another one count in what is used already, so only a
            request that is larger than all of a quota is told.
    """
    if not isinstance(target.view, Pod):
        return ()  # The API server compares a claim with them itself.
    quotas = tuple(snapshot.quota_usage.get(target.namespace, {}).values())
    if is_new:
        return quotas
    return tuple(
        msgspec.structs.replace(quota, status=msgspec.structs.replace(quota.status, used={}))
        for quota in quotas
    )


def check_misspelt_keys(
    target: Target, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Answer:
    """Answer a pod with warnings about keys that are probably misspelt, if it has no other device keys.

    The webhook that translates pods is called for keys that it knows, and tells of the others beside them.
    """
    pod = target.view
    if not isinstance(pod, Pod) or REQUEST_ANNOTATION in pod.annotations or is_too_large(pod):
        return UNTOUCHED
    if not target.path.is_root:
        return UNTOUCHED  # A workload, of which its own webhook tells.
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    if has_device_keys(pod, vocabularies):
        return UNTOUCHED
    inputs = PodInput(
        legacy=legacy_pod(pod, vocabularies),
        namespace=target.namespace,
        snapshot=snapshot,
        options=options,
    )
    if first_stop(OPT_OUTS, inputs) is not None:
        return UNTOUCHED
    findings = check_untranslated_keys(pod, vocabularies, snapshot.extended_resources, options.kept)
    return _answer(tuple(finding for finding in findings if finding.severity is Severity.WARNING))


def answer_timeout(target: Target, context: Context, claims: Sequence[Claim] = ()) -> Answer:
    """Answer the review of an object after its validation against the inventory timed out.

    Args:
        context: The context without an inventory.
        claims: The translated claims of its pod, whose templates may not exist yet.
    """
    timeout = _busy_finding(target, "feasibility was not evaluated")
    if isinstance(target.view, Pod) and is_too_large(target.view):
        return _answer((timeout,))
    return _answer((*_validate(target, context, claims), timeout))


def answer_unevaluated(target: Target) -> Answer:
    """Answer the review of an object without any time for its validation."""
    return _answer((_busy_finding(target, "it was not validated"),))


def unvalidated(reason: str) -> Answer:
    """Answer a review without time for it: the object is admitted, with a warning.

    Args:
        reason: The reason for the lack of time, for people.
    """
    message = f"{reason}, so it was not validated"
    return _answer((warning(Code.NOT_EVALUATED, FieldPath.of("spec"), message),))


def unreadable(reason: str) -> Answer:
    """Return the answer to a review of an unreadable pod.

    Args:
        reason: The reason, for people.
    """
    finding = error(Code.INVALID_OBJECT, FieldPath.of("spec"), reason, "correct or shorten the pod")
    return Answer(decision=Decision.REFUSED, findings=(finding,))


def _too_large(target: Target) -> Finding:
    message = (
        "it has more containers, claims or amounts than any node can run, so it was not validated"
    )
    return warning(Code.NOT_EVALUATED, target.path.child("spec"), message)


def _busy_finding(target: Target, what: str) -> Finding:
    message = f"the webhook is busy, so {what}"
    return warning(Code.NOT_EVALUATED, target.path.child("spec"), message)


def _validate(
    target: Target,
    context: Context,
    claims: Sequence[Claim],
    translation: RecordedTranslation | None = None,
) -> tuple[Finding, ...]:
    if not claims or not isinstance(target.view, Pod):
        return validate(target, context)
    findings = validate(target, with_templates(context, target.namespace, claims))
    if not target.path.is_root and REQUEST_ANNOTATION in target.view.annotations:
        return findings  # The author of the workload wrote claims.
    matches = match_claims(target.view.spec.resource_claims or (), claims)
    if translation is not None:
        findings = tuple(with_key_fixes(findings, target.path, matches, translation))
    return tuple(locate_at_keys(finding, target.path, matches) for finding in findings)


def with_templates(context: Context, namespace: str, claims: Iterable[Claim]) -> Context:
    """Return a context that includes the templates of claims."""
    templates = {
        (namespace, claim.template): convert(claim.spec, ResourceClaimTemplateSpec).spec.devices
        for claim in claims
    }
    return msgspec.structs.replace(context, templates={**context.templates, **templates})


def recorded_translation(
    target: Target, snapshot: TranslationSnapshot, options: TranslationOptions | None = None
) -> RecordedTranslation | None:
    """Return the translation that a pod's record describes; None if it is invalid.

    Args:
        target: Untrusted: anybody may have written the record.
        snapshot: Its profiles are those in force here.
        options: Those in force here; None where they are not known.
    """
    if not isinstance(target.view, Pod) or REQUEST_ANNOTATION not in target.view.annotations:
        return None
    try:
        record = decode_record(target.view.annotations[REQUEST_ANNOTATION])
    except RecordError:
        return None  # The mutating webhook rejects it.
    return translation_of(record, target.view, snapshot, options)


def translation_of(
    record: TranslationRecord,
    pod: Pod,
    snapshot: TranslationSnapshot,
    options: TranslationOptions | None = None,
) -> RecordedTranslation:
    """Return the translation of a pod, as a record describes it.

    Args:
        options: Those in force; None where they are not known.
    """
    return RecordedTranslation(
        record=record,
        paths=container_paths(pod),
        profiles=snapshot.profiles,
        versions=snapshot.profile_versions,
        choices=None
        if options is None
        else msgspec.structs.replace(options.choices, renamed_keys=options.renamed_keys),
    )


def recorded_claims(target: Target, snapshot: TranslationSnapshot) -> tuple[Claim, ...]:
    """Return the claims that derive from a pod's translation record; none if it is invalid.

    Args:
        target: Untrusted: anybody may have written the record.
        snapshot: Its profiles are those in force here.
    """
    translation = recorded_translation(target, snapshot)
    return derive_claims(translation) if translation is not None else ()


def merge_answers(answer: Answer, other: Answer) -> Answer:
    """Return an answer with the findings of both."""
    if not other.findings:
        return answer
    findings = (*answer.findings, *other.findings)
    decision = other.decision if answer.decision is Decision.UNTOUCHED else answer.decision
    return msgspec.structs.replace(
        answer,
        findings=findings,
        decision=Decision.REFUSED if has_errors(findings) else decision,
    )


def _answer(findings: tuple[Finding, ...]) -> Answer:
    if has_errors(findings):
        return Answer(decision=Decision.REFUSED, findings=findings)
    decision = Decision.VALIDATED if findings else Decision.UNTOUCHED
    return Answer(decision=decision, findings=findings)
