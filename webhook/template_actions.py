"""What the controller does about one translated pod, and which templates nobody needs: pure.

The request annotation of a pod is hostile: whoever may make pods wrote it, perhaps past the
webhook. So nothing is made but what derives from it, under a name that derives from the content,
and only if the pod uses that name: at worst its author gets what the same keys could have asked
for. A template of such a name with other content is poisoned, since kube-controller-manager takes
any template of the right name.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from kube.api.core import Pod
from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.api.resource import ResourceClaim, ResourceClaimTemplate
from kube.product import MANAGED_LABEL, NAME, REQUEST_ANNOTATION
from webhook.claims import Claim, spec_digest, template_digest
from webhook.derivation import derive
from webhook.findings import Code, Finding, error, printable
from webhook.profile import Profile
from webhook.request import RequestError, decode_request

Key = tuple[str, str]
"""Namespace and name."""

POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
"""On claims that kube-controller-manager made of a template."""
ENDED: Final = frozenset({"Succeeded", "Failed"})
MAX_NOTE_BYTES: Final = 1024


# --- what is kept of an object --------------------------------------------------------------------


class KeptPod(msgspec.Struct, frozen=True, kw_only=True):
    """A live pod that uses templates, or carries our annotation.

    Attributes:
        request: The text of the annotation.
        templates: What the pod calls a claim, to the name of its template.
        claims: What the pod calls a claim, to the name of the claim that was made of it.
    """

    uid: str
    request: str | None
    templates: Mapping[str, str]
    claims: Mapping[str, str]


class KeptTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template.

    Attributes:
        is_managed: We made it.
        is_altered: The API server stored something else than we wrote, so that nothing follows from
            what it and its claims hold.
    """

    uid: str
    digest: str
    is_managed: bool
    is_altered: bool = False


class KeptClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that was made of a template and is not allocated.

    Attributes:
        digest: Comparable with that of the template.
        owner: The pod's uid.
    """

    uid: str
    resource_version: str
    digest: str
    owner: str


def kept_pod(raw: bytes, interned: Callable[[str], str]) -> KeptPod | None:
    """Return what is kept of a pod; None where it is none of ours, or does not live.

    Args:
        raw: Its JSON. Most pods of a cluster are recognised by what is not in their text.
        interned: Makes equal texts one object; replicas carry the same annotation.
    """
    if b"resourceClaims" not in raw and REQUEST_ANNOTATION.encode() not in raw:
        return None
    pod = decode(raw, Pod)
    phase = pod.status.phase if pod.status else ""
    if pod.metadata.deletion_timestamp or phase in ENDED:
        return None
    request = pod.annotations.get(REQUEST_ANNOTATION)
    templates = {
        entry.name: interned(entry.resource_claim_template_name)
        for entry in pod.spec.resource_claims or ()
        if entry.resource_claim_template_name
    }
    if request is None and not templates:
        return None
    statuses = (pod.status.resource_claim_statuses if pod.status else None) or ()
    return KeptPod(
        uid=pod.metadata.uid,
        request=None if request is None else interned(request),
        templates=templates,
        claims={s.name: s.resource_claim_name for s in statuses if s.resource_claim_name},
    )


def kept_template(raw: bytes) -> KeptTemplate:
    """Return what is kept of a ResourceClaimTemplate."""
    found = decode(raw, ResourceClaimTemplate)
    return KeptTemplate(
        uid=found.metadata.uid,
        digest=template_digest(found),
        is_managed=MANAGED_LABEL in (found.metadata.labels or {}),
    )


def kept_claim(raw: bytes) -> KeptClaim | None:
    """Return what is kept of a ResourceClaim; None unless it was generated and is free."""
    if POD_CLAIM_ANNOTATION.encode() not in raw:
        return None
    found = decode(raw, ResourceClaim)
    owner = next((each for each in found.metadata.owner_references or () if each.controller), None)
    if owner is None or (found.status is not None and found.status.allocation is not None):
        return None
    return KeptClaim(
        uid=found.metadata.uid,
        resource_version=found.metadata.resource_version,
        digest=spec_digest({"spec": msgspec.to_builtins(found.spec, enc_hook=str)}),
        owner=owner.uid,
    )


# --- actions --------------------------------------------------------------------------------------


class Reason(StrEnum):
    """The reason of an event."""

    REQUEST_MISMATCH = "DeviceRequestMismatch"
    """The annotation is not what the webhook writes, or the pod does not use what derives of it."""
    PROFILE_CHANGED = "DriverProfileChanged"
    """A template is missing, and the annotation was made with another profile."""
    TEMPLATE_REPLACED = "ResourceClaimTemplateReplaced"
    """A template of our name had other content."""
    CLAIM_REPLACED = "ResourceClaimReplaced"
    """The pod's claim was made of such a template."""


class CreateTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """Make a template that the pod waits for."""

    key: Key
    claim: Claim


class DeleteTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a template of our name with other content, if it still is that very one."""

    key: Key
    uid: str


class DeleteClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a claim that is not what the pod asked for, if nothing happened to it since."""

    key: Key
    uid: str
    resource_version: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Tell who looks at the pod."""

    reason: Reason
    note: str


Action = CreateTemplate | DeleteTemplate | DeleteClaim | Report


class Derivation(msgspec.Struct, frozen=True, kw_only=True):
    """What an annotation stands for: claims, or why it stands for none."""

    claims: tuple[Claim, ...] = ()
    problem: Finding | None = None


def derivation(text: str, profiles: Mapping[str, Profile]) -> Derivation:
    """Return what an annotation stands for here."""
    try:
        request = decode_request(text)
    except RequestError as fault:
        return Derivation(problem=error(Code.REQUEST_MALFORMED, "", printable(str(fault)[:200])))
    derived = derive(request, profiles)
    faults = [finding for finding in derived.findings if finding.is_error]
    return Derivation(problem=faults[0]) if faults else Derivation(claims=derived.claims)


def due(
    key: Key,
    pod: KeptPod,
    derived: Derivation,
    template: Callable[[Key], KeptTemplate | None],
    claim: Callable[[Key], KeptClaim | None],
) -> tuple[Action, ...]:
    """Return what to do about a pod with our annotation, in this order.

    Args:
        key: The pod's.
        template: The template of a key, as far as it is known.
        claim: The free claim of a key, likewise.
    """
    namespace, _ = key
    if derived.problem is not None:
        missing = [t for t in pod.templates.values() if template((namespace, t)) is None]
        return tuple(_problem(derived.problem, missing))
    actions: list[Action] = []
    for wanted in derived.claims:
        labels = [label for label, name in pod.templates.items() if name == wanted.template]
        if labels:
            at = (namespace, wanted.template)
            found = template(at)
            if found is None or found.digest != wanted.digest:
                actions += _about_template(at, wanted, found)
            else:
                actions += _about_claims(namespace, pod, wanted, labels, claim)
    unused = sorted({c.template for c in derived.claims} - set(pod.templates.values()))
    if unused:
        names = ", ".join(unused)
        note = f"The annotation {REQUEST_ANNOTATION} derives {names}, which the pod does not use."
        actions.append(Report(reason=Reason.REQUEST_MISMATCH, note=note))
    return tuple(actions)


def _problem(problem: Finding, missing: Sequence[str]) -> Iterator[Report]:
    if problem.code is not Code.PROFILE_CHANGED:
        note = f"The annotation {REQUEST_ANNOTATION} is not what the webhook writes"
        yield Report(reason=Reason.REQUEST_MISMATCH, note=f"{note}: {problem.message}.")
    elif missing:
        # A profile changes for good reasons; pods that have all they need are none of its victims.
        note = f"ResourceClaimTemplate {missing[0]} is missing, and cannot be made again"
        yield Report(
            reason=Reason.PROFILE_CHANGED, note=f"{note}: {problem.message}; {problem.fix}."
        )


def _about_template(at: Key, wanted: Claim, found: KeptTemplate | None) -> Iterator[Action]:
    if found is None:
        yield CreateTemplate(key=at, claim=wanted)
    elif not found.is_altered:
        yield DeleteTemplate(key=at, uid=found.uid)
        yield Report(
            reason=Reason.TEMPLATE_REPLACED,
            note=f"ResourceClaimTemplate {wanted.template} had other content than its name stands "
            "for; it is made anew.",
        )


def _about_claims(
    namespace: str,
    pod: KeptPod,
    wanted: Claim,
    labels: Collection[str],
    claim: Callable[[Key], KeptClaim | None],
) -> Iterator[Action]:
    """Yield what to do about the claims that were made of a template which is right now.

    That it is right also shows that the API server stores specs as we write them, so that a
    different claim was made of different content.
    """
    for label in labels:
        at = (namespace, pod.claims.get(label, ""))
        found = claim(at)
        if found is not None and found.owner == pod.uid and found.digest != wanted.digest:
            yield DeleteClaim(key=at, uid=found.uid, resource_version=found.resource_version)
            yield Report(
                reason=Reason.CLAIM_REPLACED,
                note=f"ResourceClaim {at[1]} was made of a template with other content than its "
                "name stands for; it is made anew.",
            )


# --- objects --------------------------------------------------------------------------------------


def template_of(action: CreateTemplate) -> Mapping[str, Any]:
    """Return the template to make."""
    namespace, name = action.key
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {MANAGED_LABEL: "true", "app.kubernetes.io/managed-by": NAME},
        },
        "spec": action.claim.spec,
    }


def event_of(
    report: Report, key: Key, pod: KeptPod, *, name: str, instance: str, time: str
) -> Mapping[str, Any]:
    """Return the Event that tells a report, within the API's limits.

    Args:
        key: The pod's.
        name: Of the Event.
        instance: Which process tells it.
        time: An RFC 3339 time with microseconds.
    """
    namespace, pod_name = key
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": time,
        "type": "Warning",
        "reason": report.reason.value,
        "action": "Translate",
        "note": report.note.encode()[:MAX_NOTE_BYTES].decode(errors="ignore"),
        "reportingController": f"{NAME}.controller",
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace,
            "name": pod_name,
            "uid": pod.uid,
        },
    }


# --- collection -----------------------------------------------------------------------------------


class Unused(msgspec.Struct, frozen=True, kw_only=True):
    """A template of ours that no live pod uses, since a moment of a monotonic clock."""

    uid: str
    since_s: float


def unused(
    templates: Mapping[Key, KeptTemplate],
    used: Collection[Key],
    before: Mapping[Key, Unused],
    now_s: float,
) -> Mapping[Key, Unused]:
    """Return the managed templates that no live pod uses, and since when.

    Args:
        used: Templates that live pods name.
        before: What the last look returned; a template that was made again begins anew.
    """
    found: dict[Key, Unused] = {}
    for key, template in templates.items():
        if template.is_managed and key not in used:
            known = before.get(key)
            same = known is not None and known.uid == template.uid
            found[key] = known if known and same else Unused(uid=template.uid, since_s=now_s)
    return found


class _PodSpec(ApiStruct, frozen=True, kw_only=True):
    resource_claims: tuple[Mapping[str, Any], ...] | None = None


class _PodTemplate(ApiStruct, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _JobSpec(ApiStruct, frozen=True, kw_only=True):
    template: _PodTemplate = _PodTemplate()


class _JobTemplate(ApiStruct, frozen=True, kw_only=True):
    spec: _JobSpec = _JobSpec()


class _WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    template: _PodTemplate = _PodTemplate()
    job_template: _JobTemplate = _JobTemplate()


class _Workload(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _WorkloadSpec = _WorkloadSpec()


def named_templates(raw: bytes) -> frozenset[Key]:
    """Return the templates that a workload's pods will name, whatever its kind."""
    workload = decode(raw, _Workload)
    specs = (workload.spec.template.spec, workload.spec.job_template.spec.template.spec)
    return frozenset(
        (workload.metadata.namespace, entry["resourceClaimTemplateName"])
        for spec in specs
        for entry in spec.resource_claims or ()
        if entry.get("resourceClaimTemplateName")
    )
