"""The decisions of the controller about a pod, and the templates that it deletes."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from controllers.model.template_documents import template_document
from controllers.templates.actions import (
    Action,
    CreateTemplate,
    DeleteClaim,
    DeleteTemplate,
    GeneratedClaim,
    Reason,
    RecordEvent,
    TemplateState,
    TranslatedPod,
    derive_claims,
    plan_actions,
    plan_unsigned,
    pod_event,
    project_claim,
    project_pod,
    project_template,
    signed_content,
)
from controllers.templates.collection import UnusedTemplate, referenced_templates, unused_templates
from kube.api.meta import encode
from kube.names import REQUEST_ANNOTATION
from testing.builders import NAMESPACE, gpus, pod, profiles
from testing.documents import Document
from testing.signing import NOW, SIGNING
from testing.translated_pods import CLAIM, KEPT, PLAIN, claim_document, projected, translated
from translation.compiling.claims import spec_digest
from translation.record.signature import SignatureStatus, verify

POD: Final = (NAMESPACE, "train")
SECOND: Final = timedelta(seconds=1)


TEMPLATE: Final = (NAMESPACE, CLAIM.template)

GOOD: Final = TemplateState(
    uid="t-1", digest=CLAIM.digest, is_managed=True, created=NOW, resource_version="5"
)
BAD: Final = TemplateState(uid="t-2", digest="other", is_managed=False)
ALTERED: Final = TemplateState(uid="t-3", digest="other", is_managed=True, is_altered=True)
MADE_OF_BAD: Final = GeneratedClaim(uid="c-1", resource_version="7", digest="other", owner="pod-1")


def changed(kept_one: TranslatedPod, **fields: Any) -> TranslatedPod:
    return msgspec.structs.replace(kept_one, **fields)


class Row(NamedTuple):
    name: str
    want: list[str]
    pod: TranslatedPod = KEPT
    template: TemplateState | None = None
    claim: GeneratedClaim | None = None
    deletions: Mapping[str, int] = {}


def summary(action: Action) -> str:
    match action:
        case CreateTemplate():
            return f"create {action.key[1]}"
        case DeleteTemplate():
            return f"delete template {action.uid}"
        case DeleteClaim():
            return f"delete claim {action.uid} {action.resource_version}"
        case RecordEvent():
            return f"report {action.reason}"


CREATE: Final = f"create {CLAIM.template}"
MISMATCH: Final = f"report {Reason.REQUEST_MISMATCH}"
NEWER: Final = '{"translationVersion":2,"profiles":{},"later":[]}'
"""A record of a version that is not written yet."""
STALE: Final = msgspec.json.encode(
    {
        **msgspec.json.decode(KEPT.annotation or ""),
        "profiles": [
            {**profile, "hash": "0" * 16}
            for profile in msgspec.json.decode(KEPT.annotation or "")["profiles"]
        ],
    }
).decode()

ROWS = (
    Row("a missing template is made", [CREATE]),
    Row("a template that is there is left alone", [], template=GOOD),
    Row(
        "so is one that a person printed and applied",
        [],
        template=msgspec.structs.replace(GOOD, is_managed=False),
    ),
    Row(
        "a poisoned template is deleted, with a word to who looks at the pod",
        [f"report {Reason.TEMPLATE_REPLACED}", "delete template t-2"],
        template=BAD,
    ),
    Row("a template that the API server alters is not fought", [], template=ALTERED),
    Row("nor are the claims made of it", [], template=ALTERED, claim=MADE_OF_BAD),
    Row(
        "a free claim made of a poisoned template is deleted once the template is right",
        [f"report {Reason.CLAIM_REPLACED}", "delete claim c-1 7"],
        template=GOOD,
        claim=MADE_OF_BAD,
    ),
    Row("and not before, or it would be made of the same", [CREATE], claim=MADE_OF_BAD),
    Row(
        "a claim with the right content stays",
        [],
        template=GOOD,
        claim=msgspec.structs.replace(MADE_OF_BAD, digest=CLAIM.digest),
    ),
    Row(
        "a claim that is younger than the right template was changed by a policy",
        [f"report {Reason.CLAIM_ALTERED}"],
        template=GOOD,
        claim=msgspec.structs.replace(MADE_OF_BAD, created=NOW + SECOND),
    ),
    Row(
        "of two of the same second the versions decide: the claim is older",
        [f"report {Reason.CLAIM_REPLACED}", "delete claim c-1 7"],
        template=msgspec.structs.replace(GOOD, created=NOW, resource_version="10"),
        claim=msgspec.structs.replace(MADE_OF_BAD, created=NOW),
    ),
    Row(
        "of two of the same second the versions decide: the claim is younger",
        [f"report {Reason.CLAIM_ALTERED}"],
        template=msgspec.structs.replace(GOOD, created=NOW, resource_version="6"),
        claim=msgspec.structs.replace(MADE_OF_BAD, created=NOW),
    ),
    Row(
        "versions that are no numbers prove nothing",
        [f"report {Reason.CLAIM_ALTERED}"],
        template=msgspec.structs.replace(GOOD, created=NOW, resource_version="ten"),
        claim=msgspec.structs.replace(MADE_OF_BAD, created=NOW),
    ),
    Row(
        "a claim that was deleted twice stays",
        [f"report {Reason.CLAIM_ALTERED}"],
        template=GOOD,
        claim=MADE_OF_BAD,
        deletions={"gpu": 2},
    ),
    Row(
        "a claim of another pod is not ours to repair",
        [],
        template=GOOD,
        claim=msgspec.structs.replace(MADE_OF_BAD, owner="pod-2"),
    ),
    Row(
        "text that is no request makes nothing",
        [MISMATCH],
        pod=changed(KEPT, annotation="{"),
    ),
    Row(
        "a request of no vocabulary that we know makes nothing",
        [MISMATCH],
        pod=changed(KEPT, annotation=(KEPT.annotation or "").replace('"nvidia"', '"cuda"')),
    ),
    Row(
        "a request that the pod's claims do not come from makes nothing",
        [MISMATCH],
        pod=changed(KEPT, templates={"gpu": "something-else"}),
    ),
    Row(
        "a request for more than the pod's claims come from makes nothing",
        [MISMATCH],
        pod=changed(KEPT, annotation=(KEPT.annotation or "").replace('gpu":"1"', 'gpu":"8"')),
    ),
    Row(
        "a request of an older profile is told where a template is missing",
        [f"report {Reason.PROFILE_CHANGED}"],
        pod=changed(KEPT, annotation=STALE),
    ),
    Row(
        "and is nobody's trouble where all are there",
        [],
        pod=changed(KEPT, annotation=STALE),
        template=GOOD,
    ),
    Row(
        "a record of another version, with fields that this one lacks, is told likewise",
        [f"report {Reason.PROFILE_CHANGED}"],
        pod=changed(KEPT, annotation=NEWER),
    ),
    Row(
        "and a pod that has its templates is left alone by another version",
        [],
        pod=changed(KEPT, annotation=NEWER),
        template=GOOD,
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_due(row: Row) -> None:
    derived = derive_claims(row.pod.annotation or "", profiles())
    templates = {TEMPLATE: row.template} if row.template else {}
    claims = {(NAMESPACE, "train-gpu-x"): row.claim} if row.claim else {}

    actions = plan_actions(
        POD, row.pod, derived, templates.get, claims.get, deletions=row.deletions
    )

    assert row.want == [summary(action) for action in actions]


def test_the_signature_of_a_persisted_pod_is_valid() -> None:
    status = verify(KEPT.signature, signed_content(POD, KEPT), SIGNING.keys, KEPT.created)

    assert (status, KEPT.created) == (SignatureStatus.VALID, NOW)


@pytest.mark.parametrize(
    "status", [status for status in SignatureStatus if status is not SignatureStatus.VALID]
)
def test_an_unsigned_pod_that_waits_is_told_what_to_do(status: SignatureStatus) -> None:
    waiting, served = (
        list(plan_unsigned(POD, KEPT, status, known.get)) for known in ({}, {TEMPLATE: BAD})
    )

    (event,) = waiting
    assert event.reason is Reason.NOT_SIGNED
    assert event.note.startswith(f"ResourceClaimTemplate {CLAIM.template} is missing")
    assert served == []


def test_each_claim_of_a_pod_is_looked_at_for_itself() -> None:
    pod_projection = projected(translated(gpus(1, mem=1000, name="a"), gpus(1, mem=2000, name="b")))
    claims = derive_claims(pod_projection.annotation or "", profiles())
    first, second = claims.claims
    no_claims: dict[tuple[str, str], GeneratedClaim] = {}
    there = {
        (NAMESPACE, first.template): TemplateState(uid="t", digest=first.digest, is_managed=True)
    }

    actions = plan_actions(POD, pod_projection, claims, there.get, no_claims.get)

    assert [summary(action) for action in actions] == [f"create {second.template}"]


def test_what_is_made_is_what_was_derived() -> None:
    template = template_document(NAMESPACE, CLAIM)

    assert project_template(encode(template)) == TemplateState(
        uid="", digest=CLAIM.digest, is_managed=True
    )


def test_a_template_that_a_finalizer_keeps_is_known_as_such() -> None:
    template = template_document(NAMESPACE, CLAIM)
    deleted = msgspec.json.decode(encode(template))
    deleted["metadata"] |= {"deletionTimestamp": "2026-11-01T12:00:00Z", "finalizers": ["a.b/c"]}

    assert project_template(encode(deleted)).is_terminating


# --- what is kept ---------------------------------------------------------------------------------


class ProjectionCase(NamedTuple):
    name: str
    document: Document
    is_kept: bool


def with_metadata(document: Document, **fields: Any) -> Document:
    return {**document, "metadata": {**document["metadata"], **fields}}


KEPT_PODS = (
    ProjectionCase("a translated pod", PLAIN, is_kept=True),
    ProjectionCase("a pod without claims", pod(), is_kept=False),
    ProjectionCase(
        "a pod with our annotation alone", pod(annotations={REQUEST_ANNOTATION: ""}), is_kept=True
    ),
    ProjectionCase(
        "a pod that names a template itself",
        pod(resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}]),
        is_kept=True,
    ),
    ProjectionCase(
        "a pod that names a claim",
        pod(resourceClaims=[{"name": "a", "resourceClaimName": "c"}]),
        is_kept=False,
    ),
    ProjectionCase(
        "a pod that has succeeded", {**PLAIN, "status": {"phase": "Succeeded"}}, is_kept=False
    ),
    ProjectionCase(
        "a pod that has failed", {**PLAIN, "status": {"phase": "Failed"}}, is_kept=False
    ),
    ProjectionCase(
        "a pod that is going",
        with_metadata(PLAIN, deletionTimestamp="2026-11-20T00:00:00Z"),
        is_kept=False,
    ),
)


@pytest.mark.parametrize("row", KEPT_PODS, ids=lambda row: row.name)
def test_project_pod(row: ProjectionCase) -> None:
    assert row.is_kept == (project_pod(msgspec.json.encode(row.document), str) is not None)


def test_a_claim_is_comparable_with_its_template() -> None:
    projected_claim = project_claim(msgspec.json.encode(claim_document()))

    assert projected_claim == GeneratedClaim(
        uid="c-1", resource_version="7", digest=CLAIM.digest, owner="pod-1"
    )


def test_an_allocated_claim_is_not_kept() -> None:
    assert project_claim(msgspec.json.encode(claim_document(allocation={}))) is None


def test_a_claim_that_a_person_made_is_not_kept() -> None:
    document = claim_document()
    del document["metadata"]["annotations"]

    assert project_claim(msgspec.json.encode(document)) is None


# --- events ---------------------------------------------------------------------------------------


def test_an_event_is_about_the_pod() -> None:
    event = pod_event(RecordEvent(reason=Reason.REQUEST_MISMATCH, note="why"), POD, KEPT)

    assert ("DeviceRequestMismatch", "Translate", "why") == (event.reason, event.action, event.note)
    assert (f"Pod/{'/'.join(POD)}", KEPT.uid) == (str(event.regarding), event.regarding.uid)


# --- collection -----------------------------------------------------------------------------------


def named(name: str) -> tuple[str, str]:
    return (NAMESPACE, name)


MANAGED: Final = TemplateState(uid="u", digest="d", is_managed=True)
FOREIGN: Final = TemplateState(uid="u", digest="d", is_managed=False)
TERMINATING: Final = msgspec.structs.replace(MANAGED, is_terminating=True)


class UnusedCase(NamedTuple):
    name: str
    want: Mapping[str, UnusedTemplate]
    templates: Mapping[str, TemplateState]
    used: tuple[str, ...] = ()
    before: Mapping[str, UnusedTemplate] = {}


LATEST: Final = UnusedTemplate(uid="u", since_s=100.0)
LONG_AGO: Final = UnusedTemplate(uid="u", since_s=1.0)

LOOKS = (
    UnusedCase("a template that nobody uses is noted", {"a": LATEST}, {"a": MANAGED}),
    UnusedCase("one that a pod uses is not", {}, {"a": MANAGED}, used=("a",)),
    UnusedCase("one that we did not make is not", {}, {"a": FOREIGN}),
    UnusedCase("one that a finalizer keeps is not", {}, {"a": TERMINATING}, before={"a": LONG_AGO}),
    UnusedCase("the first look counts", {"a": LONG_AGO}, {"a": MANAGED}, before={"a": LONG_AGO}),
    UnusedCase(
        "a template made again begins anew",
        {"a": LATEST},
        {"a": MANAGED},
        before={"a": UnusedTemplate(uid="old", since_s=1.0)},
    ),
    UnusedCase("use in between forgets", {}, {"a": MANAGED}, used=("a",), before={"a": LONG_AGO}),
    UnusedCase("a template that is gone is forgotten", {}, {}, before={"a": LONG_AGO}),
)


@pytest.mark.parametrize("case", LOOKS, ids=lambda case: case.name)
def test_unused(case: UnusedCase) -> None:
    template_names = unused_templates(
        {named(name): template for name, template in case.templates.items()},
        {named(name) for name in case.used},
        {named(name): claim_template for name, claim_template in case.before.items()},
        100.0,
    )

    assert {
        named(name): claim_template for name, claim_template in case.want.items()
    } == template_names


POD_TEMPLATE: Final = {
    "spec": {
        "resourceClaims": [
            {"name": "a", "resourceClaimTemplateName": "t"},
            {"name": "b", "resourceClaimName": "c"},
        ]
    }
}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"template": POD_TEMPLATE}, {("n", "t")}),
        ({"jobTemplate": {"spec": {"template": POD_TEMPLATE}}}, {("n", "t")}),
        ({"template": {"spec": {}}}, set()),
        ({}, set()),
    ],
    ids=["a workload", "a cron job", "a workload without claims", "nothing"],
)
def test_named_templates(spec: Document, want: set[tuple[str, str]]) -> None:
    assert want == referenced_templates(
        msgspec.json.encode({"metadata": {"namespace": "n"}, "spec": spec})
    )


def test_claims_are_compared_in_full() -> None:
    assert CLAIM.digest == spec_digest(CLAIM.spec)
    assert CLAIM.digest != spec_digest({"spec": {}})
