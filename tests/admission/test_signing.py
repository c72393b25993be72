"""The webhook signs pods with an accepted translation, and no others."""

from datetime import timedelta
from typing import Any

import pytest

from admission.pods import Answer, Decision
from admission.signing import Signing, sign_answer, unsigned_answer
from kube.jsonpatch import apply
from kube.names import (
    REQUEST_ANNOTATION,
    SIGNATURE_ANNOTATION,
    TRANSLATE_LABEL,
)
from testing.builders import NAMESPACE, admit, gpus, pod, with_changes
from testing.documents import Document
from testing.signing import KEY, NOW, SIGNING
from translation.cluster.snapshot import KUBE_SYSTEM, exempt_namespaces
from translation.record.signature import SignatureStatus, content_of, verify


def answered(
    document: Document, signing: Signing = SIGNING, namespace: str = NAMESPACE
) -> tuple[Document, Answer]:
    """The pod as it is persisted, and the answer."""
    patched, answer = admit(document)
    answer = sign_answer(unsigned_answer(answer, patched, namespace), signing)
    return apply(with_changes(document), answer.operations), answer


def status(document: Document, namespace: str = NAMESPACE) -> SignatureStatus:
    annotations = document["metadata"].get("annotations") or {}
    content = content_of(document, namespace=namespace, record=annotations[REQUEST_ANNOTATION])
    return verify(annotations.get(SIGNATURE_ANNOTATION), content, SIGNING.keys, NOW)


def later(**delta: int) -> Signing:
    return Signing(keys=(KEY,), now=NOW + timedelta(**delta))


LEGACY = pod(gpus(1))
PRINTED, _ = admit(LEGACY)
SIGNED, _ = answered(LEGACY)


@pytest.mark.parametrize("document", [LEGACY, PRINTED], ids=["legacy", "printed"])
def test_an_accepted_translation_is_signed(document: Document) -> None:
    persisted, _ = answered(document)

    assert status(persisted) is SignatureStatus.VALID


def test_another_round_keeps_the_signature() -> None:
    again, answer = answered(SIGNED, later(minutes=1))

    assert (answer.operations, again) == ((), SIGNED)


def test_an_old_signature_is_replaced() -> None:
    again, answer = answered(SIGNED, later(days=7))

    assert answer.decision is Decision.ACCEPTED
    (operation,) = answer.operations
    assert operation.value != SIGNED["metadata"]["annotations"][SIGNATURE_ANNOTATION]
    assert again["spec"] == SIGNED["spec"]


def test_a_signature_of_another_namespace_is_replaced() -> None:
    elsewhere, _ = answered(SIGNED, namespace="team-b")

    assert status(SIGNED, "team-b") is SignatureStatus.MISMATCH
    assert status(elsewhere, "team-b") is SignatureStatus.VALID


def test_a_pod_that_would_not_be_translated_loses_a_signature() -> None:
    opted_out = with_changes(SIGNED, metadata__labels={TRANSLATE_LABEL: "false"})

    persisted, answer = answered(opted_out)

    assert answer.decision is Decision.UNTOUCHED
    assert status(persisted) is SignatureStatus.MISSING


@pytest.mark.parametrize("installed_in", ["drawbridge-system", "gpu-system"])
def test_nothing_is_signed_for_a_namespace_that_no_api_server_asks_about(installed_in: str) -> None:
    signing = Signing(keys=SIGNING.keys, now=NOW, exempt_namespaces=exempt_namespaces(installed_in))
    signed = {
        namespace
        for namespace in (KUBE_SYSTEM, "drawbridge-system", "gpu-system")
        if status(answered(LEGACY, signing, namespace)[0], namespace) is SignatureStatus.VALID
    }

    # Elsewhere, `drawbridge-system` is a namespace like any other.
    assert signed == {"drawbridge-system", "gpu-system"} - {installed_in}


def test_a_pod_without_a_translation_gets_no_signature() -> None:
    _, answer = answered(pod())

    assert answer.operations == ()


def test_a_rejected_pod_gets_no_signature() -> None:
    _, answer = answered(pod(gpus("500m")))

    assert (answer.decision, answer.operations) == (Decision.REFUSED, ())


def test_without_keys_nothing_is_signed() -> None:
    persisted, _ = answered(LEGACY, Signing(keys=(), now=NOW))

    assert status(persisted) is SignatureStatus.MISSING


@pytest.mark.parametrize("annotations", [None, {}, {"a": "b"}])
def test_a_signature_fits_beside_other_annotations(annotations: Any) -> None:
    document = with_changes(LEGACY, metadata__annotations=annotations or {})

    persisted, _ = answered(document)

    assert status(persisted) is SignatureStatus.VALID
    assert (annotations or {}).items() <= persisted["metadata"]["annotations"].items()
