"""Laws of the translation that hold for every pod, however hostile."""

import copy
import re
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.pods import Decision
from kube.api.resource import (
    MAX_ALTERNATIVES,
    MAX_CONSTRAINTS,
    MAX_REQUESTS,
    MAX_RESULTS,
    MAX_SELECTOR_BYTES,
    ResourceSlice,
)
from kube.cel.compile import compile_selector
from kube.cel.library import Environment
from kube.jsonpatch import apply
from kube.names import REQUEST_ANNOTATION
from testing.builders import (
    admit,
    admit_update,
    derived_claims,
    devices_of,
    pod_view,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from testing.generators import koordinator_pods, legacy_pods, operators_options, published_slices
from translation.cluster.snapshot import TranslationOptions
from translation.compiling.claims import Claim
from translation.pipeline.patch import restore_pod
from translation.pipeline.translate import Translated
from translation.reading.arbiter import VOCABULARIES, find_device_keys, translating_vocabularies
from translation.record.record import decode_record

pytestmark = pytest.mark.property

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

any_legacy_pod = legacy_pods() | koordinator_pods()
any_pod = any_legacy_pod | legacy_pods(hostile=True) | koordinator_pods(hostile=True)
slices = published_slices()
options = operators_options()


def containers_of(document: Document) -> Iterator[Document]:
    for field in ("initContainers", "containers"):
        yield from document["spec"].get(field) or ()


def claims_of(
    document: Document, published: list[ResourceSlice], chosen_options: TranslationOptions
) -> tuple[Claim, ...]:
    outcome = translation_outcome(document, translation_snapshot(*published), chosen_options)
    return outcome.claims if isinstance(outcome, Translated) else ()


@given(any_pod, slices, options)
def test_admitting_never_raises_and_the_patch_applies(
    document: Document, published: list[ResourceSlice], chosen_options: TranslationOptions
) -> None:
    before = copy.deepcopy(document)

    after, answer = admit(document, translation_snapshot(*published), chosen_options)

    assert document == before
    assert answer.allowed is not any(finding.is_error for finding in answer.findings)
    if answer.decision is not Decision.TRANSLATED:
        assert after == before


@given(any_pod, slices, options)
def test_admitting_again_changes_nothing(
    document: Document, published: list[ResourceSlice], chosen_options: TranslationOptions
) -> None:
    snapshot = translation_snapshot(*published)
    once, answer = admit(document, snapshot, chosen_options)

    _, again = admit(once, snapshot, chosen_options)

    translated_now = answer.decision is Decision.TRANSLATED
    want = Decision.ACCEPTED if translated_now else answer.decision
    assert (want, ()) == (again.decision, again.operations)


@given(any_pod, slices, options)
def test_claims_derive_from_the_annotation_alone(
    document: Document, published: list[ResourceSlice], chosen_options: TranslationOptions
) -> None:
    snapshot = translation_snapshot(*published)
    outcome = translation_outcome(document, snapshot, chosen_options)
    if not isinstance(outcome, Translated):
        return

    request = decode_record(outcome.annotation)

    assert outcome.record == request
    assert outcome.claims == derived_claims(document, outcome.annotation, snapshot)
    assert outcome.annotation == request.encode()


@given(any_pod, slices, options)
def test_only_what_must_change_is_changed(
    document: Document, published: list[ResourceSlice], chosen_options: TranslationOptions
) -> None:
    after, answer = admit(document, translation_snapshot(*published), chosen_options)
    if answer.decision is not Decision.TRANSLATED:
        return

    for container in containers_of(after):
        resources = container.get("resources") or {}
        assert not translated_keys(document, resources.get("limits") or {})
        assert not translated_keys(document, resources.get("requests") or {})
    for was, now in zip(containers_of(document), containers_of(after), strict=True):
        variables, value = now.get("env", []), was.get("env", [])
        assert value == variables[: len(value)]
        assert {"CUDA_TASK_PRIORITY"} >= {variable["name"] for variable in variables[len(value) :]}
    assert without_devices(document) == without_devices(after)


def translated_keys(document: Document, names: Collection[str]) -> frozenset[str]:
    """The keys that are translated in this pod: in the host's network none of a NIC."""
    return frozenset(
        find_device_keys(names, translating_vocabularies(pod_view(document), VOCABULARIES))
    )


def without_devices(document: Document) -> Document:
    """The pod without anything that a translation may touch."""
    copy_ = copy.deepcopy(document)
    annotations = copy_["metadata"].pop("annotations", {})
    annotations.pop(REQUEST_ANNOTATION, None)
    copy_["metadata"]["annotations"] = annotations
    copy_["spec"]["resourceClaims"] = [
        entry for entry in copy_["spec"]["resourceClaims"] if "resourceClaimName" in entry
    ]
    copy_["spec"].pop("schedulerName", None)
    for container in containers_of(copy_):
        container.pop("env", None)
        resources = container.pop("resources", None) or {}
        container["amounts"] = {
            (part, key): amount
            for part in ("limits", "requests")
            for key, amount in (resources.get(part) or {}).items()
            if key not in translated_keys(document, resources.get(part) or {})
        }
        container["uses"] = [use for use in resources.get("claims", ()) if use["name"] == "nic"]
    return copy_


@given(any_legacy_pod, slices, options, st.randoms(use_true_random=False))
def test_order_and_strangers_do_not_matter(
    document: Document,
    published: list[ResourceSlice],
    chosen_options: TranslationOptions,
    random: Any,
) -> None:
    other = copy.deepcopy(document)
    strangers = {"example.com/a": "b", **document["metadata"].get("annotations", {})}
    items = list(strangers.items())
    random.shuffle(items)
    other["metadata"] = {"name": "other", "labels": {"a": "b"}, "annotations": dict(items)}
    for container in containers_of(other):
        for part, amounts in (container.get("resources") or {}).items():
            if part != "claims":
                container["resources"][part] = dict(reversed(amounts.items()))

    shuffled_slices = published[:]
    random.shuffle(shuffled_slices)

    assert claims_of(document, published, chosen_options) == claims_of(
        other, shuffled_slices, chosen_options
    )


@given(any_pod, slices, options)
def test_names_are_labels_and_contents_are_within_limits(
    document: Document, published: list[ResourceSlice], chosen_options: TranslationOptions
) -> None:
    for claim in claims_of(document, published, chosen_options):
        assert LABEL.fullmatch(claim.label)
        assert LABEL.fullmatch(claim.template)
        devices = devices_of(claim)
        requests = devices["requests"]
        assert 1 <= len(requests) <= MAX_REQUESTS
        assert len(devices.get("constraints", ())) <= MAX_CONSTRAINTS
        assert all(LABEL.fullmatch(request["name"]) for request in requests)
        assert sum(most_devices(request) for request in requests) <= MAX_RESULTS
        for request in requests:
            assert len(request.get("firstAvailable", ())) <= MAX_ALTERNATIVES
        for asked_document in alternatives_of(claim):
            every = asked_document["allocationMode"] == "All"
            assert ("count" not in asked_document) if every else asked_document["count"] >= 1
            assert len(asked_document.get("selectors", ())) <= 32
            assert LABEL.fullmatch(asked_document.get("name", "x"))


def alternatives_of(claim: Claim) -> Iterator[Document]:
    for request in devices_of(claim)["requests"]:
        yield from request.get("firstAvailable") or [request["exactly"]]


def most_devices(request: Document) -> int:
    value: list[Document] = request.get("firstAvailable") or [request["exactly"]]
    return max(int(document.get("count", 1)) for document in value)


@given(any_pod, slices, options)
def test_every_selector_compiles(
    document: Document, published: list[ResourceSlice], chosen_options: TranslationOptions
) -> None:
    for claim in claims_of(document, published, chosen_options):
        for asked_document in alternatives_of(claim):
            for selector in asked_document.get("selectors", ()):
                expression = selector["cel"]["expression"]
                assert len(expression.encode()) <= MAX_SELECTOR_BYTES
                compile_selector(expression, Environment.NEW)


@given(any_legacy_pod, slices, options)
def test_undoing_a_translation_and_doing_it_again_is_the_same(
    document: Document, published: list[ResourceSlice], chosen_options: TranslationOptions
) -> None:
    snapshot = translation_snapshot(*published)
    outcome = translation_outcome(document, snapshot, chosen_options)
    if not isinstance(outcome, Translated):
        return
    once, answer = admit(document, snapshot, chosen_options)
    if answer.decision is not Decision.TRANSLATED:
        return  # A share of a NIC of Koordinator's, in the host's network.
    recorded = {
        container.name: {key: str(amount) for key, amount in container.limits.items()}
        for container in outcome.record.containers
    }

    undone = apply(copy.deepcopy(once), restore_pod(once, outcome.claims, recorded))
    again, _ = admit(undone, snapshot, chosen_options)

    assert once == again


@given(any_legacy_pod, slices)
def test_applying_the_legacy_manifest_again_changes_nothing(
    document: Document, published: list[ResourceSlice]
) -> None:
    live, answer = admit(document, translation_snapshot(*published))
    if answer.decision is not Decision.TRANSLATED:
        return
    copy_ = copy.deepcopy(live)
    for container, legacy in zip(containers_of(copy_), containers_of(document), strict=True):
        for part, amounts in legacy.get("resources", {}).items():
            if part != "claims" and amounts:
                container["resources"][part] = amounts | container["resources"].get(part, {})

    after, answer = admit_update(copy_, live)

    assert answer.decision in (Decision.STRIPPED, Decision.UNTOUCHED)
    assert after == live
