"""Laws of the validation of workloads: it is that of their pods, made earlier."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.pods import UNTOUCHED, Answer, Decision
from admission.workloads import Workload, validate_workload
from findings.field_path import FieldPath
from findings.finding import Code
from findings.transient_causes import TRANSIENT_CAUSES
from kube.api.meta import ObjectHead, convert
from kube.api.resource import ResourceSlice
from kube.api.workloads import VALIDATED_KINDS, pod_path, resolve_path
from testing.builders import NAMESPACE, admit, pod_view, translation_snapshot, workload
from testing.documents import Document
from testing.generators import koordinator_pods, legacy_pods, operators_options, published_slices
from translation.cluster.snapshot import ClaimUnawareComponent, TranslationOptions

pytestmark = pytest.mark.property

tame = legacy_pods() | koordinator_pods()
any_pod = tame | legacy_pods(hostile=True) | koordinator_pods(hostile=True)
slices = published_slices()
options = operators_options()
kinds = st.sampled_from(sorted(VALIDATED_KINDS))


def validated_answer(
    document: Document,
    published: list[ResourceSlice],
    chosen_options: TranslationOptions,
    old: Document | None = None,
) -> Answer:
    snapshot = translation_snapshot(
        *published, claim_unaware_components=dict.fromkeys(ClaimUnawareComponent, frozenset[str]())
    )
    found_workload, before = (
        viewed_workload(document) if document else None for document in (document, old)
    )
    assert found_workload is not None
    return validate_workload(
        found_workload, before, namespace=NAMESPACE, snapshot=snapshot, options=chosen_options
    )


def viewed_workload(document: Document) -> Workload:
    path = pod_path(document["apiVersion"], document["kind"]) or ()
    _, template = resolve_path(document, path)
    return Workload(
        metadata=convert(document, ObjectHead).metadata,
        path=path,
        template=template,
        pod=pod_view(template),
    )


@given(any_pod, slices, options, kinds)
def test_a_workload_is_denied_for_what_its_pods_are_denied_and_does_not_pass(
    document: Document,
    published: list[ResourceSlice],
    chosen_options: TranslationOptions,
    kind: tuple[str, str],
) -> None:
    _, of_pod = admit(document, translation_snapshot(*published), chosen_options)

    answer = validated_answer(workload(document, kind[1]), published, chosen_options)

    lasting = [
        finding
        for finding in of_pod.findings
        if finding.is_error and finding.code not in TRANSIENT_CAUSES
    ]
    assert answer.allowed == (not lasting)
    assert answer.operations == ()
    above = FieldPath.of(*(pod_path(*kind) or ()))
    assert all(finding.path.relative_to(above) is not None for finding in answer.findings)


@given(tame, slices, options, kinds)
def test_what_was_translated_passes(
    document: Document,
    published: list[ResourceSlice],
    chosen_options: TranslationOptions,
    kind: tuple[str, str],
) -> None:
    translated_document, of_pod = admit(document, translation_snapshot(*published), chosen_options)

    if of_pod.decision is Decision.TRANSLATED:
        assert validated_answer(
            workload(translated_document, kind[1]), published, chosen_options
        ).allowed


@given(any_pod, slices, options, kinds)
def test_what_does_not_change_its_pods_is_not_validated(
    document: Document,
    published: list[ResourceSlice],
    chosen_options: TranslationOptions,
    kind: tuple[str, str],
) -> None:
    old = workload(document, kind[1])
    again = msgspec.json.decode(msgspec.json.encode(old))
    again["metadata"]["labels"] = {"a": "b"}

    assert validated_answer(again, published, chosen_options, old) == UNTOUCHED


@given(any_pod, slices, slices, options, kinds)
def test_what_is_denied_is_denied_whatever_the_inventory(
    document: Document,
    published: list[ResourceSlice],
    later: list[ResourceSlice],
    chosen_options: TranslationOptions,
    kind: tuple[str, str],
) -> None:
    """But for requests that a driver cannot express: drivers that publish devices serve keys before others."""
    workload_ = workload(document, kind[1])
    answers = [
        validated_answer(workload_, slices_, chosen_options) for slices_ in (published, later)
    ]
    errors = {finding.code for answer in answers for finding in answer.findings if finding.is_error}
    drivers = [{slice_.spec.driver for slice_ in slices_} for slices_ in (published, later)]
    if drivers[0] != drivers[1] and errors == {Code.CANNOT_EXPRESS}:
        return

    assert answers[0].allowed == answers[1].allowed
