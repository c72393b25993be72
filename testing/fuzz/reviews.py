"""Honest reviews to begin with: pods of the examples, pods of hypothesis, and their translations.

Everything follows from the seed, so that a run can be had again.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase, given, settings

from admission.pods import Decision
from answers.model.translation_snapshot import build_snapshot
from kube.api.core import ResourceQuota
from kube.api.meta import convert
from kube.manifests.reader import read_paths
from kube.names import DEFAULT_SCHEDULER_NAME
from quotas.resource_quotas.scopes import Quota
from rules.context.context import Context
from testing.builders import (
    EXAMPLE,
    HAMI,
    NAMESPACE,
    NVIDIA,
    admit,
    driver_slice,
    hami_gpu,
    mig_device,
    nvidia_gpu,
    profiles,
    translation_snapshot,
)
from testing.documents import Document
from testing.fuzz.contexts import knowing, small
from testing.generators import legacy_pods
from translation.cluster.snapshot import (
    ClaimUnawareComponent,
    QuotaPolicy,
    TranslationOptions,
    TranslationSnapshot,
)

EXAMPLES: Final = Path(__file__).parent.parent.parent / "examples"


class Place(NamedTuple):
    """A cluster and settings for answering reviews.

    Attributes:
        context: The context of the rules; None if they are too busy to look at an inventory.
    """

    snapshot: TranslationSnapshot
    options: TranslationOptions
    context: Context | None


class Origin(NamedTuple):
    """A pod that reviews are made of.

    Attributes:
        legacy: The pod as somebody wrote it.
        translated: The translation by the first place; None if that changes nothing.
    """

    legacy: Document
    translated: Document | None


def places() -> Sequence[Place]:
    """Return the places for reviews: devices of two drivers, the examples' cluster, and no devices."""
    snapshot = read_paths([str(EXAMPLES / "cluster" / "cluster.yaml")])
    example_cluster, _ = build_snapshot(profiles(), (), snapshot)
    devices = translation_snapshot(
        driver_slice(HAMI, hami_gpu("80Gi"), hami_gpu("40Gi")),
        driver_slice(NVIDIA, nvidia_gpu(shared=True, replicas=True), mig_device()),
        classes=frozenset({HAMI, NVIDIA}),
        claim_unaware_components={
            ClaimUnawareComponent.KUEUE: frozenset({HAMI}),
            ClaimUnawareComponent.KARPENTER: frozenset(),
        },
        quota_usage={NAMESPACE: {"devices": _nearly_used_quota()}},
    )
    with_quota = translation_snapshot(
        quotas={NAMESPACE: {"gpus": Quota(names=frozenset({"requests.nvidia.com/gpu"}))}}
    )
    lenient = TranslationOptions(
        default_gpu_owner="hami",
        quota=QuotaPolicy.WARN,
        adopt_schedulers={"volcano": DEFAULT_SCHEDULER_NAME},
    )
    return (
        Place(devices, TranslationOptions(), small()),
        Place(
            example_cluster, TranslationOptions(), knowing(object_.document for object_ in snapshot)
        ),
        Place(with_quota, lenient, None),
    )


def _nearly_used_quota() -> ResourceQuota:
    """Return a quota of devices and claims that leaves one of each."""
    lines = (
        f"{EXAMPLE}.deviceclass.resource.k8s.io/devices",
        "count/resourceclaims.resource.k8s.io",
        "requests.nvidia.com/gpu",
    )
    hard, used = dict.fromkeys(lines, "4"), dict.fromkeys(lines, "3")
    document = {"spec": {"hard": hard}, "status": {"hard": hard, "used": used}}
    return convert({"metadata": {"name": "devices"}, **document}, ResourceQuota)


def origins(seed: int, count: int) -> Sequence[Origin]:
    """Return the pods of the examples, and `count` that hypothesis makes."""
    place = places()[0]
    return [
        Origin(legacy, _translate(legacy, place))
        for legacy in (*_examples(), *_make_pods(seed, count))
    ]


def _translate(legacy: Document, place: Place) -> Document | None:
    after, answer = admit(legacy, place.snapshot, place.options)
    return after if answer.decision is Decision.TRANSLATED else None


def _examples() -> Iterator[Document]:
    for file in sorted(EXAMPLES.glob("**/*.yaml")):
        for read_path in read_paths([str(file)]):
            for template in _pods_in(read_path.document):
                yield {"apiVersion": "v1", "kind": "Pod", "metadata": {}} | copy.deepcopy(template)


def _pods_in(tree: Any) -> Iterator[Document]:
    """Yield the pod of a manifest, or the template of one, at any place."""
    if isinstance(tree, dict):
        if isinstance(tree.get("spec"), dict) and "containers" in tree["spec"]:
            yield tree
        else:
            for value in tree.values():
                yield from _pods_in(value)


def _make_pods(seed: int, count: int) -> Sequence[Document]:
    documents: list[Document] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(legacy_pods(hostile=True) | legacy_pods())
    def make(document: Document) -> None:
        documents.append(document)

    make()
    return documents


def review(document: Any, old: Any = None, **request: Any) -> Document:
    """Return an AdmissionReview as the API server sends it."""
    pods = {"group": "", "version": "v1", "resource": "pods"}
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    fields = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": pods,
        "requestKind": kind,
        "requestResource": pods,
        "name": "train",
        "namespace": NAMESPACE,
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        "object": document,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": fields | request,
    }


def copied(document: Any) -> Any:
    """Return a deep copy of plain JSON; quicker than `copy` is."""
    return msgspec.json.decode(msgspec.json.encode(document))


def applied_again(origin: Origin) -> Document:
    """Return the translated pod after `kubectl apply` of the legacy manifest."""
    assert origin.translated is not None
    document = copied(origin.translated)
    for field in ("initContainers", "containers"):
        pairs = zip(
            document["spec"].get(field) or (), origin.legacy["spec"].get(field) or (), strict=True
        )
        for container, legacy in pairs:
            for part, amounts in (legacy.get("resources") or {}).items():
                if part != "claims" and isinstance(amounts, Mapping):
                    own = container.setdefault("resources", {})
                    own[part] = {**amounts, **(own.get(part) or {})}
    return document  # type: ignore[no-any-return]
