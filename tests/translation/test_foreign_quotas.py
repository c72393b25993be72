"""Quotas of other schedulers that limit a namespace: told to each pod that they stop counting."""

from typing import Any, NamedTuple

import msgspec
import pytest

from kube.api.foreign_quotas import ForeignQuotaObject
from kube.api.meta import convert
from testing.builders import (
    NAMESPACE,
    finding_texts,
    gpus,
    pod,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.reading.foreign_quotas import by_namespace, summarize_foreign_quota

GPU = "nvidia.com/gpu"
KOORDINATOR = "scheduling.sigs.k8s.io/v1alpha1"
PLUGINS = "scheduling.x-k8s.io/v1alpha1"
TENSOR_FUSION = "tensor-fusion.ai/v1"
AT_GPU = f"spec.containers[0].resources.limits[{GPU}]"
TOLD = (f"warning claimsNotSeen {AT_GPU}",)


def quota(
    api_version: str, kind: str, spec: Any, place: str = NAMESPACE, **metadata: Any
) -> TranslationSnapshot:
    document = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "gpus", "namespace": place, **metadata},
        "spec": spec,
    }
    summary = summarize_foreign_quota(convert(document, ForeignQuotaObject))
    return translation_snapshot(
        foreign_quotas=by_namespace([] if summary is None else [(place, summary)])
    )


def elastic(spec: Any, place: str = NAMESPACE, **metadata: Any) -> TranslationSnapshot:
    return quota(KOORDINATOR, "ElasticQuota", spec, place, **metadata)


def tensor_fusion_pod() -> Document:
    document = pod({}, schedulerName="")
    document["metadata"]["labels"] = {"tensor-fusion.ai/enabled": "true"}
    document["metadata"]["annotations"] = {
        "tensor-fusion.ai/vram-request": "8Gi",
        "tensor-fusion.ai/tflops-request": "10",
    }
    return document


class Case(NamedTuple):
    name: str
    snapshot: TranslationSnapshot
    want: tuple[str, ...] = TOLD
    document: Document = pod(gpus(1))


WIDE = {"quota.scheduling.koordinator.sh/namespaces": f'["other", "{NAMESPACE}"]'}
CASES = (
    Case("Koordinator's quota", elastic({"max": {GPU: "4"}})),
    Case("a minimum alone", elastic({"min": {GPU: "4"}})),
    Case("that of scheduler-plugins", quota(PLUGINS, "ElasticQuota", {"max": {GPU: "4"}})),
    Case("one of another namespace", elastic({"max": {GPU: "4"}}, "other"), ()),
    Case("one that names the namespace", elastic({"max": {GPU: "4"}}, "up", annotations=WIDE)),
    Case(
        "names that cannot be read",
        elastic(
            {"max": {GPU: "4"}},
            "up",
            annotations={"quota.scheduling.koordinator.sh/namespaces": "{"},
        ),
        (),
    ),
    Case(
        "a parent",
        elastic(
            {"max": {GPU: "4"}}, labels={"quota.scheduling.koordinator.sh/is-parent": "true"}
        ),
        (),
    ),
    Case("no device", elastic({"max": {"cpu": "4", "example.com/license": "1"}}), ()),
    Case("no spec", elastic(None), ()),
    Case("another vendor's devices", elastic({"max": {"amd.com/gpu": "4"}}), ()),
    Case(
        "a share",
        elastic({"max": {"nvidia.com/gpumem": "9000"}}),
        ("warning claimsNotSeen spec.containers[0].resources.limits[nvidia.com/gpumem]",),
        pod(gpus(1, mem=10)),
    ),
    Case(
        "tensor-fusion's quota, for a pod of its own",
        quota(
            TENSOR_FUSION, "GPUResourceQuota", {"total": {"requests": {"vram": "20Gi"}}}
        ),
        ("warning claimsNotSeen metadata.annotations[tensor-fusion.ai/vram-request]",),
        tensor_fusion_pod(),
    ),
    Case(
        "tensor-fusion's quota, for a pod that it never counted",
        quota(
            TENSOR_FUSION, "GPUResourceQuota", {"total": {"requests": {"vram": "20Gi"}}}
        ),
        (),
    ),
    Case(
        "a scheduler that keeps the pod", elastic({"max": {GPU: "4"}}),
        ("warning foreignScheduler spec.schedulerName",), pod(gpus(1), schedulerName="volcano"),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_pod_that_leaves_such_a_quota_is_warned(case: Case) -> None:
    outcome = translation_outcome(case.document, case.snapshot)

    told = tuple(
        text
        for text in finding_texts(outcome.findings)
        if "claimsNotSeen" in text or "foreignScheduler" in text
    )
    assert case.want == told


def test_a_pod_that_names_the_bridge_leaves_the_quota() -> None:
    """The bridge has another name than usual here."""
    cluster = msgspec.structs.replace(
        elastic({"max": {GPU: "4"}}), bridge_scheduler="gpu-scheduler"
    )

    (finding,) = translation_outcome(pod(gpus(1), schedulerName="gpu-scheduler"), cluster).findings

    assert finding.code.value == "claimsNotSeen"


def test_the_warning_names_quota_keys_and_owner() -> None:
    (finding,) = translation_outcome(pod(gpus(1)), elastic({"max": {GPU: "4"}})).findings

    assert finding.message == (
        f"ElasticQuota gpus limits {GPU} in this namespace, and Koordinator does not count the claims of the pod"
    )


def test_a_scheduler_that_allocates_claims_counts_as_before() -> None:
    options = TranslationOptions(adopt_schedulers={"koord-scheduler": "koord-scheduler"})
    document = pod(gpus(1), schedulerName="koord-scheduler")

    outcome = translation_outcome(document, elastic({"max": {GPU: "4"}}), options)

    assert "claimsNotSeen" not in " ".join(finding_texts(outcome.findings))
