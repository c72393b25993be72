"""Pods of tensor-fusion that name a WorkloadProfile: the pod's own words precede the profile."""

import copy
from typing import Final

import msgspec

from admission.pods import Decision
from kube.api.meta import convert
from kube.api.tensor_fusion import WorkloadProfile
from kube.manifests.dump import dump_yaml
from testing.builders import (
    HAMI,
    NAMESPACE,
    admit,
    container,
    devices_of,
    driver_slice,
    finding_texts,
    hami_gpu,
    pod,
    record_of,
    translation_of,
    translation_snapshot,
)
from testing.command import drawbridge
from testing.documents import Document, api_object
from translation.cluster.snapshot import TranslationSnapshot
from translation.reading.workload_profiles import summarize_profile
from translation.record.derive import derive
from translation.record.record import decode_record

AT_PROFILE: Final = "metadata.annotations[tensor-fusion.ai/workload-profile]"
SPEC: Final = {
    "gpuCount": 2,
    "gpuModel": "A100",
    "qos": "high",
    "resources": {
        "requests": {"vram": "8Gi", "tflops": "0", "compute": "25"},
        "limits": {"vram": "8Gi", "tflops": "0", "compute": "25"},
    },
}


def snapshot(**fields: object) -> TranslationSnapshot:
    """A cluster with GPUs, and with one profile in the namespace of the pods."""
    profile = convert({"metadata": {"name": "train"}, "spec": {**SPEC, **fields}}, WorkloadProfile)
    return translation_snapshot(
        driver_slice(HAMI, hami_gpu(), hami_gpu()),
        workload_profiles={(NAMESPACE, "train"): summarize_profile(profile)},
    )


def requesting(profile: str = "train", **annotations: str) -> Document:
    named = {
        f"tensor-fusion.ai/{name.replace('_', '-')}": text for name, text in annotations.items()
    }
    return pod(
        container("main"),
        annotations={"tensor-fusion.ai/workload-profile": profile, **named},
        labels={"tensor-fusion.ai/enabled": "true"},
    )


def test_the_fields_of_a_profile_become_a_claim() -> None:
    translated = translation_of(requesting(), snapshot())

    (claim,) = translated.claims
    (request,) = devices_of(claim)["requests"]
    assert (2, {"memory": "8Gi", "cores": "25"}) == (
        request["exactly"]["count"],
        request["exactly"]["capacity"]["requests"],
    )
    assert "A100" in str(request["exactly"]["selectors"]).upper()
    assert f"warning policyDropped {AT_PROFILE}" in finding_texts(translated.findings)


def test_what_the_pod_says_precedes() -> None:
    document = requesting(vram_request="4Gi", gpu_count="1")

    (claim,) = translation_of(document, snapshot()).claims

    (request,) = devices_of(claim)["requests"]
    assert (1, "4Gi") == (
        request["exactly"]["count"],
        request["exactly"]["capacity"]["requests"]["memory"],
    )


def test_a_profile_that_is_not_known_rejects_the_pod() -> None:
    for profile, cluster in (("other", snapshot()), ("train", translation_snapshot())):
        _, answer = admit(requesting(profile), cluster)

        assert answer.decision is Decision.REFUSED
        assert f"error cannotExpress {AT_PROFILE}" in finding_texts(answer.findings)


def test_a_mistake_in_a_profile_is_reported_where_the_pod_names_it() -> None:
    _, answer = admit(requesting(), snapshot(vendor="AMD"))

    (finding,) = (finding for finding in answer.findings if finding.is_error)
    assert AT_PROFILE == str(finding.path)
    assert finding.message.startswith("tensor-fusion.ai/vendor of WorkloadProfile train: ")


def test_an_affinity_of_a_profile_is_reported() -> None:
    translated = translation_of(requesting(), snapshot(nodeAffinity={"required": {}}))

    assert any("nodeAffinity" in finding.message for finding in translated.findings)


def test_the_controller_derives_the_claims_without_the_profile() -> None:
    cluster = snapshot()
    translated = translation_of(requesting(), cluster)

    derivation = derive(decode_record(translated.annotation), cluster.profiles)

    assert [claim.spec for claim in translated.claims] == [
        claim.spec for claim in derivation.claims
    ]


def test_a_second_round_of_admission_accepts_the_pod() -> None:
    once, _ = admit(requesting(), snapshot())

    again, answer = admit(copy.deepcopy(once), snapshot())

    assert (Decision.ACCEPTED, once) == (answer.decision, again)
    assert "tensor-fusion.ai/vram-request" in record_of(once)["annotations"]


def test_a_profile_beside_the_pod_in_a_file() -> None:
    profile = api_object("WorkloadProfile", "train", api_version="tensor-fusion.ai/v1", spec=SPEC)
    written = requesting()
    written["metadata"]["name"] = "a"

    result = drawbridge("translate", "-f", "-", "-o", "json", stdin=dump_yaml([profile, written]))

    assert result.exit_code == 0, result.output
    kinds = [entry["kind"] for entry in msgspec.json.decode(result.stdout)["objects"]]
    assert ["WorkloadProfile", "ResourceClaimTemplate", "Pod"] == kinds
