"""Translated pods and their generated claims, as the controller of templates reads them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from admission.pods import admit_created
from controllers.templates.actions import (
    POD_CLAIM_ANNOTATION,
    TranslatedPod,
    derive_claims,
    project_pod,
)
from kube.jsonpatch import apply
from testing.builders import NAMESPACE, gpus, pod, pod_view, profiles, translation_snapshot
from testing.documents import Document
from testing.signing import signed_document
from translation.cluster.snapshot import TranslationOptions


def translated(*containers: Document, claims: Mapping[str, str] | None = None) -> Document:
    """A pod as it is persisted, with the claims that were made of its templates."""
    document = pod(*containers)
    answer = admit_created(
        document,
        pod_view(document),
        namespace=NAMESPACE,
        snapshot=translation_snapshot(),
        options=TranslationOptions(),
    )
    document = signed_document(apply(document, answer.operations))
    document["metadata"] |= {"namespace": NAMESPACE, "uid": "pod-1"}
    document["status"] = {
        "phase": "Pending",
        "resourceClaimStatuses": [
            {"name": name, "resourceClaimName": claim} for name, claim in (claims or {}).items()
        ],
    }
    return document


def projected(document: Document) -> TranslatedPod:
    projected_pod = project_pod(msgspec.json.encode(document), str)
    assert projected_pod is not None
    return projected_pod


PLAIN: Final = translated(gpus(1), claims={"gpu": "train-gpu-x"})


KEPT: Final = projected(PLAIN)
(CLAIM,) = derive_claims(KEPT.annotation or "", profiles()).claims


def claim_document(**status: Any) -> Document:
    return {
        "metadata": {
            "name": "train-gpu-x",
            "namespace": NAMESPACE,
            "uid": "c-1",
            "resourceVersion": "7",
            "annotations": {POD_CLAIM_ANNOTATION: "gpu"},
            "ownerReferences": [{"kind": "Pod", "uid": "pod-1", "controller": True}],
        },
        "spec": CLAIM.spec["spec"],
        "status": status,
    }
