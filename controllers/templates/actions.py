"""The actions of the controller for one translated pod. Pure.

The request annotation of a pod is untrusted: anyone who may create pods can write it, past the
webhook. So nothing is done for a pod without the webhook's signature, beyond an event if it waits for
a template. For a signed one only what derives from the annotation is created, under a name that
derives from the content, and only if the pod uses that name. A template of such a name with other
content is deleted, since kube-controller-manager uses any template of the right name.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from findings.text import printable
from kube.api.core import FINISHED_PHASES, Pod
from kube.api.events import Event, ObjectReference
from kube.api.meta import ObjectMeta, decode
from kube.api.resource import ResourceClaim, ResourceClaimTemplate
from kube.names import MANAGED_LABEL, REQUEST_ANNOTATION, SIGNATURE_ANNOTATION
from translation.compiling.claims import Claim, spec_digest, template_digest
from translation.profiles.profile import Profile
from translation.record.derive import derive
from translation.record.record import MAX_BYTES as MAX_RECORD_BYTES
from translation.record.record import RecordError, RecordVersionError, decode_record
from translation.record.signature import SignatureStatus, SignedContent

Key = tuple[str, str]
"""Namespace and name."""

POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation on claims that kube-controller-manager generated from a template."""
ACTION: Final = "Translate"
"""The action in events."""
MAX_CLAIM_DELETIONS: Final = 2
"""The largest number of deletions of one claim of a pod. A claim that differs a third time is
changed by somebody on each creation."""
LONG_AGO: Final = datetime.fromtimestamp(0, UTC)


# --- projections ----------------------------------------------------------------------------------


class TranslatedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A live pod that uses templates, or carries the request annotation.

    Attributes:
        annotation: The request annotation.
        signature: The signature annotation.
        created: The time of creation by the clock of the API server.
        templates: The pod's name of a claim, to the name of its template.
        claims: The pod's name of a claim, to the name of the claim that was generated for it.
    """

    uid: str
    annotation: str | None
    templates: Mapping[str, str]
    claims: Mapping[str, str]
    signature: str | None = None
    created: datetime = LONG_AGO


class TemplateState(msgspec.Struct, frozen=True, kw_only=True):
    """A template.

    Attributes:
        is_managed: This controller created it.
        is_terminating: It was deleted, and a finalizer keeps it.
        is_altered: The API server stored something else than was written, so that its content and
            that of its claims proves nothing.
        created: The time of creation by the clock of the API server.
    """

    uid: str
    digest: str
    is_managed: bool
    is_terminating: bool = False
    is_altered: bool = False
    created: datetime = LONG_AGO
    resource_version: str = ""


class GeneratedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that was generated from a template and is not allocated.

    Attributes:
        digest: Comparable with that of the template.
        owner: The pod's uid.
        created: The time of creation by the clock of the API server.
    """

    uid: str
    resource_version: str
    digest: str
    owner: str
    created: datetime = LONG_AGO


def project_pod(raw: bytes, intern: Callable[[str], str]) -> TranslatedPod | None:
    """Project a pod; None if it neither uses templates nor carries our annotation, or has ended.

    Args:
        raw: Its JSON. Most pods of a cluster are left out by their text, without decoding.
        intern: Makes equal texts one object; replicas carry the same annotation.
    """
    if b"resourceClaims" not in raw and REQUEST_ANNOTATION.encode() not in raw:
        return None
    pod = decode(raw, Pod)
    phase = pod.status.phase if pod.status else ""
    if pod.metadata.deletion_timestamp or phase in FINISHED_PHASES:
        return None
    annotation = pod.annotations.get(REQUEST_ANNOTATION)
    if annotation is not None:  # What is too long to be a record is kept just so long.
        annotation = annotation[: MAX_RECORD_BYTES + 1]
    templates = {
        entry.name: intern(entry.resource_claim_template_name)
        for entry in pod.spec.resource_claims or ()
        if entry.resource_claim_template_name
    }
    if annotation is None and not templates:
        return None
    statuses = (pod.status.resource_claim_statuses if pod.status else None) or ()
    return TranslatedPod(
        uid=pod.metadata.uid,
        annotation=None if annotation is None else intern(annotation),
        templates=templates,
        claims={s.name: s.resource_claim_name for s in statuses if s.resource_claim_name},
        signature=pod.annotations.get(SIGNATURE_ANNOTATION),
        created=_creation_time(pod.metadata),
    )


def _creation_time(metadata: ObjectMeta) -> datetime:
    """Return the creation time of an object, in whole seconds."""
    try:
        return datetime.fromisoformat(metadata.creation_timestamp or "").astimezone(UTC)
    except ValueError:
        return LONG_AGO


def project_template(raw: bytes) -> TemplateState:
    """Project a ResourceClaimTemplate to its digest."""
    template = decode(raw, ResourceClaimTemplate)
    return TemplateState(
        uid=template.metadata.uid,
        digest=template_digest(template),
        is_managed=MANAGED_LABEL in (template.metadata.labels or {}),
        is_terminating=template.metadata.deletion_timestamp is not None,
        created=_creation_time(template.metadata),
        resource_version=template.metadata.resource_version,
    )


def project_claim(raw: bytes) -> GeneratedClaim | None:
    """Project a ResourceClaim to its digest; None unless it was generated and is not allocated."""
    if POD_CLAIM_ANNOTATION.encode() not in raw:
        return None
    claim = decode(raw, ResourceClaim)
    owners = claim.metadata.owner_references or ()
    owner = next((reference for reference in owners if reference.controller), None)
    if owner is None or (claim.status is not None and claim.status.allocation is not None):
        return None
    return GeneratedClaim(
        uid=claim.metadata.uid,
        resource_version=claim.metadata.resource_version,
        digest=spec_digest({"spec": msgspec.to_builtins(claim.spec, enc_hook=str)}),
        owner=owner.uid,
        created=_creation_time(claim.metadata),
    )


# --- actions --------------------------------------------------------------------------------------


class Reason(StrEnum):
    """The reason of an event."""

    REQUEST_MISMATCH = "DeviceRequestMismatch"
    """The annotation is not what the webhook writes, or the pod does not use what derives from it."""
    PROFILE_CHANGED = "DriverProfileChanged"
    """A template is missing, and another profile or translation version made the annotation."""
    TEMPLATE_REPLACED = "ResourceClaimTemplateReplaced"
    """A template of a derived name had other content."""
    CLAIM_REPLACED = "ResourceClaimReplaced"
    """The pod's claim was generated from such a template."""
    CLAIM_ALTERED = "ResourceClaimAltered"
    """The pod's claim differs from its template, since something changes ResourceClaims."""
    NOT_SIGNED = "TranslationNotSigned"
    """A template is missing, and the webhook did not accept the pod."""


class CreateTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """Create a template that the pod waits for."""

    key: Key
    claim: Claim


class DeleteTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a template of a derived name with other content, unless it was replaced since."""

    key: Key
    uid: str


class DeleteClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a claim that differs from the pod's request, unless it was changed since."""

    key: Key
    uid: str
    resource_version: str
    entry: str
    """The pod's name of the claim."""


class RecordEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Record an event about the pod."""

    reason: Reason
    note: str


Action = CreateTemplate | DeleteTemplate | DeleteClaim | RecordEvent


class Derivation(msgspec.Struct, frozen=True, kw_only=True):
    """The claims that derive from an annotation, or the reason there are none."""

    claims: tuple[Claim, ...] = ()
    problem: Finding | None = None


_CREATE_AGAIN: Final = (
    "a controller of that version creates it; else create the pod again from its legacy manifest"
)


def derive_claims(
    text: str, profiles: Mapping[str, Profile], versions: Mapping[str, Profile] = {}
) -> Derivation:
    """Derive claims from an annotation.

    Args:
        profiles: Driver to the profile in force.
        versions: Content hash to a version that is kept.
    """
    try:
        record = decode_record(text)
    except RecordVersionError as fault:
        return Derivation(
            problem=error(Code.PROFILE_CHANGED, FieldPath(), str(fault), _CREATE_AGAIN)
        )
    except RecordError as fault:
        return Derivation(
            problem=error(
                Code.TRANSLATION_RECORD_MALFORMED, FieldPath(), printable(str(fault)[:200])
            )
        )
    derivation = derive(record, profiles, versions=versions)
    errors = [finding for finding in derivation.findings if finding.is_error]
    return Derivation(problem=errors[0]) if errors else Derivation(claims=derivation.claims)


def signed_content(key: Key, pod: TranslatedPod) -> SignedContent:
    """Return the content that the signature of a pod covers.

    Args:
        key: The pod's.
    """
    namespace, _ = key
    return SignedContent(namespace=namespace, record=pod.annotation or "", templates=pod.templates)


def plan_unsigned(
    key: Key,
    pod: TranslatedPod,
    status: SignatureStatus,
    template: Callable[[Key], TemplateState | None],
) -> Iterator[RecordEvent]:
    """Yield an event for a pod without a valid signature if it waits for a template.

    Args:
        key: The pod's.
        status: The result of the verification.
        template: Returns the template of a key, None where none is known.
    """
    namespace, _ = key
    missing = [name for name in pod.templates.values() if template((namespace, name)) is None]
    if missing:
        yield RecordEvent(
            reason=Reason.NOT_SIGNED,
            note=f"ResourceClaimTemplate {missing[0]} is missing, and is not created: "
            f"{_UNSIGNED[status]}. Create the pod again from its legacy manifest.",
        )


_UNSIGNED: Final[Mapping[SignatureStatus, str]] = {
    SignatureStatus.MISSING: "the webhook has not signed the translation of this pod",
    SignatureStatus.MALFORMED: f"the annotation {SIGNATURE_ANNOTATION} is not one of the webhook's",
    SignatureStatus.UNKNOWN_KEY: "the key that signed the translation of this pod no longer exists",
    SignatureStatus.MISMATCH: "the signature belongs to another pod or translation",
    SignatureStatus.EXPIRED: "the signature was made long before or after this pod",
}


def plan_actions(
    key: Key,
    pod: TranslatedPod,
    derivation: Derivation,
    template: Callable[[Key], TemplateState | None],
    claim: Callable[[Key], GeneratedClaim | None],
    *,
    deletions: Mapping[str, int] = {},
) -> tuple[Action, ...]:
    """Return the actions for a signed pod, in order.

    Args:
        key: The pod's.
        template: Returns the template of a key, None where none is known.
        claim: Returns the unallocated claim of a key, likewise.
        deletions: The pod's name of a claim, to the number of its deletions.
    """
    namespace, _ = key
    if derivation.problem is not None:
        missing = [name for name in pod.templates.values() if template((namespace, name)) is None]
        return tuple(_report_problem(derivation.problem, missing))
    actions: list[Action] = []
    for expected_claim in derivation.claims:
        entries = [
            entry for entry, name in pod.templates.items() if name == expected_claim.template
        ]
        if entries:
            template_key = (namespace, expected_claim.template)
            state = template(template_key)
            if state is None or state.digest != expected_claim.digest:
                actions += _plan_template(template_key, expected_claim, state)
            else:
                actions += _plan_claims(key, pod, state, entries, claim=claim, deletions=deletions)
    unused_names = sorted(
        {expected_claim.template for expected_claim in derivation.claims}
        - set(pod.templates.values())
    )
    if unused_names:
        names = ", ".join(unused_names)
        note = f"The annotation {REQUEST_ANNOTATION} derives {names}, which the pod does not use."
        actions.append(RecordEvent(reason=Reason.REQUEST_MISMATCH, note=note))
    return tuple(actions)


def _report_problem(problem: Finding, missing: Sequence[str]) -> Iterator[RecordEvent]:
    if problem.code is not Code.PROFILE_CHANGED:
        note = f"The annotation {REQUEST_ANNOTATION} is not what the webhook writes"
        yield RecordEvent(reason=Reason.REQUEST_MISMATCH, note=f"{note}: {problem.message}.")
    elif missing:
        # A changed profile or version is no fault of pods that have all their templates.
        note = f"ResourceClaimTemplate {missing[0]} is missing, and cannot be created again"
        yield RecordEvent(
            reason=Reason.PROFILE_CHANGED, note=f"{note}: {problem.message}; {problem.fix}."
        )


def _plan_template(
    key: Key, expected_claim: Claim, state: TemplateState | None
) -> Iterator[Action]:
    if state is None:
        yield CreateTemplate(key=key, claim=expected_claim)
    elif not state.is_altered:
        # First the word: of a deletion whose answer is lost nothing is left to tell of.
        yield RecordEvent(
            reason=Reason.TEMPLATE_REPLACED,
            note=f"ResourceClaimTemplate {expected_claim.template} had other content than its name stands "
            "for; it is created again.",
        )
        yield DeleteTemplate(key=key, uid=state.uid)


def _plan_claims(
    pod_key: Key,
    pod: TranslatedPod,
    template: TemplateState,
    entries: Collection[str],
    *,
    claim: Callable[[Key], GeneratedClaim | None],
    deletions: Mapping[str, int],
) -> Iterator[Action]:
    """Yield actions for the claims that were generated from a template with the right content.

    A different claim that is older than the template was generated from one of other content. A
    younger one was changed by an admission policy or webhook, and so would be the next.
    """
    namespace, _ = pod_key
    for entry in entries:
        key = (namespace, pod.claims.get(entry, ""))
        found_claim = claim(key)
        if (
            found_claim is None
            or found_claim.owner != pod.uid
            or found_claim.digest == template.digest
        ):
            continue
        if _is_older(found_claim, template) and deletions.get(entry, 0) < MAX_CLAIM_DELETIONS:
            yield RecordEvent(
                reason=Reason.CLAIM_REPLACED,
                note=f"ResourceClaim {key[1]} differs from the template that it is named after; it is "
                "created again.",
            )
            yield DeleteClaim(
                key=key,
                uid=found_claim.uid,
                resource_version=found_claim.resource_version,
                entry=entry,
            )
        else:
            yield RecordEvent(
                reason=Reason.CLAIM_ALTERED,
                note=f"ResourceClaim {key[1]} differs from its template: an admission policy or webhook "
                "changes ResourceClaims. The claim is left as it is.",
            )


def _is_older(claim: GeneratedClaim, template: TemplateState) -> bool:
    """Return True if a claim was there before the template.

    Times have whole seconds. Within one the resource versions decide, which are revisions of one store
    in nearly all clusters; elsewhere `MAX_CLAIM_DELETIONS` bounds the damage.
    """
    if claim.created != template.created:
        return claim.created < template.created
    versions = (claim.resource_version, template.resource_version)
    if not all(version.isdecimal() for version in versions):
        return False
    return int(claim.resource_version) < int(template.resource_version)


# --- objects --------------------------------------------------------------------------------------


def pod_event(action: RecordEvent, key: Key, pod: TranslatedPod) -> Event:
    """Return the event about a pod.

    Args:
        key: The pod's.
    """
    namespace, name = key
    return Event(
        regarding=ObjectReference(
            api_version="v1", kind="Pod", namespace=namespace, name=name, uid=pod.uid
        ),
        reason=action.reason.value,
        action=ACTION,
        note=action.note,
    )
